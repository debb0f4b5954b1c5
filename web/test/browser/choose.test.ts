// Choosing among the traces beside the page, in Chromium: by hand, by address, and when one is
// missing or damaged.

import { gzipSync } from "node:zlib";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { CPU, gzipped, traceFile } from "../fixture";
import { gpuTraceFile } from "../gpu";
import { launch, painted, type Served, serve, violations, watch } from "./serve";

const CPU_FILE = gzipped(traceFile(CPU));
const GPU_FILE = gzipped(gpuTraceFile());
const GPU_NAME = "r3-xray-bf16-flag-16.json.gz";
const GPU_TITLE = "bf16-flag, position 16, NVIDIA H200 of a machine with a long name";
const OLD_NAME = "r1-xray-old.json.gz";
const TRACES = [
  { file: "trace.json.gz", title: "this machine", of: null },
  { file: GPU_NAME, title: GPU_TITLE, of: null },
  { file: "r3-xray-gone.json.gz", title: "gone", of: null },
  { file: OLD_NAME, title: "old", of: null },
];
const listOf = (traces: unknown[]) => JSON.stringify({ schema: "monolith-traces/2", traces });

let served: Served;
let browser: Browser;
let page: Page;
let faults: string[] = [];
/** The list and the traces that the page asked for. */
let asked: string[] = [];

beforeAll(async () => {
  served = await serve();
  browser = await launch();
  await served.setFile(GPU_NAME, GPU_FILE);
  await served.setFile(OLD_NAME, gzipSync('{"schema":"monolith-trace/1"}'));
});

afterAll(async () => {
  await browser?.close();
  await served?.close();
});

beforeEach(async () => {
  [faults, asked] = [[], []];
  await served.setTrace(CPU_FILE);
  await served.setFile("traces.json", listOf(TRACES));
});

afterEach(async () => {
  await page?.context().close();
  expect(faults).toEqual([]);
});

async function open(hash = "", options: BrowserContextOptions = {}): Promise<void> {
  const context = await browser.newContext({ viewport: { width: 1200, height: 800 }, ...options });
  page = await context.newPage();
  watch(page, served.url, faults);
  page.on("request", (request) => {
    const [, file] = request.url().split("/data/");
    // The tables are another matter.
    if (file !== undefined && !/^(results|budget|race)\.json$/.test(file)) asked.push(file);
  });
  await page.goto(served.url + hash);
  await page.locator("#chart:not([hidden]), #message:not([hidden])").first().waitFor();
  await settled();
}

/** Waits until the page reads no trace. */
async function settled(): Promise<void> {
  await expect.poll(() => page.locator("#loading").textContent()).toBe("");
  await painted(page);
}

const headline = () => page.locator("#subject").textContent();
const message = () => page.locator("#message").textContent();
const complains = () => page.locator("#message").isVisible();
const select = () => page.getByLabel("Trace", { exact: true });
const chosen = () =>
  select().evaluate((select: HTMLSelectElement) => select.selectedOptions[0]?.text ?? null);
const hash = () => page.evaluate(() => window.location.hash);

async function choose(title: string): Promise<void> {
  await select().selectOption(title);
  await settled();
}

/** Expects only the browser's own report of a missing file. */
const expectMissing = () => expect(faults.splice(0).join()).toMatch(/^[^,]*404[^,]*$/);

test("the first is shown, and only what is chosen is fetched", async () => {
  await open();
  expect(await headline()).toContain("cpu engine");
  expect(await chosen()).toBe("this machine");
  expect(await hash()).toBe("");
  expect(asked).toEqual(["traces.json", "trace.json.gz"]);
  await choose(GPU_TITLE);
  expect(await headline()).toContain("cuda engine");
  expect(await page.title()).toBe(`${GPU_TITLE} · monolith X-ray`);
  expect(await hash()).toBe(`#v=${GPU_NAME}`);
  expect(asked.slice(2)).toEqual([GPU_NAME]);
  expect(await page.locator("#streams").isVisible()).toBe(true);
  await choose("this machine");
  expect(await headline()).toContain("cpu engine");
  expect(await hash()).toBe("#v=trace.json.gz");
  expect(await complains()).toBe(false);
});

test("by keyboard: letters choose, and do not move the chart", async () => {
  await open();
  await select().focus();
  await page.keyboard.press("b");
  await settled();
  expect(await chosen()).toBe(GPU_TITLE);
  expect(await headline()).toContain("cuda engine");
  const picture = () =>
    page.evaluate(() => document.querySelector<HTMLCanvasElement>("#rows")?.toDataURL());
  const before = await picture();
  await page.keyboard.press("w");
  await painted(page);
  expect(await picture()).toBe(before);
});

test("the address chooses: at first, after a reload, and while the page is open", async () => {
  await open(`#trace=${GPU_NAME}`);
  expect(await headline()).toContain("cuda engine");
  expect(await chosen()).toBe(GPU_TITLE);
  expect(asked).toEqual(["traces.json", GPU_NAME]);
  await page.reload();
  await expect.poll(headline).toContain("cuda engine");
  await page.evaluate(() => {
    window.location.hash = "#trace=trace.json.gz";
  });
  await expect.poll(headline).toContain("cpu engine");
  expect(await chosen()).toBe("this machine");
});

