// The trace in words: labels, the header's sentence, what a span was.

import { NO_BLOCK, NO_LAYER, PHASES } from "../abi";
import type { Summary } from "./summary";
import type { Meta, Trace } from "./trace";
import { at, durationNs, isWait } from "./trace";

/** What a block is called: a thread on the CPU, a block on a GPU. */
export function unit(meta: Meta): "thread" | "block" {
  return meta.engine === "cpu" ? "thread" : "block";
}

/** Numbered as wide as the last one, so that a column of them lines up. */
export function blockName(meta: Meta, block: number): string {
  return `${unit(meta)} ${blockNumber(meta, block)}`;
}

export function blockNumber(meta: Meta, block: number): string {
  return String(block).padStart(String(meta.blocks - 1).length, "0");
}

export function microseconds(ns: number, digits = ns < 100_000 ? 2 : 1): string {
  return new Intl.NumberFormat("en", {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  }).format(ns / 1000);
}

export function percent(part: number, whole: number): string {
  const share = whole === 0 ? 0 : part / whole;
  return `${(100 * share).toFixed(1)}\u00a0%`;
}

/** The header's sentence. */
export function headline(meta: Meta, summary: Summary): string {
  const { model, engine, variant, device, position, tokenNs } = meta;
  const share = percent(summary.waitNs, summary.availableNs);
  return (
    `${model} on ${device}, ${engine} engine, variant ${variant}: the token at position ` +
    `${position} took ${duration(tokenNs)}. ${team(meta)} spent ${share} of that time waiting.`
  );
}

function team(meta: Meta): string {
  if (meta.blocks === 1) return `Its one ${unit(meta)}`;
  return `On average, its ${meta.blocks} ${unit(meta)}s`;
}

/** Milliseconds or microseconds, whichever reads better. */
export function duration(ns: number): string {
  return ns >= 10_000_000 ? `${(ns / 1e6).toFixed(2)}\u00a0ms` : `${microseconds(ns)}\u00a0µs`;
}

/** What the trace cannot say, or nothing. */
export function caveats(meta: Meta): string {
  const clock = `The clock tells times apart down to ${meta.clockErrorNs}\u00a0ns.`;
  if (meta.overflow === 0) return clock;
  return (
    `${meta.overflow} records did not fit in the engine's buffers, so some gaps are work or ` +
    `waits that were lost. ${clock}`
  );
}

/** One span in a sentence. */
export function described(trace: Trace, span: number): string {
  const { meta, spans } = trace;
  const us = `${microseconds(durationNs(trace, span))}\u00a0µs`;
  const begin = `at ${microseconds(at(spans.beginNs, span))}\u00a0µs`;
  const step = stepName(trace, span);
  const who = blockName(meta, at(spans.block, span));
  if (!isWait(trace, span)) return `${who}: ${step}, worked ${us}, ${begin}`;
  const producer = at(spans.waitsOn, span);
  const whom = producer === NO_BLOCK ? "" : ` from ${blockName(meta, producer)}`;
  return `${who}: waited ${us} for ${step}${whom}, ${begin}`;
}

/** The span's phase, with its layer if it has one. */
export function stepName(trace: Trace, span: number): string {
  const phase = PHASES[at(trace.spans.phase, span)] ?? "";
  const layer = at(trace.spans.layer, span);
  return layer === NO_LAYER ? phase : `${phase} of layer ${layer}`;
}
