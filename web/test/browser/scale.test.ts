// How quick the page is with a GPU's trace: 132 blocks, some 140,000 spans, 11,000 streams. The
// times are printed, not judged: they depend on the machine, which renders in software.

import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { gzipped } from "../fixture";
import { gpuTraceFile } from "../gpu";
import { launch, type Served, serve } from "./serve";

let served: Served;
let browser: Browser;

beforeAll(async () => {
  served = await serve();
  await served.setTrace(gzipped(gpuTraceFile()));
  browser = await launch();
});

afterAll(async () => {
  await browser?.close();
  await served?.close();
});

interface Clocks {
  /** When the chart was first on the screen, in ms after the navigation began. */
  firstPaint: number;
  /** How long each frame's own work took, in ms. */
  frames: number[];
}

/** Before the page's script: clocks for the first paint and for what each frame takes. */
function installClocks(): void {
  const clocks: Clocks = { firstPaint: Number.NaN, frames: [] };
  Object.assign(window, { clocks });
  const ask = window.requestAnimationFrame.bind(window);
  window.requestAnimationFrame = (paint) =>
    ask((now) => {
      const begun = performance.now();
      paint(now);
      clocks.frames.push(performance.now() - begun);
    });
  const watch = () => {
    if (document.querySelector("#chart:not([hidden])")) {
      // The page has requested the frame that paints; one frame later it is on the screen.
      ask(() => ask((now) => Object.assign(clocks, { firstPaint: now })));
    } else ask(watch);
  };
  ask(watch);
}

const clocksOf = (page: Page) =>
  page.evaluate(() => (window as unknown as { clocks: Clocks }).clocks);

/** Pans a frame at a time: the times of the frames, beginning to beginning, and of their work. */
async function panned(
  page: Page,
  frames: number,
): Promise<{ intervals: number[]; work: number[] }> {
  return page.evaluate(async (frames) => {
    const { clocks } = window as unknown as { clocks: Clocks };
    const canvas = document.querySelector("#rows");
    clocks.frames.length = 0;
    const starts: number[] = [];
    await new Promise<void>((done) => {
      const step = (now: number) => {
        starts.push(now);
        if (starts.length > frames) return done();
        const deltaX = starts.length % 20 < 10 ? 12 : -12;
        canvas?.dispatchEvent(new WheelEvent("wheel", { deltaX, bubbles: true, cancelable: true }));
        requestAnimationFrame(step);
      };
      requestAnimationFrame(step);
    });
    const intervals = starts.slice(1).map((start, index) => start - (starts[index] ?? 0));
    // This loop's own share of the frames is negligible and not counted.
    return { intervals, work: clocks.frames.filter((ms) => ms > 0.5) };
  }, frames);
}

function middle(times: number[]): string {
  const sorted = [...times].sort((a, b) => a - b);
  const at = (share: number) => (sorted[Math.floor(share * (sorted.length - 1))] ?? 0).toFixed(1);
  return `median ${at(0.5)} ms, 95th percentile ${at(0.95)} ms`;
}

test.each([1, 2])("first paint and panning at %i device px to a CSS px", async (ratio) => {
  const context = await browser.newContext({
    viewport: { width: 1400, height: 900 },
    deviceScaleFactor: ratio,
  });
  const page = await context.newPage();
  await page.addInitScript(installClocks);
  await page.goto(served.url);
  await expect.poll(async () => Number.isNaN((await clocksOf(page)).firstPaint)).toBe(false);
  const lines = [`first paint ${(await clocksOf(page)).firstPaint.toFixed(0)} ms`];
  const measure = async (what: string) => {
    const { intervals, work } = await panned(page, 40);
    expect(intervals.length).toBe(40);
    lines.push(`${what}: frame ${middle(intervals)}; its own work ${middle(work)}`);
  };
  // The least zoom that lets the view move: nearly all spans are in view.
  await page.keyboard.press("w");
  await measure("whole / 1.5");
  await page.locator("#streams").click();
  await measure("whole / 1.5, with streams");
  for (let zoom = 0; zoom < 8; zoom++) await page.keyboard.press("w");
  await measure("whole / 38, with streams");
  console.info(lines.join("\n"));
  await context.close();
});
