// One token's trace as the page holds it: checked columns.

import { EVENT_KINDS, type EventKind, type Phase } from "../abi";
import type { Path } from "./path";

/** What was recorded. */
export interface Meta {
  engine: string;
  variant: string;
  device: string;
  model: string;
  /** Hash of the kernels, if there are any. */
  build: string | null;
  position: number;
  blocks: number;
  layers: number;
  tokenNs: number;
  /** Bound on the error between two blocks' times, and how they were put on one clock. */
  clockErrorNs: number;
  alignment: string;
  overflow: number;
  /** The SM of each block; empty if unknown. */
  sms: Uint16Array;
  /** Bytes that a phase reads in this step, over all layers; absent phases read none. */
  phaseBytes: ReadonlyMap<Phase, number>;
  pace: Pace | null;
  generator: string;
}

/** How fast the decode loop ran, without and with recording. */
export interface Pace {
  headlineTokS: number;
  instrumentedTokS: number;
  overheadPct: number;
}

/**
 * Columns of equal length: block by block, each block's spans in order of time and without
 * overlap. `kind` and `phase` are ids of abi.ts. Times are float64, which holds an hour's
 * nanoseconds exactly.
 */
export interface Spans {
  block: Uint16Array;
  kind: Uint8Array;
  phase: Uint8Array;
  layer: Uint16Array;
  waitsOn: Uint16Array;
  beginNs: Float64Array;
  endNs: Float64Array;
}

/**
 * The weights in flight: a stream is all that one block loads for one phase of one layer, from the
 * first copy's issue to the last copy's arrival. Block by block, each block's streams in order of
 * begin. Streams may overlap, because a block loads ahead.
 */
export interface Streams {
  block: Uint16Array;
  phase: Uint8Array;
  layer: Uint16Array;
  copies: Uint32Array;
  bytes: Float64Array;
  beginNs: Float64Array;
  endNs: Float64Array;
  /** Latest end among the block's streams up to this one; searches for a time use it. */
  reachNs: Float64Array;
}

export interface Trace {
  meta: Meta;
  spans: Spans;
  /** The spans of block b are `rowStarts[b]` up to, not including, `rowStarts[b + 1]`. */
  rowStarts: Uint32Array;
  streams: Streams;
  /** The same for the streams. */
  streamStarts: Uint32Array;
  /**
   * What the warp did that sums up and publishes, while the block's others went on: its work, and
   * its waits for other blocks. Null where there is no such warp.
   */
  epilogue: { spans: Spans; rowStarts: Uint32Array } | null;
  /** The critical path; null in files written before it was. */
  path: Path | null;
}

/** The kinds that are waits, in the order of their ids. */
export const WAIT_KINDS = [
  "wait_exchange",
  "wait_ring_full",
  "wait_ring_empty",
  "wait_barrier",
  "wait_copies",
] as const satisfies readonly EventKind[];

export type WaitKind = (typeof WAIT_KINDS)[number];

/** Id of the one kind of span that is not a wait. */
export const WORK = EVENT_KINDS.indexOf("work");
export const WAIT_EXCHANGE = EVENT_KINDS.indexOf("wait_exchange");
/** Time without a record: a gap between spans, never a span. */
export const UNRECORDED = EVENT_KINDS.indexOf("unrecorded");

export function isWait(trace: Trace, span: number): boolean {
  return at(trace.spans.kind, span) !== WORK;
}

export function durationNs(trace: Trace, span: number): number {
  return at(trace.spans.endNs, span) - at(trace.spans.beginNs, span);
}

/** A value of a column. Rows come from the trace itself, so a missing row is a bug of the page. */
export function at(column: ArrayLike<number>, row: number): number {
  const value = column[row];
  if (value === undefined) throw new RangeError(`no row ${row}`);
  return value;
}

/** Index of the block's first span that ends after `ns`; the end of the row if none does. */
export function firstEndingAfter(trace: Trace, block: number, ns: number): number {
  return firstAbove(trace.spans.endNs, trace.rowStarts, block, ns);
}

/** Index of the first stream of the block that may last beyond `ns`; the row's end if none does. */
export function firstStreamAfter(trace: Trace, block: number, ns: number): number {
  return firstAbove(trace.streams.reachNs, trace.streamStarts, block, ns);
}

/** The block's first row with a value above the limit, in a column that never falls in a block. */
function firstAbove(
  column: Float64Array,
  starts: Uint32Array,
  block: number,
  limit: number,
): number {
  let low = at(starts, block);
  let high = at(starts, block + 1);
  while (low < high) {
    const middle = (low + high) >> 1;
    if (at(column, middle) > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}
