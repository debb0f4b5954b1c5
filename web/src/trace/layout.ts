// Positions of everything in the chart. Pure functions: the painter only fills the result.

import { EVENT_KINDS, PHASES } from "../abi";
import type { Trace } from "./trace";
import { at, durationNs, firstEndingAfter, firstStreamAfter, isWait } from "./trace";
import type { Viewport } from "./viewport";
import { clamp, nsPerPx, timeAt, xAt } from "./viewport";

/** The blocks' rows, one below the other, right of their labels. In CSS px. */
export interface Rows {
  count: number;
  /** Width of the labels, left of the plot. */
  gutter: number;
  plotWidth: number;
  /** From one row's top to the next one's. */
  pitch: number;
  /** Height of the spans of a row. */
  barHeight: number;
  /** The strip of weight streams below the spans: top within the row, and height, 0 if hidden. */
  stripTop: number;
  stripHeight: number;
  /** Height of one lane of the strip. */
  laneHeight: number;
  height: number;
}

/** Target height of all rows; the limits on one row's height come first. */
const SHARED_HEIGHT = 680;
/** With this pitch, the 132 blocks of an H200 fit a window. */
const MIN_PITCH = 5;
const MAX_PITCH = 56;
/** A higher pitch would only waste room. */
const TALL_PITCH = 16;
const NARROW_WIDTH = 560;
/** Between the spans and the strip below them. */
const STRIP_GAP = 1;
/** Gap below a strip in low rows: larger, so that a strip clearly belongs to the spans above. */
const STRIP_ROW_GAP = 3;

export function rowsFor(width: number, blocks: number, withStrips = false): Rows {
  const bare = clamp(Math.floor(SHARED_HEIGHT / blocks), MIN_PITCH, MAX_PITCH);
  const tall = bare > TALL_PITCH;
  const rowGap = tall ? 4 : 1;
  const barHeight = bare - rowGap;
  // Streams of a block overlap, so they take turns in lanes.
  const [lanes, laneHeight] = tall ? [4, 3] : [2, 2];
  const stripHeight = withStrips ? lanes * laneHeight : 0;
  const withStrip = barHeight + STRIP_GAP + stripHeight + Math.max(rowGap, STRIP_ROW_GAP);
  const pitch = withStrips ? withStrip : bare;
  const gutter = width < NARROW_WIDTH ? 42 : 84;
  return {
    count: blocks,
    gutter,
    plotWidth: Math.max(width - gutter, 1),
    pitch,
    barHeight,
    stripTop: barHeight + STRIP_GAP,
    stripHeight,
    laneHeight,
    height: pitch * blocks,
  };
}

export function isNarrow(rows: Rows): boolean {
  return rows.gutter + rows.plotWidth < NARROW_WIDTH;
}

/** Number of rows from one label to the next, so that the labels fit. */
export function labelStep(rows: Rows, labelHeight: number): number {
  const rowsPerLabel = labelHeight / rows.pitch;
  return [1, 2, 5, 10, 20, 50, 100].find((step) => step >= rowsPerLabel) ?? 200;
}

/** A span that is wide enough to see. */
export interface Bar {
  span: number;
  x0: number;
  x1: number;
}

/**
 * The sum of the spans that are too narrow to see: one px wide, with the shares of work and waits
 * in that px's time. A wait never vanishes between its neighbours.
 */
export interface Sliver {
  x: number;
  workShare: number;
  waitShare: number;
  /** Id of the phase that most of the work belongs to. */
  phase: number;
  /** Id of the kind that most of the waiting belongs to. */
  kind: number;
}

export interface RowLayout {
  bars: Bar[];
  /** Drawn on top of the bars, because a sliver may share its px with the edge of a bar. */
  slivers: Sliver[];
}

/** Narrowest bar, in px. */
const MIN_BAR = 1;

/** The part of one block's row that is in view. */
export function layoutRow(
  trace: Trace,
  view: Viewport,
  block: number,
  /** 1 for each span that counts among the narrow ones; null: all do. */
  mask: Uint8Array | null = null,
): RowLayout {
  const { beginNs, endNs } = trace.spans;
  const rowEnd = at(trace.rowStarts, block + 1);
  const bars: Bar[] = [];
  const slivers = new Slivers(trace, nsPerPx(view));
  for (let span = firstEndingAfter(trace, block, view.beginNs); span < rowEnd; span++) {
    if (at(beginNs, span) >= view.endNs) break;
    const x0 = xAt(view, at(beginNs, span));
    const x1 = xAt(view, at(endNs, span));
    if (x1 - x0 >= MIN_BAR) bars.push({ span, x0: Math.max(x0, 0), x1: Math.min(x1, view.width) });
    else if (mask === null || mask[span] === 1) slivers.add(span, Math.floor((x0 + x1) / 2));
  }
  return { bars, slivers: slivers.finish() };
}

