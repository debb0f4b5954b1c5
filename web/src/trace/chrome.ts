// The trace for ui.perfetto.dev, in Chrome's format: what `monolith xray export --to chrome` writes,
// less the flows. One thread a block; a wait's name says what it waits for.

import { EVENT_KINDS, NO_BLOCK, NO_LAYER, PHASES } from "../abi";
import type { Trace } from "./trace";
import { at, isWait } from "./trace";
import { blockNumber } from "./words";

const WAITS: Record<string, string> = {
  wait_exchange: "wait:exchange",
  wait_ring_full: "wait:weights",
  wait_ring_empty: "wait:room",
  wait_barrier: "wait:barrier",
  wait_copies: "wait:copies",
};

export function chromeJson(trace: Trace): string {
  const { meta, spans } = trace;
  const name = (tid: number, what: string, value: string) => ({
    args: { name: value },
    name: what,
    ph: "M",
    pid: 1,
    tid,
  });
  const events: unknown[] = [
    name(0, "process_name", `monolith ${meta.variant} / position ${meta.position}`),
  ];
  for (let block = 0; block < meta.blocks; block++) {
    const sm = meta.sms[block];
    const label = `blk ${blockNumber(meta, block)}${sm === undefined ? "" : ` (SM ${sm})`}`;
    events.push(name(block + 1, "thread_name", label));
  }
  for (let span = 0; span < spans.block.length; span++) {
    const phase = PHASES[at(spans.phase, span)] ?? "";
    const wait = isWait(trace, span);
    const [layer, waitsOn] = [at(spans.layer, span), at(spans.waitsOn, span)];
    const [begin, end] = [at(spans.beginNs, span), at(spans.endNs, span)];
    events.push({
      name: wait ? (WAITS[EVENT_KINDS[at(spans.kind, span)] ?? ""] ?? "wait") : phase,
      cat: wait ? "wait" : "compute",
      ph: "X",
      pid: 1,
      tid: at(spans.block, span) + 1,
      // Microseconds, as the format has them, to the nanosecond.
      ts: begin / 1000,
      dur: (end - begin) / 1000,
      args: {
        phase,
        ...(layer === NO_LAYER ? {} : { layer }),
        ...(waitsOn === NO_BLOCK ? {} : { waits_on: waitsOn }),
      },
    });
  }
  return JSON.stringify({ displayTimeUnit: "ns", traceEvents: events });
}
