// Races like those that `monolith report --race` writes, made up.

const TEXT =
  " the lamp was lit before the snow came down, and the harbour was a line of ice.\nNobody had " +
  "written since the summer. She counted the stores twice – flour, oil, coal – and wrote each " +
  "figure into the book, as her father had done; then she slept, and the wind turned to the north. " +
  "In the morning there were tracks on the beach, and a boat that nobody knew. ";

/** `tokens` pieces of text; every 29th completes nothing, as inside a character. */
function pieces(tokens: number, from: number): string[] {
  const words = TEXT.match(/\s*\S+/g) ?? [];
  return Array.from({ length: tokens }, (_, index) =>
    (index + from) % 29 === 28 ? "" : (words[(index + from) % words.length] ?? ""),
  );
}

/** Times about `usualNs`, with a stall now and then; the same every time. */
export function times(tokens: number, usualNs: number, seed: number): number[] {
  let state = seed;
  return Array.from({ length: tokens }, (_, index) => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    const unrest = 0.94 + (0.12 * state) / 2_147_483_648;
    return Math.round(usualNs * unrest * (index % 61 === 60 ? 2.2 : 1));
  });
}

/** Five runs, of which the third is the stream's. */
function timed(ns: number[]): { ns: number[]; runs_ns: number[] } {
  const total = ns.reduce((a, b) => a + b);
  return { ns, runs_ns: [0.996, 0.999, 1, 1.001, 1.004].map((share) => share * total) };
}

const LANES = [
  { variant: "bf16-flag", format: "bf16", usualNs: 370_000, agrees: 257 },
  { variant: "fp8-flag", format: "fp8", usualNs: 328_000, agrees: 141 },
  { variant: "fp8-head-bf16-flag", format: "fp8-head-bf16", usualNs: 357_000, agrees: 190 },
] as const;

export function raceFile(tokens = 256, lanes = LANES.length) {
  const own = LANES.slice(0, lanes);
  const prompt = (number: number, text: string) => ({
    prompt: number,
    text,
    streams: own.map(({ usualNs, agrees }, index) => ({
      first: " When",
      pieces: pieces(tokens, number).map((piece, at) =>
        at + 1 < agrees ? piece : piece.toUpperCase(),
      ),
      ...timed(times(tokens, usualNs, 1 + index + number)),
      agrees: Math.min(agrees, tokens + 1),
    })),
  });
  const race = {
    run: "2026-01-02-gpu-01",
    date: "2026-01-02",
    run_id: "0123456789abcdef",
    kind: "gpu",
    gpu: "A made-up GPU",
    model: "standin",
    test: `tg${tokens} @ prompts`,
    prompt_ids_sha256: "0".repeat(64),
    clock: "CUDA events",
    lanes: own.map(({ variant, format, usualNs }) => ({
      engine: "monolith",
      variant,
      format,
      gate: "passed",
      commit: "0123456",
      pass_tok_s: 1e9 / usualNs,
      headline_tok_s: 1.004e9 / usualNs,
      pass_prompts: 20,
    })),
    prompts: [
      prompt(
        0,
        "The ferry stopped running the winter that the lighthouse keeper's sister came home.",
      ),
      prompt(16, `A long one.\n${TEXT.repeat(3)}`),
    ],
    absent: ["monolith nvfp4-flag: its single tokens were not timed"],
  };
  return {
    schema: "monolith-race/1",
    races: [
      race,
      { ...race, run: "2026-01-01-cpu-01", kind: "cpu", gpu: "A made-up CPU", model: "tiny" },
    ],
    missing: ["Another GPU: no run so far has timed single tokens"],
    problems: [],
  };
}
