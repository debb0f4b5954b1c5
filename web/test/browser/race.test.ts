// The race in Chromium: played, paused, sought by hand and by key, linked, without motion, and with
// files that are no race.

import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { CPU, gzipped, traceFile } from "../fixture";
import { raceFile } from "../race";
import { launch, painted, type Served, serve, violations, watch } from "./serve";

const CPU_FILE = gzipped(traceFile(CPU));
const RACE_FILE = JSON.stringify(raceFile());
/** The last token of the slowest lane of the first prompt, in us. */
const END_US = Math.ceil(
  Math.max(
    ...(raceFile().races[0]?.prompts[0]?.streams.map(({ ns }) => ns.reduce((a, b) => a + b)) ?? []),
  ) / 1000,
);

let served: Served;
let browser: Browser;
let page: Page;
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
  await served.setFile("race.json", RACE_FILE);
});

afterEach(async () => {
  await page?.context().close();
  expect(faults).toEqual([]);
});

async function open(hash = "", options: BrowserContextOptions = {}): Promise<void> {
  const context = await browser.newContext({ viewport: { width: 1200, height: 800 }, ...options });
  page = await context.newPage();
  watch(page, served.url, faults);
  await page.goto(served.url + hash);
  await page.locator("#race:not([hidden])").waitFor();
  await painted(page);
}

const text = async (selector: string) =>
  ((await page.locator(selector).textContent()) ?? "").replaceAll("\u00a0", " ").trim();
const counts = async () =>
  (await page.locator("#race-rows .lane-count small").allTextContents()).map((words) =>
    Number(words.split(" ")[0]),
  );
const slider = () => page.locator("#race-at");
const place = async () => Number(await slider().inputValue());
const button = (name: string) => page.locator("#race").getByRole("button", { name, exact: true });
const hash = () => page.evaluate(() => window.location.hash);
/** What is to be read in each lane, without what is still to come. */
const readable = () =>
  page
    .locator(".lane-text")
    .evaluateAll((bodies) =>
      bodies.map((body) =>
        [...body.querySelectorAll("span:not(.ahead)")].map((part) => part.textContent).join(""),
      ),
    );

test("it opens with the race as it ended: who was first, and what was written", async () => {
  await open();
  expect(await counts()).toEqual([256, 256, 256]);
  expect(await place()).toBe(END_US);
  expect(await text("#race-said")).toMatch(/^FP8 was done first, after [\d.]+ ms; the next one/);
  expect(await page.locator(".lane.won .lane-name").allTextContents()).toEqual(["FP8"]);
  expect(await text("#race-lede")).toMatch(/^The stand-in of Qwen3-0\.6B's shape, not Qwen's/);
  const [bf16, fp8] = await readable();
  expect(bf16?.slice(0, 60)).toBe(fp8?.slice(0, 60));
  expect(bf16).not.toBe(fp8);
  await page.locator("#race-how summary").click();
  expect(await text("#race-facts")).toContain(
    "Another GPU: no run so far has timed single tokens.",
  );
});

test("it plays to its end, at the recorded times, and again", async () => {
  await open();
  await button("Replay 1×, as fast as it was").click();
  await button("Play").click();
  await expect.poll(() => text("#race-play")).toBe("Play");
  expect(await counts()).toEqual([256, 256, 256]);
  expect(await text("#race-said")).toContain("was done first");
  // Slowly, so that it is still under way when it is paused.
  await button("Replay 0.05×, 20 times slower than it was").click();
  await button("Play").click();
  await expect.poll(async () => (await counts())[1]).toBeGreaterThan(3);
  await button("Pause").click();
  const [bf16 = 0, fp8 = 0, mixed = 0] = await counts();
  expect(bf16).toBeLessThan(256);
  expect(fp8).toBeGreaterThanOrEqual(mixed);
  expect(mixed).toBeGreaterThanOrEqual(bf16);
  const stands = await place();
  await painted(page);
  expect(await place()).toBe(stands);
  expect(await text("#race-said")).toMatch(/^[\d.]+ ms: bf16 \d+ of 256 tokens, FP8 \d+ of/);
});