/** Adds up narrow spans, px by px. */
class Slivers {
  private readonly done: Sliver[] = [];
  private readonly workNs = new Float64Array(PHASES.length);
  private readonly waitNs = new Float64Array(EVENT_KINDS.length);
  private x = Number.NaN;

  constructor(
    private readonly trace: Trace,
    private readonly pxNs: number,
  ) {}

  add(span: number, x: number): void {
    if (x !== this.x) {
      this.close();
      this.x = x;
    }
    const { kind, phase } = this.trace.spans;
    const wait = isWait(this.trace, span);
    const into = wait ? this.waitNs : this.workNs;
    const id = at(wait ? kind : phase, span);
    into[id] = at(into, id) + durationNs(this.trace, span);
  }

  finish(): Sliver[] {
    this.close();
    return this.done;
  }

  private close(): void {
    const [workShare, phase] = this.taken(this.workNs);
    const [waitShare, kind] = this.taken(this.waitNs);
    if (workShare + waitShare > 0) this.done.push({ x: this.x, phase, kind, workShare, waitShare });
  }

  /** Returns the share of the px's time and the id with most of it, and resets the times. */
  private taken(times: Float64Array): [share: number, most: number] {
    let [total, most] = [0, 0];
    // No array method: this runs for every px of every row.
    for (let id = 0; id < times.length; id++) {
      total += at(times, id);
      if (at(times, id) > at(times, most)) most = id;
    }
    times.fill(0);
    return [Math.min(total / this.pxNs, 1), most];
  }
}

/** A stream's place in the strip. */
export interface Lane {
  stream: number;
  x0: number;
  x1: number;
  /** In px below the row's top. */
  top: number;
}

/** The part of one block's strip that is in view. */
export function layoutStrip(trace: Trace, view: Viewport, rows: Rows, block: number): Lane[] {
  const { beginNs, endNs } = trace.streams;
  const rowStart = at(trace.streamStarts, block);
  const rowEnd = at(trace.streamStarts, block + 1);
  const lanes: Lane[] = [];
  for (let stream = firstStreamAfter(trace, block, view.beginNs); stream < rowEnd; stream++) {
    if (at(beginNs, stream) >= view.endNs) break;
    const x0 = clamp(xAt(view, at(beginNs, stream)), 0, view.width - 1);
    const x1 = clamp(xAt(view, at(endNs, stream)), x0 + MIN_BAR, view.width);
    const top = rows.stripTop + (((stream - rowStart) * rows.laneHeight) % rows.stripHeight);
    if (at(endNs, stream) > view.beginNs) lanes.push({ stream, x0, x1, top });
  }
  return lanes;
}

/** How near to a span a point counts as on it, in px: fingers are not exact. */
const REACH = 4;

/** The span under a point of the rows (x from the plot's left edge), or -1. */
export function spanAt(trace: Trace, view: Viewport, rows: Rows, x: number, y: number): number {
  const block = blockAt(view, rows, x, y);
  if (block < 0 || isInStrip(rows, y)) return -1;
  return nearestSpan(trace, block, timeAt(view, x), REACH * nsPerPx(view));
}

/** The stream of weights under a point of the rows, or -1. */
export function streamAt(trace: Trace, view: Viewport, rows: Rows, x: number, y: number): number {
  const block = blockAt(view, rows, x, y);
  if (block < 0 || !isInStrip(rows, y)) return -1;
  const inRow = y % rows.pitch;
  let [found, nearest] = [-1, REACH];
  for (const { stream, x0, x1, top } of layoutStrip(trace, view, rows, block)) {
    const beside = Math.max(x0 - x, x - x1, 0);
    // If two streams overlap in time, takes the one whose lane is under the point.
    const distance = beside + (inRow >= top && inRow < top + rows.laneHeight ? 0 : 1);
    if (distance < nearest) [found, nearest] = [stream, distance];
  }
  return found;
}

function blockAt(view: Viewport, rows: Rows, x: number, y: number): number {
  const block = Math.floor(y / rows.pitch);
  return block < 0 || block >= rows.count || x < 0 || x > view.width ? -1 : block;
}

function isInStrip(rows: Rows, y: number): boolean {
  const below = (y % rows.pitch) - rows.stripTop;
  return below >= 0 && below < rows.stripHeight;
}

/** The block's span at this time, or the nearest within reach, or -1. */
export function nearestSpan(trace: Trace, block: number, ns: number, reachNs: number): number {
  const { beginNs, endNs } = trace.spans;
  const after = firstEndingAfter(trace, block, ns);
  const hasAfter = after < at(trace.rowStarts, block + 1);
  const hasBefore = after > at(trace.rowStarts, block);
  const gapAfter = hasAfter ? Math.max(at(beginNs, after) - ns, 0) : Number.POSITIVE_INFINITY;
  const gapBefore = hasBefore ? ns - at(endNs, after - 1) : Number.POSITIVE_INFINITY;
  if (Math.min(gapAfter, gapBefore) > reachNs) return -1;
  return gapAfter <= gapBefore ? after : after - 1;
}
