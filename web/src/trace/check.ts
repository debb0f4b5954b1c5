// What makes columns a trace: crates/xray/src/check.rs in the page's language.

import { EVENT_KINDS, NO_BLOCK, NO_LAYER, PHASES } from "../abi";
import { TraceError } from "./error";
import type { Meta, Spans } from "./trace";
import { at } from "./trace";

/** Phases that occur once a step, and so have no layer. */
const ONCE_A_STEP: ReadonlySet<string> = new Set(["embed", "lm_head", "argmax"]);

/** Refuses spans that contradict the metadata, each other or the contract of the record. */
export function checkSpans(meta: Meta, spans: Spans): void {
  const count = spans.block.length;
  if (count === 0) throw new TraceError("the trace has no spans");
  let first = Number.POSITIVE_INFINITY;
  let last = 0;
  for (let row = 0; row < count; row++) {
    checkTime(spans, row);
    checkLayer(meta, spans, row);
    checkProducer(meta, spans, row);
    if (row > 0) checkOrder(spans, row);
    first = Math.min(first, at(spans.beginNs, row));
    last = Math.max(last, at(spans.endNs, row));
  }
  if (first !== 0) throw new TraceError(`the first span begins at ${first} ns, not at 0`);
  if (last !== meta.tokenNs) {
    throw new TraceError(`the last span ends at ${last} ns, but the token at ${meta.tokenNs} ns`);
  }
}

function checkTime(spans: Spans, row: number): void {
  if (at(spans.endNs, row) < at(spans.beginNs, row)) refuse(spans, row, "ends before it begins");
}

function checkLayer(meta: Meta, spans: Spans, row: number): void {
  if (at(spans.block, row) >= meta.blocks) {
    refuse(spans, row, `names a block, but there are ${meta.blocks} blocks`);
  }
  const layer = at(spans.layer, row);
  const once = ONCE_A_STEP.has(PHASES[at(spans.phase, row)] ?? "");
  if (once && layer !== NO_LAYER) {
    refuse(spans, row, "has a layer, but its phase occurs once a step");
  }
  if (!once && layer === NO_LAYER) refuse(spans, row, "lacks its layer");
  if (!once && layer >= meta.layers) {
    refuse(spans, row, `names a layer, but the model has ${meta.layers} layers`);
  }
}

function checkProducer(meta: Meta, spans: Spans, row: number): void {
  const waitsOn = at(spans.waitsOn, row);
  if (waitsOn === NO_BLOCK) return;
  if (at(spans.kind, row) === 0) refuse(spans, row, `is work, but waits on block ${waitsOn}`);
  if (waitsOn >= meta.blocks) {
    refuse(spans, row, `waits on block ${waitsOn}, but there are ${meta.blocks} blocks`);
  }
  if (waitsOn === at(spans.block, row)) refuse(spans, row, "waits on its own block");
}

function checkOrder(spans: Spans, row: number): void {
  const before = at(spans.block, row - 1);
  if (at(spans.block, row) < before) {
    refuse(spans, row, `comes after the records of block ${before}`);
  }
  const shared = at(spans.endNs, row - 1) - at(spans.beginNs, row);
  if (at(spans.block, row) === before && shared > 0) {
    refuse(spans, row, `begins ${shared} ns before the end of the record before it`);
  }
}

function refuse(spans: Spans, row: number, what: string): never {
  const kind = EVENT_KINDS[at(spans.kind, row)];
  const phase = PHASES[at(spans.phase, row)];
  const layer = at(spans.layer, row);
  const where = layer === NO_LAYER ? "" : ` of layer ${layer}`;
  const block = at(spans.block, row);
  throw new TraceError(`record ${row} (block ${block}, ${kind} ${phase}${where}) ${what}`);
}
