// The warp of a block that sums up and publishes: what it worked on while the others waited.

import type { Trace } from "./trace";
import { at, WORK } from "./trace";

export interface EpilogueWork {
  /** Row in the epilogue's spans. */
  row: number;
  beginNs: number;
  endNs: number;
}

/** A block's epilogue's work that overlaps this time, cut to it, in order. */
export function* epilogueWork(
  { epilogue }: Trace,
  block: number,
  fromNs: number,
  toNs: number,
): Generator<EpilogueWork> {
  if (!epilogue) return;
  const { spans, rowStarts } = epilogue;
  for (let row = firstAfter(spans.endNs, rowStarts, block, fromNs); ; row++) {
    if (row >= at(rowStarts, block + 1) || at(spans.beginNs, row) >= toNs) return;
    if (at(spans.kind, row) !== WORK) continue;
    const beginNs = Math.max(at(spans.beginNs, row), fromNs);
    yield { row, beginNs, endNs: Math.min(at(spans.endNs, row), toNs) };
  }
}

/**
 * When a span's block had published what it worked on there, for a wait that ended at a time: the
 * end of the epilogue's last work on the same phase and layer that began before; without an
 * epilogue, the span's own end.
 */
export function publishedNs(trace: Trace, span: number, untilNs: number): number {
  const { block, phase, layer, beginNs, endNs } = trace.spans;
  let published = at(endNs, span);
  const own = trace.epilogue?.spans;
  if (!own) return published;
  for (const { row } of epilogueWork(trace, at(block, span), at(beginNs, span), untilNs)) {
    const same = at(own.phase, row) === at(phase, span) && at(own.layer, row) === at(layer, span);
    if (same) published = Math.min(at(own.endNs, row), untilNs);
  }
  return published;
}

/** The longest of it, or null. */
export function mostEpilogueWork(
  trace: Trace,
  block: number,
  fromNs: number,
  toNs: number,
): EpilogueWork | null {
  let most: EpilogueWork | null = null;
  for (const work of epilogueWork(trace, block, fromNs, toNs)) {
    if (!most || work.endNs - work.beginNs > most.endNs - most.beginNs) most = work;
  }
  return most;
}

function firstAfter(ends: Float64Array, starts: Uint32Array, block: number, ns: number): number {
  let [low, high] = [at(starts, block), at(starts, block + 1)];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (at(ends, middle) > ns) high = middle;
    else low = middle + 1;
  }
  return low;
}
