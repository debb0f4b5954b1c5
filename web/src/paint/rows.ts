// The rows: fills what the layout says, nothing else.

import { PHASES } from "../abi";
import { producerOf } from "../trace/focus";
import { type Bar, isNarrow, labelStep, layoutRow, type Rows, type Sliver } from "../trace/layout";
import { at, isWait } from "../trace/trace";
import { xAt } from "../trace/viewport";
import { blockName, blockNumber, stepName } from "../trace/words";
import { paintLayerLines } from "./axis";
import { hatch } from "./canvas";
import { type Colour, readableOn, type Theme } from "./palette";
import { FONT, LABEL_HEIGHT, type Scene } from "./scene";

/** From one label to the next, at least. */
const LABEL_PITCH = 17;
/** Lowest bar that a label fits in, and room left and right of it. */
const LABEL_MIN_BAR = 15;
const LABEL_MARGIN = 4;
/** Narrowest wait that is hatched: half of the hatch's period. Below, its colour alone tells. */
const MIN_HATCH = 3;
/** Narrowest bar that is drawn with a gap after it. */
const GAP_MIN_BAR = 4;
/** A wait stays this high in its sliver however short it was. */
const SLIVER_MIN_WAIT = 2;

/** Draws every row. */
export function paintRows(context: CanvasRenderingContext2D, scene: Scene, theme: Theme): void {
  const { rows, view } = scene;
  context.fillStyle = theme.surface;
  context.fillRect(0, 0, rows.gutter + rows.plotWidth, rows.height);
  paintRowLabels(context, scene, theme);
  context.save();
  context.beginPath();
  context.rect(rows.gutter, 0, rows.plotWidth, rows.height);
  context.clip();
  context.translate(rows.gutter, 0);
  paintLayerLines(context, scene, theme, 0, rows.height);
  const waiting = hatch(context, theme);
  for (let block = 0; block < rows.count; block++) {
    const { bars, slivers } = layoutRow(scene.trace, view, block);
    const top = block * rows.pitch;
    for (const bar of bars) paintBar(context, scene, theme, waiting, bar, top);
    for (const sliver of slivers) paintSliver(context, rows, theme, sliver, top);
  }
  paintOutlines(context, scene, theme);
  context.restore();
}

function paintRowLabels(context: CanvasRenderingContext2D, scene: Scene, theme: Theme): void {
  const { rows, trace } = scene;
  const name = isNarrow(rows) ? blockNumber : blockName;
  const step = labelStep(rows, LABEL_PITCH);
  context.font = FONT;
  context.fillStyle = theme.quiet;
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (let block = 0; block < rows.count; block += step) {
    const middle = block * rows.pitch + rows.barHeight / 2;
    // The first label of dense rows would stick out at the top.
    const y = Math.max(middle, LABEL_HEIGHT / 2);
    context.fillText(name(trace.meta, block), rows.gutter - 8, y);
  }
}

function paintBar(
  context: CanvasRenderingContext2D,
  { trace, rows }: Scene,
  theme: Theme,
  waiting: CanvasPattern | string,
  { span, x0, x1 }: Bar,
  top: number,
): void {
  const gap = x1 - x0 >= GAP_MIN_BAR ? 1 : 0;
  const wait = isWait(trace, span);
  const colour = colourOf(theme, at(trace.spans.phase, span));
  context.fillStyle = wait ? (x1 - x0 < MIN_HATCH ? theme.wait : waiting) : colour;
  context.fillRect(x0, top, x1 - x0 - gap, rows.barHeight);
  if (rows.barHeight < LABEL_MIN_BAR) return;
  const label = wait ? `waits: ${stepName(trace, span)}` : stepName(trace, span);
  const ink = wait ? theme.ink : readableOn(colour);
  paintLabel(
    context,
    [label, label.replace(" of layer ", " ")],
    x0,
    x1 - gap,
    top + rows.barHeight / 2,
    {
      ink,
      ground: wait ? theme.surface : null,
    },
  );
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
  if (room < 16) return;
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

/** Work from the top, waits from the bottom, each as high as its share of the px's time. */
function paintSliver(
  context: CanvasRenderingContext2D,
  rows: Rows,
  theme: Theme,
  { x, workShare, waitShare, phase }: Sliver,
  top: number,
): void {
  if (workShare > 0) {
    context.fillStyle = colourOf(theme, phase);
    context.fillRect(x, top, 1, Math.max(workShare * rows.barHeight, 1));
  }
  if (waitShare > 0) {
    const height = Math.max(waitShare * rows.barHeight, SLIVER_MIN_WAIT);
    context.fillStyle = theme.wait;
    context.fillRect(x, top + rows.barHeight - height, 1, height);
  }
}

function paintOutlines(context: CanvasRenderingContext2D, scene: Scene, theme: Theme): void {
  const { trace, hovered, focused } = scene;
  if (hovered >= 0) outline(context, scene, hovered, theme.ink, 1, []);
  if (focused >= 0) outline(context, scene, focused, theme.ink, 3, []);
  const asked = hovered >= 0 ? hovered : focused;
  if (asked < 0 || !isWait(trace, asked)) return;
  const producer = producerOf(trace, asked);
  if (producer < 0) return;
  outline(context, scene, producer, theme.ink, 2, [4, 3]);
  paintHandOff(context, scene, producer, asked, theme);
}

function outline(
  context: CanvasRenderingContext2D,
  { trace, view, rows }: Scene,
  span: number,
  colour: string,
  width: number,
  dash: number[],
): void {
  const x0 = xAt(view, at(trace.spans.beginNs, span));
  const x1 = xAt(view, at(trace.spans.endNs, span));
  const top = at(trace.spans.block, span) * rows.pitch;
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.setLineDash(dash);
  const inset = width / 2;
  context.strokeRect(x0 - inset, top + inset, Math.max(x1 - x0, 1) + width, rows.barHeight - width);
  context.setLineDash([]);
}

/** From the end of the work to the end of the wait that it ended. */
function paintHandOff(
  context: CanvasRenderingContext2D,
  { trace, view, rows }: Scene,
  producer: number,
  wait: number,
  theme: Theme,
): void {
  const point = (span: number): [number, number] => [
    xAt(view, at(trace.spans.endNs, span)),
    at(trace.spans.block, span) * rows.pitch + rows.barHeight / 2,
  ];
  const [fromX, fromY] = point(producer);
  const [toX, toY] = point(wait);
  context.strokeStyle = theme.ink;
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(fromX, fromY);
  context.lineTo(toX, toY);
  context.stroke();
  context.fillStyle = theme.ink;
  context.beginPath();
  context.arc(toX, toY, 3, 0, 2 * Math.PI);
  context.fill();
}

function colourOf(theme: Theme, phase: number): Colour {
  return theme.phases[PHASES[phase] ?? "embed"];
}
