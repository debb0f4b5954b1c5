// Where everything goes. Pure: the painter only fills what this says.

import { PHASES } from "../abi";
import type { Trace } from "./trace";
import { at, durationNs, firstEndingAfter, isWait } from "./trace";
import type { Viewport } from "./viewport";
import { clamp, nsPerPx, timeAt, xAt } from "./viewport";

/** Rows of blocks under one another, right of their labels. In CSS px. */
export interface Rows {
  count: number;
  /** Width of the labels, left of the plot. */
  gutter: number;
  plotWidth: number;
  /** From one row's top to the next one's. */
  pitch: number;
  /** Height of the spans of a row. */
  barHeight: number;
  height: number;
}

/** Height that the rows share, before they become too low or needlessly high. */
const SHARED_HEIGHT = 680;
const MIN_PITCH = 8;
const MAX_PITCH = 56;
const NARROW_WIDTH = 560;

export function rowsFor(width: number, blocks: number): Rows {
  const pitch = clamp(Math.floor(SHARED_HEIGHT / blocks), MIN_PITCH, MAX_PITCH);
  const gutter = width < NARROW_WIDTH ? 42 : 84;
  return {
    count: blocks,
    gutter,
    plotWidth: Math.max(width - gutter, 1),
    pitch,
    barHeight: pitch - (pitch > 16 ? 4 : 1),
    height: pitch * blocks,
  };
}

export function isNarrow(rows: Rows): boolean {
  return rows.gutter + rows.plotWidth < NARROW_WIDTH;
}

/** Every how many rows a label fits. */
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
 * Spans too narrow to see, added up where they are: one px wide, with the shares of that px's
 * time. A wait never vanishes between its neighbours.
 */
export interface Sliver {
  x: number;
  workShare: number;
  waitShare: number;
  /** Id of the phase that most of the work belongs to. */
  phase: number;
}

export interface RowLayout {
  bars: Bar[];
  /** On top of the bars: one may share its px with the edge of one. */
  slivers: Sliver[];
}

/** Narrowest bar, in px. */
const MIN_BAR = 1;

/** What of one block is in view. */
export function layoutRow(trace: Trace, view: Viewport, block: number): RowLayout {
  const { beginNs, endNs } = trace.spans;
  const rowEnd = at(trace.rowStarts, block + 1);
  const bars: Bar[] = [];
  const slivers = new Slivers(trace, nsPerPx(view));
  for (let span = firstEndingAfter(trace, block, view.beginNs); span < rowEnd; span++) {
    if (at(beginNs, span) >= view.endNs) break;
    const x0 = xAt(view, at(beginNs, span));
    const x1 = xAt(view, at(endNs, span));
    if (x1 - x0 >= MIN_BAR) bars.push({ span, x0: Math.max(x0, 0), x1: Math.min(x1, view.width) });
    else slivers.add(span, Math.floor((x0 + x1) / 2));
  }
  return { bars, slivers: slivers.finish() };
}

/** Adds narrow spans up, px by px. */
class Slivers {
  private readonly done: Sliver[] = [];
  private readonly workNs = new Float64Array(PHASES.length);
  private waitNs = 0;
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
    const length = durationNs(this.trace, span);
    if (isWait(this.trace, span)) this.waitNs += length;
    else {
      const phase = at(this.trace.spans.phase, span);
      this.workNs[phase] = at(this.workNs, phase) + length;
    }
  }

  finish(): Sliver[] {
    this.close();
    return this.done;
  }

  private close(): void {
    const workNs = this.workNs.reduce((sum, ns) => sum + ns, 0);
    if (workNs + this.waitNs > 0) {
      const phase = this.workNs.indexOf(Math.max(...this.workNs));
      const share = (ns: number) => Math.min(ns / this.pxNs, 1);
      const { x } = this;
      this.done.push({ x, phase, workShare: share(workNs), waitShare: share(this.waitNs) });
    }
    this.workNs.fill(0);
    this.waitNs = 0;
  }
}

/** How near to a span counts as on it, in px: a finger is no pixel. */
const REACH = 4;

/** The span under a point of the rows (x from the plot's left edge), or -1. */
export function spanAt(trace: Trace, view: Viewport, rows: Rows, x: number, y: number): number {
  const block = Math.floor(y / rows.pitch);
  if (block < 0 || block >= rows.count || x < 0 || x > view.width) return -1;
  return nearestSpan(trace, block, timeAt(view, x), REACH * nsPerPx(view));
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
