// A file's bytes to its text.

import { TraceError } from "./error";
import { foreignBytes } from "./foreign";

/** Longest accepted JSON, far above any step's, so that no small file can fill the memory. */
export const MAX_JSON_BYTES = 64 * 2 ** 20;

/** The text of a file, gzipped or not: some servers unpack `.gz` files. */
export async function textFromFile(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  return new TextDecoder().decode(await unpack(bytes));
}

async function unpack(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  if (bytes[0] === 0x1f && bytes[1] === 0x8b) return gunzip(bytes);
  const foreign = foreignBytes(bytes);
  if (foreign) throw new TraceError(foreign);
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
