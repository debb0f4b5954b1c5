// The built page in Chromium: what a person sees, hears, types and drops.

import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import type { Browser, BrowserContextOptions, CDPSession, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { DARK, LIGHT, type Theme } from "../../src/paint/palette";
import { CPU, gzipped, traceFile } from "../fixture";
import { gpuTraceFile } from "../gpu";
import {
  launch,
  painted as paintedOn,
  type Served,
  serve,
  violations as violationsOf,
  watch,
} from "./serve";

const CPU_FILE = gzipped(traceFile(CPU));
const GPU_FILE = gzipped(gpuTraceFile());

let served: Served;
let browser: Browser;
let page: Page;
/** What the page must not do: log to the console, or send requests to other hosts. */
let faults: string[] = [];

beforeAll(async () => {
  served = await serve();
  browser = await launch();
});

afterAll(async () => {
  await browser?.close();
  await served?.close();
});

beforeEach(async () => {
  faults = [];
  await served.setTrace(CPU_FILE);
});

afterEach(async () => {
  await page?.context().close();
  expect(faults).toEqual([]);
});

/** Opens the page and waits until it shows a trace or says why not. */
async function open(options: BrowserContextOptions = {}): Promise<void> {
  const context = await browser.newContext({ viewport: { width: 1200, height: 800 }, ...options });
  page = await context.newPage();
  watch(page, served.url, faults);
  await page.goto(served.url);
  await page.locator("#chart:not([hidden]), #message:not([hidden])").first().waitFor();
  await painted();
}

const painted = () => paintedOn(page);

/** How many pixels of the rows have exactly this colour. */
function pixels(colour: string): Promise<number> {
  return page.evaluate((colour) => {
    const rows = document.querySelector<HTMLCanvasElement>("#rows");
    if (!rows) return 0;
    const copy = document.createElement("canvas");
    [copy.width, copy.height] = [rows.width, rows.height];
    const ink = copy.getContext("2d", { willReadFrequently: true });
    ink?.drawImage(rows, 0, 0);
    const data = ink?.getImageData(0, 0, copy.width, copy.height).data ?? [];
    const [red, green, blue] = [1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16));
    let count = 0;
    for (let at = 0; at < data.length; at += 4) {
      if (data[at] === red && data[at + 1] === green && data[at + 2] === blue) count++;
    }
    return count;
  }, colour);
}

async function rowsBox(): Promise<{ x: number; y: number; width: number; height: number }> {
  const box = await page.locator("#rows").boundingBox();
  if (!box) throw new Error("the rows are not shown");
  return box;
}

const details = async () =>
  ((await page.locator("#details").textContent()) ?? "").replaceAll("\u00a0", " ");
const picture = (id = "#rows") =>
  page.evaluate((id) => document.querySelector<HTMLCanvasElement>(id)?.toDataURL(), id);

const violations = () => violationsOf(page);

const THEMES: ["light" | "dark", Theme][] = [
  ["light", LIGHT],
  ["dark", DARK],
];

describe.each(THEMES)("%s theme", (colorScheme, theme) => {
  test("work and waits are painted in their colours", async () => {
    await open({ colorScheme });
    expect(await pixels(theme.phases.qkv)).toBeGreaterThan(1000);
    expect(await pixels(theme.phases.lm_head)).toBeGreaterThan(1000);
    expect(await pixels(theme.surface)).toBeGreaterThan(1000);
    // Zoomed to a wait: both colours of the hatch are there in number.
    await page.locator("#stage").focus();
    await page.keyboard.press(".");
    await page.keyboard.press("f");
    await painted();
    expect(await pixels(theme.waits.wait_exchange.line)).toBeGreaterThan(1000);
    expect(await pixels(theme.waits.wait_exchange.ground)).toBeGreaterThan(1000);
  });

  test("each kind of wait is painted in its own colours", async () => {
    await served.setTrace(GPU_FILE);
    await open({ colorScheme });
    // The begin of the token, before the first weights arrive.
    await page.keyboard.press("0");
    const box = await rowsBox();
    await page.mouse.move(box.x + 85, box.y + 20);
    for (let zoom = 0; zoom < 8; zoom++) await page.keyboard.press("w");
    await painted();
    for (const kind of ["wait_exchange", "wait_ring_full", "wait_barrier"] as const) {
      expect(await pixels(theme.waits[kind].line), kind).toBeGreaterThan(300);
      expect(await pixels(theme.waits[kind].ground), kind).toBeGreaterThan(300);
    }
  });

  test("nothing stands in the way of assistive technology", async () => {
    await open({ colorScheme });
    expect(await violations()).toEqual([]);
    await page.keyboard.press("?");
    expect(await violations()).toEqual([]);
    await page.keyboard.press("Escape");
    await page.locator("#file").setInputFiles({
      name: "gpu.json.gz",
      mimeType: "",
      buffer: GPU_FILE,
    });
    await page.locator("#streams").click();
    expect(await violations()).toEqual([]);
  });
});

