import { expect, test } from "vitest";
import { CPU, CUDA, traceFile } from "../../test/fixture";
import { NO_BLOCK, NO_LAYER } from "../abi";
import { traceFromJson } from "./parse";
import { summarized } from "./summary";

/** The dump of crates/xray/tests/xray/dumps.rs: the same sums are expected there. */
function small() {
  const file = traceFile(CPU);
  file.meta = { ...file.meta, blocks: 2, layers: 1, token_ns: 1000 };
  file.spans = {
    block: [0, 0, 0, 0, 1, 1, 1, 1],
    kind: [0, 0, 1, 0, 0, 1, 1, 0],
    phase: [0, 1, 1, 2, 1, 2, 2, 7],
    layer: [NO_LAYER, 0, 0, 0, 0, 0, 0, NO_LAYER],
    waits_on: [NO_BLOCK, NO_BLOCK, 1, NO_BLOCK, NO_BLOCK, 0, NO_BLOCK, NO_BLOCK],
    begin_ns: [0, 100, 400, 650, 150, 700, 900, 930],
    end_ns: [100, 400, 650, 900, 650, 900, 930, 1000],
  };
  return traceFromJson(JSON.stringify(file));
}

test("a trace small enough to add up by hand", () => {
  const summary = summarized(small());
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
  const { workNs, waitNs, unrecordedNs, availableNs } = summary;
  expect([workNs, waitNs, unrecordedNs, availableNs]).toEqual([1220, 480, 300, 2000]);
});

test("no time is lost or counted twice", () => {
  const summary = summarized(traceFromJson(JSON.stringify(traceFile(CUDA))));
  const waits = summary.waits.reduce((sum, wait) => sum + wait.totalNs, 0);
  expect(waits).toBe(summary.waitNs);
  expect(summary.workNs + summary.waitNs + summary.unrecordedNs).toBe(summary.availableNs);
  expect(summary.unrecordedNs).toBeGreaterThan(0);
});
