// Which span the arrow keys go to, and which work a wait waited for.

import { NO_BLOCK } from "../abi";
import { nearestSpan } from "./layout";
import type { Trace } from "./trace";
import { at, isWait } from "./trace";

export type Step = "previous" | "next" | "up" | "down" | "first" | "last";

/** The span one step from this one, or the same span if there is none. */
export function stepped(trace: Trace, span: number, step: Step): number {
  const block = at(trace.spans.block, span);
  const first = at(trace.rowStarts, block);
  const last = at(trace.rowStarts, block + 1) - 1;
  switch (step) {
    case "previous":
      return Math.max(span - 1, first);
    case "next":
      return Math.min(span + 1, last);
    case "first":
      return first;
    case "last":
      return last;
    case "up":
      return beside(trace, span, -1);
    case "down":
      return beside(trace, span, 1);
  }
}

/** The span at the same time in the nearest row that has any, upwards (-1) or downwards (1). */
function beside(trace: Trace, span: number, direction: 1 | -1): number {
  const { block, beginNs, endNs } = trace.spans;
  const middle = (at(beginNs, span) + at(endNs, span)) / 2;
  for (
    let row = at(block, span) + direction;
    row >= 0 && row < trace.meta.blocks;
    row += direction
  ) {
    const found = nearestSpan(trace, row, middle, Number.POSITIVE_INFINITY);
    if (found >= 0 && at(trace.rowStarts, row) < at(trace.rowStarts, row + 1)) return found;
  }
  return span;
}

/** The block's next wait (1) or previous wait (-1), or the same span if there is none. */
export function steppedToWait(trace: Trace, span: number, direction: 1 | -1): number {
  const block = at(trace.spans.block, span);
  const first = at(trace.rowStarts, block);
  const end = at(trace.rowStarts, block + 1);
  for (let next = span + direction; next >= first && next < end; next += direction) {
    if (isWait(trace, next)) return next;
  }
  return span;
}

/**
 * The work that a wait waited for: the producer's last span of that phase and layer that began
 * before the wait ended. -1 if the trace does not say.
 */
export function producerOf(trace: Trace, wait: number): number {
  const { phase, layer, waitsOn, beginNs, endNs } = trace.spans;
  const producer = at(waitsOn, wait);
  if (producer === NO_BLOCK) return -1;
  for (
    let span = at(trace.rowStarts, producer + 1) - 1;
    span >= at(trace.rowStarts, producer);
    span--
  ) {
    const sameStep = at(phase, span) === at(phase, wait) && at(layer, span) === at(layer, wait);
    if (sameStep && !isWait(trace, span) && at(beginNs, span) < at(endNs, wait)) return span;
  }
  return -1;
}
