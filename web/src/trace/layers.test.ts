import { expect, test } from "vitest";
import { CPU, traceFile } from "../../test/fixture";
import { layerAt, layerWindow, partBegins, sameParts } from "./layers";
import { traceFromJson } from "./parse";

const slow = traceFromJson(JSON.stringify(traceFile(CPU)));
const fast = traceFromJson(JSON.stringify(traceFile({ ...CPU, workNs: 3000 })));
const [from, to] = [partBegins(slow), partBegins(fast)];

test("parts: the begin, six layers, the head, the end; in order", () => {
  expect(from.length).toBe(9);
  expect([...from]).toEqual([...from].sort((a, b) => a - b));
  expect(from[0]).toBe(0);
  expect(from[8]).toBe(slow.meta.tokenNs);
});

test("a layer is found by any time in it", () => {
  for (let layer = 0; layer < 6; layer++) {
    const [begin, end] = layerWindow(from, layer);
    expect(layerAt(from, begin)).toBe(layer);
    expect(layerAt(from, (begin + end) / 2)).toBe(layer);
  }
  expect(layerAt(from, 0)).toBe(0);
  expect(layerAt(from, slow.meta.tokenNs)).toBe(5);
});

test("the view of one trace becomes the view of the same layers in another", () => {
  const [begin, end] = layerWindow(from, 3);
  const view = sameParts({ beginNs: begin, endNs: end, width: 500 }, from, to);
  const [wantedBegin, wantedEnd] = layerWindow(to, 3);
  expect(view.beginNs).toBeCloseTo(wantedBegin, 3);
  expect(view.endNs).toBeCloseTo(wantedEnd, 3);
  const back = sameParts(view, to, from);
  expect(back.beginNs).toBeCloseTo(begin, 3);
  const half = sameParts({ ...view, beginNs: (begin + end) / 2, endNs: end }, from, to);
  expect(half.beginNs).toBeCloseTo((wantedBegin + wantedEnd) / 2, 3);
});

test("a trace with another number of layers is shown whole", () => {
  const few = partBegins(traceFromJson(JSON.stringify(traceFile({ ...CPU, layers: 2 }))));
  const view = sameParts({ beginNs: 10, endNs: 20, width: 500 }, from, few);
  expect([view.beginNs, view.endNs]).toEqual([0, few[few.length - 1]]);
});
