// The page as it is published: versions, the critical path, links, tables, and what it weighs.

import { readFile } from "node:fs/promises";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { gzipped, pathOf, type TraceFile } from "../fixture";
import { gpuTraceFile } from "../gpu";
import { DATA } from "../results";
import { launch, painted, type Served, serve, violations, watch } from "./serve";

/** A GPU's trace with a critical path: half of it compute, three tenths hand-off. */
function withPath(file: TraceFile): Buffer<ArrayBuffer> {
  const token = file.meta.token_ns as number;
  const [compute, handoff, skew] = [0.5, 0.3, 0.15].map((share) => Math.round(share * token));
  const rest = token - (compute ?? 0) - (handoff ?? 0) - (skew ?? 0);
  const path = pathOf([
    ["compute", compute ?? 0],
    ["handoff", handoff ?? 0],
    ["skew", skew ?? 0],
    ["weights", rest],
  ]);
  return gzipped({ ...file, path });
}

function variantOf(file: TraceFile, variant: string): TraceFile {
  return { ...file, meta: { ...file.meta, variant } };
}

const BF16 = withPath(gpuTraceFile());
const FP8 = withPath(variantOf(gpuTraceFile({ blocks: 64, layers: 28 }), "fp8-flag"));
const [BF16_NAME, FP8_NAME] = ["r-xray-bf16-flag-16.json.gz", "r-xray-fp8-flag-16.json.gz"];
const of = (variant: string) => ({ run: "r", gpu: "A made-up GPU", variant, position: 16 });
const LIST = {
  schema: "monolith-traces/2",
  traces: [
    { file: BF16_NAME, title: "bf16", of: of("bf16-flag") },
    { file: FP8_NAME, title: "fp8", of: of("fp8-flag") },
  ],
};
const RESULTS = { schema: "monolith-results/1", runs: DATA.runs, problems: [] };
const BUDGET = { schema: "monolith-budget/1", tokens: DATA.tokens };

let served: Served;
let browser: Browser;
let page: Page;
let faults: string[] = [];

beforeAll(async () => {
  served = await serve();
  browser = await launch();
  await served.setFile(BF16_NAME, BF16);
  await served.setFile(FP8_NAME, FP8);
  await served.setFile("traces.json", JSON.stringify(LIST));
});

afterAll(async () => {
  await browser?.close();
  await served?.close();
});

beforeEach(async () => {
  faults = [];
  await served.setFile("results.json", JSON.stringify(RESULTS));
  await served.setFile("budget.json", JSON.stringify(BUDGET));
});

afterEach(async () => {
  await page?.context().close();
  expect(faults).toEqual([]);
});

async function open(address = "", options: BrowserContextOptions = {}): Promise<void> {
  const context = await browser.newContext({ viewport: { width: 1200, height: 900 }, ...options });
  page = await context.newPage();
  watch(page, served.url, faults);
  await page.goto(served.url + address);
  await page.locator("#chart:not([hidden])").waitFor();
  await page.locator("#results:not([hidden])").waitFor({ state: "attached" });
  await painted(page);
}

const text = async (selector: string) =>
  ((await page.locator(selector).first().textContent()) ?? "").replaceAll("\u00a0", " ");
const layer = () => text("#layer");
const details = () => text("#details");
const hash = () => page.evaluate(() => window.location.hash);
const picture = (id = "#rows") =>
  page.evaluate((id) => document.querySelector<HTMLCanvasElement>(id)?.toDataURL(), id);

async function box(selector: string) {
  const box = await page.locator(selector).boundingBox();
  if (!box) throw new Error(`${selector} is not shown`);
  return box;
}

/** Waits until the address names what is in view. */
async function settledHash(): Promise<string> {
  await expect.poll(hash).toContain("t0=");
  const before = await hash();
  await page.waitForTimeout(500);
  return before === (await hash()) ? before : settledHash();
}

describe("the first view", () => {
  test("is one layer, with the critical path as the headline", async () => {
    await open();
    expect(await text("#headline")).toMatch(
      /on a made-up GPU: 50 % computing, 30 % handing values from block to block, 15 % waiting/,
    );
    expect(await page.locator("#split li").count()).toBe(4);
    expect(await layer()).toBe("Layer 14");
    expect(await hash()).toBe("");
  });

  test("of a phone holds the chart's first rows", async () => {
    await open("", { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true });
    expect((await box("#rows")).y).toBeLessThan(700);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(390);
  });

  test("a key hides the path over the rows, and shows it again", async () => {
    await open();
    const before = await picture();
    await page.keyboard.press("c");
    await painted(page);
    expect(await picture()).not.toBe(before);
    await page.keyboard.press("c");
    await painted(page);
    expect(await picture()).toBe(before);
  });

  test("the strip of the path says what it is made of", async () => {
    await open();
    const axis = await box("#axis");
    await page.mouse.move(axis.x + axis.width / 2, axis.y + axis.height - 8);
    expect(await details()).toMatch(
      /^critical path: (compute|hand-off) of qkv of layer 1 on block 001/,
    );
  });
});

