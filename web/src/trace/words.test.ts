import { expect, test } from "vitest";
import { CPU, pathOf, traceFile } from "../../test/fixture";
import { gpuTraceFile } from "../../test/gpu";
import { EVENT_KINDS, type EventKind, NO_BLOCK, PHASES } from "../abi";
import { steppedToWait } from "./focus";
import { overviewOf } from "./overview";
import { traceFromJson } from "./parse";
import { summarized } from "./summary";
import { type Trace, WAIT_KINDS, WORK } from "./trace";
import { whole } from "./viewport";
import {
  blockName,
  blockOnSm,
  bytes,
  caveats,
  described,
  describedCounts,
  describedSegment,
  describedStream,
  duration,
  headline,
  subject,
  waitMeaning,
} from "./words";

const cpu = traceFromJson(JSON.stringify(traceFile(CPU)));
const cuda = traceFromJson(JSON.stringify(gpuTraceFile()));
/** Without the spaces that keep a number and its unit on one line. */
const plain = (text: string) => text.replaceAll("\u00a0", " ");

test("a CPU's blocks are threads, a GPU's are numbered to line up", () => {
  expect(blockName(cpu.meta, 1)).toBe("thread 1");
  expect(blockName(cuda.meta, 7)).toBe("block 007");
});

test("the headline says how long, on what, and where the time went", () => {
  expect(plain(headline(cpu.meta, null))).toMatch(
    /^One token in [\d.]+ µs on a made-up processor\.$/,
  );
  const file = { ...traceFile(CPU), path: {} };
  const token = file.meta.token_ns as number;
  const third = Math.round(token / 3);
  file.path = pathOf([
    ["skew", third],
    ["compute", token - third - 1],
    ["weights", 1],
  ]);
  const { meta, path } = traceFromJson(JSON.stringify(file));
  expect(plain(headline(meta, path))).toMatch(
    /: 67 % computing and 33 % waiting for the slowest\.$/,
  );
  expect(headline({ ...meta, device: "NVIDIA H200" }, path)).toContain(" on an NVIDIA H200: ");
  expect(subject({ ...meta, model: "standin" })).toMatch(/^a stand-in of Qwen3-0.6B's shape on /);
});

test("a segment of the critical path in words", () => {
  const file = { ...traceFile(CPU), path: {} };
  file.path = pathOf([["handoff", file.meta.token_ns as number]]);
  const trace = traceFromJson(JSON.stringify(file));
  const words = trace.path && describedSegment(trace, trace.path, 0);
  expect(plain(words ?? "")).toMatch(
    /^critical path: hand-off of qkv of layer 1 on thread 1, [\d.]+ µs, at 0.00 µs \(from a /,
  );
});

test("counts in words: who works on what, who waits for what", () => {
  const view = whole(cuda.meta.tokenNs, 100);
  const words = describedCounts(cuda, overviewOf(cuda, view, 100, null), 40, 1000);
  expect(plain(words)).toMatch(
    /^At 1\.00 µs, of 132 blocks (working: [^;]+; )?waiting: \d+ for (another block's values|weights)/,
  );
});

test("a block's SM is named where it is known", () => {
  expect(plain(blockOnSm(cuda.meta, 7))).toBe("block 007 (SM 14)");
  expect(blockOnSm(cpu.meta, 1)).toBe("thread 1");
});

test("spans in words", () => {
  expect(plain(described(cpu, 0))).toMatch(/^thread 0: embed, worked [\d.]+ µs, at 0\.00 µs$/);
  const wait = steppedToWait(cpu, 8, 1);
  expect(plain(described(cpu, wait))).toMatch(
    /^thread 0: waited [\d.]+ µs for \w+ of layer \d, last from thread 1, at [\d.]+ µs$/,
  );
  cpu.spans.waitsOn[wait] = NO_BLOCK;
  expect(plain(described(cpu, wait))).toMatch(
    / for \w+ of layer \d, all there at the first poll: latency only, at [\d.]+ µs$/,
  );
});

/** The first span of this kind in block 5 from its thirtieth on, in words. */
function wordsFor(trace: Trace, kind: EventKind): string {
  const start = (trace.rowStarts[5] ?? 0) + 30;
  const found = trace.spans.kind.indexOf(EVENT_KINDS.indexOf(kind), start);
  return plain(described(trace, found));
}

test("every kind of wait says whom or what it waited for", () => {
  const who = String.raw`^block 005 \(SM 10\): `;
  const [us, begin] = [String.raw`[\d.]+ µs`, String.raw`, at [\d.]+ µs$`];
  const expected: [EventKind, string][] = [
    ["wait_exchange", String.raw`waited ${us} for \w+ of layer \d, last from block \d+ \(SM \d+\)`],
    ["wait_ring_full", String.raw`waited ${us} for weights of \w+`],
    ["wait_barrier", String.raw`waited ${us} for its other warps, in \w+ of layer \d`],
    ["work", String.raw`\w+ of layer \d, worked ${us}`],
  ];
  for (const [kind, words] of expected) {
    expect(wordsFor(cuda, kind)).toMatch(new RegExp(who + words + (kind === "work" ? "" : begin)));
  }
  const meanings = WAIT_KINDS.map((kind) => waitMeaning(cuda.meta, kind));
  expect(new Set(meanings).size).toBe(WAIT_KINDS.length);
});

test("work on streamed weights says when they were issued and had arrived", () => {
  const { phase, kind } = cuda.spans;
  const work = phase.findIndex((id, span) => PHASES[id] === "qkv" && kind[span] === WORK);
  expect(plain(described(cuda, work))).toMatch(
    /^block 000 \(SM 0\): qkv of layer 0, worked [\d.]+ µs, at [\d.]+ µs; its [\d.]+ kB of weights were issued at 0\.00 µs and arrived by [\d.]+ µs: [\d.]+ GB\/s$/,
  );
});

test("streams in words", () => {
  expect(plain(describedStream(cuda, 3))).toMatch(
    /^block 000 \(SM 0\): weights of down of layer 0, 81\.9 kB in 5 copies, in flight [\d.]+ µs \([\d.]+ GB\/s\), at [\d.]+ µs, [\d.]+ µs ahead of the work on them$/,
  );
  expect([1234, 9_999_000, 12_345_678].map(bytes).map(plain)).toEqual([
    "1.2 kB",
    "9,999 kB",
    "12.3 MB",
  ]);
});

test("durations read well at any length", () => {
  const lengths = [40, 12_345, 433_512, 9_999_999, 41_234_567];
  expect(lengths.map(duration).map(plain)).toEqual([
    "0.04 µs",
    "12.35 µs",
    "433.5 µs",
    "10,000.0 µs",
    "41.23 ms",
  ]);
});

test("the caveats: what is missing, what recording cost, how true the times are", () => {
  const said = (meta: Trace["meta"], trace: Trace) =>
    plain(caveats(meta, summarized(trace)).join("\n"));
  expect(said(cpu.meta, cpu)).toMatch(
    /^The clocks of two threads are put on one time to within 25 ns \(one clock for all threads\): .*\nFor \d\.\d % of the threads' time there is no record: the chart is empty there\.$/,
  );
  const own = said(cuda.meta, cuda);
  expect(own).toContain("runs 1.9 % slower than the one that is timed, 1,475 against 1,502 tokens");
  expect(own).toMatch(/\nKernels: 3fa91c0d5be2\.$/);
  const lossy = { ...cuda.meta, overflow: 9, pace: null };
  expect(said(lossy, cuda)).toMatch(/^9 records did not fit/);
  const quick = { headlineTokS: 1000, instrumentedTokS: 1001, overheadPct: -0.1 };
  expect(said({ ...cuda.meta, pace: quick }, cuda)).toContain("runs 0.1 % faster than");
});
