// Where a token's time goes in each version, beside the least time that its bytes allow, and the
// difference of two versions phase by phase.

import { PHASES } from "../abi";
import { variantName } from "../view/chooser";
import { classed, node } from "../view/dom";
import { type Data, rowOf, type Token } from "./data";
import { count, share, us } from "./format";
import { labelled } from "./table";

export interface Part {
  name: string;
  className: string;
  ns: number;
  means: string;
}

type Phase = Token["phases"][number];

/** A token's time in parts that add up to it: its critical path, by phase and class. */
export function partsOf(token: Token): Part[] {
  const sum = (of: (phase: Phase) => number) =>
    token.phases.reduce((total, phase) => total + of(phase), 0);
  const compute = (...names: string[]) =>
    sum((phase) => (names.includes(phase.phase) ? phase.compute_ns : 0));
  const attention = compute("attention");
  const head = compute("lm_head", "argmax");
  const handOffs = token.phases
    .filter(({ handoff_ns }) => handoff_ns > 0)
    .map(({ phase, handoff_ns }) => `${phase} ${us(handoff_ns)}`);
  const { totals } = token;
  return [
    {
      name: "matrices",
      className: "matrices",
      ns: totals.compute_ns - attention - head,
      means: "Multiplying by the layers' matrices, while their weights stream in",
    },
    {
      name: "attention",
      className: "attention",
      ns: attention,
      means: "Attention over the cached positions",
    },
    {
      name: "LM head",
      className: "head",
      ns: head,
      means: "The logits of the whole vocabulary, and the largest of them",
    },
    {
      name: "weights",
      className: "weights",
      ns: totals.weights_ns,
      means: "Waiting for weights that had not arrived",
    },
    {
      name: "hand-offs",
      className: "handoff",
      ns: totals.handoff_ns,
      means: `Values on their way from block to block: ${handOffs.join(", ")}`,
    },
    {
      name: "skew",
      className: "skew",
      ns: totals.skew_ns,
      means: "Waiting for the slowest block or warp",
    },
    {
      name: "not recorded",
      className: "unrecorded",
      ns: totals.unrecorded_ns,
      means: "No span covers this time",
    },
  ];
}

/** A token's name: its version and position. */
export function tokenName({ of, title }: Token): string {
  return of ? `${variantName(of.variant)}, position ${count(of.position)}` : title;
}

export function showBudget(section: HTMLElement, data: Data): void {
  const gpus = [...new Set(data.tokens.flatMap(({ of }) => (of ? [of.gpu] : [])))];
  for (const gpu of gpus) {
    const tokens = data.tokens.filter(({ of }) => of?.gpu === gpu);
    // Position by position, so that versions stand one below the other.
    tokens.sort((a, b) => (a.of?.position ?? 0) - (b.of?.position ?? 0));
    const longest = Math.max(...tokens.map(({ token_ns }) => token_ns));
    section.append(
      node("h3", gpu),
      ...tokens.map((token) => bar(token, data, longest)),
      key(tokens),
      node("p", verdict(tokens)),
      difference(tokens),
    );
  }
}

function bar(token: Token, data: Data, longestNs: number): HTMLElement {
  const parts = partsOf(token).filter(({ ns }) => ns / token.token_ns >= 0.001);
  const strip = classed(
    "div",
    "strip",
    ...parts.map(({ name, className, ns, means }) => {
      const percent = share(ns / token.token_ns, 0);
      const part = classed("span", `part ${className}`, node("span", percent));
      part.style.flexGrow = String(ns);
      part.title = `${name}: ${us(ns)}, ${percent}. ${means}.`;
      return part;
    }),
  );
  strip.style.width = share(token.token_ns / longestNs, 3).replaceAll("\u00a0", "");
  strip.setAttribute("role", "img");
  const said = parts.map(({ name, ns }) => `${name} ${share(ns / token.token_ns, 1)}`);
  strip.setAttribute("aria-label", `${tokenName(token)}: ${said.join(", ")}`);
  const track = classed("div", "track", strip);
  const least = leastOf(token, data);
  if (least) {
    const line = classed("i", "least");
    line.style.left = share(least.ns / longestNs, 3).replaceAll("\u00a0", "");
    line.title = least.formula;
    track.append(line);
  }
  const words = classed(
    "p",
    "quiet",
    least ? `Least time for its bytes: ${least.formula}` : "Least time: no bandwidth was measured.",
  );
  const head = node("p", node("b", tokenName(token)), ` ${us(token.token_ns)}`);
  return classed("div", "budget", head, track, words);
}

/** The time that reading the token's bytes takes at the measured bandwidth. */
export function leastOf(token: Token, data: Data): { ns: number; formula: string } | null {
  const row = rowOf(data, token);
  if (!row?.bytes_per_token || !row.roofline_gb_s) return null;
  const ns = row.bytes_per_token / row.roofline_gb_s;
  const formula = `${count(row.bytes_per_token / 1e6, 1)} MB ÷ ${count(row.roofline_gb_s)} GB/s = ${us(ns)}`;
  return { ns, formula };
}

