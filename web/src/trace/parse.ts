// Reads the page's file into a checked trace. It refuses what crates/xray refuses, in much the
// same words.

import { EVENT_KINDS, NO_BLOCK, NO_LAYER, PHASES } from "../abi";
import { checkEachSpan, checkSpans, checkStreams } from "./check";
import { Columns } from "./columns";
import { TraceError } from "./error";
import { foreignJson } from "./foreign";
import { metaFromFile } from "./meta";
import { pathFromFile } from "./path";
import type { Meta, Spans, Streams, Trace } from "./trace";
import { at } from "./trace";
import { textFromFile } from "./unpack";
import { MAX_TOKEN_NS, names, object, objectOf, U32 } from "./values";

export const SCHEMA = "monolith-trace/2";
/** Version 1 has no counts, no streams and only two kinds; nothing can supply what it lacks. */
const OLD_SCHEMA = "monolith-trace/1";

const FILE_FIELDS = ["schema", "meta", "phases", "kinds", "spans", "streams"] as const;
const SPAN_FIELDS = ["kind", "phase", "layer", "waits_on", "gap_ns", "length_ns"] as const;
const STREAM_FIELDS = ["phase", "layer", "copies", "bytes", "begin_ns", "length_ns"] as const;

/** Reads a file, gzipped or not. */
export async function traceFromFile(bytes: Uint8Array<ArrayBuffer>): Promise<Trace> {
  return traceFromJson(await textFromFile(bytes));
}

/** Reads the JSON text of a file. */
export function traceFromJson(json: string): Trace {
  let file: unknown;
  try {
    file = JSON.parse(json);
  } catch {
    throw new TraceError("not a trace's JSON: the text is cut short or damaged");
  }
  const foreign = foreignJson(file);
  if (foreign) throw new TraceError(foreign);
  checkSchema(object(file, "the file", ["schema"], true).schema);
  const { epilogue, path, ...required } = objectOf(file, "the file");
  const parts = object(required, "the file", FILE_FIELDS);
  const meta = metaFromFile(parts.meta);
  const phases = names(parts.phases, "phases", PHASES);
  const kinds = names(parts.kinds, "kinds", EVENT_KINDS);
  const spanColumns = new Columns(parts.spans, "spans", SPAN_FIELDS, meta.blocks);
  const streamColumns = new Columns(parts.streams, "streams", STREAM_FIELDS, meta.blocks);
  const spans = spansFromColumns(spanColumns, phases, kinds);
  const streams = streamsFromColumns(streamColumns, phases);
  const trace = {
    meta,
    spans,
    rowStarts: spanColumns.starts,
    streams,
    streamStarts: streamColumns.starts,
    epilogue: epilogue === undefined ? null : epilogueFromFile(epilogue, meta, phases, kinds),
    path: path === undefined ? null : pathFromFile(path, meta, phases),
  };
  checkSpans(trace);
  checkStreams(trace);
  return trace;
}

function epilogueFromFile(
  value: unknown,
  meta: Meta,
  phases: number[],
  kinds: number[],
): Trace["epilogue"] {
  const columns = new Columns(value, "epilogue", SPAN_FIELDS, meta.blocks);
  const spans = spansFromColumns(columns, phases, kinds);
  checkEachSpan({ meta, spans });
  return { spans, rowStarts: columns.starts };
}

function checkSchema(schema: unknown): void {
  if (schema === SCHEMA) return;
  const advice = schema === OLD_SCHEMA ? ": record the token again with this version" : "";
  throw new TraceError(
    `schema is ${JSON.stringify(schema)}, this version reads "${SCHEMA}"${advice}`,
  );
}

function spansFromColumns(
  columns: Columns<(typeof SPAN_FIELDS)[number]>,
  phases: number[],
  kinds: number[],
): Spans {
  const beginNs = Float64Array.from(columns.column("gap_ns", MAX_TOKEN_NS));
  const endNs = Float64Array.from(columns.column("length_ns", MAX_TOKEN_NS));
  for (let block = 0; block + 1 < columns.starts.length; block++) {
    let now = 0;
    for (let row = at(columns.starts, block); row < at(columns.starts, block + 1); row++) {
      beginNs[row] = now + at(beginNs, row);
      now = at(beginNs, row) + at(endNs, row);
      endNs[row] = now;
    }
  }
  return {
    block: columns.owners(),
    kind: columns.ids("kind", kinds),
    phase: columns.ids("phase", phases),
    layer: Uint16Array.from(columns.column("layer", NO_LAYER)),
    waitsOn: Uint16Array.from(columns.column("waits_on", NO_BLOCK)),
    beginNs,
    endNs,
  };
}

function streamsFromColumns(
  columns: Columns<(typeof STREAM_FIELDS)[number]>,
  phases: number[],
): Streams {
  const beginNs = Float64Array.from(columns.column("begin_ns", MAX_TOKEN_NS));
  const endNs = Float64Array.from(
    columns.column("length_ns", MAX_TOKEN_NS),
    (length, row) => at(beginNs, row) + length,
  );
  const reachNs = endNs.slice();
  for (let block = 0; block + 1 < columns.starts.length; block++) {
    for (let row = at(columns.starts, block) + 1; row < at(columns.starts, block + 1); row++) {
      reachNs[row] = Math.max(at(reachNs, row), at(reachNs, row - 1));
    }
  }
  return {
    block: columns.owners(),
    phase: columns.ids("phase", phases),
    layer: Uint16Array.from(columns.column("layer", NO_LAYER)),
    copies: Uint32Array.from(columns.column("copies", U32)),
    bytes: Float64Array.from(columns.column("bytes", Number.MAX_SAFE_INTEGER)),
    beginNs,
    endNs,
    reachNs,
  };
}
