import { expect, test } from "vitest";
import { CPU, traceFile } from "../../test/fixture";
import { NO_BLOCK, PHASES } from "../abi";
import { epilogueWork, mostEpilogueWork, publishedNs } from "./epilogue";
import { traceFromJson } from "./parse";

/** Block 1's epilogue works at 1,000 to 1,400 on qkv of layer 0 and at 2,000 to 2,900 on down. */
const file = traceFile(CPU);
file.epilogue = {
  counts: [0, 3],
  kind: [0, 1, 0],
  phase: ["qkv", "qkv", "down"].map((name) => PHASES.indexOf(name as (typeof PHASES)[number])),
  layer: [0, 0, 0],
  waits_on: [NO_BLOCK, 0, NO_BLOCK],
  gap_ns: [1000, 0, 500],
  length_ns: [400, 100, 900],
};
const trace = traceFromJson(JSON.stringify(file));

test("its work is cut to the time asked for, and its waits are no work", () => {
  const work = (from: number, to: number) =>
    [...epilogueWork(trace, 1, from, to)].map(({ row, beginNs, endNs }) => [row, beginNs, endNs]);
  expect(work(0, 1e9)).toEqual([
    [0, 1000, 1400],
    [2, 2000, 2900],
  ]);
  expect(work(1200, 2100)).toEqual([
    [0, 1200, 1400],
    [2, 2000, 2100],
  ]);
  expect(work(1400, 2000)).toEqual([]);
  expect([...epilogueWork(trace, 0, 0, 1e9)]).toEqual([]);
  expect(mostEpilogueWork(trace, 1, 0, 1e9)?.row).toBe(2);
  expect(mostEpilogueWork(trace, 1, 1000, 2100)?.row).toBe(0);
  expect(mostEpilogueWork(trace, 0, 0, 1e9)).toBe(null);
});

test("a block has published when its epilogue's last work of that phase ended", () => {
  const { block, phase, layer, beginNs, endNs } = trace.spans;
  const span = [...block.keys()].find(
    (span) => block[span] === 1 && PHASES[phase[span] ?? 0] === "qkv" && layer[span] === 0,
  );
  if (span === undefined) throw new Error("block 1 has a qkv of layer 0");
  // The span may begin after the made-up epilogue: then its own end counts.
  const begun = beginNs[span] ?? 0;
  const own = endNs[span] ?? 0;
  expect(publishedNs(trace, span, 1e9)).toBe(begun < 1400 ? 1400 : own);
  const none = traceFromJson(JSON.stringify(traceFile(CPU)));
  expect(publishedNs(none, span, 1e9)).toBe(own);
});
