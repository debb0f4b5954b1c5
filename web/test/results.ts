// Measurements like those that xtask writes, made up.

import type { Data, Row, Run, Token } from "../src/results/data";

export function row(own: Partial<Row>): Row {
  return {
    engine: "monolith",
    variant: "bf16-flag",
    format: "bf16",
    model: "standin",
    test: "tg256 @ d16",
    position: 16,
    tok_s_median: 2000,
    tok_s_min: 1990,
    tok_s_max: 2010,
    runs: 5,
    bytes_per_token: 1_200_000_000,
    gb_s: 2400,
    roofline_share: 0.6,
    roofline_gb_s: 4000,
    roofline_source: "a probe",
    predicted_tok_s: 3333,
    launches_per_token: 1,
    tokens_per_joule: null,
    power_w: null,
    throttled: false,
    gate: "passed",
    scope: "decode only",
    quality: null,
    ...own,
  };
}

const far = { test: "tg256 @ d2048", position: 2048, bytes_per_token: 1_400_000_000 };
const fp8 = { variant: "fp8-flag", format: "fp8" };
const quick = { tok_s_median: 3000, tok_s_min: 2990, tok_s_max: 3020 };

export const ROWS: Row[] = [
  row({}),
  row({ ...far, tok_s_median: 1500, tok_s_min: 1400, tok_s_max: 1510 }),
  row({ ...fp8, ...quick, bytes_per_token: 600_000_000, roofline_share: 0.45 }),
  row({ ...fp8, ...far, tok_s_median: 1600, bytes_per_token: 800_000_000 }),
  row({ model: "tiny", bytes_per_token: 16_000_000, tok_s_median: 12_000, roofline_share: 0.05 }),
];

export const RUN: Run = {
  folder: "2026-01-02-gpu-01",
  kind: "gpu",
  gpu: "A made-up GPU",
  date: "2026-01-02",
  driver: "1.2",
  power_limit_w: 700,
  rows: ROWS,
  hidden: [],
  notes: [],
};

export const CPU_RUN: Run = {
  ...RUN,
  ...{ folder: "2026-01-01-cpu-01", kind: "cpu", gpu: "A made-up CPU", driver: null },
  rows: [row({ variant: "bf16-cpu-avx2", model: "tiny", roofline_gb_s: null })],
};

function times(compute: number, weights = 0, handoff = 0, skew = 0, unrecorded = 0) {
  return {
    compute_ns: compute,
    weights_ns: weights,
    handoff_ns: handoff,
    skew_ns: skew,
    unrecorded_ns: unrecorded,
  };
}

export function token(variant: string, position: number, faster = 1): Token {
  const phases = [
    { phase: "qkv", ...times(100_000, 10_000, 50_000, 5000) },
    { phase: "attention", ...times(40_000, 0, 0, 3000) },
    { phase: "lm_head", ...times(60_000 / faster, 30_000 / faster) },
    { phase: "argmax", ...times(2000) },
  ];
  const sum = (key: keyof ReturnType<typeof times>) =>
    phases.reduce((total, phase) => total + phase[key], 0);
  const totals = times(
    sum("compute_ns"),
    sum("weights_ns"),
    sum("handoff_ns"),
    sum("skew_ns"),
    1000,
  );
  return {
    file: `${variant}-${position}.json.gz`,
    title: `${variant}, position ${position}`,
    of: { run: RUN.folder, gpu: RUN.gpu, variant, position },
    step: `standin, ${variant} on A made-up GPU, position ${position}`,
    token_ns: Object.values(totals).reduce((a, b) => a + b),
    totals,
    phases,
    handoff: { mean_pct: 50 / faster, path_pct: 20 * faster },
  };
}

export const DATA: Data = {
  runs: [RUN, CPU_RUN],
  tokens: [token("bf16-flag", 16), token("fp8-flag", 16, 2)],
};
