// Fetches the files beside the page, which `cargo xtask page-data` and `demo` write. A file that cannot be read
// gives an error that says why.

import { TraceError } from "../trace/error";
import { type Listed, listFromJson } from "../trace/list";
import type { Trace } from "../trace/trace";
import { readTrace } from "./reader";

const FOLDER = "data/";
const LIST = "traces.json";
/** The trace that a page without a list shows. */
export const RECORDED: Listed = { file: "trace.json.gz", title: "recorded here", of: null };
const NONE_RECORDED = "No trace was recorded here yet";

/** Why a file beside the page was refused, and the remedy. */
export class BesideError extends TraceError {
  override name = "BesideError";
  constructor(
    message: string,
    /** The page adds the command's name. */
    readonly remedy = "Create it again with",
    readonly command = "cargo xtask page-data",
  ) {
    super(message);
  }
}

/** The list, or null if there is none. */
export async function listBeside(): Promise<Listed[] | null> {
  const response = await fetch(FOLDER + LIST).catch(() => null);
  if (!response?.ok) return null;
  const bytes = await whole(response, LIST);
  return refusing(LIST, async () => listFromJson(new TextDecoder().decode(bytes)));
}

/** The one trace of a page without a list. */
export async function recordedBeside(): Promise<Trace> {
  const response = await fetch(FOLDER + RECORDED.file).catch(() => null);
  if (!response?.ok) throw new BesideError(NONE_RECORDED, "Record one with", "cargo xtask demo");
  return traceIn(response, RECORDED.file);
}

/** A table beside the page, as JSON; null if there is none. */
export async function tableBeside(file: string): Promise<unknown> {
  const response = await fetch(FOLDER + file).catch(() => null);
  return response?.ok ? response.json().catch(() => null) : null;
}

/** A listed trace. */
export async function traceBeside(file: string): Promise<Trace> {
  const response = await fetch(FOLDER + file).catch(() => null);
  if (!response) throw new BesideError(`${FOLDER}${file} did not load: the server is gone`);
  if (!response.ok) {
    throw new BesideError(`${FOLDER}${file} is listed but missing (status ${response.status})`);
  }
  return traceIn(response, file);
}

async function traceIn(response: Response, file: string): Promise<Trace> {
  const bytes = await whole(response, file);
  return refusing(file, () => readTrace(bytes));
}

/** If the server names gzip as the encoding, the browser unpacks, and may find the file broken. */
async function whole(response: Response, file: string): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = await response.arrayBuffer().catch(() => null);
  if (bytes) return new Uint8Array(bytes);
  throw new BesideError(
    `${FOLDER}${file} arrived incomplete`,
    "Reload the page, or create the file again with",
  );
}

async function refusing<T>(file: string, read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    if (!(error instanceof TraceError)) throw error;
    throw new BesideError(`${FOLDER}${file} was refused: ${error.message}`);
  }
}
