// Files of other programs, told by how they begin: what they are, and what to do with them.

const CONVERT = "the page reads `monolith xray export FILE.xray --to page`";

/** What a file of another kind is; null if its beginning gives no other kind away. */
export function foreignBytes(bytes: Uint8Array): string | null {
  const text = new TextDecoder("latin1").decode(bytes.subarray(0, 64));
  if (text.startsWith("MONOXRAY")) {
    return "this is a dump (.xray), not yet a trace. Convert it with `monolith xray export FILE --to page` and open the .json.gz that this writes";
  }
  if (text.startsWith("MONOPACK")) return "this is a pack of weights, not a trace";
  // A protobuf of packets: field 1, length-delimited, which begins no JSON text (a line feed does,
  // but a brace follows it).
  if (bytes[0] === 0x0a && !/^\s*[{[]/.test(text)) {
    return `this looks like a Perfetto trace: open it at ui.perfetto.dev. Of the recording that it was made from, ${CONVERT}`;
  }
  if (/^\s*\[/.test(text)) return chrome();
  return null;
}

/** The same for parsed JSON. */
export function foreignJson(value: unknown): string | null {
  if (Array.isArray(value)) return chrome();
  if (typeof value !== "object" || value === null) return null;
  if ("traceEvents" in value) return chrome();
  const schema = "$schema" in value ? String(value.$schema) : "";
  if (schema.includes("speedscope")) {
    return `this is a speedscope profile: open it at speedscope.app. Of the recording that it was made from, ${CONVERT}`;
  }
  return null;
}

function chrome(): string {
  return `this is a trace in Chrome's format: open it at ui.perfetto.dev or in chrome://tracing. Of the recording that it was made from, ${CONVERT}`;
}
