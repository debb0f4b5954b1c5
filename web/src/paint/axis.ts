// The strip above the rows: microseconds, and below them the layers.

import { layerXs, ticks } from "../trace/axis";
import { isNarrow } from "../trace/layout";
import { PATH_CLASSES, type Path, pathPhase, segmentAt } from "../trace/path";
import { at } from "../trace/trace";
import { type Viewport, xAt } from "../trace/viewport";
import { CLASS_NAMES } from "../trace/words";
import { pixelRatio } from "./canvas";
import { inksFor } from "./inks";
import { fillPathStrip } from "./overview";
import { readableOn, type Theme } from "./palette";
import type { Raster } from "./raster";
import { FONT, type Scene, SMALL_FONT } from "./scene";

/** Height of the two lines of labels, and of the critical path's strip below them. */
const LABELS = 38;
const STRIP = 18;
/** Room below the strip. */
const GAP = 4;

export function axisHeight(hasPath: boolean): number {
  return hasPath ? LABELS + STRIP + GAP : LABELS + 2;
}

/** Draws the axis: microseconds, below them the layers, below them the critical path's strip. */
export function paintAxis(
  context: CanvasRenderingContext2D,
  raster: Raster,
  scene: Scene,
  theme: Theme,
): void {
  paintTimes(context, scene, theme, axisHeight(scene.pathShares !== null));
  if (scene.pathShares) paintStrip(context, raster, scene, scene.pathShares, theme);
}

function paintTimes(
  context: CanvasRenderingContext2D,
  scene: Scene,
  theme: Theme,
  height: number,
): void {
  const { rows, view } = scene;
  const middle = LABELS / 2;
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
  paintLayerNames(context, scene, theme, middle, LABELS);
  context.restore();
}

function paintStrip(
  context: CanvasRenderingContext2D,
  raster: Raster,
  { rows, view, trace }: Scene,
  shares: Float32Array,
  theme: Theme,
): void {
  const ratio = pixelRatio();
  const inks = inksFor(theme, ratio);
  const [width, height] = [Math.round(rows.plotWidth * ratio), Math.round(STRIP * ratio)];
  raster.resize(width, height);
  raster.clear(inks.surface);
  fillPathStrip(raster, shares, inks, width, 0, height);
  raster.paint(context, Math.round(rows.gutter * ratio), Math.round(LABELS * ratio));
  context.font = SMALL_FONT;
  context.textBaseline = "middle";
  context.fillStyle = theme.quiet;
  context.textAlign = "right";
  const middle = LABELS + STRIP / 2 + 0.5;
  context.fillText(isNarrow(rows) ? "path" : "critical path", rows.gutter - 8, middle);
  if (trace.path) paintStripLabels(context, rows.gutter, view, trace.path, theme, middle);
}

/** Names each segment that is wide enough. */
function paintStripLabels(
  context: CanvasRenderingContext2D,
  gutter: number,
  view: Viewport,
  path: Path,
  theme: Theme,
  middle: number,
): void {
  context.textAlign = "left";
  for (let row = Math.max(segmentAt(path, view.beginNs), 0); row < path.cls.length; row++) {
    const x0 = Math.max(xAt(view, at(path.beginNs, row)), 0);
    const x1 = Math.min(xAt(view, at(path.endNs, row)), view.width);
    if (x0 > view.width) break;
    const cls = PATH_CLASSES[at(path.cls, row)] ?? "unrecorded";
    const phase = pathPhase(path, row);
    const texts = [
      `${phase} ${CLASS_NAMES[cls]}`.trim(),
      cls === "compute" ? phase : CLASS_NAMES[cls],
    ];
    const text = texts.find((text) => context.measureText(text).width + 8 <= x1 - x0);
    if (text === undefined) continue;
    context.fillStyle = readableOn(theme.classes[cls]);
    context.fillText(text, gutter + x0 + 4, middle);
  }
}

function paintLayerNames(
  context: CanvasRenderingContext2D,
  scene: Scene,
  theme: Theme,
  top: number,
  bottom: number,
): void {
  const { view } = scene;
  context.fillStyle = theme.line;
  for (const x of layerXs(scene.layers, view)) context.fillRect(x, top, 1, bottom - top);
  context.textAlign = "left";
  context.fillStyle = theme.quiet;
  let free = 0;
  scene.layers.forEach((ns, layer) => {
    // A layer that began left of the view keeps its label if enough of it is in view.
    const x = Math.max(xAt(view, ns) + 4, 0);
    const end = Math.min(
      xAt(view, scene.layers[layer + 1] ?? scene.trace.meta.tokenNs),
      view.width,
    );
    const text = [`layer ${layer}`, String(layer)].find(
      (text, short) => context.measureText(text).width + 4 <= end - x || short === 1,
    );
    if (text === undefined || end <= 0 || x < free) return;
    const width = context.measureText(text).width;
    if (x + width > view.width || (x === 0 && width + 4 > end)) return;
    context.fillText(text, x, (top + bottom) / 2);
    free = x + width + 6;
  });
}
