// Which work a stream of weights is for, and how far ahead of it the stream runs.

import type { Trace } from "./trace";
import { at, isWait } from "./trace";

/** For each stream, the time from its issue to its block's first work on it; NaN: no work. */
export function leadNs(trace: Trace): Float64Array {
  const { streams, spans } = trace;
  const leads = new Float64Array(streams.block.length).fill(Number.NaN);
  for (let block = 0; block < trace.meta.blocks; block++) {
    const begins = new Map<number, number>();
    const end = at(trace.rowStarts, block + 1);
    for (let span = at(trace.rowStarts, block); span < end; span++) {
      const step = stepId(spans, span);
      if (!isWait(trace, span) && !begins.has(step)) begins.set(step, at(spans.beginNs, span));
    }
    const last = at(trace.streamStarts, block + 1);
    for (let stream = at(trace.streamStarts, block); stream < last; stream++) {
      const begin = begins.get(stepId(streams, stream)) ?? Number.NaN;
      leads[stream] = begin - at(streams.beginNs, stream);
    }
  }
  return leads;
}

/** The stream that brought the weights of the span's phase and layer to its block, or -1. */
export function streamOf(trace: Trace, span: number): number {
  const block = at(trace.spans.block, span);
  const step = stepId(trace.spans, span);
  for (
    let stream = at(trace.streamStarts, block);
    stream < at(trace.streamStarts, block + 1);
    stream++
  ) {
    if (stepId(trace.streams, stream) === step) return stream;
  }
  return -1;
}

/** The block's first work on the stream's weights, or -1. */
export function firstWorkOn(trace: Trace, stream: number): number {
  const block = at(trace.streams.block, stream);
  const step = stepId(trace.streams, stream);
  for (let span = at(trace.rowStarts, block); span < at(trace.rowStarts, block + 1); span++) {
    if (!isWait(trace, span) && stepId(trace.spans, span) === step) return span;
  }
  return -1;
}

/** The phase and the layer in one number. */
function stepId(table: { phase: Uint8Array; layer: Uint16Array }, row: number): number {
  return at(table.phase, row) * 2 ** 16 + at(table.layer, row);
}
