import { expect, test } from "vitest";
import { CPU, CUDA, traceFile } from "../../test/fixture";
import { NO_BLOCK } from "../abi";
import { steppedToWait } from "./focus";
import { traceFromJson } from "./parse";
import { summarized } from "./summary";
import { blockName, caveats, described, duration, headline } from "./words";

const cpu = traceFromJson(JSON.stringify(traceFile(CPU)));
const cuda = traceFromJson(JSON.stringify(traceFile(CUDA)));
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

test("spans in words", () => {
  expect(plain(described(cpu, 0))).toMatch(/^thread 0: embed, worked [\d.]+ µs, at 0\.00 µs$/);
  const wait = steppedToWait(cpu, 8, 1);
  expect(plain(described(cpu, wait))).toMatch(
    /^thread 0: waited [\d.]+ µs for \w+ of layer \d from thread 1, at [\d.]+ µs$/,
  );
  cpu.spans.waitsOn[wait] = NO_BLOCK;
  expect(plain(described(cpu, wait))).toMatch(/ for \w+ of layer \d, at [\d.]+ µs$/);
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

test("lost records are owned up to", () => {
  expect(plain(caveats(cpu.meta))).toBe("The clock tells times apart down to 25 ns.");
  expect(caveats({ ...cpu.meta, overflow: 9 })).toMatch(/^9 records did not fit/);
});