describe("moving about", () => {
  test("layer by layer, the whole token as counts, and back by a click", async () => {
    await open();
    await page.keyboard.press("]");
    expect(await layer()).toBe("Layer 15");
    await page.locator("[data-action=layer-before]").click();
    expect(await layer()).toBe("Layer 14");
    await page.keyboard.press("0");
    expect(await layer()).toBe("All layers");
    const rows = await box("#rows");
    await page.mouse.move(rows.x + rows.width / 3, rows.y + 100);
    expect(await details()).toMatch(/^At [\d.]+ µs, of 132 blocks .*(working|waiting): \d+ /);
    await page.mouse.click(rows.x + rows.width / 3, rows.y + 100);
    expect(await layer()).toMatch(/^Layer \d+$/);
  });

  test("the minimap: a click picks a layer, a drag draws a window, the window moves", async () => {
    await open();
    const map = await box("#minimap");
    const x = (share: number) => map.x + 84 + share * (map.width - 84);
    const drag = async (from: number, to: number) => {
      await page.mouse.move(x(from), map.y + 30);
      await page.mouse.down();
      await page.mouse.move(x(to), map.y + 30, { steps: 5 });
      await page.mouse.up();
    };
    const window = async () => {
      const [, begin, end] = /t0=(\d+)&t1=(\d+)/.exec(await settledHash()) ?? [];
      return [Number(begin), Number(end)] as const;
    };
    await page.mouse.click(x(0.1), map.y + 30);
    expect(await layer()).toMatch(/^Layer [0-4]$/);
    await drag(0.4, 0.5);
    const [begin, end] = await window();
    expect(begin / end).toBeCloseTo(0.8, 1);
    await drag(0.45, 0.75);
    const [movedBegin, movedEnd] = await window();
    expect(movedEnd - movedBegin).toBeCloseTo(end - begin, -3);
    expect(movedBegin / begin).toBeCloseTo(0.7 / 0.4, 1);
  });

  test("another version keeps the layer and the zoom", async () => {
    await open();
    await page.keyboard.press("]");
    await page.keyboard.press("w");
    await page.getByRole("button", { name: "FP8" }).click();
    await expect.poll(() => text("#subject")).toContain("fp8-flag");
    expect(await layer()).toBe("Layer 15");
    const there = await settledHash();
    expect(there).toContain(`v=${FP8_NAME}`);
    await page.getByRole("button", { name: "bf16" }).click();
    await expect.poll(hash).toContain(BF16_NAME);
    expect(await layer()).toBe("Layer 15");
  });
});

describe("searching and selecting", () => {
  test("the search counts, dims the rest and steps from match to match", async () => {
    await open();
    const before = await picture();
    await page.keyboard.press("/");
    await page.keyboard.type("gate_up layer 14 work");
    await expect.poll(() => text("#found")).toMatch(/^[\d,]+ spans$/);
    await painted(page);
    expect(await picture()).not.toBe(before);
    await page.keyboard.press("Enter");
    const first = await details();
    expect(first).toMatch(/gate_up of layer 14, worked/);
    await page.keyboard.press("Enter");
    expect(await details()).not.toBe(first);
    await page.keyboard.press("Shift+Enter");
    expect(await details()).toBe(first);
    await page.keyboard.type(" nonsense");
    await expect.poll(() => text("#found")).toBe("no such thing: nonsense");
    await page.keyboard.press("Escape");
    expect(await text("#found")).toBe("");
  });

  test("the legend searches", async () => {
    await open();
    await page.locator("#legend").getByRole("button", { name: "qkv" }).click();
    expect(await page.locator("#find").inputValue()).toBe("work qkv");
    expect(await text("#found")).toMatch(/spans$/);
  });

  test("an area's sums add up to its blocks times its time", async () => {
    await open();
    const rows = await box("#rows");
    await page.keyboard.down("Shift");
    await page.mouse.move(rows.x + 300, rows.y + 22);
    await page.mouse.down();
    await page.mouse.move(rows.x + 700, rows.y + 62, { steps: 4 });
    await page.mouse.up();
    await page.keyboard.up("Shift");
    const panel = page.locator("#area");
    expect(await panel.locator("caption").textContent()).toMatch(
      /^9 blocks, block 004 to block 012/,
    );
    const shares = await panel.locator("tbody td:nth-child(3)").allTextContents();
    const sum = shares.reduce((sum, share) => sum + Number.parseFloat(share), 0);
    expect(sum).toBeGreaterThan(99);
    expect(sum).toBeLessThan(101);
    expect(await violations(page)).toEqual([]);
    await page.keyboard.press("Escape");
    expect(await panel.isVisible()).toBe(false);
  });
});

