// The time axis: ticks at round microseconds, and where each layer begins.

import { NO_LAYER } from "../abi";
import type { Trace } from "./trace";
import { at, isWait } from "./trace";
import type { Viewport } from "./viewport";
import { nsPerPx, xAt } from "./viewport";

export interface Tick {
  ns: number;
  /** Microseconds, without the unit, which the axis names. */
  label: string;
}

/** Room that a label needs, in px. */
const TICK_SPACING = 84;

export function ticks(view: Viewport): Tick[] {
  const stepNs = roundStep(nsPerPx(view) * TICK_SPACING);
  const digits = Math.max(0, 3 - Math.floor(Math.log10(stepNs) + 1e-9));
  const format = new Intl.NumberFormat("en", {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
  const marks: Tick[] = [];
  for (let mark = Math.ceil(view.beginNs / stepNs); mark * stepNs <= view.endNs; mark++) {
    marks.push({ ns: mark * stepNs, label: format.format((mark * stepNs) / 1000) });
  }
  return marks;
}

/** The least of 1, 2, 5, 10, ... that is not below `least`. */
function roundStep(least: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  const step = [1, 2, 5, 10].find((step) => step * power >= least * (1 - 1e-9)) ?? 10;
  return step * power;
}

/** For each layer, when the first block began to work on it; infinity if no block did. */
export function layerBegins(trace: Trace): Float64Array {
  const begins = new Float64Array(trace.meta.layers).fill(Number.POSITIVE_INFINITY);
  for (let span = 0; span < trace.spans.block.length; span++) {
    const layer = at(trace.spans.layer, span);
    if (layer === NO_LAYER || isWait(trace, span)) continue;
    begins[layer] = Math.min(at(begins, layer), at(trace.spans.beginNs, span));
  }
  return begins;
}

/** Where the layers in view begin in the plot, as whole px. */
export function layerXs(layers: Float64Array, view: Viewport): number[] {
  return Array.from(layers, (ns) => Math.round(xAt(view, ns))).filter(
    (x) => x >= 0 && x <= view.width,
  );
}
