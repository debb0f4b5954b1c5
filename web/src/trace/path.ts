// The critical path: the chain of work and hand-offs that makes up the token's time. The analysis
// (crates/xray/src/analysis/path.rs) writes it into the file; here it is only read and summed.

import { PHASES } from "../abi";
import { TraceError } from "./error";
import type { Meta } from "./trace";
import { at } from "./trace";
import { array, integer, isWhole, MAX_TOKEN_NS, names, object, U16 } from "./values";

/** What the time of a segment was spent on, in the order in which the page shows it. */
export const PATH_CLASSES = ["compute", "weights", "handoff", "skew", "unrecorded"] as const;
export type PathClass = (typeof PATH_CLASSES)[number];

/** Stands for "no phase" in a segment. */
export const NO_PHASE = 255;

/** Segments in order of time: the first begins at 0, each of the others where the last one ended. */
export interface Path {
  block: Uint16Array;
  /** Index into PATH_CLASSES. */
  cls: Uint8Array;
  /** Id of the phase, or NO_PHASE. */
  phase: Uint8Array;
  layer: Uint16Array;
  beginNs: Float64Array;
  endNs: Float64Array;
}

const FIELDS = ["classes", "block", "class", "phase", "layer", "length_ns"] as const;

/** Reads the file's path; the columns' lengths, ids and sum must fit. */
export function pathFromFile(value: unknown, meta: Meta, phases: number[]): Path {
  const file = object(value, "path", FIELDS);
  const classes = names(file.classes, "path.classes", PATH_CLASSES);
  const rows = array(file.length_ns, "path.length_ns").length;
  const column = (field: (typeof FIELDS)[number], limit: number): number[] => {
    const values = array(file[field], `path.${field}`);
    if (values.length !== rows) {
      throw new TraceError(`path.${field} has ${values.length} values, but there are ${rows}`);
    }
    values.forEach((value, row) => {
      if (!isWhole(value, limit)) integer(value, `path.${field}[${row}]`, limit);
    });
    return values as number[];
  };
  const endNs = Float64Array.from(column("length_ns", MAX_TOKEN_NS));
  const beginNs = new Float64Array(rows);
  let now = 0;
  for (let row = 0; row < rows; row++) {
    beginNs[row] = now;
    now += at(endNs, row);
    endNs[row] = now;
  }
  if (now !== meta.tokenNs) {
    throw new TraceError(`the path lasts ${now} ns, but the token ${meta.tokenNs} ns`);
  }
  const phase = column("phase", NO_PHASE).map((id) => (id === NO_PHASE ? id : phases[id]));
  if (phase.includes(undefined)) {
    throw new TraceError("path.phase has an id that the file does not name");
  }
  return {
    block: Uint16Array.from(column("block", Math.max(meta.blocks - 1, 0))),
    cls: Uint8Array.from(
      column("class", Math.max(classes.length - 1, 0)),
      (id) => classes[id] ?? 0,
    ),
    phase: Uint8Array.from(phase as number[]),
    layer: Uint16Array.from(column("layer", U16)),
    beginNs,
    endNs,
  };
}

export type Split = Record<PathClass, number>;

/** The path's time by class, in ns; of a part of the token if a window is given. */
export function splitOf(path: Path, fromNs = 0, toNs = Number.POSITIVE_INFINITY): Split {
  const split: Split = { compute: 0, weights: 0, handoff: 0, skew: 0, unrecorded: 0 };
  for (let row = 0; row < path.cls.length; row++) {
    const length = Math.min(at(path.endNs, row), toNs) - Math.max(at(path.beginNs, row), fromNs);
    const cls = PATH_CLASSES[at(path.cls, row)];
    if (cls && length > 0) split[cls] += length;
  }
  return split;
}

/** The segment at this time, or -1. */
export function segmentAt(path: Path, ns: number): number {
  let [low, high] = [0, path.endNs.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (at(path.endNs, middle) > ns) high = middle;
    else low = middle + 1;
  }
  return low < path.endNs.length && ns >= 0 ? low : -1;
}

/** The name of a segment's phase, empty if it has none. */
export function pathPhase(path: Path, segment: number): string {
  return PHASES[at(path.phase, segment)] ?? "";
}
