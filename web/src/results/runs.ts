// Runs and their rows, as `monolith report --json` writes them. The build reads them too.

export interface Quality {
  perplexity: number;
  perplexity_bf16: number;
  perplexity_rise: number;
  kl_mean: number;
  kl_p99: number;
  greedy: number;
  forced: number;
  as_written: boolean;
  after_the_same_text: boolean;
  experimental: boolean;
  failures: string[];
  note: string | null;
}

/** A test of one engine, as in rows.jsonl; null: not measured. */
export interface Row {
  engine: string;
  variant: string;
  format: string;
  model: string;
  test: string;
  position: number | null;
  tok_s_median: number | null;
  tok_s_min: number | null;
  tok_s_max: number | null;
  runs: number;
  bytes_per_token: number | null;
  gb_s: number | null;
  roofline_share: number | null;
  roofline_gb_s: number | null;
  roofline_source: string | null;
  predicted_tok_s: number | null;
  launches_per_token: number | null;
  tokens_per_joule: number | null;
  power_w: number | null;
  throttled: boolean | null;
  gate: string;
  scope: string;
  quality: Quality | null;
}

export interface Run {
  folder: string;
  kind: string;
  gpu: string;
  date: string;
  driver: string | null;
  power_limit_w: number | null;
  rows: Row[];
  hidden: string[];
  notes: string[];
}

/** The processors, GPUs first, each with its runs. */
export function processors(runs: Run[]): { name: string; kind: string; runs: Run[] }[] {
  const names = [...new Set(runs.map(({ gpu }) => gpu))];
  const all = names.map((name) => {
    const own = runs.filter(({ gpu }) => gpu === name);
    return { name, kind: own[0]?.kind ?? "", runs: own };
  });
  return [...all.filter(({ kind }) => kind === "gpu"), ...all.filter(({ kind }) => kind !== "gpu")];
}

/** The run that is shown first: the newest of those that compare the most versions. */
export function firstRun(runs: Run[]): Run | undefined {
  const versions = ({ rows }: Run) => new Set(rows.map(({ variant }) => variant)).size;
  const compares = runs.filter((run) => versions(run) > 1);
  return compares[0] ?? runs[0];
}

/** The models of some rows, the largest first: by the bytes that a token reads. */
export function models(rows: Row[]): string[] {
  const size = (model: string) =>
    Math.max(...rows.map((row) => (row.model === model ? (row.bytes_per_token ?? 0) : 0)));
  return [...new Set(rows.map(({ model }) => model))].sort((a, b) => size(b) - size(a));
}
