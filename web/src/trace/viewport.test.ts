import { describe, expect, test } from "vitest";
import { seeded } from "../../test/fixture";
import { fitted, nsPerPx, panned, revealed, timeAt, whole, xAt, zoomed } from "./viewport";

const TOKEN = 400_000;
const VIEW = whole(TOKEN, 800);

test("the whole token fills the plot", () => {
  expect([xAt(VIEW, 0), xAt(VIEW, TOKEN)]).toEqual([0, 800]);
  expect(nsPerPx(VIEW)).toBe(500);
  expect(timeAt(VIEW, 400)).toBe(200_000);
});

test("a token of no time still has a view", () => {
  const view = whole(0, 800);
  expect(xAt(view, 0)).toBe(0);
  expect(zoomed(view, 0, 2, 100)).toEqual(view);
  expect(panned(view, 0, 50)).toEqual(view);
});

describe("zoom", () => {
  test("keeps the time under the pointer", () => {
    const view = zoomed(VIEW, TOKEN, 4, 600);
    expect(timeAt(view, 600)).toBeCloseTo(300_000);
    expect(view.endNs - view.beginNs).toBe(100_000);
  });

  test("ends at the whole token and at the clock's resolution", () => {
    expect(zoomed(VIEW, TOKEN, 0.1, 300)).toEqual(VIEW);
    const close = zoomed(VIEW, TOKEN, 1e9, 300);
    expect(close.endNs - close.beginNs).toBeCloseTo(100);
  });
});

test("pan stops at the ends of the token", () => {
  const view = zoomed(VIEW, TOKEN, 2, 400);
  expect(panned(view, TOKEN, 80).beginNs).toBe(view.beginNs + 20_000);
  expect(panned(view, TOKEN, -1e6).beginNs).toBe(0);
  expect(panned(view, TOKEN, 1e6).endNs).toBe(TOKEN);
});

test("fit leaves a margin around the span", () => {
  const view = fitted(VIEW, TOKEN, 100_000, 200_000);
  expect([view.beginNs, view.endNs]).toEqual([90_000, 210_000]);
  expect(fitted(VIEW, TOKEN, 0, 10).beginNs).toBe(0);
});

describe("reveal", () => {
  const view = { beginNs: 100_000, endNs: 200_000, width: 800 };
  test("moves no farther than needed", () => {
    expect(revealed(view, TOKEN, 120_000, 130_000)).toBe(view);
    expect(revealed(view, TOKEN, 190_000, 230_000).endNs).toBe(230_000);
    expect(revealed(view, TOKEN, 50_000, 60_000).beginNs).toBe(50_000);
  });

  test("shows the begin of what does not fit", () => {
    expect(revealed(view, TOKEN, 150_000, 390_000).beginNs).toBe(150_000);
  });
});

test("no sequence of gestures leaves the token", () => {
  const random = seeded(3);
  let view = VIEW;
  for (let round = 0; round < 5000; round++) {
    view =
      random() < 0.5
        ? zoomed(view, TOKEN, 2 ** (random() * 4 - 2), random() * 800)
        : panned(view, TOKEN, random() * 2000 - 1000);
    expect(view.beginNs).toBeGreaterThanOrEqual(0);
    expect(view.endNs).toBeLessThanOrEqual(TOKEN + 1e-6);
    expect(view.endNs - view.beginNs).toBeGreaterThan(99);
  }
});
