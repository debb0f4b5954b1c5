// The table of speeds: one processor, one run, one model at a time; sortable, and as CSV.

import { variantName } from "../view/chooser";
import { classed, node } from "../view/dom";
import { firstRun, models, processors, type Row, type Run } from "./data";
import { count, modelName, NOT_MEASURED, share, signedShare, speed } from "./format";

interface Column {
  head: string;
  title: string;
  cell(row: Row): string;
  /** What the column sorts by; null goes last. */
  key(row: Row): string | number | null;
}

const MEGA = 1e6;

export const COLUMNS: Column[] = [
  {
    head: "version",
    title: "Weight format and hand-off",
    cell: (row) => variantName(row.variant) + (row.quality?.experimental ? " (experimental)" : ""),
    key: (row) => row.variant,
  },
  {
    head: "test",
    title: "Tokens decoded, after this many cached positions",
    cell: (row) => row.test,
    key: (row) => row.position ?? -1,
  },
  {
    head: "tokens/s",
    title: "Median of the runs",
    cell: (row) => speed(row.tok_s_median) + (row.throttled ? "*" : ""),
    key: (row) => row.tok_s_median,
  },
  {
    head: "slowest to fastest",
    title: "Of the runs",
    cell: (row) => `${speed(row.tok_s_min)} to ${speed(row.tok_s_max)}`,
    key: (row) => row.tok_s_min,
  },
  {
    head: "predicted",
    title: "By the time model, in tokens/s; by the bytes alone before 2026-11-30-h200-06",
    cell: (row) => speed(row.predicted_tok_s),
    key: (row) => row.predicted_tok_s,
  },
  {
    head: "MB/token",
    title: "Bytes that a step must read: weights and KV cache",
    cell: (row) => count(row.bytes_per_token === null ? null : row.bytes_per_token / MEGA, 1),
    key: (row) => row.bytes_per_token,
  },
  {
    head: "GB/s",
    title: "Those bytes times the speed",
    cell: (row) => count(row.gb_s),
    key: (row) => row.gb_s,
  },
  {
    head: "of roofline",
    title: "Of the read bandwidth that was measured on this processor",
    cell: (row) => share(row.roofline_share),
    key: (row) => row.roofline_share,
  },
  {
    head: "tokens/J",
    title: "Of the whole board's energy (NVML)",
    cell: (row) => count(row.tokens_per_joule, 1),
    key: (row) => row.tokens_per_joule,
  },
  {
    head: "perplexity",
    title: "And its change against the same model in bf16",
    cell: ({ quality, format }) =>
      quality
        ? `${count(quality.perplexity, 2)} (${signedShare(quality.perplexity_rise)})`
        : reference(format),
    key: ({ quality }) => quality?.perplexity_rise ?? null,
  },
  {
    head: "tokens that agree",
    title: "Greedy tokens as in bf16: each by itself, and after the same text",
    cell: ({ quality, format }) =>
      quality ? `${share(quality.greedy, 1)}, ${share(quality.forced, 1)}` : reference(format),
    key: ({ quality }) => quality?.greedy ?? null,
  },
  {
    head: "KL",
    title: "Mean divergence from bf16, in nats",
    cell: ({ quality, format }) => (quality ? count(quality.kl_mean, 5) : reference(format)),
    key: ({ quality }) => quality?.kl_mean ?? null,
  },
  {
    head: "quality gate",
    title: "As written: at least 90 % of greedy tokens agree, perplexity at most 2 % higher",
    cell: ({ quality, format }) =>
      quality ? (quality.as_written ? "passed" : "failed") : reference(format),
    key: ({ quality }) => (quality ? Number(quality.as_written) : null),
  },
  {
    head: "gate",
    title: "Tokens against transformers",
    cell: (row) => row.gate,
    key: (row) => row.gate,
  },
];

/** bf16 is what the others are compared with. */
function reference(format: string): string {
  return format === "bf16" ? "reference" : NOT_MEASURED;
}

/** Rows by a column; rows without a value last, whichever the direction. */
export function sorted(rows: Row[], column: Column, direction: 1 | -1): Row[] {
  return [...rows].sort((a, b) => {
    const [one, other] = [column.key(a), column.key(b)];
    if (one === null || other === null) return Number(one === null) - Number(other === null);
    if (typeof one === "number" && typeof other === "number") return direction * (one - other);
    return direction * String(one).localeCompare(String(other));
  });
}

