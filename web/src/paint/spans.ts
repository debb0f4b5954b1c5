// Work, waits, streams and their labels: fills what the layout says, and decides nothing.

import { EVENT_KINDS, PHASES } from "../abi";
import { layerXs } from "../trace/axis";
import { epilogueWork } from "../trace/epilogue";
import {
  type Bar,
  layoutRow,
  layoutStrip,
  type RowLayout,
  type Rows,
  type Sliver,
} from "../trace/layout";
import { at, isWait } from "../trace/trace";
import { xAt } from "../trace/viewport";
import { stepName } from "../trace/words";
import type { Inks } from "./inks";
import { type Colour, readableOn, type Theme } from "./palette";
import type { Ink, Raster } from "./raster";
import { FONT, LABEL_HEIGHT, type Scene } from "./scene";

/** Least height of a bar with a label, and the room left and right of the label. */
const LABEL_MIN_BAR = 15;
const LABEL_MARGIN = 4;
/** Least width of a bar with a label. */
const LABEL_MIN_WIDTH = 24;
/** Least width of a bar that is drawn with a gap after it. */
const GAP_MIN_BAR = 4;
/** Least height of a wait in its sliver, however short the wait was. */
const SLIVER_MIN_WAIT = 2;

/** Fills rectangles given in CSS px of the plot. */
type Fill = (ink: Ink, x: number, y: number, width: number, height: number) => void;

/** Fills the raster with every span and stream in view; the layout of each row, for the labels. */
export function fillSpans(raster: Raster, scene: Scene, inks: Inks, ratio: number): RowLayout[] {
  const { trace, view, rows } = scene;
  const fill: Fill = (ink, x, y, width, height) =>
    raster.rect(ink, x * ratio, y * ratio, (x + width) * ratio, (y + height) * ratio);
  raster.clear(inks.surface);
  for (const x of layerXs(scene.layers, view)) fill(inks.line, x, 0, 1, rows.height);
  const layouts: RowLayout[] = [];
  for (let block = 0; block < rows.count; block++) {
    const layout = layoutRow(trace, view, block, scene.found?.mask ?? null);
    fillRow(fill, scene, inks, layout, block * rows.pitch);
    if (rows.stripHeight > 0) fillStrip(fill, scene, inks, block);
    layouts.push(layout);
  }
  return layouts;
}

function fillRow(fill: Fill, scene: Scene, inks: Inks, layout: RowLayout, top: number): void {
  const { trace, rows, found } = scene;
  for (const bar of layout.bars) {
    const wait = isWait(trace, bar.span);
    const faint = found !== null && at(found.mask, bar.span) === 0;
    const [phases, waits] = faint ? [inks.faintPhases, inks.faintWaits] : [inks.phases, inks.waits];
    const ink = wait
      ? waits[at(trace.spans.kind, bar.span)]
      : phases[at(trace.spans.phase, bar.span)];
    fill(ink ?? inks.surface, bar.x0, top, paintedWidth(bar), rows.barHeight);
    if (wait && !faint) fillEpilogue(fill, scene, inks, bar, top);
  }
  // Slivers go on top of the bars, and waits on top of work, so that the shortest wait shows.
  for (const sliver of layout.slivers) {
    const [work, wait] = sliverHeights(rows, sliver);
    fill(inks.phases[sliver.phase] ?? inks.surface, sliver.x, top, 1, work);
    const waitTop = top + rows.barHeight - wait;
    fill(inks.plainWaits[sliver.kind] ?? inks.surface, sliver.x, waitTop, 1, wait);
  }
}

/** The epilogue's work where the block's other warps wait: in the phase's colour, but lighter. */
function fillEpilogue(fill: Fill, scene: Scene, inks: Inks, wait: Bar, top: number): void {
  const { trace, rows, view } = scene;
  const { block, beginNs, endNs } = trace.spans;
  const window = [at(beginNs, wait.span), at(endNs, wait.span)] as const;
  for (const work of epilogueWork(trace, at(block, wait.span), ...window)) {
    const x0 = Math.max(xAt(view, work.beginNs), wait.x0);
    const x1 = Math.min(xAt(view, work.endNs), wait.x1);
    if (x1 - x0 < 1) continue;
    const ink = inks.epilogue[trace.epilogue?.spans.phase[work.row] ?? 0] ?? inks.surface;
    fill(ink, x0, top, paintedWidth({ x0, x1 }), rows.barHeight);
  }
}