function key(tokens: Token[]): HTMLElement {
  const first = tokens[0];
  const parts = first ? partsOf(first) : [];
  const items = parts
    .filter((part) => tokens.some((token) => share0(token, part.name) >= 0.001))
    .map(({ name, className }) => {
      const swatch = node("i");
      swatch.className = `swatch ${className}`;
      return node("li", swatch, name);
    });
  const line = classed("i", "swatch least-key");
  return classed("ul", "key", ...items, node("li", line, "least time for the bytes"));
}

function share0(token: Token, name: string): number {
  return (partsOf(token).find((part) => part.name === name)?.ns ?? 0) / token.token_ns;
}

/** What became of the plan's prediction that the hand-offs' share grows with fewer bytes. */
export function verdict(tokens: Token[]): string {
  const pairs = tokens.flatMap((bf16) => {
    if (!bf16.of?.variant.startsWith("bf16") || !bf16.handoff) return [];
    const fp8 = tokens.find(
      ({ of, handoff }) =>
        of?.variant === bf16.of?.variant.replace(/^bf16/, "fp8") &&
        of?.position === bf16.of?.position &&
        handoff !== null,
    );
    return fp8?.handoff ? [{ at: bf16.of.position, from: bf16.handoff, to: fp8.handoff }] : [];
  });
  if (pairs.length === 0) return "";
  const shift = (from: number, to: number) =>
    `${to > from ? "rises" : "falls"} from ${count(from, 1)}\u00a0% to ${count(to, 1)}\u00a0%`;
  const said = pairs.map(
    ({ at, from, to }) =>
      `At position ${count(at)} the hand-offs' share of the layers' time ` +
      `${shift(from.path_pct, to.path_pct)} on the critical path from bf16 to FP8, while the time ` +
      `that the average block waits for others ${shift(from.mean_pct, to.mean_pct)}.`,
  );
  const always = pairs.every(
    ({ from, to }) => to.path_pct > from.path_pct && to.mean_pct > from.mean_pct,
  );
  const plan = always
    ? "The plan expected the share to rise, since FP8 halves the bytes and leaves the hand-offs alone; it does."
    : "The plan expected the share to rise, since FP8 halves the bytes and leaves the hand-offs alone. It does not rise throughout.";
  return [plan, ...said].join(" ");
}

function difference(tokens: Token[]): HTMLElement {
  const options = () => tokens.map((token, at) => new Option(tokenName(token), String(at)));
  const [from, to] = [node("select", ...options()), node("select", ...options())];
  [from.value, to.value] = ["0", "1"];
  const table = classed("div", "scroller");
  table.tabIndex = 0;
  table.setAttribute("role", "region");
  table.setAttribute("aria-label", "Difference of two versions");
  const show = () => {
    const [a, b] = [tokens[Number(from.value)], tokens[Number(to.value)]];
    table.replaceChildren(...(a && b ? [differenceTable(a, b)] : []));
  };
  from.addEventListener("change", show);
  to.addEventListener("change", show);
  show();
  const fields = classed("div", "bar", labelled("From", from), labelled("to", to));
  return classed("div", "difference", node("h3", "The difference of two versions"), fields, table);
}

/** The time on the critical path, phase by phase. */
export function differences(
  a: Token,
  b: Token,
): { phase: string; from: number; to: number; more: number }[] {
  const time = (token: Token, name: string) => {
    const phase = token.phases.find(({ phase }) => phase === name);
    if (!phase) return 0;
    const { compute_ns, weights_ns, handoff_ns, skew_ns, unrecorded_ns } = phase;
    return compute_ns + weights_ns + handoff_ns + skew_ns + unrecorded_ns;
  };
  const rows = PHASES.map((phase) => {
    const [from, to] = [time(a, phase), time(b, phase)];
    return { phase: phase as string, from, to, more: to - from };
  }).filter(({ from, to }) => from + to > 0);
  return [
    ...rows,
    { phase: "token", from: a.token_ns, to: b.token_ns, more: b.token_ns - a.token_ns },
  ];
}

function differenceTable(a: Token, b: Token): HTMLTableElement {
  const rows = differences(a, b);
  const most = Math.max(...rows.map(({ more }) => Math.abs(more)), 1);
  const head = ["phase", tokenName(a), tokenName(b), "difference", "less or more"].map((text) => {
    const cell = node("th", text);
    cell.scope = "col";
    return cell;
  });
  const body = rows.map(({ phase, from, to, more }) => {
    const name = node("th", phase);
    name.scope = "row";
    const line = classed("i", more < 0 ? "less" : "more");
    line.style.width = share((0.5 * Math.abs(more)) / most, 2).replaceAll("\u00a0", "");
    const sign = more < 0 ? "−" : "+";
    return node(
      "tr",
      name,
      node("td", us(from)),
      node("td", us(to)),
      node("td", `${sign}${us(Math.abs(more))}`),
      classed("td", "change", line),
    );
  });
  const table = node("table", node("thead", node("tr", ...head)), node("tbody", ...body));
  table.createCaption().textContent =
    "Time on the critical path by phase, hand-offs and waits included: each phase is what the token's time passed on.";
  return table;
}
