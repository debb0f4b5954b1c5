// Work, waits and their labels: fills what the layout says, nothing else.

import { PHASES } from "../abi";
import { type Bar, layoutRow, type Rows, type Sliver } from "../trace/layout";
import { at, isWait } from "../trace/trace";
import { stepName } from "../trace/words";
import { Batch } from "./batch";
import { hatch } from "./canvas";
import { type Colour, readableOn, type Theme } from "./palette";
import { FONT, LABEL_HEIGHT, type Scene } from "./scene";

/** Lowest bar that a label fits in, and room left and right of it. */
const LABEL_MIN_BAR = 15;
const LABEL_MARGIN = 4;
/** Narrowest bar that any label fits in. */
const LABEL_MIN_WIDTH = 24;
/** Narrowest bar that is drawn with a gap after it. */
const GAP_MIN_BAR = 4;
/** A wait stays this high in its sliver however short it was. */
const SLIVER_MIN_WAIT = 2;

/** Draws every span in view. */
export function paintSpans(context: CanvasRenderingContext2D, scene: Scene, theme: Theme): void {
  const { trace, view, rows } = scene;
  // Slivers lie on the bars, and no work may cover the least of a wait.
  const [bars, works, waits] = [new Batch(), new Batch(), new Batch()];
  const waiting = hatch(context, theme);
  const labelled: [Bar, number][] = [];
  for (let block = 0; block < rows.count; block++) {
    const top = block * rows.pitch;
    const layout = layoutRow(trace, view, block);
    for (const bar of layout.bars) {
      const { span, x0, x1 } = bar;
      const fill = isWait(trace, span) ? waiting : colourOf(theme, at(trace.spans.phase, span));
      bars.rect(fill, x0, top, paintedWidth(bar), rows.barHeight);
      if (x1 - x0 >= LABEL_MIN_WIDTH) labelled.push([bar, top + rows.barHeight / 2]);
    }
    for (const sliver of layout.slivers) {
      const { x, phase } = sliver;
      const [work, wait] = sliverHeights(rows, sliver);
      works.rect(colourOf(theme, phase), x, top, 1, work);
      waits.rect(theme.wait, x, top + rows.barHeight - wait, 1, wait);
    }
  }
  bars.paint(context);
  works.paint(context);
  waits.paint(context);
  if (rows.barHeight < LABEL_MIN_BAR) return;
  for (const [bar, middle] of labelled) paintBarLabel(context, scene, theme, bar, middle);
}

/** Without the gap to the next bar, where there is room for one. */
function paintedWidth({ x0, x1 }: Bar): number {
  return x1 - x0 < GAP_MIN_BAR ? x1 - x0 : x1 - x0 - 1;
}

/** Work from the top, waits from the bottom, each as high as its share of the px's time. */
function sliverHeights(rows: Rows, { workShare, waitShare }: Sliver): [work: number, wait: number] {
  const height = (share: number, least: number) =>
    share > 0 ? Math.max(share * rows.barHeight, least) : 0;
  return [height(workShare, 1), height(waitShare, SLIVER_MIN_WAIT)];
}

function paintBarLabel(
  context: CanvasRenderingContext2D,
  { trace }: Scene,
  theme: Theme,
  { span, x0, x1 }: Bar,
  middle: number,
): void {
  const wait = isWait(trace, span);
  const label = wait ? `waits: ${stepName(trace, span)}` : stepName(trace, span);
  const texts = [label, label.replace(" of layer ", " ")];
  const ink = wait ? theme.ink : readableOn(colourOf(theme, at(trace.spans.phase, span)));
  paintLabel(context, texts, x0, x1, middle, { ink, ground: wait ? theme.surface : null });
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
