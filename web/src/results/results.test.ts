// The sums and sentences below the chart. How they look is tested in test/browser.

import { describe, expect, test } from "vitest";
import { CPU_RUN, DATA, ROWS, RUN, row, token } from "../../test/results";
import { differences, leastOf, partsOf, verdict } from "./budget";
import { firstRun, models, processors, rowOf } from "./data";
import { losses } from "./losses";
import { linesOf, topOf } from "./sweep";
import { COLUMNS, csv, sorted } from "./table";

const plain = (text: string) => text.replaceAll("\u00a0", " ");

describe("the budget", () => {
  test("the parts of a token add up to it", () => {
    for (const one of DATA.tokens) {
      const parts = partsOf(one);
      expect(parts.reduce((sum, { ns }) => sum + ns, 0)).toBe(one.token_ns);
      expect(parts.map(({ name }) => name)).toContain("hand-offs");
    }
    const ns = (name: string) => partsOf(token("a", 1)).find((part) => part.name === name)?.ns;
    expect([ns("matrices"), ns("attention"), ns("LM head")]).toEqual([100_000, 40_000, 62_000]);
  });

  test("the least time is of the row of the same run, version, position and model", () => {
    const [bf16, fp8] = DATA.tokens;
    if (!bf16 || !fp8) throw new Error("two tokens");
    expect(rowOf(DATA, fp8)).toBe(ROWS[2]);
    const least = leastOf(bf16, DATA);
    expect(least?.ns).toBe(300_000);
    expect(plain(least?.formula ?? "")).toBe("1,200.0 MB ÷ 4,000 GB/s = 300.0 µs");
    expect(leastOf({ ...bf16, step: "other, bf16" }, DATA)).toBe(null);
    expect(leastOf(token("bf16-flag", 99), DATA)).toBe(null);
    expect(leastOf({ ...bf16, of: null }, DATA)).toBe(null);
  });

  test("the difference is told phase by phase, and of the token", () => {
    const rows = differences(token("bf16-flag", 16), token("fp8-flag", 16, 2));
    const of = (name: string) => rows.find(({ phase }) => phase === name)?.more;
    expect([of("qkv"), of("lm_head"), of("token")]).toEqual([0, -45_000, -45_000]);
    expect(of("down")).toBe(undefined);
  });

  test("the verdict on the plan says what rose and what fell", () => {
    const words = plain(verdict(DATA.tokens));
    expect(words).toContain("It does not rise throughout.");
    expect(words).toContain("rises from 20.0 % to 40.0 % on the critical path");
    expect(words).toContain("waits for others falls from 50.0 % to 25.0 %");
    const [bf16, fp8] = DATA.tokens;
    if (!bf16 || !fp8) throw new Error("two tokens");
    const both = { ...fp8, handoff: { mean_pct: 60, path_pct: 30 } };
    expect(verdict([bf16, both])).toContain("; it does.");
    expect(verdict([bf16])).toBe("");
  });
});

describe("the tables", () => {
  test("GPUs come first, and the first run is the newest that compares versions", () => {
    const lone = { ...RUN, folder: "newer", rows: ROWS.slice(0, 1) };
    expect(processors([CPU_RUN, RUN]).map(({ kind }) => kind)).toEqual(["gpu", "cpu"]);
    expect(firstRun([lone, RUN])).toBe(RUN);
    expect(firstRun([lone])).toBe(lone);
    expect(models(ROWS)).toEqual(["standin", "tiny"]);
  });

  test("a column sorts both ways, and rows without a value stay last", () => {
    const speeds = COLUMNS.find(({ head }) => head === "tokens/s");
    if (!speeds) throw new Error("a column of speeds");
    const rows = [...ROWS, row({ tok_s_median: null })];
    const of = (direction: 1 | -1) =>
      sorted(rows, speeds, direction).map(({ tok_s_median }) => tok_s_median);
    expect(of(1)).toEqual([1500, 1600, 2000, 3000, 12_000, null]);
    expect(of(-1)).toEqual([12_000, 3000, 2000, 1600, 1500, null]);
  });

  test("what was not measured is not a number", () => {
    const cell = (head: string, of: Parameters<typeof row>[0]) =>
      plain(COLUMNS.find((column) => column.head === head)?.cell(row(of)) ?? "");
    expect(cell("tokens/J", {})).toBe("–");
    expect(cell("KL", { format: "fp8" })).toBe("–");
    expect(cell("KL", {})).toBe("reference");
    const quality = {
      ...{ perplexity: 22.3, perplexity_bf16: 22.2, perplexity_rise: -0.0041 },
      ...{ kl_mean: 0.004, kl_p99: 0.02, greedy: 0.538, forced: 0.966 },
      ...{ as_written: false, after_the_same_text: true, experimental: true },
      ...{ failures: [], note: null },
    };
    expect(cell("perplexity", { quality })).toBe("22.30 (−0.41 %)");
    expect(cell("tokens that agree", { quality })).toBe("53.8 %, 96.6 %");
    expect(cell("quality gate", { quality })).toBe("failed");
    expect(cell("version", { quality })).toBe("bf16 (experimental)");
  });

  test("CSV quotes what needs it and leaves out nothing", () => {
    const text = csv(RUN, [row({ scope: 'decode, "argmax"' })]);
    const [head = "", line = "", end] = text.split("\n");
    expect(end).toBe("");
    expect(head.split(",").slice(0, 3)).toEqual(["run", "gpu", "engine"]);
    expect(line).toContain('"decode, ""argmax"""');
    expect(line).toContain("1200000000");
  });
});

describe("speed by position", () => {
  test("a line a version, in order of position, with the bound of its bytes", () => {
    const [bf16, fp8] = linesOf([...ROWS].reverse(), "standin");
    expect([bf16?.variant, fp8?.variant]).toEqual(["fp8-flag", "bf16-flag"]);
    expect(fp8?.points.map(({ position }) => position)).toEqual([16, 2048]);
    expect(fp8?.points[0]?.bound).toBeCloseTo(3333.3, 1);
    expect(linesOf(ROWS, "tiny")[0]?.points.length).toBe(1);
  });

  test("a bound far above the lines does not flatten them", () => {
    const lines = linesOf(ROWS, "standin");
    // fp8's bound is 6,667 where its speed is 3,000 and the highest run makes 3,020.
    expect(topOf(lines)).toBeLessThan(6000);
    expect(topOf(lines)).toBeGreaterThan(3300);
  });
});

test("where it loses: every number comes from the rows", () => {
  const said = losses(DATA).map(plain);
  expect(said[0]).toBe(
    "Fewer bytes are not that much faster. On the A made-up GPU FP8 reads 50 % of bf16's bytes " +
      "and is 1.50 times as fast: 45 % of the measured bandwidth, against 60 %.",
  );
  expect(said[1]).toContain("makes 2,000 tokens a second from position 16 and 1,500 from 2,048");
  expect(said[2]).toContain("the tiny model uses 5 % of");
  expect(said.join(" ")).toContain("on an RTX 5090");
  expect(said.join(" ")).toContain("No row is of Qwen3-0.6B's published weights");
  const own = row({ model: "Qwen3-0.6B", engine: "llama.cpp", tokens_per_joule: 1 });
  const more = losses({ ...DATA, runs: [{ ...RUN, rows: [own] }] }).join(" ");
  expect(more).not.toContain("llama.cpp");
  expect(more).not.toContain("of energy");
  expect(more).not.toContain("published weights");
});
