// What happened in a rectangle of the chart: some blocks, for some time.

import { EVENT_KINDS, PHASES, type Phase } from "../abi";
import type { Trace, WaitKind } from "./trace";
import { at, firstEndingAfter, isWait } from "./trace";

/** Blocks from first to last, both included; time in ns. */
export interface Area {
  firstBlock: number;
  lastBlock: number;
  beginNs: number;
  endNs: number;
}

export interface AreaSum {
  /** Blocks x time. */
  availableNs: number;
  work: { phase: Phase; ns: number; spans: number }[];
  waits: { kind: WaitKind; ns: number; spans: number }[];
  unrecordedNs: number;
  /** Bytes of weights whose last copy arrived there. */
  bytes: number;
}

export function areaSum(trace: Trace, area: Area): AreaSum {
  const work = PHASES.map((phase) => ({ phase, ns: 0, spans: 0 }));
  const waits = EVENT_KINDS.map((kind) => ({ kind: kind as WaitKind, ns: 0, spans: 0 }));
  const { beginNs, endNs, kind, phase } = trace.spans;
  let recorded = 0;
  for (let block = area.firstBlock; block <= area.lastBlock; block++) {
    const rowEnd = at(trace.rowStarts, block + 1);
    for (let span = firstEndingAfter(trace, block, area.beginNs); span < rowEnd; span++) {
      if (at(beginNs, span) >= area.endNs) break;
      const ns = Math.min(at(endNs, span), area.endNs) - Math.max(at(beginNs, span), area.beginNs);
      const into = isWait(trace, span) ? waits[at(kind, span)] : work[at(phase, span)];
      recorded += ns;
      if (into) [into.ns, into.spans] = [into.ns + ns, into.spans + 1];
    }
  }
  const availableNs = (area.lastBlock - area.firstBlock + 1) * (area.endNs - area.beginNs);
  return {
    availableNs,
    work: work.filter(({ spans }) => spans > 0),
    waits: waits.filter(({ spans }) => spans > 0),
    unrecordedNs: availableNs - recorded,
    bytes: bytesIn(trace, area),
  };
}

function bytesIn({ streams }: Trace, area: Area): number {
  let bytes = 0;
  streams.block.forEach((block, stream) => {
    const end = at(streams.endNs, stream);
    const inside = end > area.beginNs && end <= area.endNs;
    if (inside && block >= area.firstBlock && block <= area.lastBlock) {
      bytes += at(streams.bytes, stream);
    }
  });
  return bytes;
}
