import { gzipSync } from "node:zlib";
import { expect, test } from "vitest";
import { TraceError } from "./error";
import { traceFromFile } from "./parse";

const bytes = (text: string) => new Uint8Array(Buffer.from(text, "latin1"));

test.each([
  ["a dump", bytes("MONOXRAY\u0001\u0000"), "this is a dump (.xray), not yet a trace. Convert"],
  ["a pack", bytes("MONOPACK\u0001"), "this is a pack of weights"],
  ["Perfetto's", bytes("\n\u00b2\u0002P\u0001h\u0001"), "this looks like a Perfetto trace"],
  ["Chrome's list", bytes(' [{"ph":"B"}]'), "this is a trace in Chrome's format"],
  ["Chrome's object", bytes('{"traceEvents":[]}'), "this is a trace in Chrome's format"],
  [
    "Chrome's, gzipped",
    new Uint8Array(gzipSync('\n{"traceEvents":[]}')),
    "this is a trace in Chrome's format",
  ],
  [
    "speedscope's",
    bytes('{"$schema":"https://www.speedscope.app/file-format-schema.json"}'),
    "this is a speedscope profile",
  ],
  ["a picture", bytes("\u0089PNG"), "neither gzip nor JSON: this is not a trace file"],
  ["nothing", bytes(""), "neither gzip nor JSON: this is not a trace file"],
  ["other JSON", bytes('\n{"a":1}'), 'the file has no field "schema"'],
])("%s is refused, with what to do", async (_, file, words) => {
  const refused = await traceFromFile(file).catch((error: unknown) => error);
  expect(refused).toBeInstanceOf(TraceError);
  expect((refused as TraceError).message).toContain(words);
});
