// The code tour: parts of the kernel's sources, cut from them when the page is built, so that the
// page never shows code that is not there. A part that is not found fails the build.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Plugin } from "vite";
import type { Note, Stop, Token } from "../src/results/tour";

const SOURCES = fileURLToPath(new URL("../../crates/kernels/cu/", import.meta.url));

/** Where a stop's code begins and ends, by text of its first and last line, and what to say. */
export interface Cut {
  title: string;
  lead: string;
  file: string;
  from: string;
  /** Text of the last line; looked for from the first on. */
  to: string;
  /** A note stands beside the first line that holds its text. */
  notes: { at: string; says: string }[];
  /** The search that shows the stop's spans in the chart. */
  find: string;
  finds: string;
}

export const CUTS: Cut[] = [
  {
    title: "Eight bits become sixteen without a conversion",
    lead: "In FP8 half the bytes come from memory, and every weight must be widened before the tensor cores take it. An E4M3 code's bits are moved to where a bf16 has its exponent and mantissa; that is the weight times a power of two, and the power is taken out of the sums later.",
    file: "formats/fp8.cuh",
    from: "// This lane's A operands",
    to: "return ((codes >> 4) & MAGNITUDES)",
    notes: [
      {
        at: "load_shared_words_at(fragment)",
        says: "One load of 16 bytes brings a lane its sixteen codes: two steps along the columns.",
      },
      {
        at: "MAGNITUDES = ",
        says: "Four bits of exponent and three of mantissa, at the places of a bf16's low exponent and high mantissa bits.",
      },
      {
        at: "return ((codes << 4)",
        says: "Two shifts, two masks and one OR for two weights; subnormal codes come out right as they are.",
      },
    ],
    find: "work gate_up",
    finds: "gate_up in the chart",
  },
  {
    title: "A wait that polls the data itself",
    lead: "No counter and no barrier stands between two phases. A producer writes two values and the number of the step into one 8-byte word; a consumer loads the word until the number is this step's. The wait below is what the chart hatches in red.",
    file: "handoff/lines.cuh",
    from: "__device__ static __forceinline__ bool wait(",
    to: "if (is_over(args, begin, 1, wait, seen",
    notes: [
      {
        at: "if (!is_of(units[at], epoch)) units[at] = ptx::load_relaxed",
        says: "Everything that is missing is asked for in one go, so that a late value costs one trip to L2, however many are late.",
      },
      {
        at: "if (all) return true;",
        says: "The data are their own flag: when the last word is of this step, its values are here too.",
      },
      {
        at: "if (is_over(",
        says: "Every wait ends. After a time limit the kernel writes down who waited for whom, and gives up.",
      },
    ],
    find: "wait hand-off",
    finds: "the waits in the chart",
  },
];

/** Cuts one stop from its source. */
export function stopFrom(cut: Cut, source: string): Stop {
  const lines = source.split("\n");
  const first = lines.findIndex((line) => line.includes(cut.from));
  const last = lines.findIndex((line, at) => at >= first && line.includes(cut.to));
  if (first < 0 || last < 0) {
    throw new Error(`${cut.file}: no lines from "${cut.from}" to "${cut.to}"`);
  }
  const end = closed(lines, first, last);
  const own = lines.slice(first, end + 1);
  const indent = Math.min(
    ...own.filter((line) => line.trim() !== "").map((line) => line.search(/\S/)),
  );
  const notes: Note[] = cut.notes.map(({ at, says }) => {
    const line = own.findIndex((text) => text.includes(at));
    if (line < 0) throw new Error(`${cut.file}: no line in the cut holds "${at}"`);
    return { line, says };
  });
  const { title, lead, file, find, finds } = cut;
  const code = own.map((line) => tokens(line.slice(indent)));
  return { title, lead, file, find, finds, firstLine: first + 1, code, notes };
}

/** The line that closes the function which holds the last line. */
function closed(lines: string[], first: number, last: number): number {
  const indent = lines[first]?.search(/\S/) ?? 0;
  const end = lines.findIndex((line, at) => at > last && line.startsWith(`${" ".repeat(indent)}}`));
  return end < 0 ? last : end;
}

const WORDS = new Set(
  "template class typename static constexpr const int u32 u64 u8 uint4 bool float2 float return if for continue true false __device__ __forceinline__ unroll pragma".split(
    " ",
  ),
);

/** A line's comments and keywords, told apart from the rest. */
function tokens(line: string): Token[] {
  const comment = line.indexOf("//");
  const code = comment < 0 ? line : line.slice(0, comment);
  const parts: Token[] = code
    .split(/(\b\w+\b)/)
    .filter((text) => text !== "")
    .map((text) => (WORDS.has(text) ? [text, "word"] : [text]));
  if (comment >= 0) parts.push([line.slice(comment), "comment"]);
  return parts;
}

const NAME = "virtual:tour";

export function tour(): Plugin {
  return {
    name: "monolith-tour",
    resolveId: (id) => (id === NAME ? `\0${NAME}` : null),
    load(id) {
      if (id !== `\0${NAME}`) return null;
      const stops = CUTS.map((cut) => {
        this.addWatchFile(SOURCES + cut.file);
        return stopFrom(cut, readFileSync(SOURCES + cut.file, "utf8"));
      });
      return `export const TOUR = ${JSON.stringify(stops)};`;
    },
  };
}
