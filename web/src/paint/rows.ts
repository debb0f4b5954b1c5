// The rows: labels, spans, and the outlines of the focused and the hovered span.

import { producerOf } from "../trace/focus";
import { isNarrow, labelStep, layoutStrip } from "../trace/layout";
import { at, isWait } from "../trace/trace";
import { xAt } from "../trace/viewport";
import { blockName, blockNumber } from "../trace/words";
import { pixelRatio } from "./canvas";
import { inksFor } from "./inks";
import type { Theme } from "./palette";
import type { Raster } from "./raster";
import { FONT, LABEL_HEIGHT, type Scene } from "./scene";
import { fillSpans, paintBarLabels } from "./spans";

/** Least distance between two labels. */
const LABEL_PITCH = 17;

/** Draws every row; the raster keeps its memory from one frame to the next. */
export function paintRows(
  context: CanvasRenderingContext2D,
  raster: Raster,
  scene: Scene,
  theme: Theme,
): void {
  const { rows } = scene;
  const ratio = pixelRatio();
  raster.resize(Math.round(rows.plotWidth * ratio), Math.round(rows.height * ratio));
  const layouts = fillSpans(raster, scene, inksFor(theme, ratio), ratio);
  context.fillStyle = theme.surface;
  context.fillRect(0, 0, rows.gutter + rows.plotWidth, rows.height);
  raster.paint(context, Math.round(rows.gutter * ratio), 0);
  paintRowLabels(context, scene, theme);
  context.save();
  context.beginPath();
  context.rect(rows.gutter, 0, rows.plotWidth, rows.height);
  context.clip();
  context.translate(rows.gutter, 0);
  paintBarLabels(context, scene, theme, layouts);
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

function paintOutlines(context: CanvasRenderingContext2D, scene: Scene, theme: Theme): void {
  const { trace, hovered, focused } = scene;
  outlineStream(context, scene, theme);
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

function outlineStream(
  context: CanvasRenderingContext2D,
  { trace, view, rows, pointedStream }: Scene,
  theme: Theme,
): void {
  if (pointedStream < 0 || rows.stripHeight === 0) return;
  const block = at(trace.streams.block, pointedStream);
  const lane = layoutStrip(trace, view, rows, block).find(({ stream }) => stream === pointedStream);
  if (!lane) return;
  const top = block * rows.pitch + lane.top;
  context.strokeStyle = theme.ink;
  context.lineWidth = 1;
  context.strokeRect(lane.x0 - 0.5, top - 0.5, lane.x1 - lane.x0 + 1, rows.laneHeight + 1);
}

/** Draws a line from the end of the work to the end of the wait that this work ended. */
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