test("the theme follows the system while the page is open", async () => {
  await open({ colorScheme: "light" });
  await page.emulateMedia({ colorScheme: "dark" });
  await painted();
  expect(await pixels(DARK.phases.qkv)).toBeGreaterThan(1000);
  expect(await pixels(LIGHT.phases.qkv)).toBe(0);
});

test("words and numbers: headline, legend, tables", async () => {
  await open();
  expect(await page.locator("#headline").textContent()).toMatch(
    /^One token in [\d.]+.µs on a made-up processor\.$/,
  );
  expect(await page.locator("#subject").textContent()).toMatch(
    /^Qwen3-0\.6B on a made-up processor, cpu engine, .* position 128\.$/,
  );
  expect(await page.locator("#split").isVisible()).toBe(false);
  const legend = await page.locator("#legend").textContent();
  expect(legend).toContain("waits for others");
  expect(legend).not.toContain("weights");
  const phases = page.locator("#tables table").first();
  expect(await phases.locator("tbody tr").count()).toBe(9);
  expect(await phases.textContent()).toContain("gate_up");
  expect(await page.locator("#tables table").nth(2).textContent()).toMatch(/\w+ from thread [01]/);
  expect(await page.locator("#tables table").count()).toBe(3);
  expect(await page.locator("#streams").isVisible()).toBe(false);
});