function fillStrip(fill: Fill, scene: Scene, inks: Inks, block: number): void {
  const { trace, view, rows } = scene;
  const top = block * rows.pitch;
  for (const lane of layoutStrip(trace, view, rows, block)) {
    const ink = inks.phases[at(trace.streams.phase, lane.stream)] ?? inks.surface;
    fill(ink, lane.x0, top + lane.top, paintedWidth(lane), rows.laneHeight);
  }
}

/** Without the gap to the next bar, where there is room for one. */
function paintedWidth({ x0, x1 }: { x0: number; x1: number }): number {
  return x1 - x0 < GAP_MIN_BAR ? x1 - x0 : x1 - x0 - 1;
}

/** Work from the top, waits from the bottom, each as high as its share of the px's time. */
function sliverHeights(rows: Rows, { workShare, waitShare }: Sliver): [work: number, wait: number] {
  const height = (share: number, least: number) =>
    share > 0 ? Math.max(share * rows.barHeight, least) : 0;
  return [height(workShare, 1), height(waitShare, SLIVER_MIN_WAIT)];
}

/** Labels the bars that are wide enough. */
export function paintBarLabels(
  context: CanvasRenderingContext2D,
  scene: Scene,
  theme: Theme,
  layouts: RowLayout[],
): void {
  const { rows } = scene;
  if (rows.barHeight < LABEL_MIN_BAR) return;
  layouts.forEach(({ bars }, block) => {
    for (const bar of bars) {
      if (bar.x1 - bar.x0 < LABEL_MIN_WIDTH) continue;
      paintBarLabel(context, scene, theme, bar, block * rows.pitch + rows.barHeight / 2);
    }
  });
}

function paintBarLabel(
  context: CanvasRenderingContext2D,
  { trace }: Scene,
  theme: Theme,
  { span, x0, x1 }: Bar,
  middle: number,
): void {
  const wait = isWait(trace, span);
  const step = stepName(trace.spans, span);
  const label = wait ? waitLabel(at(trace.spans.kind, span), step) : step;
  const texts = [label, label.replace(" of layer ", " ")];
  const ink = wait ? theme.ink : readableOn(colourOf(theme, at(trace.spans.phase, span)));
  paintLabel(context, texts, x0, x1, middle, { ink, ground: wait ? theme.surface : null });
}

function waitLabel(kind: number, step: string): string {
  switch (EVENT_KINDS[kind]) {
    case "wait_exchange":
      return `waits: ${step}`;
    case "wait_barrier":
      return `waits: own warps, ${step}`;
    default:
      return `waits: weights, ${step}`;
  }
}

/** Writes the longest of the texts that fits, or none. */
function paintLabel(
  context: CanvasRenderingContext2D,
  texts: string[],
  x0: number,
  x1: number,
  y: number,
  { ink, ground }: { ink: string; ground: string | null },
): void {
  const room = x1 - x0 - 2 * LABEL_MARGIN;
  context.font = FONT;
  const fitting = texts.find((text) => context.measureText(text).width <= room);
  if (fitting === undefined) return;
  const width = context.measureText(fitting).width;
  if (ground !== null) {
    context.fillStyle = ground;
    context.fillRect(
      x0 + 1,
      y - LABEL_HEIGHT / 2 - 1,
      width + 2 * LABEL_MARGIN - 2,
      LABEL_HEIGHT + 2,
    );
  }
  context.fillStyle = ink;
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText(fitting, x0 + LABEL_MARGIN, y + 0.5);
}

function colourOf(theme: Theme, phase: number): Colour {
  return theme.phases[PHASES[phase] ?? "embed"];
}
