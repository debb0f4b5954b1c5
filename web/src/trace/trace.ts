// One token's trace as the page holds it: checked, in columns.

/** What the spans are of. */
export interface Meta {
  engine: string;
  variant: string;
  device: string;
  model: string;
  position: number;
  blocks: number;
  layers: number;
  tokenNs: number;
  clockErrorNs: number;
  overflow: number;
  generator: string;
}

/**
 * Columns of equal length: block by block, each block's spans in order of time, none sharing
 * time. `kind` and `phase` are ids of abi.ts. Times are float64: nanoseconds of an hour, exactly.
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

export interface Trace {
  meta: Meta;
  spans: Spans;
  /** The spans of block b are `rowStarts[b]` up to, not including, `rowStarts[b + 1]`. */
  rowStarts: Uint32Array;
}

/** Id of the one kind that is not a wait. */
const WORK = 0;

export function isWait(trace: Trace, span: number): boolean {
  return at(trace.spans.kind, span) !== WORK;
}

export function durationNs(trace: Trace, span: number): number {
  return at(trace.spans.endNs, span) - at(trace.spans.beginNs, span);
}

/** A value of a column. Rows come from the trace itself, so a missing one is a mistake here. */
export function at(column: ArrayLike<number>, row: number): number {
  const value = column[row];
  if (value === undefined) throw new RangeError(`no row ${row}`);
  return value;
}

/** Index of the first span of the block that ends after `ns`; the end of the row if none does. */
export function firstEndingAfter(trace: Trace, block: number, ns: number): number {
  let low = at(trace.rowStarts, block);
  let high = at(trace.rowStarts, block + 1);
  while (low < high) {
    const middle = (low + high) >> 1;
    if (at(trace.spans.endNs, middle) > ns) high = middle;
    else low = middle + 1;
  }
  return low;
}
