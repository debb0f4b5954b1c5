// Glue: read the chosen trace, show it, keep the address in step.

import { DARK, LIGHT, type Theme } from "./paint/palette";
import { type RacePlace, raceFromHash, withRace } from "./race/address";
import { type RaceSection, showRace } from "./race/page";
import { showResults } from "./results/page";
import { hashFor, type Place, placeFromHash } from "./trace/address";
import { TraceError } from "./trace/error";
import { type Summary, summarized } from "./trace/summary";
import type { Trace } from "./trace/trace";
import { caveats, headline, subject, unit } from "./trace/words";
import { showArea } from "./view/area";
import { BesideError, listBeside, RECORDED, recordedBeside, traceBeside } from "./view/beside";
import { Chart } from "./view/chart";
import { Chooser, type Entry } from "./view/chooser";
import { element, node } from "./view/dom";
import { showLegend } from "./view/legend";
import { readTrace } from "./view/reader";
import { copyLink, downloadPicture, openInPerfetto } from "./view/share";
import { setColours, showSplit } from "./view/split";
import { showTables } from "./view/tables";
import { Toolbar } from "./view/toolbar";

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const theme = (): Theme => (dark.matches ? DARK : LIGHT);
let shown: { entry: Entry; trace: Trace; summary: Summary } | null = null;
/** Number of choices so far: a trace that arrives after a newer choice is dropped. */
let choices = 0;
/** Whether a person moved the view: only then does the address name more than the trace. */
let hasMoved = false;
let race: RaceSection | null = null;
/** When the address is next brought up to date; 0: not planned. */
let addressTimer = 0;
const ADDRESS_DELAY_MS = 300;

const chart = new Chart(
  {
    minimap: element("minimap", HTMLCanvasElement),
    axis: element("axis", HTMLCanvasElement),
    rows: element("rows", HTMLCanvasElement),
    stage: element("stage"),
    details: element("details"),
    sticky: element("sticky"),
  },
  theme(),
  {
    moved() {
      hasMoved = true;
      toolbar.follow();
      window.clearTimeout(addressTimer);
      addressTimer = window.setTimeout(keepPlace, ADDRESS_DELAY_MS);
    },
    area(area) {
      showArea(element("area"), shown?.trace ?? null, area, () => chart.setArea(null));
    },
  },
);
const toolbar = new Toolbar(chart, { trace: () => shown?.trace ?? null, act });
const chooser = new Chooser(
  {
    choice: element("choice"),
    versions: element("versions"),
    all: element("all-traces"),
    select: element("trace", HTMLSelectElement),
  },
  (entry) => void choose(entry),
);

/** Reads a trace and shows it; if the trace is refused, the previous one stays. */
async function choose(entry: Entry, place: Place | null = null): Promise<void> {
  const choice = ++choices;
  chooser.mark(entry);
  element("loading").textContent = `Reading ${entry.title}…`;
  try {
    const trace = await entry.read();
    if (choice !== choices) return;
    chooser.add(entry);
    chooser.mark(entry);
    show(entry, trace, place);
  } catch (error) {
    if (choice !== choices) return;
    chooser.mark(shown?.entry ?? null);
    complain(error);
  } finally {
    if (choice === choices) element("loading").textContent = "";
  }
}

function show(entry: Entry, trace: Trace, place: Place | null): void {
  const summary = summarized(trace);
  const { meta, path } = trace;
  keepFile(entry);
  shown = { entry, trace, summary };
  document.title = `${entry.title} · monolith X-ray`;
  element("message").hidden = true;
  element("headline").textContent = headline(meta, path);
  element("subject").textContent = `${subject(meta)}.`;
  showSplit(element("split"), meta, path);
  element("caveats").replaceChildren(
    ...caveats(meta, summary).map((sentence) => node("li", sentence)),
  );
  for (const word of document.querySelectorAll(".unit")) word.textContent = unit(meta);
  for (const section of document.querySelectorAll<HTMLElement>(".of-trace")) {
    section.hidden = false;
  }
  legend();
  chart.show(trace, place);
  if (hasMoved) keepPlace();
  toolbar.show(trace);
  showTables(element("tables"), meta, summary);
}

function legend(): void {
  if (!shown) return;
  const { trace, summary } = shown;
  const find = (query: string) => toolbar.find(query);
  showLegend(element("legend"), trace.meta, summary, theme(), find, trace.epilogue !== null);
}

/** Puts the file shown into the address. The first one goes there only to replace another. */
function keepFile({ file }: Entry): void {
  const named = placeFromHash(window.location.hash).file;
  if (named === file || (named === null && !shown)) return;
  replaceHash(file === null ? "" : hashFor({ ...NOWHERE, file }));
}

