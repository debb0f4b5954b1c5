import { describe, expect, test } from "vitest";
import { seeded } from "../../test/fixture";
import { times } from "../../test/race";
import {
  advanced,
  arrivals,
  countAt,
  endOf,
  marks,
  median,
  nextToken,
  nsAt,
  SPEEDS,
  sliderAt,
  sliderEnd,
  speedAt,
  tokenBefore,
  written,
} from "./replay";

/** Lanes with stalls, tokens at the same time, tokens that take no time, and one token alone. */
function lanesOf(seed: number): number[][] {
  const next = seeded(seed);
  return Array.from({ length: 1 + Math.floor(4 * next()) }, () => {
    const own = Array.from({ length: 1 + Math.floor(40 * next()) }, () =>
      next() < 0.15 ? 0 : Math.floor(next() * 10 ** (1 + 7 * next())),
    );
    own[0] = 1 + (own[0] ?? 0);
    return own;
  });
}

/** A property of any lanes. */
function everywhere(name: string, holds: (lanes: number[][], seed: number) => void): void {
  test(name, () => {
    for (let seed = 0; seed < 300; seed++) holds(lanesOf(seed), seed);
  });
}

test("a token is there from its time on, and not before", () => {
  const at = arrivals([10, 5, 0, 20]);
  expect([...at]).toEqual([10, 15, 15, 35]);
  expect([0, 9, 10, 14, 15, 34, 35, 1e9].map((ns) => countAt(at, ns))).toEqual([
    0, 0, 1, 1, 3, 3, 4, 4,
  ]);
});

test("the speed is of the tokens that are there", () => {
  const at = arrivals([1_000_000, 1_000_000, 2_000_000]);
  expect(speedAt(at, 999_999)).toBe(null);
  expect(speedAt(at, 1_000_000)).toBe(1000);
  // It stands until the next token is there.
  expect(speedAt(at, 1_999_999)).toBe(1000);
  expect(speedAt(at, 4_000_000)).toBe(750);
  expect(speedAt(at, 1e12)).toBe(750);
});

everywhere("counts and seeks agree with the times", (lanes, seed) => {
  const at = lanes.map(arrivals);
  const end = endOf(at);
  const next = seeded(seed + 1000);
  expect(end).toBe(Math.max(...lanes.map((ns) => ns.reduce((a, b) => a + b, 0))));
  for (let trial = 0; trial < 20; trial++) {
    const ns = trial === 0 ? 0 : Math.floor(next() * 1.1 * end);
    for (const [index, own] of at.entries()) {
      expect(countAt(own, ns)).toBe([...own].filter((time) => time <= ns).length);
      const speed = speedAt(own, ns);
      const count = countAt(own, ns);
      if (speed !== null) expect((speed * (own[count - 1] ?? 0)) / 1e9).toBeCloseTo(count, 6);
      expect(countAt(own, end)).toBe(lanes[index]?.length);
    }
    const times = at.flatMap((own) => [...own]);
    const after = times.filter((time) => time > ns);
    expect(nextToken(at, ns)).toBe(after.length > 0 ? Math.min(...after) : end);
    expect(tokenBefore(at, ns)).toBe(Math.max(0, ...times.filter((time) => time < ns)));
  }
});

everywhere("stepping reaches every time once, forth and back", (lanes) => {
  const at = lanes.map(arrivals);
  const all = [...new Set(at.flatMap((own) => [...own]))].sort((a, b) => a - b);
  const forth: number[] = [];
  for (let ns = 0; ns < endOf(at); ) {
    ns = nextToken(at, ns);
    forth.push(ns);
  }
  expect(forth).toEqual(all);
  expect(nextToken(at, endOf(at))).toBe(endOf(at));
  const back: number[] = [];
  for (let ns = endOf(at); ns > 0; ) {
    back.push(ns);
    ns = tokenBefore(at, ns);
  }
  expect(back.reverse()).toEqual(all);
});

everywhere("the slider goes to the end, in order, and back within a microsecond", (lanes, seed) => {
  const end = endOf(lanes.map(arrivals));
  const next = seeded(seed + 2000);
  const places = Array.from({ length: 20 }, () => Math.floor(next() * end)).sort((a, b) => a - b);
  const sliders = [0, ...places, end].map((ns) => sliderAt(ns, end));
  expect([...sliders].sort((a, b) => a - b)).toEqual(sliders);
  expect(sliderAt(end, end)).toBe(sliderEnd(end));
  expect(nsAt(sliderEnd(end), end)).toBe(end);
  for (const ns of places) {
    expect(Math.abs(nsAt(sliderAt(ns, end), end) - ns)).toBeLessThan(1000);
  }
  for (let slider = 0; slider <= Math.min(50, sliderEnd(end)); slider++) {
    expect(sliderAt(nsAt(slider, end), end)).toBe(slider);
  }
});

describe("the clock", () => {
  test.each(SPEEDS)("at %f the recorded time passes as much slower", (speed) => {
    const end = 1e12;
    let ns = 0;
    for (let frame = 0; frame < 60; frame++) ns = advanced(ns, 1000 / 60, speed, end);
    expect(ns / 1e9).toBeCloseTo(speed, 9);
  });

  test("it stops at the end, never goes back, and a late frame makes no jump", () => {
    expect(advanced(90, 1, 1, 100)).toBe(100);
    expect(advanced(100, 16, 1, 100)).toBe(100);
    expect(advanced(50, -5, 1, 100)).toBe(50);
    expect(advanced(0, 60_000, 0.05, 1e12)).toBe(100 * 1e6 * 0.05);
  });
});

test("a text parts where its tokens part", () => {
  const stream = { first: "A", pieces: [" b", "", " c", " d"], agrees: 3 };
  expect(written(stream, 0)).toEqual({ same: "A", own: "", ahead: " b c d" });
  expect(written(stream, 2)).toEqual({ same: "A b", own: "", ahead: " c d" });
  expect(written(stream, 4)).toEqual({ same: "A b", own: " c d", ahead: "" });
  expect(written({ ...stream, agrees: 0 }, 1)).toEqual({ same: "", own: "A b", ahead: " c d" });
  for (let count = 0; count <= 4; count++) {
    const { same, own, ahead } = written(stream, count);
    expect(same + own + ahead).toBe("A b c d");
  }
});

test("medians and marks", () => {
  expect([[], [3], [1, 9], [5, 1, 3]].map(median)).toEqual([0, 3, 5, 3]);
  for (const end of [1, 999, 84_000_000, 3.6e12]) {
    const found = marks(end, 6);
    expect(found[0]).toBe(0);
    expect(found.length).toBeGreaterThan(1);
    expect(found.length).toBeLessThanOrEqual(8);
    expect(found.at(-1)).toBeLessThanOrEqual(end);
  }
  expect(median(times(256, 370_000, 1))).toBeGreaterThan(300_000);
});
