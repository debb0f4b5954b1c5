// The parts of a token (its begin, each layer, the head), and how a view of one trace becomes the
// view of the same parts in another.

import { NO_LAYER, PHASES } from "../abi";
import { layerBegins } from "./axis";
import type { Trace } from "./trace";
import { at, isWait } from "./trace";
import type { Viewport } from "./viewport";

/** Times at which parts begin: 0, each layer, the head; last, the token's end. They never fall. */
export function partBegins(trace: Trace): Float64Array {
  const { tokenNs, layers } = trace.meta;
  const begins = [0, ...layerBegins(trace), headBegin(trace), tokenNs];
  for (let part = layers + 1; part > 0; part--) {
    begins[part] = Math.min(begins[part] ?? tokenNs, begins[part + 1] ?? tokenNs);
  }
  return Float64Array.from(begins);
}

function headBegin(trace: Trace): number {
  const { phase, layer, beginNs } = trace.spans;
  let begin = Number.POSITIVE_INFINITY;
  phase.forEach((id, span) => {
    if (PHASES[id] !== "lm_head" || at(layer, span) !== NO_LAYER || isWait(trace, span)) return;
    begin = Math.min(begin, at(beginNs, span));
  });
  return begin;
}

/** A layer's time, from its begin to the next part's. */
export function layerWindow(parts: Float64Array, layer: number): [beginNs: number, endNs: number] {
  return [at(parts, layer + 1), at(parts, layer + 2)];
}

/** The layer at this time, or the nearest; -1 if there are none. */
export function layerAt(parts: Float64Array, ns: number): number {
  const layers = parts.length - 3;
  for (let layer = layers - 1; layer > 0; layer--) if (at(parts, layer + 1) <= ns) return layer;
  return layers > 0 ? 0 : -1;
}

/** The same part of the token in another trace: layers stay layers, and shares of them shares. */
export function sameParts(view: Viewport, from: Float64Array, to: Float64Array): Viewport {
  if (from.length !== to.length) return { ...view, beginNs: 0, endNs: at(to, to.length - 1) };
  const moved = (ns: number) => {
    let part = from.length - 2;
    while (part > 0 && at(from, part) > ns) part--;
    const length = at(from, part + 1) - at(from, part);
    const share = length > 0 ? (ns - at(from, part)) / length : 0;
    return at(to, part) + share * (at(to, part + 1) - at(to, part));
  };
  const beginNs = moved(view.beginNs);
  return { ...view, beginNs, endNs: Math.max(moved(view.endNs), beginNs + 1) };
}