const NOWHERE: Place = {
  ...{ file: null, layer: null, beginNs: null, endNs: null, block: null, atNs: null },
};

/** Puts what is in view into the address, unless it is a file that no address can name. */
function keepPlace(): void {
  const place = chart.place();
  const file = shown?.entry.file;
  if (place && file) replaceHash(hashFor({ file, ...place }));
}

/** Puts the trace's part into the address, or the race's; the other part stays. */
function replaceHash(trace: string | null, race = raceFromHash(window.location.hash)): void {
  const hash = withRace(trace ?? window.location.hash, race);
  const { pathname, search } = window.location;
  history.replaceState(null, "", hash === "" ? pathname + search : hash);
}

/** Says why a trace was refused. Any other error is a bug of the page and is thrown again. */
function complain(error: unknown): void {
  if (!(error instanceof TraceError)) throw error;
  const message = element("message");
  message.replaceChildren(...withCode(`${error.message}.`));
  if (error instanceof BesideError) {
    message.append(` ${error.remedy} `, node("code", error.command), ".");
  }
  message.hidden = false;
  message.scrollIntoView({ block: "nearest" });
  if (!shown) element("headline").textContent = "There is no trace to show yet.";
}

/** Text with the parts between backquotes as code. */
function withCode(text: string): (Node | string)[] {
  return text.split("`").map((part, index) => (index % 2 === 1 ? node("code", part) : part));
}

/** Shows a file from the user's disk and adds it to the list of traces. */
async function open(file: File): Promise<void> {
  const read = async () => {
    const bytes = await file.arrayBuffer().catch(() => null);
    if (!bytes) throw new TraceError(`${file.name} cannot be read any more: open it again`);
    try {
      return await readTrace(new Uint8Array(bytes));
    } catch (error) {
      if (!(error instanceof TraceError)) throw error;
      throw new TraceError(`${file.name} was refused: ${error.message}`);
    }
  };
  await choose({ title: `${file.name}, opened here`, file: null, of: null, read });
}

/** Shows the trace that the address names, or else the first. */
async function begin(): Promise<void> {
  const place = placeFromHash(window.location.hash);
  const list = await listBeside();
  if (!list) {
    await choose({ ...RECORDED, read: recordedBeside }, place);
    return;
  }
  const entries = list.map((listed) => ({ ...listed, read: () => traceBeside(listed.file) }));
  chooser.add(...entries);
  const [first] = entries;
  const entry = place.file === null ? first : chooser.named(place.file);
  if (entry) await choose(entry, place);
  else if (first) {
    await choose(first);
    complain(notHere());
  }
}

function followAddress(): void {
  race?.follow();
  const place = placeFromHash(window.location.hash);
  if (place.file === null) return;
  const entry = chooser.named(place.file);
  if (place.file === shown?.entry.file) chart.goToPlace(place);
  else if (entry) void choose(entry, place);
  else complain(notHere());
}

function notHere(): TraceError {
  return new TraceError("The trace that the address names is not available here");
}

/** Does what the buttons beside the chart ask for. */
function act(action: string): void {
  if (!shown) return;
  const { entry, trace } = shown;
  if (action === "link") void link();
  else if (action === "picture") downloadPicture(chart.canvases(), trace, theme());
  else if (action === "perfetto") void perfetto(trace, entry.title);
}

async function link(): Promise<void> {
  keepPlace();
  const copied = await copyLink(window.location.href);
  say(copied ? "Link copied." : "The browser did not allow copying: the address bar has the link.");
}

async function perfetto(trace: Trace, title: string): Promise<void> {
  say("Opening ui.perfetto.dev. The trace goes there from window to window, inside this browser.");
  const answered = await openInPerfetto(trace, title);
  say(answered ? "" : "Perfetto did not answer: was the window closed, or blocked?");
}

function say(words: string): void {
  element("said").textContent = words;
}

function listenToFiles(): void {
  const chooser = element("file", HTMLInputElement);
  chooser.addEventListener("change", () => {
    const file = chooser.files?.[0];
    // Cleared, so that the same file can be chosen again after a new recording.
    chooser.value = "";
    if (file) void open(file);
  });
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    document.body.classList.add("dropping");
  });
  document.addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) document.body.classList.remove("dropping");
  });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dropping");
    const file = event.dataTransfer?.files[0];
    if (file) void open(file);
  });
}

dark.addEventListener("change", () => {
  setColours(theme());
  chart.setTheme(theme());
  legend();
});
setColours(theme());
document.body.classList.toggle("embed", new URLSearchParams(window.location.search).has("embed"));
listenToFiles();
window.addEventListener("hashchange", followAddress);
await begin().catch(complain);
race = await showRace((place: RacePlace) => replaceHash(null, place));
await showResults((query) => {
  toolbar.find(query);
  element("chart").scrollIntoView();
});
