// The metadata of a file.

import { PHASES, type Phase } from "../abi";
import { TraceError } from "./error";
import type { Meta, Pace } from "./trace";
import {
  array,
  integer,
  MAX_TOKEN_NS,
  number,
  object,
  objectOf,
  positive,
  text,
  U16,
  U32,
} from "./values";

const META_FIELDS = [
  "engine",
  "variant",
  "device",
  "model",
  "build",
  "position",
  "blocks",
  "layers",
  "token_ns",
  "clock_error_ns",
  "alignment",
  "overflow",
  "sms",
  "phase_bytes",
  "pace",
  "generator",
] as const;
const PACE_FIELDS = ["headline_tok_s", "instrumented_tok_s", "overhead_pct"] as const;

export function metaFromFile(value: unknown): Meta {
  const meta = object(value, "meta", META_FIELDS);
  const blocks = integer(meta.blocks, "meta.blocks", U16);
  if (blocks === 0) throw new TraceError("the trace has no blocks");
  return {
    engine: text(meta.engine, "meta.engine"),
    variant: text(meta.variant, "meta.variant"),
    device: text(meta.device, "meta.device"),
    model: text(meta.model, "meta.model"),
    build: meta.build === null ? null : text(meta.build, "meta.build"),
    position: integer(meta.position, "meta.position", U32),
    blocks,
    layers: integer(meta.layers, "meta.layers", U16),
    tokenNs: integer(meta.token_ns, "meta.token_ns", MAX_TOKEN_NS),
    clockErrorNs: integer(meta.clock_error_ns, "meta.clock_error_ns", MAX_TOKEN_NS),
    alignment: text(meta.alignment, "meta.alignment"),
    overflow: integer(meta.overflow, "meta.overflow", Number.MAX_SAFE_INTEGER),
    sms: smsFromFile(meta.sms, blocks),
    phaseBytes: phaseBytesFromFile(meta.phase_bytes),
    pace: meta.pace === null ? null : paceFromFile(meta.pace),
    generator: text(meta.generator, "meta.generator"),
  };
}

function smsFromFile(value: unknown, blocks: number): Uint16Array {
  const sms = array(value, "meta.sms");
  if (sms.length !== 0 && sms.length !== blocks) {
    throw new TraceError(`meta.sms has ${sms.length} values for ${blocks} blocks`);
  }
  return Uint16Array.from(sms, (sm, block) => integer(sm, `meta.sms[${block}]`, U16));
}

function phaseBytesFromFile(value: unknown): Map<Phase, number> {
  const bytes = new Map<Phase, number>();
  for (const [name, count] of Object.entries(objectOf(value, "meta.phase_bytes"))) {
    const phase = PHASES.find((phase) => phase === name);
    if (!phase) throw new TraceError(`meta.phase_bytes: unknown name ${JSON.stringify(name)}`);
    const what = `meta.phase_bytes.${name}`;
    bytes.set(phase, positive(integer(count, what, Number.MAX_SAFE_INTEGER), what));
  }
  return bytes;
}

function paceFromFile(value: unknown): Pace {
  const pace = object(value, "meta.pace", PACE_FIELDS);
  return {
    headlineTokS: positive(pace.headline_tok_s, "meta.pace.headline_tok_s"),
    instrumentedTokS: positive(pace.instrumented_tok_s, "meta.pace.instrumented_tok_s"),
    overheadPct: number(pace.overhead_pct, "meta.pace.overhead_pct"),
  };
}
