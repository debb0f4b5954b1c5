// How many blocks do what, over time: the view of a token too long for single spans.

import { EVENT_KINDS, PHASES } from "../abi";
import { epilogueWork } from "./epilogue";
import type { Path } from "./path";
import { PATH_CLASSES } from "./path";
import type { Trace } from "./trace";
import { at, firstEndingAfter, isWait } from "./trace";
import type { Viewport } from "./viewport";
import { nsPerPx } from "./viewport";

/**
 * A state is work in a phase, a wait of a kind, or, third, a wait during which the block's epilogue
 * works in a phase.
 */
export const WAITS_FROM = PHASES.length;
export const EPILOGUE_FROM = PHASES.length + EVENT_KINDS.length;
export const STATES = EPILOGUE_FROM + PHASES.length;

export interface Overview {
  columns: number;
  /** For each column, the mean number of blocks in each state: `columns` x STATES. */
  blocks: Float32Array;
}

/** Counts blocks by state, in columns of equal time across the view; of the spans in the mask. */
export function overviewOf(
  trace: Trace,
  view: Viewport,
  columns: number,
  mask: Uint8Array | null,
): Overview {
  const { beginNs } = trace.spans;
  const into = { columns, blocks: new Float32Array(columns * STATES) };
  for (let block = 0; block < trace.meta.blocks; block++) {
    const rowEnd = at(trace.rowStarts, block + 1);
    for (let span = firstEndingAfter(trace, block, view.beginNs); span < rowEnd; span++) {
      if (at(beginNs, span) >= view.endNs) break;
      if (mask === null || mask[span] === 1) count(into, trace, view, span);
    }
  }
  return into;
}

function count({ columns, blocks }: Overview, trace: Trace, view: Viewport, span: number): void {
  const { kind, phase, block, beginNs, endNs } = trace.spans;
  const column = (ns: number) => ((ns - view.beginNs) / (view.endNs - view.beginNs)) * columns;
  const [begin, end] = [at(beginNs, span), at(endNs, span)];
  const wait = isWait(trace, span);
  const state = wait ? WAITS_FROM + at(kind, span) : at(phase, span);
  spread(blocks, STATES, state, column(begin), column(end), columns);
  if (!wait || !trace.epilogue) return;
  for (const work of epilogueWork(trace, at(block, span), begin, end)) {
    const [from, to] = [column(work.beginNs), column(work.endNs)];
    const own = EPILOGUE_FROM + at(trace.epilogue.spans.phase, work.row);
    spread(blocks, STATES, own, from, to, columns);
    spread(blocks, STATES, state, from, to, columns, -1);
  }
}

/** The shares of the critical path's classes, in the same columns. */
export function pathOverview(path: Path, view: Viewport, columns: number): Float32Array {
  const shares = new Float32Array(columns * PATH_CLASSES.length);
  const columnNs = (view.endNs - view.beginNs) / columns;
  for (let row = 0; row < path.cls.length; row++) {
    const begin = (at(path.beginNs, row) - view.beginNs) / columnNs;
    const end = (at(path.endNs, row) - view.beginNs) / columnNs;
    if (end > 0) spread(shares, PATH_CLASSES.length, at(path.cls, row), begin, end, columns);
  }
  return shares;
}

/** Adds an interval, in columns, to the columns that it touches: to each what it covers of it. */
function spread(
  into: Float32Array,
  states: number,
  state: number,
  begin: number,
  end: number,
  columns: number,
  sign: 1 | -1 = 1,
): void {
  const from = Math.max(begin, 0);
  const to = Math.min(end, columns);
  for (let column = Math.floor(from); column < to; column++) {
    const index = column * states + state;
    into[index] = at(into, index) + sign * (Math.min(to, column + 1) - Math.max(from, column));
  }
}

/** The mean width of a span, in px, below which rows of spans are an unreadable weave. */
const READABLE_PX = 8;
/** Fewer rows than this are readable at any zoom. */
const FEW_BLOCKS = 16;

/** Whether the view is too long for rows of spans. */
export function isCrowded(trace: Trace, view: Viewport): boolean {
  const { blocks, tokenNs } = trace.meta;
  const meanNs = (tokenNs * blocks) / Math.max(trace.spans.block.length, 1);
  return blocks >= FEW_BLOCKS && meanNs < READABLE_PX * nsPerPx(view);
}
