// The rows: labels, spans, and the outlines of the focused and the hovered span.

import type { Area } from "../trace/area";
import { layerXs } from "../trace/axis";
import { publishedNs } from "../trace/epilogue";
import { producerOf } from "../trace/focus";
import { isNarrow, labelStep, layoutStrip } from "../trace/layout";
import type { Overview } from "../trace/overview";
import { at, isWait } from "../trace/trace";
import { xAt } from "../trace/viewport";
import { blockName, blockNumber } from "../trace/words";
import { pixelRatio } from "./canvas";
import { type Inks, inksFor } from "./inks";
import { fillOverview } from "./overview";
import type { Theme } from "./palette";
import { paintPath } from "./path";
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
  const { rows, overview, trace } = scene;
  const ratio = pixelRatio();
  raster.resize(Math.round(rows.plotWidth * ratio), Math.round(rows.height * ratio));
  const inks = inksFor(theme, ratio);
  const layouts = overview ? [] : fillSpans(raster, scene, inks, ratio);
  if (overview) fillCounts(raster, scene, overview, inks, ratio);
  context.fillStyle = theme.surface;
  context.fillRect(0, 0, rows.gutter + rows.plotWidth, rows.height);
  raster.paint(context, Math.round(rows.gutter * ratio), 0);
  if (overview) paintCountLabels(context, scene, theme);
  else paintRowLabels(context, scene, theme);
  context.save();
  context.beginPath();
  context.rect(rows.gutter, 0, rows.plotWidth, rows.height);
  context.clip();
  context.translate(rows.gutter, 0);
  if (!overview) {
    paintBarLabels(context, scene, theme, layouts);
    if (scene.showPath && trace.path) paintPath(context, scene, trace.path, theme);
    paintOutlines(context, scene, theme);
  }
  if (scene.area) paintArea(context, scene, scene.area, theme);
  context.restore();
}

function fillCounts(
  raster: Raster,
  { layers, view, rows, trace }: Scene,
  overview: Overview,
  inks: Inks,
  ratio: number,
): void {
  const [width, height] = [Math.round(rows.plotWidth * ratio), Math.round(rows.height * ratio)];
  raster.clear(inks.surface);
  fillOverview(raster, overview, inks, trace.meta.blocks, width, height);
  for (const x of layerXs(layers, view)) {
    raster.rect(inks.surface, x * ratio, 0, (x + 1) * ratio, height);
  }
}

/** The scale of the counts: how many blocks a height stands for. */
function paintCountLabels(
  context: CanvasRenderingContext2D,
  { rows, trace }: Scene,
  theme: Theme,
): void {
  const { blocks } = trace.meta;
  context.font = FONT;
  context.fillStyle = theme.quiet;
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const y = Math.min(
      Math.max((1 - share) * rows.height, LABEL_HEIGHT / 2),
      rows.height - LABEL_HEIGHT / 2,
    );
    const unit = share === 1 && !isNarrow(rows) ? " blocks" : "";
    context.fillText(`${Math.round(share * blocks)}${unit}`, rows.gutter - 8, y);
  }
}

/** The selected area: a frame, with everything else as it is. */
function paintArea(
  context: CanvasRenderingContext2D,
  { view, rows }: Scene,
  area: Area,
  theme: Theme,
): void {
  const [x0, x1] = [xAt(view, area.beginNs), xAt(view, area.endNs)];
  const top = area.firstBlock * rows.pitch;
  const height = (area.lastBlock + 1) * rows.pitch - top;
  context.save();
  context.globalAlpha = 0.14;
  context.fillStyle = theme.ink;
  context.fillRect(x0, top, x1 - x0, height);
  context.restore();
  context.strokeStyle = theme.surface;
  context.lineWidth = 4;
  context.strokeRect(x0, top, x1 - x0, height);
  context.strokeStyle = theme.ink;
  context.lineWidth = 1.5;
  context.strokeRect(x0, top, x1 - x0, height);
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
  if (hovered >= 0) outline(context, scene, hovered, theme, 1, []);
  if (focused >= 0) outline(context, scene, focused, theme, 2, []);
  const asked = hovered >= 0 ? hovered : focused;
  if (asked < 0 || !isWait(trace, asked)) return;
  const producer = producerOf(trace, asked);
  if (producer < 0) return;
  outline(context, scene, producer, theme, 2, [4, 3]);
  paintHandOff(context, scene, producer, asked, theme);
}

function outline(
  context: CanvasRenderingContext2D,
  { trace, view, rows }: Scene,
  span: number,
  theme: Theme,
  width: number,
  dash: number[],
): void {
  const x0 = xAt(view, at(trace.spans.beginNs, span));
  const x1 = xAt(view, at(trace.spans.endNs, span));
  const top = at(trace.spans.block, span) * rows.pitch;
  // Around the span, not over it: in low rows a line inside would hide the span's colour.
  const frame = (stroke: string, thick: number) => {
    context.strokeStyle = stroke;
    context.lineWidth = thick;
    const out = width / 2;
    context.strokeRect(x0 - out, top - out, Math.max(x1 - x0, 1) + width, rows.barHeight + width);
  };
  frame(theme.surface, width + 2);
  context.setLineDash(dash);
  frame(theme.ink, width);
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

/** Draws a line from where the work was published to the end of the wait that this ended. */
function paintHandOff(
  context: CanvasRenderingContext2D,
  { trace, view, rows }: Scene,
  producer: number,
  wait: number,
  theme: Theme,
): void {
  const { block, endNs } = trace.spans;
  const middle = (span: number) => at(block, span) * rows.pitch + rows.barHeight / 2;
  const until = at(endNs, wait);
  const [fromX, fromY] = [xAt(view, publishedNs(trace, producer, until)), middle(producer)];
  const [toX, toY] = [xAt(view, until), middle(wait)];
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
