// A trace like a GPU's: one block on each SM, every kind of wait, weights loaded ahead.

import { NO_BLOCK, NO_LAYER, type Phase } from "../src/abi";
import {
  fileOf,
  lastEnd,
  metaOf,
  type Recorded,
  type Stream,
  seeded,
  spansOf,
  streamsOf,
  type TraceFile,
} from "./fixture";

export interface GpuShape {
  blocks: number;
  layers: number;
}

/** Like an H200 with Qwen3-0.6B: 132 SMs, some 1,000 spans and 113 streams a block. */
export const GPU: GpuShape = { blocks: 132, layers: 28 };

interface Step {
  phase: Phase;
  layer: number;
  /** The phase whose values this phase gathers first; null: none. */
  from: { phase: Phase; layer: number } | null;
  /** Bytes of its weights that a block reads, 0 for none. */
  bytes: number;
  /** Products without weights: attention. */
  plainNs: number;
  /** Number of blocks that have a tile of it. */
  tiles: number;
}

const COPY_BYTES = 16_384;
/** Copies in flight or waiting to be used, at most: the ring's stages. */
const STAGES = 11;
/** One copy's latency, and a block's best load rate. */
const COPY_NS = 1400;
const BYTES_PER_NS = 26;
const HAND_OFF_NS = 900;

function stepsOf(layers: number): Step[] {
  const steps: Step[] = [];
  const add = (phase: Phase, layer: number, bytes: number, plainNs = 0, tiles = 132) => {
    const last = steps.at(-1);
    const from = last && last.phase !== "embed" ? { phase: last.phase, layer: last.layer } : null;
    steps.push({ phase, layer, from, bytes, plainNs, tiles });
  };
  add("embed", NO_LAYER, 0, 300);
  for (let layer = 0; layer < layers; layer++) {
    add("qkv", layer, 4 * COPY_BYTES);
    add("attention", layer, 0, 1300);
    add("o_proj", layer, 4 * COPY_BYTES, 0, 64);
    add("gate_up", layer, 6 * COPY_BYTES);
    add("down", layer, 5 * COPY_BYTES, 0, 64);
  }
  add("lm_head", NO_LAYER, 144 * COPY_BYTES);
  return steps;
}

export function gpuTraceFile({ blocks, layers }: GpuShape = GPU): TraceFile {
  const grid = new Grid(blocks);
  for (const step of stepsOf(layers)) grid.run(step);
  grid.finish();
  const spans = spansOf(grid.rows);
  const streams = streamsOf(grid.streams, blocks);
  const meta = metaOf({
    engine: "cuda",
    variant: "bf16-flag",
    device: "a made-up GPU",
    build: "3fa91c0d5be27748",
    blocks,
    layers,
    token_ns: lastEnd(spans),
    clock_error_ns: 41,
    alignment: "a line through each block's readings of the shared clock",
    // Neighbours in number are seldom neighbours on the chip.
    sms: Array.from(
      { length: blocks },
      (_, block) => ((block * 2) % blocks) + (2 * block >= blocks && blocks % 2 === 0 ? 1 : 0),
    ),
    phase_bytes: phaseBytes(grid.streams),
    pace: { headline_tok_s: 1502.4, instrumented_tok_s: 1474.9, overhead_pct: 1.9 },
    generator: "test/gpu.ts",
  });
  return fileOf(meta, spans, streams);
}

function phaseBytes(rows: Stream[][]): Record<string, number> {
  const bytes: Record<string, number> = {};
  for (const { phase, bytes: more } of rows.flat()) bytes[phase] = (bytes[phase] ?? 0) + more;
  return bytes;
}

/** All blocks, phase after phase. */
class Grid {
  readonly rows: Recorded[][];
  readonly streams: Stream[][];
  private readonly random = seeded(13);
  private readonly now: number[];
  /** When each block's loader could issue the next copy, and when each stage was released. */
  private readonly loader: number[];
  private readonly released: number[][];
  /** When each block published its values of the phase before. */
  private posted: number[];

  constructor(blocks: number) {
    this.rows = Array.from({ length: blocks }, () => []);
    this.streams = Array.from({ length: blocks }, () => []);
    this.now = this.rows.map((_, block) => (block === 0 ? 0 : Math.round(this.random() * 400)));
    this.loader = [...this.now];
    this.released = this.rows.map(() => Array.from({ length: STAGES }, () => 0));
    this.posted = [...this.now];
  }

  run(step: Step): void {
    const latest = Math.max(...this.posted);
    const slowest = this.posted.indexOf(latest);
    const posted = this.rows.map((_, block) => {
      this.gather(step, block, slowest, latest);
      const owns = block < step.tiles;
      if (owns && step.bytes > 0) this.product(step, block);
      else this.work(step, block, owns ? step.plainNs : 60);
      if (owns && step.phase !== "embed") {
        this.span(step, block, "wait_barrier", 60 + 160 * this.random());
        this.work(step, block, 180);
      }
      return owns ? (this.now[block] ?? 0) : 0;
    });
    this.posted = posted;
  }

  finish(): void {
    const step: Step = {
      phase: "argmax",
      layer: NO_LAYER,
      from: { phase: "lm_head", layer: NO_LAYER },
      bytes: 0,
      plainNs: 500,
      tiles: 1,
    };
    const latest = Math.max(...this.posted);
    this.gather(step, 0, this.posted.indexOf(latest), latest);
    this.work(step, 0, step.plainNs);
  }

  /** Waits until every block's values of the phase before have arrived. */
  private gather({ from }: Step, block: number, slowest: number, latest: number): void {
    if (!from) return;
    const begin = this.now[block] ?? 0;
    const late = latest > begin && slowest !== block;
    const wait = Math.max(latest - begin, 0) + HAND_OFF_NS * (0.8 + 0.4 * this.random());
    this.span({ ...from }, block, "wait_exchange", wait, late ? slowest : NO_BLOCK);
  }

  /** Works through the copies of a phase's weights, each as soon as it arrives. */
  private product(step: Step, block: number): void {
    const copies = step.bytes / COPY_BYTES;
    const stages = this.released[block] ?? [];
    let [first, last] = [Number.POSITIVE_INFINITY, 0];
    for (let copy = 0; copy < copies; copy++) {
      const free = stages.shift() ?? 0;
      const issue = Math.round(Math.max(this.loader[block] ?? 0, free));
      this.loader[block] = issue + COPY_BYTES / BYTES_PER_NS;
      const arrival = Math.round(issue + COPY_NS * (0.9 + 0.5 * this.random()));
      const late = arrival - (this.now[block] ?? 0);
      if (late > 0) this.span(step, block, "wait_ring_full", late);
      this.work(step, block, 470);
      stages.push(this.now[block] ?? 0);
      [first, last] = [Math.min(first, issue), Math.max(last, arrival)];
    }
    const { phase, layer, bytes } = step;
    this.streams[block]?.push({ phase, layer, copies, bytes, begin: first, end: last });
  }

  private work(step: Step, block: number, ns: number): void {
    const slow = this.random() < 0.01 ? 1.8 : 1;
    this.span(step, block, "work", ns * slow * (0.9 + 0.2 * this.random()));
  }

  private span(
    { phase, layer }: { phase: Phase; layer: number },
    block: number,
    kind: Recorded["kind"],
    ns: number,
    waitsOn = NO_BLOCK,
  ): void {
    const begin = this.now[block] ?? 0;
    const end = begin + Math.max(Math.round(ns), 1);
    this.rows[block]?.push({ kind, phase, layer, waitsOn, begin, end });
    this.now[block] = end;
  }
}
