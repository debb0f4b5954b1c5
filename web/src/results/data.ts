// The measurements beside the page, which `cargo xtask page-data` writes from results/.

import type { PathClass } from "../trace/path";
import { tableBeside } from "../view/beside";
import type { Row, Run } from "./runs";

export * from "./runs";

type PathTimes = { [Class in PathClass as `${Class}_ns`]: number };

/** Where one recorded token's time went. */
export interface Token {
  file: string;
  title: string;
  of: { run: string; gpu: string; variant: string; position: number } | null;
  /** Model, variant, device and position, as text. */
  step: string;
  token_ns: number;
  totals: PathTimes;
  phases: ({ phase: string } & PathTimes)[];
  /** The hand-offs' share of the layers' time: mean of the blocks' waits, and on the critical path. */
  handoff: { mean_pct: number; path_pct: number } | null;
}

export interface Data {
  /** The newest first. */
  runs: Run[];
  tokens: Token[];
}

const RESULTS = "monolith-results/1";
const BUDGET = "monolith-budget/1";

/** The tables; null if they are not there, or of another version. */
export async function dataBeside(): Promise<Data | null> {
  const [results, budget] = await Promise.all([
    tableBeside("results.json"),
    tableBeside("budget.json"),
  ]);
  if (!has(results, RESULTS, "runs") || !has(budget, BUDGET, "tokens")) return null;
  return { runs: results.runs as Run[], tokens: budget.tokens as Token[] };
}

function has<Key extends string>(
  value: unknown,
  schema: string,
  key: Key,
): value is Record<Key, unknown[]> {
  return (
    typeof value === "object" &&
    value !== null &&
    "schema" in value &&
    value.schema === schema &&
    key in value &&
    Array.isArray((value as Record<Key, unknown>)[key])
  );
}

/** The row of a token's version, model and position, measured in the same run. */
export function rowOf(data: Data, { of, step }: Token): Row | null {
  const run = data.runs.find(({ folder }) => folder === of?.run);
  const found = run?.rows.find(
    (row) =>
      row.variant === of?.variant &&
      row.position === of.position &&
      step.startsWith(`${row.model}, `),
  );
  return found ?? null;
}