test("an address of none that is here: the first is shown, and a sentence", async () => {
  await open("#trace=..%2Fsecret.json.gz");
  await expect.poll(message).toContain("that the address names is not available here");
  expect(await headline()).toContain("cpu engine");
  expect(await hash()).toBe("#v=trace.json.gz");
  expect(asked).toEqual(["traces.json", "trace.json.gz"]);
});

test("one that is missing, one that is old: said, and what is shown stays", async () => {
  await open();
  await choose("gone");
  expect(await message()).toBe(
    "data/r3-xray-gone.json.gz is listed but missing (status 404). " +
      "Create it again with cargo xtask page-data.",
  );
  expectMissing();
  expect(await headline()).toContain("cpu engine");
  expect(await chosen()).toBe("this machine");
  await choose("old");
  expect(await message()).toContain(`data/${OLD_NAME} was refused: schema is "monolith-trace/1"`);
  expect(await message()).toContain("record the token again with this version");
  expect(await hash()).toBe("");
  await choose(GPU_TITLE);
  expect(await complains()).toBe(false);
});

test("the address names one that is missing: any can be chosen, and the address follows", async () => {
  await open("#trace=r3-xray-gone.json.gz");
  expect(await message()).toContain("is listed but missing");
  expectMissing();
  expect(await page.locator("#chart").isVisible()).toBe(false);
  expect(await chosen()).toBe(null);
  expect(await violations(page)).toEqual([]);
  await choose("this machine");
  expect(await headline()).toContain("cpu engine");
  expect(await hash()).toBe("#v=trace.json.gz");
});

test("a server that is gone is said to be", async () => {
  await open();
  await page.route("**/data/*", (route) => route.abort());
  await choose(GPU_TITLE);
  expect(await message()).toContain(`data/${GPU_NAME} did not load: the server is gone`);
  expect(faults.splice(0).join()).toContain("ERR_FAILED");
});

test("the last choice wins, however late another arrives", async () => {
  await open();
  let release = () => {};
  const held = new Promise<void>((done) => {
    release = done;
  });
  await page.route(`**/${GPU_NAME}`, async (route) => {
    await held;
    await route.continue();
  });
  await select().selectOption(GPU_TITLE);
  expect(await page.getByText(`Reading ${GPU_TITLE}…`).isVisible()).toBe(true);
  await choose("this machine");
  const arrived = page.waitForResponse((response) => response.url().endsWith(GPU_NAME));
  release();
  await (await arrived).finished();
  await painted(page);
  expect(await headline()).toContain("cpu engine");
  expect(await chosen()).toBe("this machine");
});

test("a file of one's own is one more to choose, and no address", async () => {
  await open(`#trace=${GPU_NAME}`);
  const drop = (bytes: Uint8Array, name: string) =>
    page.locator("#file").setInputFiles({ name, mimeType: "", buffer: Buffer.from(bytes) });
  await drop(CPU_FILE, "mine.json.gz");
  await expect.poll(headline).toContain("cpu engine");
  expect(await chosen()).toBe("mine.json.gz, opened here");
  expect(await hash()).toBe("");
  await choose(GPU_TITLE);
  expect(await headline()).toContain("cuda engine");
  await choose("mine.json.gz, opened here");
  expect(await headline()).toContain("cpu engine");
  // A file with the same name replaces the first; a refused file changes nothing.
  await drop(GPU_FILE, "mine.json.gz");
  await expect.poll(headline).toContain("cuda engine");
  await drop(Buffer.from("PNG"), "photo.png");
  await expect.poll(complains).toBe(true);
  expect(await chosen()).toBe("mine.json.gz, opened here");
  expect(await select().locator("option").count()).toBe(TRACES.length + 1);
});

test.each([
  ["cut short", listOf(TRACES).slice(0, 60), "not a list's JSON"],
  ["of another version", '{"schema":"monolith-traces/9"}', 'schema is "monolith-traces/9"'],
  [
    "leading elsewhere",
    listOf([{ file: "../index.html", title: "a", of: null }]),
    "traces[0].file is not",
  ],
])("a list %s is refused in words", async (_, list, words) => {
  await served.setFile("traces.json", list);
  await open();
  expect(await message()).toContain(`data/traces.json was refused: ${words}`);
  expect(await message()).toContain("Create it again with cargo xtask page-data.");
  expect(asked).toEqual(["traces.json"]);
});

test("without a list, or with one trace, there is nothing to choose", async () => {
  await served.setFile("traces.json", listOf(TRACES.slice(0, 1)));
  await open();
  expect(await select().isVisible()).toBe(false);
  await page.context().close();
  await served.setFile("traces.json", null);
  await open("#trace=whatever");
  expect(await headline()).toContain("cpu engine");
  expect(await select().isVisible()).toBe(false);
  expect(await complains()).toBe(false);
  await page.locator("#file").setInputFiles({ name: "g", mimeType: "", buffer: GPU_FILE });
  await expect.poll(headline).toContain("cuda engine");
  expect(await select().locator("option").allTextContents()).toEqual([
    "recorded here",
    "g, opened here",
  ]);
});

test.each(["light", "dark"] as const)(
  "%s: seen, labelled, and on a phone no wider than it",
  async (colorScheme) => {
    await open("", { colorScheme, viewport: { width: 320, height: 700 } });
    expect(await violations(page)).toEqual([]);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(320);
    const box = await select().boundingBox();
    expect(box?.height).toBeGreaterThanOrEqual(32);
    expect(box && box.x + box.width).toBeLessThanOrEqual(320);
  },
);