test("words and numbers of a GPU's trace: waits by kind, hand-offs, overhead, streams", async () => {
  await served.setTrace(GPU_FILE);
  await open();
  const said = async (selector: string, nth = 0) =>
    ((await page.locator(selector).nth(nth).textContent()) ?? "").replaceAll("\u00a0", " ");
  expect(await said("#caveats")).toMatch(/For [\d.]+ % of the blocks' time there is no record/);
  expect(await said("#caveats")).toContain("runs 1.9 % slower than the one that is timed");
  const legend = await said("#legend");
  for (const words of ["waits for others", "for weights", "for own warps"]) {
    expect(legend).toContain(words);
  }
  expect(await said("#tables table", 0)).toMatch(/[\d,.]+ MB in [\d.]+ µs are [\d,.]+ GB\/s\./);
  const kinds = await said("#tables table", 1);
  expect(kinds).toMatch(/the hand-offs, are \d+\.\d % of the layers' time, from/);
  for (const row of ["another block's values", "weights", "own warps", "not recorded"]) {
    expect(kinds).toContain(row);
  }
  expect(await said("#tables table", 2)).toMatch(/\w+ from block \d{3} \(SM \d+\)/);
  expect(await said("#tables table", 3)).toMatch(/gate_up[\d,]+22,176/);
});

describe("pointer", () => {
  test("hovering says what a span is", async () => {
    await open();
    const box = await rowsBox();
    await page.mouse.move(box.x + 0.85 * box.width, box.y + 20);
    expect(await details()).toMatch(/^thread 0: lm_head, worked [\d.]+ µs, at [\d.]+ µs$/);
    await page.mouse.move(box.x + 0.85 * box.width, box.y + 80);
    expect(await details()).toMatch(/^thread 1: lm_head/);
    await page.mouse.move(5, 5);
    expect(await details()).toMatch(/^Point at a span/);
  });

  test("ctrl with the wheel zooms at the pointer, the plain wheel scrolls the page", async () => {
    await open({ viewport: { width: 1200, height: 500 } });
    const before = await picture();
    const box = await rowsBox();
    await page.mouse.move(box.x + 0.85 * box.width, box.y + 20);
    const under = await details();
    await page.keyboard.down("Control");
    await page.mouse.wheel(0, -600);
    await page.keyboard.up("Control");
    await painted();
    expect(await picture()).not.toBe(before);
    await page.mouse.move(box.x + 0.85 * box.width, box.y + 21);
    expect(await details()).toBe(under);
    const zoomed = await picture("#axis");
    await page.mouse.wheel(0, 150);
    await expect.poll(() => page.evaluate(() => window.scrollY)).toBeGreaterThan(50);
    expect(await picture("#axis")).toBe(zoomed);
  });

  test("dragging moves, a click keeps a span, a double-click fits", async () => {
    await open();
    const whole = await picture();
    await page.keyboard.press("w");
    await page.keyboard.press("w");
    await painted();
    const zoomed = await picture();
    const box = await rowsBox();
    await page.mouse.move(box.x + 600, box.y + 20);
    await page.mouse.down();
    await page.mouse.move(box.x + 400, box.y + 20, { steps: 4 });
    await page.mouse.up();
    await page.mouse.move(5, 5);
    await painted();
    expect(await picture()).not.toBe(zoomed);
    await page.mouse.click(box.x + 500, box.y + 20);
    await page.mouse.move(5, 5);
    expect(await details()).toMatch(/^thread 0: /);
    await page.mouse.dblclick(box.x + 500, box.y + 20);
    await page.mouse.move(5, 5);
    await page.keyboard.press("Escape");
    await painted();
    expect(await picture()).toBe(whole);
  });

  test("two fingers pinch, one moves", async () => {
    await open({ hasTouch: true, isMobile: true, viewport: { width: 390, height: 844 } });
    const box = await rowsBox();
    const whole = await picture();
    const session = await page.context().newCDPSession(page);
    const y = box.y + 30;
    await touch(
      session,
      [
        [box.x + 150, y],
        [box.x + 200, y],
      ],
      [
        [box.x + 80, y],
        [box.x + 300, y],
      ],
    );
    await painted();
    const pinched = await picture();
    expect(pinched).not.toBe(whole);
    await touch(session, [[box.x + 300, y]], [[box.x + 150, y]]);
    await painted();
    expect(await picture()).not.toBe(pinched);
  });
});

describe("weights in flight", () => {
  /** Below the bars of block 20's row. */
  const inStrip = async () => {
    const box = await rowsBox();
    return { x: box.x + 0.5 * box.width, y: box.y + 20 * 12 + 6 };
  };

  test("a strip below each row, shown by button or key, says what is loaded", async () => {
    await served.setTrace(GPU_FILE);
    await open();
    const [before, height] = [await picture(), (await rowsBox()).height];
    const button = page.locator("#streams");
    await button.click();
    await painted();
    expect(await button.getAttribute("aria-pressed")).toBe("true");
    expect((await rowsBox()).height).toBe(132 * 12);
    expect(await picture()).not.toBe(before);
    const { x, y } = await inStrip();
    await page.mouse.move(x, y);
    expect(await details()).toMatch(
      /^block 020 \(SM 40\): weights of \w+ of layer \d+, [\d.]+ kB in \d copies, in flight [\d.]+ µs \([\d.]+ GB\/s\), at [\d.]+ µs, [\d.]+ µs ahead of the work on them$/,
    );
    await page.mouse.move(x, y - 4);
    expect(await details()).not.toContain("weights of");
    await page.mouse.move(5, 5);
    await page.keyboard.press("p");
    await painted();
    expect(await button.getAttribute("aria-pressed")).toBe("false");
    expect((await rowsBox()).height).toBe(height);
    expect(await picture()).toBe(before);
  });

  test("a tap on the strip says so too", async () => {
    await served.setTrace(GPU_FILE);
    await open({ hasTouch: true });
    await page.keyboard.press("p");
    await painted();
    const { x, y } = await inStrip();
    await page.touchscreen.tap(x, y);
    expect(await details()).toMatch(/^block 020 .*: weights of /);
    await page.keyboard.press("p");
    expect(await details()).toMatch(/^Point at a span/);
  });

  test("the key does nothing where there are no streams", async () => {
    await open();
    const before = await picture();
    await page.keyboard.press("p");
    await painted();
    expect(await picture()).toBe(before);
  });
});

type Places = [x: number, y: number][];

/** Fingers go down, move in a few steps, and go up. */
async function touch(session: CDPSession, from: Places, to: Places): Promise<void> {
  const send = (type: "touchStart" | "touchMove" | "touchEnd", share: number) =>
    session.send("Input.dispatchTouchEvent", {
      type,
      touchPoints:
        type === "touchEnd"
          ? []
          : from.map(([x, y], id) => {
              const [toX, toY] = to[id] ?? [x, y];
              return { id, x: x + share * (toX - x), y: y + share * (toY - y) };
            }),
    });
  await send("touchStart", 0);
  for (const share of [0.25, 0.5, 0.75, 1]) await send("touchMove", share);
  await send("touchEnd", 1);
}

describe("keyboard", () => {
  test("the chart is reached by Tab and its spans by arrow keys", async () => {
    await open();
    await page.locator("#legend button").last().focus();
    await page.keyboard.press("Tab");
    const first = await details();
    expect(first).toMatch(/^thread 0: embed, worked/);
    await page.keyboard.press("ArrowRight");
    expect(await details()).not.toBe(first);
    await page.keyboard.press("ArrowDown");
    expect(await details()).toMatch(/^thread 1: /);
    await page.keyboard.press("Home");
    expect(await details()).toMatch(/^thread 1: embed/);
    await page.keyboard.press("ArrowUp");
    expect(await details()).toMatch(/^thread 0: /);
    await page.keyboard.press("Escape");
    expect(await details()).toMatch(/^Point at a span/);
  });

  test("a wait says how long, for what and for whom", async () => {
    await open();
    await page.locator("#stage").focus();
    for (let wait = 0; wait < 3; wait++) await page.keyboard.press(".");
    expect(await details()).toMatch(
      /^thread 0: waited [\d.]+ µs for \w+( of layer \d+)?, last from thread 1, at [\d.]+ µs$/,
    );
  });

  test("W S A D + - 0 move the view", async () => {
    await open();
    const whole = await picture();
    for (const [key, back] of [
      ["w", "s"],
      ["+", "-"],
      ["=", "0"],
    ] as const) {
      await page.keyboard.press(key);
      await painted();
      expect(await picture(), key).not.toBe(whole);
      await page.keyboard.press(back);
      await painted();
      expect(await picture(), back).toBe(whole);
    }
    await page.keyboard.press("w");
    await painted();
    const zoomed = await picture();
    await page.keyboard.press("d");
    await painted();
    expect(await picture()).not.toBe(zoomed);
    await page.keyboard.press("a");
    await painted();
    expect(await picture()).toBe(zoomed);
  });

  test("? lists the keys and Esc closes the list", async () => {
    await open();
    const help = page.locator("#help");
    await page.keyboard.press("?");
    expect(await help.textContent()).toContain("wait before, after");
    await page.keyboard.press("Escape");
    expect(await help.isVisible()).toBe(false);
    await page.locator("[data-action=help]").click();
    await help.getByRole("button", { name: "Close" }).click();
    expect(await help.isVisible()).toBe(false);
  });
});

describe("files", () => {
  const message = () => page.locator("#message").textContent();

  test("no trace yet: the page says how to make one", async () => {
    await served.setTrace(null);
    await open();
    expect(await message()).toContain("cargo xtask demo");
    expect(await page.locator("#chart").isVisible()).toBe(false);
    expect(await violations()).toEqual([]);
    // The browser itself reports the missing file; there is no other fault.
    expect(faults.splice(0).join()).toMatch(/^[^,]*404[^,]*$/);
  });

  test.each([
    ["not a trace", gzipSync("<html></html>"), "neither gzip nor JSON"],
    ["another version", gzipSync('{"schema":"monolith-trace/9"}'), "monolith-trace/9"],
    ["the version before", gzipSync('{"schema":"monolith-trace/1"}'), "record the token again"],
    ["cut short", gzipSync('{"schema":"monolith-tr'), "cut short or damaged"],
  ])("a corrupt trace is refused by name: %s", async (_, bytes, words) => {
    await served.setTrace(bytes);
    await open();
    expect(await message()).toContain(words);
    expect(await page.locator("#chart").isVisible()).toBe(false);
  });

  test("a trace that the browser itself cannot unpack is refused", async () => {
    await served.setTrace("no gzip at all");
    await open();
    expect(await message()).toContain("arrived incomplete");
    expect(faults.splice(0).join()).toMatch(/^[^,]*DECODING_FAILED[^,]*$/);
  });

  test("one of your own: chosen, refused without losing what is shown, dropped", async () => {
    await served.setTrace(null);
    await open();
    faults.splice(0);
    const file = (name: string, buffer: Buffer) => ({ name, mimeType: "", buffer });
    await page.locator("#file").setInputFiles(file("mine.json.gz", CPU_FILE));
    await page.locator("#chart").waitFor();
    expect(await page.locator("#message").isVisible()).toBe(false);
    await page.locator("#file").setInputFiles(file("photo.png", Buffer.from("PNG")));
    await page.locator("#message").waitFor();
    expect(await message()).toContain("photo.png was refused: neither gzip nor JSON");
    expect(await page.locator("#subject").textContent()).toContain("cpu engine");
    await page.evaluate(
      (bytes) => {
        const dataTransfer = new DataTransfer();
        dataTransfer.items.add(new File([new Uint8Array(bytes)], "gpu.json.gz"));
        document.body.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true }));
      },
      [...GPU_FILE],
    );
    await expect.poll(() => page.locator("#subject").textContent()).toContain("cuda engine");
    expect(await page.locator("#message").isVisible()).toBe(false);
  });
});

