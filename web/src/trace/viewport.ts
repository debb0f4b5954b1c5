// Three spaces: time (ns after the token's begin), plot (CSS px right of the row labels) and
// device px (CSS px times the pixel ratio, known to the painter alone). This file maps time to
// plot and back.

/** The part of the token in view, and the plot's width in px. */
export interface Viewport {
  beginNs: number;
  endNs: number;
  width: number;
}

/** Closest view; few clocks resolve less. */
const MIN_VIEW_NS = 100;

export function whole(tokenNs: number, width: number): Viewport {
  return { beginNs: 0, endNs: Math.max(tokenNs, 1), width };
}

export function xAt(view: Viewport, ns: number): number {
  return ((ns - view.beginNs) / (view.endNs - view.beginNs)) * view.width;
}

export function timeAt(view: Viewport, x: number): number {
  return view.beginNs + x * nsPerPx(view);
}

export function nsPerPx(view: Viewport): number {
  return (view.endNs - view.beginNs) / view.width;
}

/** Zooms in (factor above 1) or out, keeping the time under `x` where it is. */
export function zoomed(view: Viewport, tokenNs: number, factor: number, x: number): Viewport {
  const fixed = timeAt(view, x);
  const length = clamp((view.endNs - view.beginNs) / factor, MIN_VIEW_NS, Math.max(tokenNs, 1));
  const beginNs = fixed - (x / view.width) * length;
  return inside({ ...view, beginNs, endNs: beginNs + length }, tokenNs);
}

/** Moves the view by this many px of the plot, later in time when positive. */
export function panned(view: Viewport, tokenNs: number, px: number): Viewport {
  const shift = px * nsPerPx(view);
  return inside({ ...view, beginNs: view.beginNs + shift, endNs: view.endNs + shift }, tokenNs);
}

/** Zooms to an interval, with a margin on both sides: a tenth each, unless another is given. */
export function fitted(
  view: Viewport,
  tokenNs: number,
  beginNs: number,
  endNs: number,
  margin = 1.2,
): Viewport {
  const length = clamp((endNs - beginNs) * margin, MIN_VIEW_NS, Math.max(tokenNs, 1));
  const begin = (beginNs + endNs - length) / 2;
  return inside({ ...view, beginNs: begin, endNs: begin + length }, tokenNs);
}

/** Shows exactly this interval, as far as it is within the token and long enough. */
export function windowed(
  view: Viewport,
  tokenNs: number,
  beginNs: number,
  endNs: number,
): Viewport {
  return fitted(view, tokenNs, beginNs, endNs, 1);
}

/** Moves the view just enough to show an interval; shows the begin of one longer than the view. */
export function revealed(
  view: Viewport,
  tokenNs: number,
  beginNs: number,
  endNs: number,
): Viewport {
  if (beginNs >= view.beginNs && endNs <= view.endNs) return view;
  const length = view.endNs - view.beginNs;
  const fits = endNs - beginNs <= length;
  const begin = fits && endNs > view.endNs ? endNs - length : beginNs;
  return inside({ ...view, beginNs: begin, endNs: begin + length }, tokenNs);
}

function inside(view: Viewport, tokenNs: number): Viewport {
  const length = view.endNs - view.beginNs;
  const beginNs = clamp(view.beginNs, 0, Math.max(Math.max(tokenNs, 1) - length, 0));
  return { ...view, beginNs, endNs: beginNs + length };
}

export function clamp(value: number, low: number, high: number): number {
  return Math.min(Math.max(value, low), high);
}
