// The trace in words: labels, the header's sentence, what a span was.

import { EVENT_KINDS, NO_BLOCK, NO_LAYER, PHASES } from "../abi";
import { mostEpilogueWork } from "./epilogue";
import { EPILOGUE_FROM, type Overview, STATES, WAITS_FROM } from "./overview";
import { NO_PHASE, PATH_CLASSES, type Path, type PathClass, splitOf } from "./path";
import { firstWorkOn, streamOf } from "./streams";
import type { Summary } from "./summary";
import type { Meta, Trace, WaitKind } from "./trace";
import { at, durationNs, isWait, WAIT_KINDS } from "./trace";

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

/** What ran, on what. */
export function subject(meta: Meta): string {
  const model = meta.model === "standin" ? "a stand-in of Qwen3-0.6B's shape" : meta.model;
  return `${model} on ${meta.device}, ${meta.engine} engine, variant ${meta.variant}, position ${meta.position}`;
}

/** The header's sentence: how long the token took, and on what. */
export function headline(meta: Meta, path: Path | null): string {
  const article = meta.device.startsWith("NVIDIA") ? "an " : "";
  const took = `One token in ${duration(meta.tokenNs)} on ${article}${meta.device}`;
  if (!path) return `${took}.`;
  const split = splitOf(path);
  const parts = PATH_CLASSES.filter((cls) => split[cls] / meta.tokenNs >= 0.005)
    .sort((a, b) => split[b] - split[a])
    .map((cls) => `${Math.round((100 * split[cls]) / meta.tokenNs)}\u00a0% ${CLASS_DEEDS[cls]}`);
  const last = parts.pop();
  const list = parts.length > 0 ? `${parts.join(", ")} and ${last}` : last;
  return `${took}: ${list}.`;
}

/** What the token's time went to, as the headline says it. */
const CLASS_DEEDS: Record<PathClass, string> = {
  compute: "computing",
  weights: "waiting for weights",
  handoff: "handing values from block to block",
  skew: "waiting for the slowest",
  unrecorded: "not recorded",
};

/** Short names of the critical path's classes. */
export const CLASS_NAMES: Record<PathClass, string> = {
  compute: "compute",
  weights: "weights",
  handoff: "hand-off",
  skew: "skew",
  unrecorded: "not recorded",
};

/** What each class means, in a sentence. */
export const CLASS_MEANINGS: Record<PathClass, string> = {
  compute: "work, until half of the blocks had published their part",
  weights: "weights that had not arrived yet",
  handoff: "from a block's publication until the block that waits for it sees it",
  skew: "work after half of the blocks had finished theirs, and warps waiting for each other",
  unrecorded: "no span covers this time",
};

/** How many blocks did what in a column of the overview. */
export function describedCounts(
  { meta }: Trace,
  overview: Overview,
  column: number,
  ns: number,
): string {
  const of = (state: number) => at(overview.blocks, column * STATES + state);
  const working = PHASES.map((phase, id) => ({ phase, blocks: of(id) + of(EPILOGUE_FROM + id) }))
    .filter(({ blocks }) => blocks >= 0.5)
    .sort((a, b) => b.blocks - a.blocks)
    .map(({ phase, blocks }) => `${Math.round(blocks)} on ${phase}`);
  const waiting = WAIT_KINDS.map((kind) => ({
    kind,
    blocks: of(WAITS_FROM + EVENT_KINDS.indexOf(kind)),
  }))
    .filter(({ blocks }) => blocks >= 0.5)
    .map(({ kind, blocks }) => `${Math.round(blocks)} for ${waitMeaning(meta, kind)}`);
  const parts = [
    working.length > 0 ? `working: ${working.join(", ")}` : "",
    waiting.length > 0 ? `waiting: ${waiting.join(", ")}` : "",
  ].filter((part) => part !== "");
  return `At ${duration(ns)}, of ${meta.blocks} ${unit(meta)}s ${parts.join("; ")}`;
}

