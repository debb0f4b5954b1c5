// A trace like an engine's: blocks that work phase by phase and wait for the slowest.

import { gzipSync } from "node:zlib";
import { EVENT_KINDS, NO_BLOCK, NO_LAYER, PHASES, type Phase } from "../src/abi";

export interface Shape {
  engine: "cpu" | "cuda";
  blocks: number;
  layers: number;
  /** Work of a phase, in ns, before it varies. */
  workNs: number;
}

export const CPU: Shape = { engine: "cpu", blocks: 2, layers: 6, workNs: 9000 };
export const CUDA: Shape = { engine: "cuda", blocks: 170, layers: 28, workNs: 2600 };

/** The file's JSON. */
export interface TraceFile {
  schema: string;
  meta: Record<string, string | number>;
  phases: string[];
  kinds: string[];
  spans: Record<
    "block" | "kind" | "phase" | "layer" | "waits_on" | "begin_ns" | "end_ns",
    number[]
  >;
}

const SHARE: Record<Phase, number> = {
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

interface Recorded {
  kind: (typeof EVENT_KINDS)[number];
  phase: Phase;
  layer: number;
  waitsOn: number;
  begin: number;
  end: number;
}

export function traceFile(shape: Shape): TraceFile {
  const rows = simulate(shape);
  const spans: TraceFile["spans"] = {
    block: [],
    kind: [],
    phase: [],
    layer: [],
    waits_on: [],
    begin_ns: [],
    end_ns: [],
  };
  rows.forEach((row, block) => {
    for (const { kind, phase, layer, waitsOn, begin, end } of row) {
      spans.block.push(block);
      spans.kind.push(EVENT_KINDS.indexOf(kind));
      spans.phase.push(PHASES.indexOf(phase));
      spans.layer.push(layer);
      spans.waits_on.push(waitsOn);
      spans.begin_ns.push(begin);
      spans.end_ns.push(end);
    }
  });
  const tokenNs = spans.end_ns.reduce((most, end) => Math.max(most, end), 0);
  return {
    schema: "monolith-trace/1",
    meta: metaOf(shape, tokenNs),
    phases: [...PHASES],
    kinds: [...EVENT_KINDS],
    spans,
  };
}

function metaOf({ engine, blocks, layers }: Shape, tokenNs: number): TraceFile["meta"] {
  return {
    engine,
    variant: engine === "cpu" ? "bf16-cpu-avx512" : "bf16-sm120a",
    device: engine === "cpu" ? "a made-up processor" : "a made-up GPU",
    model: "Qwen3-0.6B",
    position: 128,
    blocks,
    layers,
    token_ns: tokenNs,
    clock_error_ns: engine === "cpu" ? 25 : 32,
    overflow: 0,
    generator: "test/fixture.ts",
  };
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
