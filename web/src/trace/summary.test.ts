import { expect, test } from "vitest";
import { CPU, metaOf, type TraceFile, traceFile } from "../../test/fixture";
import { gpuTraceFile } from "../../test/gpu";
import { NO_BLOCK, NO_LAYER, PHASES } from "../abi";
import { traceFromJson } from "./parse";
import { summarized } from "./summary";

/** Small enough to add up by hand. */
function small(): TraceFile {
  return {
    ...traceFile(CPU),
    meta: metaOf({ blocks: 2, layers: 1, token_ns: 1000 }),
    spans: {
      counts: [4, 4],
      kind: [0, 0, 1, 0, 0, 1, 1, 0],
      phase: [0, 1, 1, 2, 1, 2, 2, 7],
      layer: [NO_LAYER, 0, 0, 0, 0, 0, 0, NO_LAYER],
      waits_on: [NO_BLOCK, NO_BLOCK, 1, NO_BLOCK, NO_BLOCK, 0, NO_BLOCK, NO_BLOCK],
      gap_ns: [0, 0, 0, 0, 150, 50, 0, 0],
      length_ns: [100, 300, 250, 250, 500, 200, 30, 70],
    },
  };
}

const summaryOf = (file: TraceFile) => summarized(traceFromJson(JSON.stringify(file)));

test("a trace small enough to add up by hand", () => {
  const summary = summaryOf(small());
  const rows = summary.phases.map((t) => [t.phase, t.workNs, t.workMaxNs, t.waitNs, t.waitMaxNs]);
  expect(rows).toEqual([
    ["embed", 100, 100, 0, 0],
    ["qkv", 800, 500, 250, 250],
    ["attention", 250, 250, 230, 230],
    ["argmax", 70, 70, 0, 0],
  ]);
  expect(summary.waits).toEqual([
    { phase: "qkv", producer: 1, waits: 1, totalNs: 250, longestNs: 250 },
    { phase: "attention", producer: 0, waits: 1, totalNs: 200, longestNs: 200 },
    { phase: "attention", producer: NO_BLOCK, waits: 1, totalNs: 30, longestNs: 30 },
  ]);
  expect(summary.kinds).toEqual([
    { kind: "wait_exchange", waits: 3, totalNs: 480, longestNs: 250 },
  ]);
  expect(summary.streams).toEqual([]);
  // No work on down: the layers have no end.
  expect([summary.layersNs, summary.handOffNs]).toEqual([0, 0]);
  const { workNs, waitNs, unrecordedNs, availableNs } = summary;
  expect([workNs, waitNs, unrecordedNs, availableNs]).toEqual([1220, 480, 300, 2000]);
});

test("waits by kind: only those for another block are hand-offs, and name whom", () => {
  const file = small();
  file.spans.kind = [0, 0, 1, 0, 0, 2, 4, 0];
  file.spans.waits_on[5] = NO_BLOCK;
  const summary = summaryOf(file);
  expect(summary.kinds).toEqual([
    { kind: "wait_exchange", waits: 1, totalNs: 250, longestNs: 250 },
    { kind: "wait_ring_full", waits: 1, totalNs: 200, longestNs: 200 },
    { kind: "wait_barrier", waits: 1, totalNs: 30, longestNs: 30 },
  ]);
  expect(summary.waits.map(({ phase, producer }) => [phase, producer])).toEqual([["qkv", 1]]);
  expect(summary.waitNs).toBe(480);
});

test("the hand-offs' share is of the time from the first qkv to the last down", () => {
  const file = small();
  // Block 0's work on attention is work on down instead, and ends at 900.
  file.spans.phase[3] = PHASES.indexOf("down");
  const { layersNs, handOffNs } = summaryOf(file);
  // From 100 to 900, with 250 ns of waits in block 0 and 200 in block 1: 30 more come after.
  expect([layersNs, handOffNs]).toEqual([800, 225]);
});

test("streams by phase, and how far ahead of the work they run", () => {
  const file = small();
  file.streams = {
    counts: [2, 1],
    phase: [1, 3, 1],
    layer: [0, 0, 0],
    copies: [4, 2, 5],
    bytes: [64, 32, 80],
    begin_ns: [20, 500, 160],
    length_ns: [60, 100, 40],
  };
  const { streams } = summaryOf(file);
  // Issued 80 ns before block 0's work on qkv, and 10 ns after block 1's began.
  expect(streams).toEqual([
    { phase: "qkv", streams: 2, copies: 9, bytes: 144, flightNs: 100, used: 2, leadNs: 70 },
    { phase: "o_proj", streams: 1, copies: 2, bytes: 32, flightNs: 100, used: 0, leadNs: 0 },
  ]);
});

test("no time is lost or counted twice", () => {
  const summary = summaryOf(gpuTraceFile());
  const total = (rows: { totalNs: number }[]) =>
    rows.reduce((sum, { totalNs }) => sum + totalNs, 0);
  expect(summary.kinds.map(({ kind }) => kind)).toEqual([
    "wait_exchange",
    "wait_ring_full",
    "wait_barrier",
  ]);
  expect(total(summary.kinds)).toBe(summary.waitNs);
  expect(total(summary.waits)).toBe(summary.kinds[0]?.totalNs);
  expect(summary.workNs + summary.waitNs + summary.unrecordedNs).toBe(summary.availableNs);
  expect(summary.unrecordedNs).toBeGreaterThan(0);
  expect(summary.handOffNs).toBeLessThan(summary.layersNs);
});