/** One segment of the critical path in a sentence. */
export function describedSegment({ meta }: Trace, path: Path, segment: number): string {
  const cls = PATH_CLASSES[at(path.cls, segment)] ?? "unrecorded";
  const [begin, end] = [at(path.beginNs, segment), at(path.endNs, segment)];
  const phase = at(path.phase, segment) === NO_PHASE ? "" : ` of ${stepName(path, segment)}`;
  return (
    `critical path: ${CLASS_NAMES[cls]}${phase} on ${blockOnSm(meta, at(path.block, segment))}, ` +
    `${duration(end - begin)}, at ${duration(begin)} (${CLASS_MEANINGS[cls]})`
  );
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

/** What to know before believing a trace, a sentence each. */
export function caveats(meta: Meta, summary: Summary): string[] {
  const unrecorded = percent(summary.unrecordedNs, summary.availableNs);
  return [
    lost(meta),
    pace(meta),
    `The clocks of two ${unit(meta)}s are put on one time to within ${meta.clockErrorNs}\u00a0ns ` +
      `(${meta.alignment}): a shorter wait for another ${unit(meta)} may be longer or shorter ` +
      `than it looks.`,
    `For ${unrecorded} of the ${unit(meta)}s' time there is no record: the chart is empty there.`,
    kernels(meta),
  ].filter((sentence) => sentence !== "");
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
  const rate = (tokS: number) => tokS.toLocaleString("en", { maximumFractionDigits: 0 });
  return (
    `Recording changes what it records: the build that records runs ` +
    `${Math.abs(overheadPct).toFixed(1)}\u00a0% ${than} than the one that is timed, ` +
    `${rate(instrumentedTokS)} against ${rate(headlineTokS)} tokens a second.`
  );
}

/** Characters shown of a hash. */
const BUILD_CHARS = 12;

function kernels({ build }: Meta): string {
  return build === null ? "" : `Kernels: ${build.slice(0, BUILD_CHARS)}.`;
}

/** Describes one span in a sentence: block, kind, length, phase and producer. */
export function described(trace: Trace, span: number): string {
  const { meta, spans } = trace;
  const begin = `at ${duration(at(spans.beginNs, span))}`;
  const who = blockOnSm(meta, at(spans.block, span));
  const more = isWait(trace, span) ? meanwhile(trace, span) : weightsOf(trace, span);
  return `${who}: ${deed(trace, span)}, ${begin}${more}`;
}

/** What the block's epilogue worked on most during a wait of the others. */
function meanwhile(trace: Trace, wait: number): string {
  const { block, beginNs, endNs } = trace.spans;
  const window = [at(beginNs, wait), at(endNs, wait)] as const;
  const work = mostEpilogueWork(trace, at(block, wait), ...window);
  if (!work || !trace.epilogue) return "";
  const step = stepName(trace.epilogue.spans, work.row);
  return `; meanwhile its epilogue warp worked ${duration(work.endNs - work.beginNs)} on ${step}`;
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
  const [begin, end] = [at(beginNs, stream), at(endNs, stream)];
  return (
    `; its ${bytes(at(trace.streams.bytes, stream))} of weights were issued at ${duration(begin)} ` +
    `and arrived by ${duration(end)}: ${gbPerS(at(trace.streams.bytes, stream), end - begin)}`
  );
}

/** A rate; bytes a nanosecond are GB a second. */
export function gbPerS(count: number, ns: number): string {
  if (ns <= 0) return "";
  return `${(count / ns).toLocaleString("en", { maximumFractionDigits: 1 })}\u00a0GB/s`;
}

/** One stream of weights in a sentence. */
export function describedStream(trace: Trace, stream: number): string {
  const { meta, streams } = trace;
  const [begin, end] = [at(streams.beginNs, stream), at(streams.endNs, stream)];
  const copies = at(streams.copies, stream);
  return (
    `${blockOnSm(meta, at(streams.block, stream))}: weights of ${stepName(streams, stream)}, ` +
    `${bytes(at(streams.bytes, stream))} in ${copies} ${copies === 1 ? "copy" : "copies"}, ` +
    `in flight ${duration(end - begin)} (${gbPerS(at(streams.bytes, stream), end - begin)}), ` +
    `at ${duration(begin)}${ahead(trace, stream)}`
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
