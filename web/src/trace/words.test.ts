import { expect, test } from "vitest";
import { CPU, traceFile } from "../../test/fixture";
import { gpuTraceFile } from "../../test/gpu";
import { EVENT_KINDS, type EventKind, NO_BLOCK, PHASES } from "../abi";
import { steppedToWait } from "./focus";
import { traceFromJson } from "./parse";
import { summarized } from "./summary";
import { type Trace, WAIT_KINDS, WORK } from "./trace";
import {
  blockName,
  blockOnSm,
  bytes,
  caveats,
  described,
  describedStream,
  duration,
  headline,
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

test("the headline names what ran, on what, how long, and the share of waiting", () => {
  expect(plain(headline(cpu.meta, summarized(cpu)))).toMatch(
    /^Qwen3-0.6B on a made-up processor, cpu engine, variant bf16-cpu-avx512: the token at position 128 took [\d.]+ µs\. On average, its 2 threads spent \d+\.\d % of that time waiting\.$/,
  );
  const alone = { ...cpu.meta, blocks: 1 };
  expect(headline(alone, summarized(cpu))).toContain(". Its one thread spent ");
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
    /^block 000 \(SM 0\): qkv of layer 0, worked [\d.]+ µs, at [\d.]+ µs; its weights were issued at 0\.00 µs and arrived by [\d.]+ µs$/,
  );
});

test("streams in words", () => {
  expect(plain(describedStream(cuda, 3))).toMatch(
    /^block 000 \(SM 0\): weights of down of layer 0, 81\.9 kB in 5 copies, in flight [\d.]+ µs, at [\d.]+ µs, [\d.]+ µs ahead of the work on them$/,
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
  expect(plain(caveats(cpu.meta, summarized(cpu)))).toMatch(
    /^\d\.\d % of the threads' time is not recorded\. Times of two threads compare to within 25 ns \(one clock for all threads\)\.$/,
  );
  expect(plain(caveats(cuda.meta, summarized(cuda)))).toMatch(
    / The recording build runs 1\.9 % slower than the headline build: 1,474\.9 against 1,502\.4 tokens a second\. .* Kernels 3fa91c0d5be2\.$/,
  );
  const lossy = { ...cuda.meta, overflow: 9, pace: null };
  expect(caveats(lossy, summarized(cuda))).toMatch(/^9 records did not fit/);
  const quick = { headlineTokS: 1000, instrumentedTokS: 1001, overheadPct: -0.1 };
  expect(plain(caveats({ ...cuda.meta, pace: quick }, summarized(cuda)))).toContain(
    "runs 0.1 % faster than",
  );
});