describe("taking it elsewhere", () => {
  test("a link shows the same: version, view and span", async () => {
    await open();
    await page.getByRole("button", { name: "FP8" }).click();
    await expect.poll(() => text("#subject")).toContain("fp8-flag");
    await page.keyboard.press("[");
    await page.locator("#stage").focus();
    await page.keyboard.press(".");
    await page.keyboard.press("ArrowDown");
    const [words, link] = [await details(), await settledHash()];
    const shown = await picture("#axis");
    expect(words).toMatch(/^block 0?1 /);
    await page.context().close();
    await open(link);
    expect(await details()).toBe(words);
    expect(await picture("#axis")).toBe(shown);
    expect(await hash()).toBe(link);
  });

  test("an address may name a layer alone", async () => {
    await open(`#v=${FP8_NAME}&l=3`);
    expect(await layer()).toBe("Layer 3");
    expect(await text("#subject")).toContain("fp8-flag");
  });

  test("a picture of the view downloads", async () => {
    await open();
    const download = page.waitForEvent("download");
    await page.locator("[data-action=picture]").click();
    const file = await download;
    expect(file.suggestedFilename()).toBe("monolith-bf16-flag-128.png");
    const bytes = await readFile(await file.path());
    expect(bytes.subarray(1, 4).toString()).toBe("PNG");
    expect(bytes.length).toBeGreaterThan(20_000);
  });

  test("Perfetto is asked only on a click, and gets every span", async () => {
    await open();
    // Stands in for ui.perfetto.dev: answers, and counts what it is handed.
    await page.context().route("https://ui.perfetto.dev/**", (route) =>
      route.fulfill({
        contentType: "text/html",
        body: `<script>
          addEventListener("message", ({ data, source, origin }) => {
            if (data === "PING") source.postMessage("PONG", origin);
            else document.title = JSON.parse(new TextDecoder().decode(data.perfetto.buffer))
              .traceEvents.filter(({ ph }) => ph === "X").length;
          });
        </script>`,
      }),
    );
    const popup = page.waitForEvent("popup");
    await page.locator("[data-action=perfetto]").click();
    const other = await popup;
    const spans = gpuTraceFile().spans.kind.length;
    await expect.poll(() => other.title()).toBe(String(spans));
    await expect.poll(() => text("#said")).toBe("");
  });

  test("embedded, it is the chart alone", async () => {
    await open("?embed");
    expect(await page.locator("#rows").isVisible()).toBe(true);
    expect(await page.locator("#headline").isVisible()).toBe(true);
    for (const id of ["h1", "#results", "footer", "#brand"]) {
      expect(await page.locator(id).isVisible(), id).toBe(false);
    }
  });

  test("files of other programs are told what to do, and nothing is lost", async () => {
    await open();
    const drop = (name: string, bytes: string | Buffer) =>
      page.locator("#file").setInputFiles({ name, mimeType: "", buffer: Buffer.from(bytes) });
    const message = page.locator("#message");
    for (const [name, bytes, words] of [
      ["a.xray", "MONOXRAY\0\0", "monolith xray export FILE --to page"],
      ["a.pftrace", "\n\u0001P", "ui.perfetto.dev"],
      ["a.json", '{"traceEvents":[]}', "Chrome's format"],
      ["a.json.gz", BF16.subarray(0, 4000), "cut short or damaged"],
    ] as const) {
      await drop(name, bytes);
      await expect.poll(() => message.textContent()).toContain(`${name} was refused`);
      expect(await message.textContent()).toContain(words);
      expect(await text("#headline")).toContain("50 % computing");
    }
  });
});

