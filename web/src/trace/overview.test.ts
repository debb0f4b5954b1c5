import { expect, test } from "vitest";
import { CPU, traceFile } from "../../test/fixture";
import { gpuTraceFile } from "../../test/gpu";
import { EVENT_KINDS, PHASES } from "../abi";
import { EPILOGUE_FROM, isCrowded, overviewOf, pathOverview, STATES, WAITS_FROM } from "./overview";
import { traceFromJson } from "./parse";
import { PATH_CLASSES, type Path } from "./path";
import { summarized } from "./summary";
import { whole, windowed } from "./viewport";

const gpu = traceFromJson(JSON.stringify(gpuTraceFile()));
const { tokenNs, blocks } = gpu.meta;

/** The sum of a state over all columns, in ns. */
function totalNs(view = whole(tokenNs, 300), mask: Uint8Array | null = null): number[] {
  const { blocks, columns } = overviewOf(gpu, view, 300, mask);
  const sums = Array.from({ length: STATES }, () => 0);
  for (let at = 0; at < blocks.length; at++)
    sums[at % STATES] = (sums[at % STATES] ?? 0) + (blocks[at] ?? 0);
  return sums.map((sum) => (sum / columns) * (view.endNs - view.beginNs));
}

test("the counts of a whole token add up to the sums of its spans", () => {
  const { phases, kinds } = summarized(gpu);
  const sums = totalNs();
  for (const { phase, workNs } of phases) {
    expect(sums[PHASES.indexOf(phase)]).toBeCloseTo(workNs, -3);
  }
  for (const { kind, totalNs } of kinds) {
    expect(sums[WAITS_FROM + EVENT_KINDS.indexOf(kind)]).toBeCloseTo(totalNs, -3);
  }
});

test("no column counts more blocks than there are, and a view counts what is in it", () => {
  const view = windowed(whole(tokenNs, 300), tokenNs, tokenNs / 3, tokenNs / 2);
  const part = overviewOf(gpu, view, 300, null);
  for (let column = 0; column < part.columns; column++) {
    const own = part.blocks.subarray(column * STATES, (column + 1) * STATES);
    const sum = own.reduce((sum, value) => sum + value, 0);
    expect(sum).toBeLessThanOrEqual(blocks + 0.01);
    expect(sum).toBeGreaterThan(blocks / 2);
  }
});

test("what the search does not name is not counted", () => {
  const mask = new Uint8Array(gpu.spans.block.length);
  expect(Math.max(...totalNs(undefined, mask))).toBe(0);
  mask[0] = 1;
  expect(totalNs(undefined, mask).reduce((a, b) => a + b)).toBeGreaterThan(0);
});

test("a wait during which the epilogue works counts as the epilogue's work", () => {
  const file = traceFile({ ...CPU, blocks: 2 });
  // The first wait of block 0 or 1, in which an epilogue works from begin to end.
  const trace = traceFromJson(JSON.stringify(file));
  const wait = trace.spans.kind.indexOf(EVENT_KINDS.indexOf("wait_exchange"));
  const [begin, end] = [trace.spans.beginNs[wait] ?? 0, trace.spans.endNs[wait] ?? 0];
  const own = trace.spans.block[wait];
  const down = PHASES.indexOf("down");
  file.epilogue = {
    counts: own === 0 ? [1, 0] : [0, 1],
    ...{ kind: [0], phase: [down], layer: [2], waits_on: [65_535] },
    ...{ gap_ns: [begin], length_ns: [end - begin] },
  };
  const withEpilogue = traceFromJson(JSON.stringify(file));
  const view = windowed(whole(trace.meta.tokenNs, 1), trace.meta.tokenNs, begin, end);
  const counts = (of: typeof trace) => overviewOf(of, view, 1, null).blocks;
  const state = WAITS_FROM + EVENT_KINDS.indexOf("wait_exchange");
  expect(counts(trace)[state]).toBeGreaterThan(0.9);
  expect(counts(withEpilogue)[EPILOGUE_FROM + down]).toBeCloseTo(1, 1);
  expect(counts(withEpilogue)[state]).toBeLessThan((counts(trace)[state] ?? 0) - 0.4);
});

test("the path's shares fill every column that it covers", () => {
  const path: Path = {
    block: Uint16Array.of(0, 0),
    cls: Uint8Array.of(0, 2),
    phase: Uint8Array.of(1, 1),
    layer: Uint16Array.of(0, 0),
    beginNs: Float64Array.of(0, 50),
    endNs: Float64Array.of(50, 100),
  };
  const shares = pathOverview(path, { beginNs: 0, endNs: 100, width: 4 }, 4);
  const [compute, handoff] = [0, 2];
  const of = (cls: number) =>
    [0, 1, 2, 3].map((column) => shares[column * PATH_CLASSES.length + cls]);
  expect(of(compute)).toEqual([1, 1, 0, 0]);
  expect(of(handoff)).toEqual([0, 0, 1, 1]);
});

test("a GPU's whole token is too crowded for rows, one layer is not, few threads never are", () => {
  expect(isCrowded(gpu, whole(tokenNs, 1300))).toBe(true);
  expect(isCrowded(gpu, { beginNs: 0, endNs: tokenNs / 30, width: 1300 })).toBe(false);
  const cpu = traceFromJson(JSON.stringify(traceFile(CPU)));
  expect(isCrowded(cpu, whole(cpu.meta.tokenNs, 100))).toBe(false);
});
