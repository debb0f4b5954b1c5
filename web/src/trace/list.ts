// The list of traces beside the page (xtask/src/page_data.rs writes it).

import { TraceError } from "./error";
import { array, integer, object, text, U32 } from "./values";

const SCHEMA = "monolith-traces/2";
const NAME_CHARS_MAX = 120;

/** What a committed trace is of. */
export interface Of {
  run: string;
  gpu: string;
  variant: string;
  position: number;
}

/** A trace beside the page: its file's name, its title, and what it is of, if it is committed. */
export interface Listed {
  file: string;
  title: string;
  of: Of | null;
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
  const { file, title, of } = object(value, what, ["file", "title", "of"]);
  if (!isSafe(file)) throw new TraceError(`${what}.file is not the plain name of a .json.gz file`);
  return { file, title: text(title, `${what}.title`), of: of === null ? null : ofFrom(of, what) };
}

/** Reads what a trace is of. */
export function ofFrom(value: unknown, where: string): Of {
  const what = `${where}.of`;
  const { run, gpu, variant, position } = object(value, what, [
    "run",
    "gpu",
    "variant",
    "position",
  ]);
  return {
    run: text(run, `${what}.run`),
    gpu: text(gpu, `${what}.gpu`),
    variant: text(variant, `${what}.variant`),
    position: integer(position, `${what}.position`, U32),
  };
}

/** Whether a name stays in the folder: it leads to no other folder or server. */
function isSafe(name: unknown): name is string {
  return (
    typeof name === "string" &&
    name.length <= NAME_CHARS_MAX &&
    /^[A-Za-z0-9][\w.-]*\.json\.gz$/.test(name)
  );
}