describe("below the chart", () => {
  test("budget: a bar a version, the least time, the difference", async () => {
    await open();
    expect(await page.locator("#bars .budget").count()).toBe(2);
    expect(await text("#bars .budget")).toContain("1,200.0 MB ÷ 4,000 GB/s = 300.0 µs");
    const last = page.locator(".difference tbody tr").last();
    const words = ((await last.textContent()) ?? "").replaceAll("\u00a0", " ");
    expect(words).toBe("token301.0 µs256.0 µs−45.0 µs");
    await page.getByLabel("From").selectOption("1");
    expect(((await last.textContent()) ?? "").replaceAll("\u00a0", " ")).toContain("+0.0 µs");
  });

  test("results: one table a processor, sorted by a click, downloaded as CSV", async () => {
    await open();
    expect(await page.locator(".results h3").allTextContents()).toEqual([
      "A made-up GPU",
      "A made-up CPU",
    ]);
    const table = page.locator(".results").first();
    const speeds = () => table.locator("tbody tr td:nth-child(3)").allTextContents();
    await table.getByRole("button", { name: "tokens/s" }).click();
    expect(await speeds()).toEqual(["1,500", "1,600", "2,000", "3,000"]);
    await page.keyboard.press("Enter");
    expect(await speeds()).toEqual(["3,000", "2,000", "1,600", "1,500"]);
    expect(await table.locator("th[aria-sort=descending]").textContent()).toBe("tokens/s");
    const download = page.waitForEvent("download");
    await table.getByRole("button", { name: "CSV" }).click();
    const csv = await readFile(await (await download).path(), "utf8");
    expect(csv.trim().split("\n").length).toBe(5);
    await table.getByLabel("Model").selectOption("tiny");
    expect(await speeds()).toEqual(["12,000"]);
  });

  test("positions, losses and the code tour, whose button searches the chart", async () => {
    await open();
    expect(await page.locator("#sweep .series.name").allTextContents()).toEqual(["bf16", "FP8"]);
    expect(await text("#losses li")).toContain("FP8 reads 50 % of bf16's bytes");
    expect(await page.locator("#tour .stop").count()).toBe(2);
    await page.locator("#tour button").nth(1).click();
    expect(await page.locator("#find").inputValue()).toBe("wait hand-off");
    expect(await text("#found")).toMatch(/spans$/);
  });

  test.each(["light", "dark"] as const)(
    "%s: nothing in the way of anybody",
    async (colorScheme) => {
      await open("", { colorScheme });
      await page.locator("details.of-trace summary").click();
      expect(await violations(page)).toEqual([]);
    },
  );

  test.each([320, 390, 768])("nothing is wider than a window of %i px", async (width) => {
    await open("", { viewport: { width, height: 800 } });
    await page.locator("details.of-trace summary").click();
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(width);
  });

  test("without measurements the chart and the tour remain", async () => {
    await served.setFile("results.json", "{}");
    const context = await browser.newContext();
    page = await context.newPage();
    watch(page, served.url, faults);
    await page.goto(served.url);
    await page.locator("#tour .stop").first().waitFor();
    expect(await page.locator("#results").isVisible()).toBe(false);
    expect(await page.locator("#rows").isVisible()).toBe(true);
  });
});

test("without its script the page says so", async () => {
  const context = await browser.newContext({ javaScriptEnabled: false });
  page = await context.newPage();
  await page.goto(served.url);
  expect(await page.locator("noscript p").first().isVisible()).toBe(true);
});

/** What a visitor loads before the chart is there, in bytes as they travel, and how long it took. */
test("a throttled 4G connection: few bytes until the chart is there", async () => {
  const context = await browser.newContext({ viewport: { width: 1200, height: 900 } });
  page = await context.newPage();
  const session = await context.newCDPSession(page);
  await session.send("Network.enable");
  // As DevTools and Lighthouse throttle: 1.6 Mbit/s down at 150 ms for slow 4G, 9 at 40 for 4G.
  await session.send("Network.emulateNetworkConditions", {
    offline: false,
    latency: 40,
    downloadThroughput: (9 * 1024 * 1024) / 8,
    uploadThroughput: (1.5 * 1024 * 1024) / 8,
  });
  const begun = Date.now();
  await page.goto(served.url);
  await page.locator("#chart:not([hidden])").waitFor();
  // Printed, not judged: it depends on the machine.
  console.info(`chart after ${Date.now() - begun} ms at 9 Mbit/s and 40 ms`);
  const names = await page.evaluate(() =>
    performance.getEntriesByType("resource").map(({ name }) => name.split("/").at(-1)),
  );
  // The page's own files and one trace: what the time depends on, whatever the machine.
  expect(names).toContain(BF16_NAME);
  expect(names).not.toContain(FP8_NAME);
  const own = names.filter((name) => /\.(js|css)$/.test(name ?? ""));
  expect(own.length).toBeLessThanOrEqual(3);
});
