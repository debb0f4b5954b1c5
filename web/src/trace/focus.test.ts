import { describe, expect, test } from "vitest";
import { CPU, traceFile } from "../../test/fixture";
import { NO_BLOCK } from "../abi";
import { producerOf, stepped, steppedToWait } from "./focus";
import { traceFromJson } from "./parse";
import { at, isWait } from "./trace";

const trace = traceFromJson(JSON.stringify(traceFile({ ...CPU, blocks: 4 })));
const row = (block: number) => at(trace.rowStarts, block);

describe("arrow keys", () => {
  test("stay in the row and at the time", () => {
    const span = row(1) + 20;
    expect(stepped(trace, span, "next")).toBe(span + 1);
    expect(stepped(trace, span, "previous")).toBe(span - 1);
    expect(stepped(trace, span, "first")).toBe(row(1));
    expect(stepped(trace, span, "last")).toBe(row(2) - 1);
    const below = stepped(trace, span, "down");
    expect(at(trace.spans.block, below)).toBe(2);
    const middle = (at(trace.spans.beginNs, span) + at(trace.spans.endNs, span)) / 2;
    expect(at(trace.spans.beginNs, below)).toBeLessThanOrEqual(middle);
    expect(at(trace.spans.endNs, below)).toBeGreaterThan(middle);
  });

  test("stop at the ends", () => {
    expect(stepped(trace, row(1), "previous")).toBe(row(1));
    expect(stepped(trace, row(2) - 1, "next")).toBe(row(2) - 1);
    expect(stepped(trace, row(0), "up")).toBe(row(0));
    expect(stepped(trace, row(3), "down")).toBe(row(3));
  });

  test("skip rows without spans", () => {
    const file = traceFile(CPU);
    file.meta.blocks = 3;
    const [first = 0, second = 0] = file.spans.counts;
    file.spans.counts = [first, 0, second];
    file.streams.counts = [0, 0, 0];
    file.spans.waits_on = file.spans.waits_on.map((on) => (on === NO_BLOCK ? on : 2 * on));
    const sparse = traceFromJson(JSON.stringify(file));
    expect(at(sparse.spans.block, stepped(sparse, 0, "down"))).toBe(2);
  });
});

test("comma and full stop go from wait to wait", () => {
  const first = steppedToWait(trace, row(2), 1);
  expect(isWait(trace, first)).toBe(true);
  const second = steppedToWait(trace, first, 1);
  expect(second).toBeGreaterThan(first);
  expect(steppedToWait(trace, second, -1)).toBe(first);
  expect(steppedToWait(trace, first, -1)).toBe(first);
});

describe("the producer of a wait", () => {
  const waits = [...trace.spans.kind.keys()].filter((span) => isWait(trace, span));

  test("is work of that phase and layer, in the block it names, begun before the end", () => {
    expect(waits.length).toBeGreaterThan(50);
    for (const wait of waits) {
      const work = producerOf(trace, wait);
      const { block, phase, layer, waitsOn, beginNs, endNs } = trace.spans;
      expect(at(block, work)).toBe(at(waitsOn, wait));
      expect([at(phase, work), at(layer, work)]).toEqual([at(phase, wait), at(layer, wait)]);
      expect(isWait(trace, work)).toBe(false);
      expect(at(beginNs, work)).toBeLessThan(at(endNs, wait));
    }
  });

  test("is none where the trace does not tell", () => {
    const file = traceFile(CPU);
    file.spans.waits_on.fill(NO_BLOCK);
    const silent = traceFromJson(JSON.stringify(file));
    expect(producerOf(silent, steppedToWait(silent, 0, 1))).toBe(-1);
  });
});