/** Every field of the rows that is a plain value, and those of the quality. */
export function csv(run: Run, rows: Row[]): string {
  const quote = (value: unknown) => {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const flat = rows.map(({ quality, ...row }) => ({
    ...{ run: run.folder, gpu: run.gpu, ...row },
    ...Object.fromEntries(
      Object.entries(quality ?? {}).map(([key, value]) => [`quality_${key}`, value]),
    ),
  }));
  const keys = [...new Set(flat.flatMap((row) => Object.keys(row)))];
  const lines = flat.map((row) => {
    const values: Record<string, unknown> = row;
    return keys.map((key) => quote(values[key])).join(",");
  });
  return `${[keys.join(","), ...lines].join("\n")}\n`;
}

/** One table for each processor. */
export function showTables(section: HTMLElement, runs: Run[]): void {
  for (const { name, runs: own } of processors(runs)) {
    section.append(new ResultsTable(name, own).element);
  }
}

class ResultsTable {
  readonly element = classed("div", "results");
  private readonly body = classed("div", "scroller");
  private readonly below = classed("div", "below");
  private readonly model = node("select");
  private run: Run;
  private column = 1;
  private direction: 1 | -1 = 1;

  constructor(name: string, runs: Run[]) {
    this.run = firstRun(runs) as Run;
    const run = node("select", ...runs.map(({ folder }) => new Option(folder)));
    run.value = this.run.folder;
    run.addEventListener("change", () => {
      this.run = runs.find(({ folder }) => folder === run.value) ?? this.run;
      this.listModels();
      this.show();
    });
    this.model.addEventListener("change", () => this.show());
    const save = node("button", "CSV");
    save.type = "button";
    save.title = "Download these rows";
    save.addEventListener("click", () => this.download());
    const bar = classed("div", "bar", labelled("Run", run), labelled("Model", this.model), save);
    this.body.tabIndex = 0;
    this.body.setAttribute("role", "region");
    this.body.setAttribute("aria-label", `Speeds on ${name}`);
    this.element.append(node("h3", name), bar, this.body, this.below);
    this.listModels();
    this.show();
  }

  private listModels(): void {
    const own = models(this.run.rows);
    this.model.replaceChildren(...own.map((model) => new Option(modelName(model), model)));
  }

  private rows(): Row[] {
    const rows = this.run.rows.filter(({ model }) => model === this.model.value);
    const column = COLUMNS[this.column];
    return column ? sorted(rows, column, this.direction) : rows;
  }

  private show(): void {
    const head = node("tr", ...COLUMNS.map((column, index) => this.head(column, index)));
    const rows = this.rows().map((row) =>
      node(
        "tr",
        ...COLUMNS.map((column, index) => {
          const text = column.cell(row);
          const cell = node(index === 0 ? "th" : "td", text);
          if (index === 0) cell.setAttribute("scope", "row");
          if (text === NOT_MEASURED) cell.title = "not measured";
          return cell;
        }),
      ),
    );
    const table = node("table", node("thead", head), node("tbody", ...rows));
    table.createCaption().textContent = this.caption();
    this.body.replaceChildren(table);
    this.below.replaceChildren(...this.notes().map((note) => classed("p", "quiet", note)));
  }

  private head({ head, title }: Column, index: number): HTMLElement {
    const button = node("button", head);
    button.type = "button";
    button.title = title;
    button.addEventListener("click", () => {
      this.direction = this.column === index && this.direction === 1 ? -1 : 1;
      this.column = index;
      this.show();
      this.body.querySelectorAll<HTMLButtonElement>("thead button")[index]?.focus();
    });
    const cell = node("th", button);
    cell.scope = "col";
    if (index === this.column) {
      cell.setAttribute("aria-sort", this.direction === 1 ? "ascending" : "descending");
    }
    return cell;
  }

  private caption(): string {
    const { folder, date, driver, power_limit_w: watts } = this.run;
    const facts = [
      `Measured on ${date} in one run, results/${folder}`,
      driver ? `driver ${driver}` : "",
      watts ? `power limit ${count(watts)} W` : "",
    ];
    return `${facts.filter((fact) => fact !== "").join(", ")}. ${this.scope()}`;
  }

  private scope(): string {
    const scopes = [...new Set(this.rows().map(({ scope }) => scope))];
    return scopes.length > 0 ? `Scope: ${scopes.join("; ")}.` : "";
  }

  private notes(): string[] {
    const rows = this.rows();
    const own = [...new Set(rows.flatMap(({ quality }) => quality?.note ?? []))];
    const sources = [...new Set(rows.flatMap((row) => row.roofline_source ?? []))];
    return [
      `${NOT_MEASURED} not measured in this run.`,
      ...sources.map((source) => `Roofline: ${source}.`),
      ...own.map((note) => `Quality: ${note}.`),
      rows.some(({ throttled }) => throttled) ? "* clocks were held back." : "",
      ...this.run.notes,
      ...this.run.hidden.map((line) => `Measured, but not shown: ${line}.`),
    ].filter((note) => note !== "");
  }

  private download(): void {
    const link = document.createElement("a");
    const blob = new Blob([csv(this.run, this.rows())], { type: "text/csv" });
    link.href = URL.createObjectURL(blob);
    link.download = `monolith-${this.run.folder}-${this.model.value}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  }
}

export function labelled(text: string, field: HTMLElement): HTMLLabelElement {
  const label = node("label", classed("span", "quiet", text), field);
  label.className = "field";
  return label;
}
