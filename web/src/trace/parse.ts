// The page's file to a checked trace: the same refusals, in the same words, as crates/xray.

import { EVENT_KINDS, NO_BLOCK, NO_LAYER, PHASES } from "../abi";
import { checkSpans } from "./check";
import { TraceError } from "./error";
import type { Meta, Spans, Trace } from "./trace";
import { at } from "./trace";

export const SCHEMA = "monolith-trace/1";
/** Longest JSON taken, far above any step's: a small file cannot unpack to fill the memory. */
export const MAX_JSON_BYTES = 64 * 2 ** 20;
const MAX_TOKEN_NS = 3_600_000_000_000;
const MAX_TEXT_BYTES = 256;
const U16 = 65_535;

/** Reads a file, gzipped or already unpacked: some servers unpack `.gz` on the way. */
export async function traceFromFile(bytes: Uint8Array<ArrayBuffer>): Promise<Trace> {
  return traceFromJson(new TextDecoder().decode(await unpack(bytes)));
}

async function unpack(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  if (bytes[0] === 0x1f && bytes[1] === 0x8b) return gunzip(bytes);
  if (!/^\s*\{/.test(new TextDecoder().decode(bytes.subarray(0, 64)))) {
    throw new TraceError("neither gzip nor JSON: this is not a trace file");
  }
  if (bytes.length > MAX_JSON_BYTES) throw tooLong();
  return bytes;
}

async function gunzip(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const parts: Uint8Array[] = [];
  let length = 0;
  const reader = stream.getReader();
  for (;;) {
    const { done, value } = await reader.read().catch(() => {
      throw new TraceError("broken gzip: the file is cut short or damaged");
    });
    if (done) break;
    length += value.length;
    if (length > MAX_JSON_BYTES) {
      await reader.cancel();
      throw tooLong();
    }
    parts.push(value);
  }
  return joined(parts, length);
}

function joined(parts: Uint8Array[], length: number): Uint8Array {
  const whole = new Uint8Array(length);
  let offset = 0;
  for (const part of parts) {
    whole.set(part, offset);
    offset += part.length;
  }
  return whole;
}

function tooLong(): TraceError {
  return new TraceError(`the text is longer than ${MAX_JSON_BYTES} bytes`);
}

/** Reads the JSON text of a file. */
export function traceFromJson(json: string): Trace {
  let file: unknown;
  try {
    file = JSON.parse(json);
  } catch {
    throw new TraceError("not a trace's JSON: the text is cut short or damaged");
  }
  const top = object(file, "the file", ["schema"], true);
  if (top.schema !== SCHEMA) {
    throw new TraceError(`schema is ${JSON.stringify(top.schema)}, this version reads "${SCHEMA}"`);
  }
  const { meta, phases, kinds, spans } = object(file, "the file", FILE_FIELDS);
  const checkedMeta = metaFromFile(meta);
  const columns = spansFromFile(
    spans,
    names(phases, "phases", PHASES),
    names(kinds, "kinds", EVENT_KINDS),
  );
  checkSpans(checkedMeta, columns);
  return {
    meta: checkedMeta,
    spans: columns,
    rowStarts: rowStarts(checkedMeta.blocks, columns.block),
  };
}

const FILE_FIELDS = ["schema", "meta", "phases", "kinds", "spans"] as const;
const META_FIELDS = [
  "engine",
  "variant",
  "device",
  "model",
  "position",
  "blocks",
  "layers",
  "token_ns",
  "clock_error_ns",
  "overflow",
  "generator",
] as const;
const SPAN_FIELDS = ["block", "kind", "phase", "layer", "waits_on", "begin_ns", "end_ns"] as const;

/** An object with these fields and, unless `open`, no others. */
function object<Field extends string>(
  value: unknown,
  what: string,
  fields: readonly Field[],
  open = false,
): Record<Field, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new TraceError(`not a trace's JSON: ${what} is not an object`);
  }
  for (const field of fields) {
    if (!Object.hasOwn(value, field)) throw new TraceError(`${what} has no field "${field}"`);
  }
  const stray = Object.keys(value).find((key) => !(fields as readonly string[]).includes(key));
  if (!open && stray !== undefined) throw new TraceError(`${what}: unknown field "${stray}"`);
  return value as Record<Field, unknown>;
}

