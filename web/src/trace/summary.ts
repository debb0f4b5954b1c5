// Sums over a trace, as in crates/xray/src/analysis.rs.

import { EVENT_KINDS, PHASES, type Phase } from "../abi";
import { leadNs } from "./streams";
import type { Trace, WaitKind } from "./trace";
import { at, durationNs, isWait, WAIT_EXCHANGE, WAIT_KINDS } from "./trace";

/** Time of one phase. */
export interface PhaseTime {
  phase: Phase;
  /** Work in the phase: the sum over all blocks, and the most of one block. */
  workNs: number;
  workMaxNs: number;
  /** Waits for the phase's output: the sum over all blocks, and the most of one block. */
  waitNs: number;
  waitMaxNs: number;
}

/** Waits of one kind. */
export interface KindTime {
  kind: WaitKind;
  waits: number;
  totalNs: number;
  longestNs: number;
}

/** Waits for one phase's output from one block. */
export interface WaitTime {
  phase: Phase;
  /** The block, or NO_BLOCK if all values had arrived at the first poll. */
  producer: number;
  waits: number;
  totalNs: number;
  longestNs: number;
}

/** The weights of one phase in flight, over all blocks and layers. */
export interface StreamTime {
  phase: Phase;
  streams: number;
  copies: number;
  bytes: number;
  /** Sum of the times from issue to arrival. */
  flightNs: number;
  /** Streams that a block worked on, and the sum of the times from issue to that work. */
  used: number;
  leadNs: number;
}

export interface Summary {
  /** The phases that the trace names, in order of use. */
  phases: PhaseTime[];
  /** The kinds of waits that occur, in the order of their ids. */
  kinds: KindTime[];
  /** Waits on an exchange by phase and producer, the costliest first. */
  waits: WaitTime[];
  /** The phases whose weights are streamed, in order of use. */
  streams: StreamTime[];
  workNs: number;
  waitNs: number;
  unrecordedNs: number;
  /** Available time: blocks x token. */
  availableNs: number;
  /** From the first qkv's begin to the last down's end; 0 if the trace lacks either. */
  layersNs: number;
  /** Waits on exchanges in that time, which are the hand-offs: mean over the blocks. */
  handOffNs: number;
}

export function summarized(trace: Trace): Summary {
  const { blocks, tokenNs } = trace.meta;
  const work = PHASES.map(() => new Float64Array(blocks));
  const wait = PHASES.map(() => new Float64Array(blocks));
  const seen = new Set<number>();
  for (let span = 0; span < trace.spans.block.length; span++) {
    const phase = at(trace.spans.phase, span);
    const block = at(trace.spans.block, span);
    const times = (isWait(trace, span) ? wait : work)[phase];
    if (times) times[block] = at(times, block) + durationNs(trace, span);
    seen.add(phase);
  }
  const phases = PHASES.flatMap((phase, id) =>
    seen.has(id) ? [phaseTime(phase, work[id], wait[id])] : [],
  );
  const workNs = sum(phases.map((time) => time.workNs));
  const waitNs = sum(phases.map((time) => time.waitNs));
  const availableNs = blocks * tokenNs;
  return {
    phases,
    kinds: kindTimes(trace),
    waits: waitTimes(trace),
    streams: streamTimes(trace),
    workNs,
    waitNs,
    unrecordedNs: availableNs - workNs - waitNs,
    availableNs,
    ...layerTimes(trace),
  };
}

function phaseTime(
  phase: Phase,
  work: ArrayLike<number> = [],
  wait: ArrayLike<number> = [],
): PhaseTime {
  return {
    phase,
    workNs: sum(work),
    workMaxNs: greatest(work),
    waitNs: sum(wait),
    waitMaxNs: greatest(wait),
  };
}

/** Adds the span to the row's totals. */
function count(trace: Trace, span: number, into: Omit<KindTime, "kind">): void {
  const length = durationNs(trace, span);
  into.waits += 1;
  into.totalNs += length;
  into.longestNs = Math.max(into.longestNs, length);
}

function kindTimes(trace: Trace): KindTime[] {
  const times = WAIT_KINDS.map((kind) => ({ kind, waits: 0, totalNs: 0, longestNs: 0 }));
  const byId = EVENT_KINDS.map((name) => times.find(({ kind }) => kind === name));
  trace.spans.kind.forEach((kind, span) => {
    const into = byId[kind];
    if (into) count(trace, span, into);
  });
  return times.filter(({ waits }) => waits > 0);
}

function waitTimes(trace: Trace): WaitTime[] {
  const { kind, phase, waitsOn } = trace.spans;
  const waits = new Map<number, WaitTime>();
  for (let span = 0; span < kind.length; span++) {
    if (at(kind, span) !== WAIT_EXCHANGE) continue;
    const name = PHASES[at(phase, span)];
    const producer = at(waitsOn, span);
    if (name === undefined) continue;
    const key = at(phase, span) * 2 ** 16 + producer;
    const found = waits.get(key) ?? { phase: name, producer, waits: 0, totalNs: 0, longestNs: 0 };
    count(trace, span, found);
    waits.set(key, found);
  }
  return [...waits.values()].sort((a, b) => b.totalNs - a.totalNs);
}

function layerTimes(trace: Trace): Pick<Summary, "layersNs" | "handOffNs"> {
  const { kind, phase, layer, beginNs, endNs } = trace.spans;
  let [begin, end] = [Number.POSITIVE_INFINITY, 0];
  kind.forEach((_, span) => {
    const name = PHASES[at(phase, span)];
    if (name === "qkv" && at(layer, span) === 0) begin = Math.min(begin, at(beginNs, span));
    const last = at(layer, span) === trace.meta.layers - 1;
    if (name === "down" && last && !isWait(trace, span)) end = Math.max(end, at(endNs, span));
  });
  if (begin >= end) return { layersNs: 0, handOffNs: 0 };
  let total = 0;
  kind.forEach((id, span) => {
    if (id !== WAIT_EXCHANGE) return;
    const inside = Math.min(at(endNs, span), end) - Math.max(at(beginNs, span), begin);
    total += Math.max(inside, 0);
  });
  return { layersNs: end - begin, handOffNs: total / trace.meta.blocks };
}

function streamTimes(trace: Trace): StreamTime[] {
  const { phase, copies, bytes, beginNs, endNs } = trace.streams;
  const times = PHASES.map((phase) => ({
    phase,
    ...{ streams: 0, copies: 0, bytes: 0, flightNs: 0, used: 0, leadNs: 0 },
  }));
  const leads = leadNs(trace);
  phase.forEach((id, stream) => {
    const time = times[id];
    if (!time) return;
    time.streams += 1;
    time.copies += at(copies, stream);
    time.bytes += at(bytes, stream);
    time.flightNs += at(endNs, stream) - at(beginNs, stream);
    const lead = at(leads, stream);
    if (Number.isNaN(lead)) return;
    time.used += 1;
    time.leadNs += lead;
  });
  return times.filter(({ streams }) => streams > 0);
}

function sum(values: ArrayLike<number>): number {
  return Array.from(values).reduce((total, value) => total + value, 0);
}

function greatest(values: ArrayLike<number>): number {
  return Array.from(values).reduce((most, value) => Math.max(most, value), 0);
}
