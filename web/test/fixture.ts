// A trace like an engine's: blocks that work phase by phase and wait for the slowest. This one is
// a CPU's; test/gpu.ts has a GPU's.

import { gzipSync } from "node:zlib";
import { EVENT_KINDS, type EventKind, NO_BLOCK, NO_LAYER, PHASES, type Phase } from "../src/abi";

export interface Shape {
  blocks: number;
  layers: number;
  /** Work of a phase, in ns, before it varies. */
  workNs: number;
}

export const CPU: Shape = { blocks: 2, layers: 6, workNs: 9000 };

/** The file's JSON. */
export interface TraceFile {
  schema: string;
  meta: Record<string, unknown>;
  phases: string[];
  kinds: string[];
  spans: Record<
    "counts" | "kind" | "phase" | "layer" | "waits_on" | "gap_ns" | "length_ns",
    number[]
  >;
  streams: Record<
    "counts" | "phase" | "layer" | "copies" | "bytes" | "begin_ns" | "length_ns",
    number[]
  >;
  path?: Record<string, unknown[]>;
  epilogue?: TraceFile["spans"];
}

export const SHARE: Record<Phase, number> = {
  embed: 0.1,
  qkv: 1.2,
  attention: 0.9,
  o_proj: 0.6,
  gate_up: 2,
  down: 1.1,
  lm_head: 14,
  argmax: 0.1,
};
const LAYER_PHASES: Phase[] = ["qkv", "attention", "o_proj", "gate_up", "down"];

/** Random numbers from 0 to 1, the same for the same seed (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export interface Recorded {
  kind: EventKind;
  phase: Phase;
  layer: number;
  waitsOn: number;
  begin: number;
  end: number;
}

export interface Stream {
  phase: Phase;
  layer: number;
  copies: number;
  bytes: number;
  begin: number;
  end: number;
}

/** A CPU's trace. */
export function traceFile(shape: Shape): TraceFile {
  const spans = spansOf(simulate(shape));
  const { blocks, layers } = shape;
  return fileOf(metaOf({ blocks, layers, token_ns: lastEnd(spans) }), spans, streamsOf([], blocks));
}

export function fileOf(
  meta: TraceFile["meta"],
  spans: TraceFile["spans"],
  streams: TraceFile["streams"],
): TraceFile {
  return {
    schema: "monolith-trace/2",
    meta,
    phases: [...PHASES],
    kinds: [...EVENT_KINDS],
    spans,
    streams,
  };
}

export function metaOf(own: TraceFile["meta"]): TraceFile["meta"] {
  return {
    engine: "cpu",
    variant: "bf16-cpu-avx512",
    device: "a made-up processor",
    model: "Qwen3-0.6B",
    build: null,
    position: 128,
    clock_error_ns: 25,
    alignment: "one clock for all threads",
    overflow: 0,
    sms: [],
    phase_bytes: {},
    pace: null,
    generator: "test/fixture.ts",
    ...own,
  };
}

/** The rows of all blocks, as the file has them. */
export function spansOf(rows: Recorded[][]): TraceFile["spans"] {
  const all = rows.flat();
  return {
    counts: rows.map((row) => row.length),
    kind: all.map(({ kind }) => EVENT_KINDS.indexOf(kind)),
    phase: all.map(({ phase }) => PHASES.indexOf(phase)),
    layer: all.map(({ layer }) => layer),
    waits_on: all.map(({ waitsOn }) => waitsOn),
    gap_ns: rows.flatMap((row) => row.map(({ begin }, at) => begin - (row[at - 1]?.end ?? 0))),
    length_ns: all.map(({ begin, end }) => end - begin),
  };
}

export function streamsOf(rows: Stream[][], blocks: number): TraceFile["streams"] {
  const all = rows.flat();
  return {
    counts: Array.from({ length: blocks }, (_, block) => rows[block]?.length ?? 0),
    phase: all.map(({ phase }) => PHASES.indexOf(phase)),
    layer: all.map(({ layer }) => layer),
    copies: all.map(({ copies }) => copies),
    bytes: all.map(({ bytes }) => bytes),
    begin_ns: all.map(({ begin }) => begin),
    length_ns: all.map(({ begin, end }) => end - begin),
  };
}

/** A critical path of these classes and lengths, all of qkv of layer 1 on block 1. */
export function pathOf(segments: [cls: string, ns: number][]): Record<string, unknown[]> {
  const classes = ["compute", "weights", "handoff", "skew", "unrecorded"];
  const each = (value: number) => segments.map(() => value);
  return {
    classes,
    block: each(1),
    class: segments.map(([cls]) => classes.indexOf(cls)),
    phase: each(PHASES.indexOf("qkv")),
    layer: each(1),
    length_ns: segments.map(([, ns]) => ns),
  };
}

export function lastEnd({ counts, gap_ns, length_ns }: TraceFile["spans"]): number {
  let [row, last] = [0, 0];
  for (const count of counts) {
    let now = 0;
    for (const end = row + count; row < end; row++)
      now += (gap_ns[row] ?? 0) + (length_ns[row] ?? 0);
    last = Math.max(last, now);
  }
  return last;
}

/** Each block does every phase, then waits for the block that was last. */
function simulate({ blocks, layers, workNs }: Shape): Recorded[][] {
  const random = seeded(7);
  const rows: Recorded[][] = Array.from({ length: blocks }, () => []);
  const now = rows.map((_, block) => (block === 0 ? 0 : Math.round(random() * workNs * 0.05)));
  const phase = (phase: Phase, layer: number, alone = false) => {
    rows.forEach((row, block) => {
      if (alone && block !== 0) return;
      // Now and then a little time goes unrecorded.
      const gap = phase !== "embed" && random() < 0.1 ? Math.round(random() * 40) : 0;
      const begin = (now[block] ?? 0) + gap;
      const slow = random() < 0.03 ? 1.4 : 1;
      const end = begin + Math.round(workNs * SHARE[phase] * (0.8 + 0.25 * random()) * slow);
      row.push({ kind: "work", phase, layer, waitsOn: NO_BLOCK, begin, end });
      now[block] = end;
    });
    const last = Math.max(...now);
    const slowest = now.indexOf(last);
    rows.forEach((row, block) => {
      const begin = now[block] ?? 0;
      if (block === slowest || alone) return;
      const end = last + Math.round(40 + 60 * random());
      row.push({ kind: "wait_exchange", phase, layer, waitsOn: slowest, begin, end });
      now[block] = end;
    });
  };
  phase("embed", NO_LAYER);
  for (let layer = 0; layer < layers; layer++) for (const name of LAYER_PHASES) phase(name, layer);
  phase("lm_head", NO_LAYER);
  phase("argmax", NO_LAYER, true);
  return rows;
}

export function gzipped(file: TraceFile): Buffer<ArrayBuffer> {
  return Buffer.from(gzipSync(JSON.stringify(file)));
}