test("132 blocks, 28 layers, some 140,000 spans: all rows in one window", async () => {
  await served.setTrace(GPU_FILE);
  await open();
  expect(await pixels(LIGHT.phases.gate_up)).toBeGreaterThan(10_000);
  expect(await pixels(LIGHT.waits.wait_exchange.line)).toBeGreaterThan(10_000);
  const box = await rowsBox();
  expect(box.height).toBe(132 * 5);
  await page.locator("#stage").focus();
  await page.keyboard.press("End");
  for (let row = 0; row < 120; row++) await page.keyboard.press("ArrowDown");
  expect(await details()).toMatch(/^block 120 /);
  // The row was scrolled into view, and the axis stays at the top.
  const top = (await rowsBox()).y + 120 * 5;
  expect(top).toBeGreaterThan(60);
  expect(top).toBeLessThan(800);
  expect((await page.locator("#axis").boundingBox())?.y).toBeLessThan(100);
});

test.each([320, 390, 768])("nothing is wider than a window of %i px", async (width) => {
  await open({ viewport: { width, height: 800 } });
  const widest = () => page.evaluate(() => document.documentElement.scrollWidth);
  expect(await widest()).toBe(width);
  await page.locator("#file").setInputFiles({ name: "g", mimeType: "", buffer: GPU_FILE });
  await page.locator("#streams").click();
  expect(await widest()).toBe(width);
  await page.keyboard.press("?");
  expect(await widest()).toBe(width);
});

test("a window that changes its width keeps the chart as wide", async () => {
  await open();
  await page.setViewportSize({ width: 700, height: 800 });
  await painted();
  const widths = () =>
    page.evaluate(() => {
      const canvas = document.querySelector<HTMLCanvasElement>("#rows");
      return [canvas?.width, canvas?.clientWidth];
    });
  await expect.poll(async () => new Set(await widths()).size).toBe(1);
});

test("the page itself stays small: 120 kB, gzipped", async () => {
  const files = await readdir(served.folder, { recursive: true, withFileTypes: true });
  let bytes = 0;
  for (const file of files) {
    if (!file.isFile() || file.parentPath.endsWith("data")) continue;
    bytes += gzipSync(await readFile(join(file.parentPath, file.name))).length;
  }
  expect(bytes).toBeGreaterThan(5_000);
  expect(bytes).toBeLessThan(120_000);
});
