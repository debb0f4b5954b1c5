// The trace in words: labels, the header's sentence, what a span was.

import { EVENT_KINDS, NO_BLOCK, NO_LAYER, PHASES } from "../abi";
import { firstWorkOn, streamOf } from "./streams";
import type { Summary } from "./summary";
import type { Meta, Trace, WaitKind } from "./trace";
import { at, durationNs, isWait } from "./trace";

/** What a block is called: a thread on the CPU, a block on a GPU. */
export function unit(meta: Meta): "thread" | "block" {
  return meta.engine === "cpu" ? "thread" : "block";
}

/** The block's name; all numbers have the same width, so that a column of them lines up. */
export function blockName(meta: Meta, block: number): string {
  return `${unit(meta)} ${blockNumber(meta, block)}`;
}

export function blockNumber(meta: Meta, block: number): string {
  return String(block).padStart(String(meta.blocks - 1).length, "0");
}

/** The block's name, with its SM if that is known. */
export function blockOnSm(meta: Meta, block: number): string {
  const sm = meta.sms[block];
  return blockName(meta, block) + (sm === undefined ? "" : ` (SM\u00a0${sm})`);
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

/** Thousands or millions of bytes, whichever reads better. */
export function bytes(count: number): string {
  return count >= 10_000_000
    ? `${megabytes(count)}\u00a0MB`
    : `${(count / 1000).toLocaleString("en", { maximumFractionDigits: 1 })}\u00a0kB`;
}

export function megabytes(count: number): string {
  return (count / 1e6).toLocaleString("en", {
    minimumFractionDigits: 1,
    maximumFractionDigits: 1,
  });
}

/** What to know before believing a trace, in a few sentences. */
export function caveats(meta: Meta, summary: Summary): string {
  const unrecorded = percent(summary.unrecordedNs, summary.availableNs);
  return [
    lost(meta),
    `${unrecorded} of the ${unit(meta)}s' time is not recorded.`,
    pace(meta),
    `Times of two ${unit(meta)}s compare to within ${meta.clockErrorNs}\u00a0ns (${meta.alignment}).`,
    kernels(meta),
  ]
    .filter((sentence) => sentence !== "")
    .join(" ");
}

function lost({ overflow }: Meta): string {
  if (overflow === 0) return "";
  return (
    `${overflow} records did not fit in the engine's buffers, so some gaps are work or ` +
    "waits that were lost."
  );
}

function pace({ pace }: Meta): string {
  if (!pace) return "";
  const { overheadPct, headlineTokS, instrumentedTokS } = pace;
  const than = overheadPct < 0 ? "faster" : "slower";
  const rate = (tokS: number) => tokS.toLocaleString("en", { maximumFractionDigits: 1 });
  return (
    `The recording build runs ${Math.abs(overheadPct).toFixed(1)}\u00a0% ${than} than the ` +
    `headline build: ${rate(instrumentedTokS)} against ${rate(headlineTokS)} tokens a second.`
  );
}

/** Characters shown of a hash. */
const BUILD_CHARS = 12;

function kernels({ build }: Meta): string {
  return build === null ? "" : `Kernels ${build.slice(0, BUILD_CHARS)}.`;
}

/** Describes one span in a sentence: block, kind, length, phase and producer. */
export function described(trace: Trace, span: number): string {
  const { meta, spans } = trace;
  const begin = `at ${duration(at(spans.beginNs, span))}`;
  const who = blockOnSm(meta, at(spans.block, span));
  return `${who}: ${deed(trace, span)}, ${begin}${weightsOf(trace, span)}`;
}

function deed(trace: Trace, span: number): string {
  const time = duration(durationNs(trace, span));
  const step = stepName(trace.spans, span);
  switch (EVENT_KINDS[at(trace.spans.kind, span)]) {
    case "wait_exchange":
      return `waited ${time} for ${step}, ${lastFrom(trace, span)}`;
    case "wait_ring_full":
      return `waited ${time} for weights of ${step}`;
    case "wait_ring_empty":
      return `waited ${time} for room to load weights of ${step}`;
    case "wait_barrier":
      return `waited ${time} for its other warps, in ${step}`;
    case "wait_copies":
      return `waited ${time} for its copies in flight, before weights of ${step}`;
    default:
      return `${step}, worked ${time}`;
  }
}

function lastFrom({ meta, spans }: Trace, wait: number): string {
  const producer = at(spans.waitsOn, wait);
  if (producer !== NO_BLOCK) return `last from ${blockOnSm(meta, producer)}`;
  return "all there at the first poll: latency only";
}

/** When the weights of a span of work were issued and had arrived, if that is known. */
function weightsOf(trace: Trace, span: number): string {
  const stream = isWait(trace, span) ? -1 : streamOf(trace, span);
  if (stream < 0) return "";
  const { beginNs, endNs } = trace.streams;
  const [begin, end] = [duration(at(beginNs, stream)), duration(at(endNs, stream))];
  return `; its weights were issued at ${begin} and arrived by ${end}`;
}

/** One stream of weights in a sentence. */
export function describedStream(trace: Trace, stream: number): string {
  const { meta, streams } = trace;
  const [begin, end] = [at(streams.beginNs, stream), at(streams.endNs, stream)];
  const copies = at(streams.copies, stream);
  return (
    `${blockOnSm(meta, at(streams.block, stream))}: weights of ${stepName(streams, stream)}, ` +
    `${bytes(at(streams.bytes, stream))} in ${copies} ${copies === 1 ? "copy" : "copies"}, ` +
    `in flight ${duration(end - begin)}, at ${duration(begin)}${ahead(trace, stream)}`
  );
}

function ahead(trace: Trace, stream: number): string {
  const work = firstWorkOn(trace, stream);
  if (work < 0) return "";
  const lead = at(trace.spans.beginNs, work) - at(trace.streams.beginNs, stream);
  return lead < 0
    ? `, ${duration(-lead)} after the work on them began`
    : `, ${duration(lead)} ahead of the work on them`;
}

/** A span's or a stream's phase, with its layer if it has one. */
export function stepName(table: { phase: Uint8Array; layer: Uint16Array }, row: number): string {
  const phase = PHASES[at(table.phase, row)] ?? "";
  const layer = at(table.layer, row);
  return layer === NO_LAYER ? phase : `${phase} of layer ${layer}`;
}

/** What each kind of wait waits for. */
export function waitMeaning(meta: Meta, kind: WaitKind): string {
  switch (kind) {
    case "wait_exchange":
      return `another ${unit(meta)}'s values`;
    case "wait_ring_full":
      return "weights";
    case "wait_ring_empty":
      return "room to load weights";
    case "wait_barrier":
      return `the ${unit(meta)}'s own warps`;
    case "wait_copies":
      return "the loader's own copies";
  }
}
