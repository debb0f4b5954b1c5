// A trace added up, as crates/xray/src/analysis.rs does it.

import { PHASES, type Phase } from "../abi";
import type { Trace } from "./trace";
import { at, durationNs, isWait } from "./trace";

/** Time of one phase. */
export interface PhaseTime {
  phase: Phase;
  /** Work in it, all blocks together, and of the block that had most. */
  workNs: number;
  workMaxNs: number;
  /** Waits for its output, all blocks together, and of the block that waited longest. */
  waitNs: number;
  waitMaxNs: number;
}

/** Waits for one phase's output from one block. */
export interface WaitTime {
  phase: Phase;
  /** Or NO_BLOCK, where it is not known. */
  producer: number;
  waits: number;
  totalNs: number;
  longestNs: number;
}

export interface Summary {
  /** The phases that the trace names, in order of use. */
  phases: PhaseTime[];
  /** Waits by phase and producer, the costliest first. */
  waits: WaitTime[];
  workNs: number;
  waitNs: number;
  unrecordedNs: number;
  /** The time there was to spend: blocks x token. */
  availableNs: number;
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
  const unrecordedNs = availableNs - workNs - waitNs;
  return { phases, waits: waitTimes(trace), workNs, waitNs, unrecordedNs, availableNs };
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

function waitTimes(trace: Trace): WaitTime[] {
  const waits = new Map<string, WaitTime>();
  for (let span = 0; span < trace.spans.block.length; span++) {
    if (!isWait(trace, span)) continue;
    const phase = PHASES[at(trace.spans.phase, span)];
    const producer = at(trace.spans.waitsOn, span);
    if (phase === undefined) continue;
    const key = `${phase} ${producer}`;
    const found = waits.get(key) ?? { phase, producer, waits: 0, totalNs: 0, longestNs: 0 };
    found.waits += 1;
    found.totalNs += durationNs(trace, span);
    found.longestNs = Math.max(found.longestNs, durationNs(trace, span));
    waits.set(key, found);
  }
  return [...waits.values()].sort((a, b) => b.totalNs - a.totalNs);
}

function sum(values: ArrayLike<number>): number {
  return Array.from(values).reduce((total, value) => total + value, 0);
}

function greatest(values: ArrayLike<number>): number {
  return Array.from(values).reduce((most, value) => Math.max(most, value), 0);
}
