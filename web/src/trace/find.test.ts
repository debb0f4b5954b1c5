import { describe, expect, test } from "vitest";
import { gpuTraceFile } from "../../test/gpu";
import { EVENT_KINDS, PHASES } from "../abi";
import { found, nextFound, queryFrom } from "./find";
import { traceFromJson } from "./parse";
import { isWait } from "./trace";

const trace = traceFromJson(JSON.stringify(gpuTraceFile({ blocks: 6, layers: 3 })));
const { block, phase, layer, kind } = trace.spans;

/** The spans that a query names, and those that a plain test names: they must be the same. */
function expectSame(text: string, fits: (span: number) => boolean): void {
  const result = found(trace, text);
  if (!result) throw new Error("an empty query");
  const spans = [...kind.keys()];
  expect(result.unknown).toEqual([]);
  expect(spans.filter((span) => result.mask[span] === 1)).toEqual(spans.filter(fits));
  expect(result.count).toBe(spans.filter(fits).length);
  expect(result.count).toBeGreaterThan(0);
}

const is = (span: number, name: string) => PHASES[phase[span] ?? 99] === name;

describe("queries", () => {
  test("phases, layers, blocks, SMs, kinds: all that are named must fit", () => {
    expectSame("gate_up", (span) => is(span, "gate_up"));
    expectSame("qkv down", (span) => is(span, "qkv") || is(span, "down"));
    expectSame("layer 1", (span) => layer[span] === 1);
    expectSame("L1-2 block 3", (span) => [1, 2].includes(layer[span] ?? -1) && block[span] === 3);
    expectSame("sm 2", (span) => trace.meta.sms[block[span] ?? 0] === 2);
    expectSame("Work qkv", (span) => is(span, "qkv") && !isWait(trace, span));
    const exchange = EVENT_KINDS.indexOf("wait_exchange");
    expectSame("wait hand-off", (span) => kind[span] === exchange);
    expectSame("waits, layer 0", (span) => isWait(trace, span) && layer[span] === 0);
  });

  test("nothing named is nothing searched; a word without meaning finds nothing and is said", () => {
    expect(found(trace, "  ")).toBe(null);
    expect(found(trace, "gate_up bananas 3")).toMatchObject({
      count: 0,
      unknown: ["bananas", "3"],
    });
    expect(queryFrom("layer 0-99999999").query.layers.size).toBeLessThan(70_000);
  });
});

test("every match is reached once, in order of time, and then the first again", () => {
  const result = found(trace, "attention work layer 1");
  if (!result) throw new Error("an empty query");
  const seen: number[] = [];
  let span = nextFound(trace, result, -1, 0, 1);
  while (!seen.includes(span)) {
    seen.push(span);
    span = nextFound(trace, result, span, 0, 1);
  }
  expect(seen.length).toBe(result.count);
  expect(span).toBe(seen[0]);
  const begins = seen.map((span) => trace.spans.beginNs[span] ?? 0);
  expect(begins).toEqual([...begins].sort((a, b) => a - b));
  expect(nextFound(trace, result, seen[1] ?? -1, 0, -1)).toBe(seen[0]);
  const none = { mask: new Uint8Array(kind.length), count: 0, unknown: [] };
  expect(nextFound(trace, none, -1, 0, 1)).toBe(-1);
});
