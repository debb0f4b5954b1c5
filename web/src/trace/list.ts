// The list of traces beside the page (xtask/src/demo/data.rs writes it), and how an address names
// one of them.

import { TraceError } from "./error";
import { array, object, text } from "./values";

const SCHEMA = "monolith-traces/1";
const NAME_CHARS_MAX = 120;

/** A trace beside the page: its file's name, and its title. */
export interface Listed {
  file: string;
  title: string;
}

/** Reads the JSON text of a list. */
export function listFromJson(json: string): Listed[] {
  let list: unknown;
  try {
    list = JSON.parse(json);
  } catch {
    throw new TraceError("not a list's JSON: the text is cut short or damaged");
  }
  const { schema } = object(list, "the list", ["schema"], true);
  if (schema !== SCHEMA) {
    throw new TraceError(`schema is ${JSON.stringify(schema)}, this version reads "${SCHEMA}"`);
  }
  const { traces } = object(list, "the list", ["schema", "traces"]);
  const listed = array(traces, "traces").map(listedFrom);
  if (listed.length === 0) throw new TraceError("it lists no trace");
  if (new Set(listed.map(({ file }) => file)).size !== listed.length) {
    throw new TraceError("a file is listed twice");
  }
  return listed;
}

function listedFrom(value: unknown, index: number): Listed {
  const what = `traces[${index}]`;
  const { file, title } = object(value, what, ["file", "title"]);
  if (!isSafe(file)) throw new TraceError(`${what}.file is not the plain name of a .json.gz file`);
  return { file, title: text(title, `${what}.title`) };
}

/** Whether a name stays in the folder: it leads to no other folder or server. */
function isSafe(name: unknown): name is string {
  return (
    typeof name === "string" &&
    name.length <= NAME_CHARS_MAX &&
    /^[A-Za-z0-9][\w.-]*\.json\.gz$/.test(name)
  );
}

const PARAMETER = "trace";

/** The file that the part of an address after `#` names, or null. */
export function fileInHash(hash: string): string | null {
  return new URLSearchParams(hash.replace(/^#/, "")).get(PARAMETER);
}

/** The part of an address that names a listed file. */
export function hashFor(file: string): string {
  return `#${new URLSearchParams({ [PARAMETER]: file })}`;
}
