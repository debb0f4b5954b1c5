import { expect, test } from "vitest";
import { CPU, traceFile } from "../../test/fixture";
import { layerBegins, ticks } from "./axis";
import { traceFromJson } from "./parse";
import { xAt } from "./viewport";

test("ticks are round microseconds, and labels have room", () => {
  const labels = (beginNs: number, endNs: number) =>
    ticks({ beginNs, endNs, width: 500 }).map((tick) => tick.label);
  expect(labels(0, 433_500)).toEqual(["0", "100", "200", "300", "400"]);
  expect(labels(0, 42_000_000)).toEqual(["0", "10,000", "20,000", "30,000", "40,000"]);
  expect(labels(12_340, 14_400)).toEqual(["12.5", "13.0", "13.5", "14.0"]);
  expect(labels(1000, 1100)).toEqual(["1.00", "1.02", "1.04", "1.06", "1.08", "1.10"]);
  expect(labels(0, 1)[0]).toBe("0.000");
});

test("ticks never crowd", () => {
  for (let length = 100; length < 1e11; length *= 1.7) {
    const view = { beginNs: length / 3, endNs: length * (4 / 3), width: 700 };
    const places = ticks(view).map((tick) => xAt(view, tick.ns));
    expect(places.length).toBeGreaterThan(1);
    places.slice(1).forEach((x, index) => {
      expect(x - (places[index] ?? 0)).toBeGreaterThan(80);
    });
  }
});

test("layers begin in order, each with its first work", () => {
  const trace = traceFromJson(JSON.stringify(traceFile(CPU)));
  const begins = [...layerBegins(trace)];
  expect(begins.length).toBe(6);
  expect(begins).toEqual([...begins].sort((a, b) => a - b));
  expect(begins.every((ns) => ns > 0 && ns < trace.meta.tokenNs)).toBe(true);
});