function metaFromFile(value: unknown): Meta {
  const meta = object(value, "meta", META_FIELDS);
  const blocks = integer(meta.blocks, "meta.blocks", U16);
  if (blocks === 0) throw new TraceError("the trace has no blocks");
  return {
    engine: text(meta.engine, "meta.engine"),
    variant: text(meta.variant, "meta.variant"),
    device: text(meta.device, "meta.device"),
    model: text(meta.model, "meta.model"),
    position: integer(meta.position, "meta.position", 2 ** 32 - 1),
    blocks,
    layers: integer(meta.layers, "meta.layers", U16),
    tokenNs: integer(meta.token_ns, "meta.token_ns", MAX_TOKEN_NS),
    clockErrorNs: integer(meta.clock_error_ns, "meta.clock_error_ns", MAX_TOKEN_NS),
    overflow: integer(meta.overflow, "meta.overflow", Number.MAX_SAFE_INTEGER),
    generator: text(meta.generator, "meta.generator"),
  };
}

function text(value: unknown, what: string): string {
  const short =
    typeof value === "string" &&
    value.trim() !== "" &&
    new TextEncoder().encode(value).length <= MAX_TEXT_BYTES;
  if (!short || /\p{Cc}/u.test(value)) throw new TraceError(`${what} is not a short line of text`);
  return value;
}

function isWhole(value: unknown, limit: number): value is number {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) <= limit;
}

function integer(value: unknown, what: string, limit: number): number {
  if (isWhole(value, limit)) return value;
  throw new TraceError(
    `${what} is ${JSON.stringify(value)}, not a whole number between 0 and ${limit}`,
  );
}

/** The ids of this version for the file's list of names. */
function names(value: unknown, list: string, known: readonly string[]): number[] {
  const ids = array(value, list).map((name) => {
    const id = known.indexOf(name as string);
    if (id < 0) throw new TraceError(`${list}: unknown name ${JSON.stringify(name)}`);
    return id;
  });
  if (new Set(ids).size !== ids.length) throw new TraceError(`${list}: a name is listed twice`);
  return ids;
}

function array(value: unknown, what: string): unknown[] {
  if (!Array.isArray(value)) throw new TraceError(`${what} is not a list`);
  return value;
}

function spansFromFile(value: unknown, phases: number[], kinds: number[]): Spans {
  const columns = object(value, "spans", SPAN_FIELDS);
  const expected = array(columns.block, "spans.block").length;
  const column = (field: (typeof SPAN_FIELDS)[number], limit: number): number[] => {
    const values = array(columns[field], `spans.${field}`);
    if (values.length !== expected) {
      throw new TraceError(`spans.${field} has ${values.length} values, spans.block ${expected}`);
    }
    values.forEach((value, row) => {
      // Named only when refused: a text for each of 100,000 values would take longer than the rest.
      if (!isWhole(value, limit)) integer(value, `spans.${field}[${row}]`, limit);
    });
    return values as number[];
  };
  const ids = (field: "kind" | "phase", ids: number[]): Uint8Array =>
    Uint8Array.from(column(field, ids.length - 1), (id) => at(ids, id));
  return {
    block: Uint16Array.from(column("block", U16)),
    kind: ids("kind", kinds),
    phase: ids("phase", phases),
    layer: Uint16Array.from(column("layer", NO_LAYER)),
    waitsOn: Uint16Array.from(column("waits_on", NO_BLOCK)),
    beginNs: Float64Array.from(column("begin_ns", MAX_TOKEN_NS)),
    endNs: Float64Array.from(column("end_ns", MAX_TOKEN_NS)),
  };
}

function rowStarts(blocks: number, block: Uint16Array): Uint32Array {
  const starts = new Uint32Array(blocks + 1);
  for (const owner of block) starts[owner + 1] = at(starts, owner + 1) + 1;
  for (let row = 1; row <= blocks; row++) starts[row] = at(starts, row) + at(starts, row - 1);
  return starts;
}
