// What is typed into the search field, as a set of spans.

import { EVENT_KINDS, NO_LAYER, PHASES } from "../abi";
import type { Trace } from "./trace";
import { at, isWait } from "./trace";

/** A query: every given list must hold the span's value. */
interface Query {
  phases: Set<number>;
  kinds: Set<number>;
  layers: Set<number>;
  blocks: Set<number>;
  sms: Set<number>;
  wait: boolean | null;
}

/** Words for what a wait waits for. */
const KIND_WORDS: Record<string, string[]> = {
  wait_exchange: ["hand-off", "handoff", "exchange"],
  wait_ring_full: ["weights"],
  wait_ring_empty: ["room"],
  wait_barrier: ["warps", "barrier"],
  wait_copies: ["copies"],
};

const NUMBERED = /^(layer|block|thread|sm|l|b)\s*(\d+)(?:\s*-\s*(\d+))?$/;
/** A range longer than this is a slip of the finger. */
const RANGE_MAX = 65_536;

/** Reads a query; the words that mean nothing, if there are any. */
export function queryFrom(text: string): { query: Query; unknown: string[] } {
  const query: Query = {
    phases: new Set(),
    kinds: new Set(),
    layers: new Set(),
    blocks: new Set(),
    sms: new Set(),
    wait: null,
  };
  const joined = text
    .toLowerCase()
    .replaceAll(/\b(layer|block|thread|sm)\s+(?=\d)/g, "$1")
    .replaceAll(/\s*-\s*(?=\d)/g, "-");
  const unknown = joined.split(/[\s,]+/).filter((word) => word !== "" && !understood(query, word));
  return { query, unknown };
}

function understood(query: Query, word: string): boolean {
  const phase = (PHASES as readonly string[]).indexOf(word);
  if (phase >= 0) query.phases.add(phase);
  const kind = EVENT_KINDS.findIndex((name) => KIND_WORDS[name]?.includes(word));
  if (kind >= 0) query.kinds.add(kind);
  if (/^wait(s|ing)?$/.test(word)) query.wait = true;
  else if (/^work(s|ing)?$/.test(word)) query.wait = false;
  else if (phase < 0 && kind < 0) return numbered(query, word);
  return true;
}

function numbered(query: Query, word: string): boolean {
  const [, what, first, last] = NUMBERED.exec(word) ?? [];
  if (what === undefined) return false;
  const from = Number(first);
  const to = Math.min(Number(last ?? first), from + RANGE_MAX);
  const into = what.startsWith("l") ? query.layers : what === "sm" ? query.sms : query.blocks;
  for (let value = from; value <= to; value++) into.add(value);
  return true;
}

export interface Found {
  /** 1 for each span that fits. */
  mask: Uint8Array;
  count: number;
  unknown: string[];
}

/** The spans that a query names; null for an empty query. */
export function found(trace: Trace, text: string): Found | null {
  if (text.trim() === "") return null;
  const { query, unknown } = queryFrom(text);
  const { block, kind, phase, layer } = trace.spans;
  const mask = new Uint8Array(block.length);
  let count = 0;
  const holds = (set: Set<number>, value: number | undefined) =>
    set.size === 0 || (value !== undefined && set.has(value));
  for (let span = 0; span < mask.length; span++) {
    const own = at(layer, span);
    const fits =
      unknown.length === 0 &&
      (query.wait === null || isWait(trace, span) === query.wait) &&
      holds(query.phases, at(phase, span)) &&
      holds(query.kinds, at(kind, span)) &&
      holds(query.layers, own === NO_LAYER ? undefined : own) &&
      holds(query.blocks, at(block, span)) &&
      holds(query.sms, trace.meta.sms[at(block, span)]);
    if (!fits) continue;
    mask[span] = 1;
    count += 1;
  }
  return { mask, count, unknown };
}

/** The next span that fits, by time, from a time on (1) or before it (-1); wraps; -1: none. */
export function nextFound(
  trace: Trace,
  { mask }: Found,
  from: number,
  fromNs: number,
  direction: 1 | -1,
): number {
  const { beginNs } = trace.spans;
  // By time and then by number, so that every span is reached once.
  const place = (span: number): [number, number] => [at(beginNs, span), span];
  const after = (a: [number, number], b: [number, number]) =>
    (a[0] - b[0] || a[1] - b[1]) * direction > 0;
  const start: [number, number] = from >= 0 ? place(from) : [fromNs, -direction];
  let [best, wrapped] = [-1, -1];
  for (let span = 0; span < mask.length; span++) {
    if (at(mask, span) === 0) continue;
    const own = place(span);
    if (after(own, start) && (best < 0 || after(place(best), own))) best = span;
    if (wrapped < 0 || after(place(wrapped), own)) wrapped = span;
  }
  return best >= 0 ? best : wrapped;
}
