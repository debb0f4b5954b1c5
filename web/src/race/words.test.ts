import { expect, test } from "vitest";
import { raceFile } from "../../test/race";
import { racesFrom } from "./data";
import { arrivals, endOf } from "./replay";
import { skyline } from "./skyline";
import {
  agreement,
  facts,
  finish,
  laneName,
  lede,
  ms,
  pace,
  progress,
  standing,
  visible,
} from "./words";

const RACES = racesFrom(JSON.parse(JSON.stringify(raceFile())));
const [GPU, CPU] = RACES.races as [(typeof RACES.races)[0], (typeof RACES.races)[0]];
const AT = GPU.prompts[0]?.streams.map(({ ns }) => arrivals(ns)) ?? [];
const plain = (text: string | null) => (text ?? "").replaceAll("\u00a0", " ");

test("the model, the processor and the run are named; a CPU is called one", () => {
  expect(lede(GPU).join("")).toBe(
    "The stand-in of Qwen3-0.6B's shape, not Qwen's weights, on A made-up GPU. All lanes are of one run, results/2026-01-02-gpu-01.",
  );
  expect(lede(CPU).join("")).toContain("A made-up CPU: a CPU's speeds, not a GPU's.");
});

test("a machine that was not quiet is called so", () => {
  const unquiet = structuredClone(GPU);
  unquiet.prompts[0]?.streams[1]?.runsNs.push(1e9);
  expect(plain(lede(unquiet)[1])).toMatch(
    /The machine was not quiet: runs of one prompt differ by up to [\d,]+ %, so who is first is no verdict\.$/,
  );
  expect(lede(GPU)[1]).not.toContain("quiet");
});

test("how it was timed, what that cost, and what is not there", () => {
  const said = facts(GPU, RACES).map(plain).join(" ");
  for (const words of [
    "by an event on the GPU after each launch",
    "benchmark's 20 prompts. 2 of them are kept, each as the median of 5 runs, which differ by up to 0.8 %.",
    "bf16 +0.40 % a token against the benchmark's median of 2,714 tokens/s",
    "Every lane passed its gate in the same run (passed).",
    "Not in this race: monolith nvfp4-flag: its single tokens were not timed.",
    "No other engine was timed token by token in this run.",
    "Another GPU: no run so far has timed single tokens.",
  ]) {
    expect(said).toContain(words);
  }
  const [first, ...rest] = GPU.lanes;
  const peer = { ...GPU, lanes: [{ ...first, engine: "llama.cpp", gate: "x" }, ...rest] };
  const other = facts(peer as typeof GPU, RACES).join(" ");
  expect(other).toContain("llama.cpp bf16-flag: x; FP8: passed");
  expect(other).not.toContain("No other engine");
});

test("who is where, and who was done first", () => {
  expect(plain(standing(GPU.lanes, AT, 0))).toMatch(/^0\.00 ms: bf16 0 of 256 tokens, FP8 0 of/);
  expect(finish(GPU.lanes, AT, endOf(AT) - 1)).toBe(null);
  expect(plain(finish(GPU.lanes, AT, endOf(AT)))).toMatch(
    /^FP8 was done first, after 8\d\.\d ms; the next one \d\.\d\d ms later\.$/,
  );
  expect(finish(GPU.lanes.slice(0, 1), AT.slice(0, 1), endOf(AT))).toBe(null);
});

test("what cannot be seen is a dot", () => {
  expect(visible("a\u0011\u0000b\n\tc\u202e\u200bé–\ufffd 山🙂")).toBe("a··b\n\tc··é–\ufffd 山🙂");
});

test("a lane counts its tokens, and then says how long they took", () => {
  const at = arrivals([1_000_000, 2_000_000]);
  expect(progress(at, 2_999_999)).toBe("1 of 2 tokens");
  expect(plain(progress(at, 3_000_000))).toBe("2 tokens in 3.00 ms");
});

test("small words", () => {
  expect([ms(1_234_567), ms(43_210_000), ms(1_234_567_890)].map(plain)).toEqual([
    "1.23 ms",
    "43.2 ms",
    "1,235 ms",
  ]);
  expect([pace(1), pace(0.05)]).toEqual(["as fast as it was", "20 times slower than it was"]);
  const [first] = GPU.lanes;
  if (!first) throw new Error("a lane");
  expect(laneName({ ...first, variant: "fp8-cpu-avx2" })).toBe("FP8 cpu avx2");
  expect(agreement(257, 256, first)).toBe("same text as bf16");
  expect(agreement(41, 256, first)).toBe("same text as bf16 for 41 tokens");
  expect(agreement(0, 256, first)).toMatch(/from the first token on$/);
});

test("the drawing ends where the lane ends, and a stall is cut at the top", () => {
  const path = skyline([10, 10, 10, 100], 260);
  expect(path).toMatch(/^M0 100V54\.0H38\.46V54\.0H76\.92V54\.0H115\.38V0\.0H500\.00V100Z$/);
});
