// Imports traces with speedscope's own importer (npm: speedscope), and compares the result with
// the traces.
//
//     node tools/check_speedscope.mjs PACKAGE FILE...
//
// PACKAGE is the folder of the npm package. FILE.expected, beside each FILE, has the process's name
// and, for each track of spans, each frame's own nanoseconds, without those of its children.
//
// The package is a web page, not a library: its script runs up to the point where it would draw,
// with stubs for the parts of the document that it uses before.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import vm from "node:vm";

function fail(...what) {
  throw new Error(what.join(" "));
}

function importerOf(folder) {
  const release = join(folder, "dist/release");
  const script = readdirSync(release).find((name) => /^speedscope-\w+\.js$/.test(name));
  const code = readFileSync(join(release, script), "utf8");
  const library = code.match(/\(await (\w+)\)\.importProfileGroupFromBase64/)?.[1];
  const drawing = code.lastIndexOf("console.log(`speedscope v");
  if (library === undefined || drawing < 0) fail(script, "is not a version that this tool knows");
  const warnings = [];
  const page = pageOf((text) => warnings.push(text));
  vm.runInContext(`${code.slice(0, drawing)}globalThis.library=${library};})();`, page);
  return { library: page.library, warnings };
}

function pageOf(warn) {
  const element = () => ({ style: {}, appendChild() {}, setAttribute() {} });
  const page = {
    console: { log() {}, time() {}, timeEnd() {}, assert() {}, error: warn, warn },
    setTimeout,
    clearTimeout,
    TextDecoder,
    TextEncoder,
    atob,
    URL,
    performance,
    location: { hash: "", protocol: "http:" },
    navigator: { userAgent: "" },
    localStorage: { getItem: () => null },
    matchMedia: () => ({ matches: false, addListener() {}, addEventListener() {} }),
    addEventListener() {},
    document: {
      createElement: element,
      head: element(),
      body: element(),
      currentScript: {},
      addEventListener() {},
      getElementsByTagName: () => [element()],
    },
  };
  page.window = page;
  page.self = page;
  return vm.createContext(page);
}

// Nanoseconds of each frame name, without those of its children. speedscope appends a frame's
// arguments to its name.
function times(profile, nsPerUnit) {
  const open = [];
  const totals = {};
  let lastNs = 0;
  const pass = (value) => {
    const ns = value * nsPerUnit;
    if (ns < lastNs - 0.01) fail(profile.getName(), "goes back from", lastNs, "to", ns);
    const name = open.at(-1);
    if (name !== undefined) totals[name] = (totals[name] ?? 0) + ns - lastNs;
    lastNs = ns;
  };
  const enter = (node, value) => {
    pass(value);
    open.push(node.frame.name.split(" {")[0]);
    if (open.length > 2) fail(profile.getName(), "has", open.join(" > "), "at", lastNs);
  };
  profile.forEachCall(enter, (_, value) => {
    pass(value);
    open.pop();
  });
  if (open.length > 0) fail(profile.getName(), "leaves", open.join(" > "), "open");
  return totals;
}

async function check(importer, path) {
  const expected = JSON.parse(readFileSync(`${path}.expected`, "utf8"));
  const library = await importer.library;
  importer.warnings.length = 0;
  const text = readFileSync(path).toString("base64");
  const group = await library.importProfileGroupFromBase64(path, text);
  if (group === null) fail("speedscope does not recognize the file");
  // If two neighbours have the same name and arguments, the first one's end has no arguments.
  // speedscope warns about that and imports it correctly.
  const lost = importer.warnings.filter((text) => !/ Ending .* instead\.$/s.test(text));
  if (lost.length > 0) fail("speedscope warns:", lost[0]);
  const nsPerUnit = { nanoseconds: 1, microseconds: 1000 };
  // A Chrome trace also has tracks of the weight stream; they only have to nest.
  const found = new Map();
  for (const profile of group.profiles) {
    const chrome = profile.getName().match(/^(.*) \(pid 1\), (.*) \(tid \d+\)$/);
    if (chrome !== null && chrome[1] !== expected.process) fail("the process is", chrome[1]);
    found.set(chrome?.[2] ?? profile.getName(), profile);
    times(profile, nsPerUnit[profile.getWeightUnit()]);
  }
  let frames = 0;
  for (const { track: name, ns } of expected.tracks) {
    const profile = found.get(name) ?? fail("no profile is named", name);
    const totals = times(profile, nsPerUnit[profile.getWeightUnit()]);
    const names = new Set([...Object.keys(ns), ...Object.keys(totals)]);
    for (const frame of names) {
      const off = Math.abs((totals[frame] ?? 0) - (ns[frame] ?? 0));
      // Microseconds in floating point are exact to a thousandth of a nanosecond.
      if (!(off < 0.5)) fail(`${name}, ${frame}: ${totals[frame]} ns, not ${ns[frame]}`);
    }
    frames += names.size;
  }
  return `${found.size} profiles, ${frames} frames add up`;
}

const [folder, ...paths] = process.argv.slice(2);
if (paths.length === 0) fail("usage: node tools/check_speedscope.mjs PACKAGE FILE...");
const importer = importerOf(folder);
for (const path of paths) {
  try {
    console.log(`${path}: ${await check(importer, path)}`);
  } catch (error) {
    console.error(`${path}: ${error.message}`);
    process.exitCode = 1;
  }
}
