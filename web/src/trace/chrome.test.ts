import { expect, test } from "vitest";
import { gpuTraceFile } from "../../test/gpu";
import { chromeJson } from "./chrome";
import { traceFromJson } from "./parse";

interface Event {
  ph: string;
  tid: number;
  ts: number;
  dur: number;
  cat: string;
  args: Record<string, unknown>;
}

const trace = traceFromJson(JSON.stringify(gpuTraceFile({ blocks: 4, layers: 2 })));
const { traceEvents } = JSON.parse(chromeJson(trace)) as { traceEvents: Event[] };

test("every span is there, on its block's track, to the nanosecond", () => {
  const spans = traceEvents.filter(({ ph }) => ph === "X");
  expect(spans.length).toBe(trace.spans.block.length);
  spans.forEach(({ tid, ts, dur, cat }, span) => {
    expect(tid - 1).toBe(trace.spans.block[span]);
    expect(Math.round(1000 * ts)).toBe(trace.spans.beginNs[span]);
    expect(Math.round(1000 * (ts + dur))).toBe(trace.spans.endNs[span]);
    expect(cat).toBe(trace.spans.kind[span] === 0 ? "compute" : "wait");
  });
  const names = traceEvents.filter(({ ph }) => ph === "M").map(({ args }) => args.name);
  expect(names).toContain("monolith bf16-flag / position 128");
  expect(names).toContain("blk 2 (SM 1)");
});
