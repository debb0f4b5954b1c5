// Checks that columns form a valid trace, as crates/xray/src/check.rs does.

import { EVENT_KINDS, NO_BLOCK, NO_LAYER, PHASES } from "../abi";
import { TraceError } from "./error";
import type { Meta, Trace } from "./trace";
import { at, UNRECORDED, WAIT_EXCHANGE } from "./trace";

/** Phases that occur once a step, and so have no layer. */
const ONCE_A_STEP: ReadonlySet<string> = new Set(["embed", "lm_head", "argmax"]);

/** Refuses spans that contradict the metadata, each other or the contract of the trace. */
export function checkSpans(trace: Trace): void {
  const { spans } = trace;
  if (spans.block.length === 0) throw new TraceError("the trace has no spans");
  checkEachSpan(trace);
  let first = Number.POSITIVE_INFINITY;
  let last = 0;
  for (let row = 0; row < spans.block.length; row++) {
    first = Math.min(first, at(spans.beginNs, row));
    last = Math.max(last, at(spans.endNs, row));
  }
  checkEnds(trace, first, last);
}

/** Refuses spans that contradict the metadata or each other, of whatever role. */
export function checkEachSpan(trace: Pick<Trace, "meta" | "spans">): void {
  const { meta, spans } = trace;
  for (let row = 0; row < spans.block.length; row++) {
    checkStep(meta, spans, row, refuseSpan);
    if (at(spans.endNs, row) === at(spans.beginNs, row)) refuseSpan(spans, row, "has no length");
    checkKind(trace, row);
  }
}

/**
 * The token lasts from the first begin to the last end of all spans, including a loader's. A
 * loader's spans are not in the file, so with weight streams the file's spans need only be within
 * the token.
 */
function checkEnds({ meta, streams }: Trace, first: number, last: number): void {
  const complete = streams.block.length === 0;
  if (complete && first !== 0) {
    throw new TraceError(`the first span begins at ${first} ns, not at 0`);
  }
  if (last > meta.tokenNs || (complete && last < meta.tokenNs)) {
    throw new TraceError(`the last span ends at ${last} ns, but the token at ${meta.tokenNs} ns`);
  }
}

/** Does the same for streams. */
export function checkStreams(trace: Trace): void {
  const { streams, meta } = trace;
  for (let row = 0; row < streams.block.length; row++) {
    checkStep(meta, streams, row, refuseStream);
    const copies = at(streams.copies, row);
    if (copies === 0) refuseStream(streams, row, "has no copies");
    if (at(streams.bytes, row) < copies) refuseStream(streams, row, "has copies without bytes");
    const sameBlock = row > 0 && at(streams.block, row) === at(streams.block, row - 1);
    if (sameBlock && at(streams.beginNs, row) < at(streams.beginNs, row - 1)) {
      refuseStream(streams, row, "begins before the stream before it");
    }
    if (at(streams.endNs, row) > meta.tokenNs) {
      refuseStream(streams, row, "arrives after the token's end");
    }
  }
}

interface Steps {
  block: Uint16Array;
  phase: Uint8Array;
  layer: Uint16Array;
}

/** The layer must fit the phase and the model. */
function checkStep<Table extends Steps>(
  meta: Meta,
  table: Table,
  row: number,
  refuse: (table: Table, row: number, what: string) => never,
): void {
  const layer = at(table.layer, row);
  const once = ONCE_A_STEP.has(PHASES[at(table.phase, row)] ?? "");
  if (once && layer !== NO_LAYER) {
    refuse(table, row, "has a layer, but its phase occurs once a step");
  }
  if (!once && layer === NO_LAYER) refuse(table, row, "lacks its layer");
  if (!once && layer >= meta.layers) {
    refuse(table, row, `names a layer, but the model has ${meta.layers} layers`);
  }
}

/** Only a wait on an exchange may name another block, and that block must exist. */
function checkKind({ meta, spans }: Pick<Trace, "meta" | "spans">, row: number): void {
  const kind = at(spans.kind, row);
  if (kind === UNRECORDED) refuseSpan(spans, row, "is a span, but should be a gap");
  const waitsOn = at(spans.waitsOn, row);
  if (waitsOn === NO_BLOCK) return;
  if (kind !== WAIT_EXCHANGE) {
    refuseSpan(spans, row, `waits on no exchange, but names block ${waitsOn}`);
  }
  if (waitsOn >= meta.blocks) {
    refuseSpan(spans, row, `waits on block ${waitsOn}, but there are ${meta.blocks} blocks`);
  }
  if (waitsOn === at(spans.block, row)) refuseSpan(spans, row, "waits on its own block");
}

function refuseSpan(spans: Trace["spans"], row: number, what: string): never {
  const kind = EVENT_KINDS[at(spans.kind, row)];
  throw new TraceError(
    `span ${row} (block ${at(spans.block, row)}, ${kind} ${step(spans, row)}) ${what}`,
  );
}

function refuseStream(streams: Trace["streams"], row: number, what: string): never {
  throw new TraceError(
    `stream ${row} (block ${at(streams.block, row)}, ${step(streams, row)}) ${what}`,
  );
}

function step(table: Steps, row: number): string {
  const layer = at(table.layer, row);
  const where = layer === NO_LAYER ? "" : ` of layer ${layer}`;
  return `${PHASES[at(table.phase, row)]}${where}`;
}
