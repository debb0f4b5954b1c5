import { expect, test } from "vitest";
import { gpuTraceFile } from "../../test/gpu";
import { areaSum } from "./area";
import { traceFromJson } from "./parse";
import { summarized } from "./summary";

const trace = traceFromJson(JSON.stringify(gpuTraceFile({ blocks: 8, layers: 3 })));
const { tokenNs } = trace.meta;
const ALL = { firstBlock: 0, lastBlock: 7, beginNs: 0, endNs: tokenNs };

test("an area of everything has the sums of the trace", () => {
  const { phases, kinds, unrecordedNs } = summarized(trace);
  const sum = areaSum(trace, ALL);
  expect(sum.availableNs).toBe(8 * tokenNs);
  expect(sum.unrecordedNs).toBe(unrecordedNs);
  for (const { phase, workNs } of phases) {
    expect(sum.work.find((work) => work.phase === phase)?.ns ?? 0).toBe(workNs);
  }
  expect(sum.waits.map(({ kind, ns, spans }) => [kind, ns, spans])).toEqual(
    kinds.map(({ kind, totalNs, waits }) => [kind, totalNs, waits]),
  );
  expect(sum.bytes).toBe(trace.streams.bytes.reduce((sum, count) => sum + count, 0));
});

test("two halves have the sums of the whole, however they are cut", () => {
  const middle = Math.round(tokenNs * 0.37);
  const halves = [
    [
      { ...ALL, endNs: middle },
      { ...ALL, beginNs: middle },
    ],
    [
      { ...ALL, lastBlock: 2 },
      { ...ALL, firstBlock: 3 },
    ],
  ];
  const time = (sum: ReturnType<typeof areaSum>) =>
    [...sum.work, ...sum.waits].reduce((total, { ns }) => total + ns, sum.unrecordedNs);
  const whole = areaSum(trace, ALL);
  for (const parts of halves) {
    const sums = parts.map((part) => areaSum(trace, part));
    expect(sums.reduce((total, sum) => total + time(sum), 0)).toBe(time(whole));
    expect(sums.reduce((total, sum) => total + sum.bytes, 0)).toBe(whole.bytes);
  }
});