test("the slider seeks, and the counters are of the time that it stands at", async () => {
  await open();
  // In its middle.
  await slider().click();
  const at = await place();
  expect(Math.abs(at / END_US - 0.5)).toBeLessThan(0.02);
  const race = raceFile().races[0];
  const expected = race?.prompts[0]?.streams.map(({ ns }) => {
    let [sum, count] = [0, 0];
    for (const own of ns) {
      sum += own;
      if (sum <= at * 1000) count++;
    }
    return count;
  });
  expect(await counts()).toEqual(expected);
  const speeds = await page.locator("#race-rows .lane-count b").allTextContents();
  expect(speeds.every((speed) => /^\d,\d{3}$/.test(speed))).toBe(true);
});

describe("keyboard", () => {
  test("on the slider arrows go from token to token, page keys by many", async () => {
    await open();
    await slider().focus();
    await page.keyboard.press("Home");
    expect(await counts()).toEqual([0, 0, 0]);
    expect(await page.locator("#race-rows .lane-count b").first().textContent()).toBe("–");
    const sum = async () => (await counts()).reduce((a, b) => a + b);
    for (const tokens of [1, 2, 3]) {
      await page.keyboard.press("ArrowRight");
      expect(await sum()).toBe(tokens);
    }
    await page.keyboard.press("ArrowLeft");
    expect(await sum()).toBe(2);
    await page.keyboard.press("PageUp");
    expect(await sum()).toBe(18);
    await page.keyboard.press("End");
    expect(await counts()).toEqual([256, 256, 256]);
    expect(await slider().getAttribute("aria-valuetext")).toContain("FP8 256 of 256 tokens");
  });

  test("every control is reached by Tab and pressed by keys", async () => {
    await open();
    await slider().focus();
    const reached: string[] = [];
    for (let press = 0; press < 10; press++) {
      await page.keyboard.press("Tab");
      const name = await page.evaluate(() => document.activeElement?.id ?? "");
      if (name !== "") reached.push(name);
    }
    expect(reached).toEqual(["race-play", "race-begin", "race-back", "race-next", "race-link"]);
    await page.locator("#race-begin").press("Enter");
    await page.locator("#race-next").press("Space");
    expect((await counts()).reduce((a, b) => a + b)).toBe(1);
    // The chart's keys do not steal the slider's.
    await slider().focus();
    await page.keyboard.press("?");
    expect(await page.locator("#help").isVisible()).toBe(false);
  });
});

test("another prompt and another race, by their lists", async () => {
  await open();
  await page.locator("#race-prompt").selectOption({ index: 1 });
  expect(await text("#race-tail")).toMatch(/^…/);
  await page.locator("#race-more summary").click();
  expect(await text("#race-whole")).toContain("A long one.");
  await page.locator("#race-of").selectOption({ index: 1 });
  expect(await text("#race-lede")).toContain("a CPU's speeds, not a GPU's");
  expect(await text("#race-tail")).toMatch(/^…/);
});

