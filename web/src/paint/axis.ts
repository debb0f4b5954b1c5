// The strip above the rows: microseconds, and below them the layers.

import { layerXs, ticks } from "../trace/axis";
import { xAt } from "../trace/viewport";
import type { Theme } from "./palette";
import { FONT, type Scene } from "./scene";

/** Draws the axis: microseconds above, layers below. */
export function paintAxis(
  context: CanvasRenderingContext2D,
  scene: Scene,
  theme: Theme,
  height: number,
): void {
  const { rows, view } = scene;
  const middle = height / 2;
  context.fillStyle = theme.surface;
  context.fillRect(0, 0, rows.gutter + rows.plotWidth, height);
  context.font = FONT;
  context.textBaseline = "middle";
  context.fillStyle = theme.quiet;
  context.textAlign = "right";
  context.fillText("µs", rows.gutter - 8, middle / 2);
  context.fillText("layer", rows.gutter - 8, middle * 1.5);
  context.save();
  context.beginPath();
  context.rect(rows.gutter, 0, rows.plotWidth, height);
  context.clip();
  context.translate(rows.gutter, 0);
  for (const tick of ticks(view)) {
    const x = Math.round(xAt(view, tick.ns));
    context.fillStyle = theme.line;
    context.fillRect(x, 0, 1, middle);
    context.fillStyle = theme.ink;
    context.textAlign = "left";
    const right = x + 4 + context.measureText(tick.label).width;
    if (right <= view.width) context.fillText(tick.label, x + 4, middle / 2);
  }
  paintLayerNames(context, scene, theme, middle, height);
  context.restore();
}

function paintLayerNames(
  context: CanvasRenderingContext2D,
  scene: Scene,
  theme: Theme,
  top: number,
  bottom: number,
): void {
  const { view } = scene;
  const begins = [...scene.layers];
  context.fillStyle = theme.line;
  for (const x of layerXs(scene.layers, view)) context.fillRect(x, top, 1, bottom - top);
  context.textAlign = "left";
  context.fillStyle = theme.quiet;
  let free = 0;
  begins.forEach((ns, layer) => {
    const next = begins[layer + 1] ?? Number.POSITIVE_INFINITY;
    // A layer that began left of the view keeps its label if it lasts into the view.
    const x = Math.max(xAt(view, ns) + 4, 0);
    if (next <= view.beginNs || x < free || x > view.width) return;
    context.fillText(String(layer), x, (top + bottom) / 2);
    free = x + context.measureText(String(layer)).width + 6;
  });
}