test("a link opens the same place, beside the trace's own", async () => {
  await open();
  await page.locator("#race-prompt").selectOption({ index: 1 });
  await button("Replay 0.25×, 4 times slower than it was").click();
  await slider().focus();
  await page.keyboard.press("Home");
  for (let step = 0; step < 40; step++) await page.keyboard.press("ArrowRight");
  const [before, link] = [await counts(), await hash()];
  expect(link).toMatch(/^#race=2026-01-02-gpu-01&model=standin&prompt=16&rt=\d+&rx=0\.25$/);
  await page.context().close();
  await open(link);
  expect(await counts()).toEqual(before);
  expect(
    await button("Replay 0.25×, 4 times slower than it was").getAttribute("aria-pressed"),
  ).toBe("true");
  expect(await page.evaluate(() => window.scrollY)).toBeGreaterThan(100);
  // Moving the chart keeps the race's part, and the race the chart's.
  await page.locator("#stage").focus();
  await page.keyboard.press("w");
  await expect.poll(hash).toContain("t0=");
  expect(await hash()).toContain("&rx=0.25");
  await button("Next token").click();
  expect(await hash()).toContain("t0=");
  await page.evaluate(() => {
    window.location.hash = "race=2026-01-01-cpu-01&model=tiny&prompt=0&rt=0";
  });
  await expect.poll(() => text("#race-lede")).toContain("A made-up CPU");
  expect(await counts()).toEqual([0, 0, 0]);
  await page.evaluate(() => {
    window.location.hash = "race=gone&model=tiny";
  });
  await expect.poll(() => text("#race-said")).toContain("is not here");
});

test("with less motion asked for, there is nothing to play and tokens to step", async () => {
  await open("", { reducedMotion: "reduce" });
  expect(await page.locator("#race-play").isVisible()).toBe(false);
  expect(await page.locator("#race-speeds").isVisible()).toBe(false);
  expect(await text("#race-still")).toContain("step by token");
  await button("To the begin").click();
  await button("Next token").click();
  await button("Next token").click();
  expect((await counts()).reduce((a, b) => a + b)).toBe(2);
  await button("Token before").click();
  expect((await counts()).reduce((a, b) => a + b)).toBe(1);
  expect(await text("#race-said")).toContain("FP8 1 of 256 tokens");
  // Asked for while it plays, it pauses.
  await page.emulateMedia({ reducedMotion: "no-preference" });
  await button("Play").click();
  await page.emulateMedia({ reducedMotion: "reduce" });
  await expect.poll(() => page.locator("#race").getAttribute("class")).not.toBe("plays");
  expect(await page.locator("#race-play").isVisible()).toBe(false);
});

describe.each(["light", "dark"] as const)("%s theme", (colorScheme) => {
  test("nothing stands in the way of assistive technology", async () => {
    await open("", { colorScheme });
    await page.locator("#race-how summary").click();
    expect(await violations(page)).toEqual([]);
    await button("To the begin").click();
    await button("Next token").click();
    expect(await violations(page)).toEqual([]);
  });
});

test.each([320, 390, 768, 1440])("nothing is wider than a window of %i px", async (width) => {
  await open("", { viewport: { width, height: 800 } });
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(width);
  // The slider's middle stands on the rows' line of the present.
  await slider().focus();
  await page.keyboard.press("End");
  const track = await page.locator(".lane-track").first().boundingBox();
  const box = await slider().boundingBox();
  expect(Math.abs((box?.x ?? 0) + 9 - (track?.x ?? 99))).toBeLessThan(1.5);
  expect(Math.abs((box?.width ?? 0) - 18 - (track?.width ?? 0))).toBeLessThan(1.5);
});

describe("what is no race", () => {
  test("no file: the page says that nothing was timed", async () => {
    await served.setFile("race.json", null);
    await open();
    expect(await text("#race-none")).toBe("No run so far has timed single tokens.");
    expect(await page.locator("#race-body").isVisible()).toBe(false);
  });

  test("no race in it: each processor says why", async () => {
    await served.setFile("race.json", JSON.stringify({ ...raceFile(), races: [] }));
    await open();
    expect(await text("#race-none")).toContain("Another GPU: no run so far");
  });

  test("a damaged one is refused by the place that is wrong", async () => {
    const file = raceFile();
    file.races[0]?.prompts[1]?.streams[2]?.ns.pop();
    await served.setFile("race.json", JSON.stringify(file));
    await open();
    expect(await text("#race-none")).toContain(
      "races[0].prompts[1].streams[2] has 256 tokens and 255 times",
    );
    expect(await page.locator("#chart").isVisible()).toBe(true);
  });
});
