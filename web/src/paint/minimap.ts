// The whole token in a strip: how many blocks do what, and which part of it is in view.

import type { Overview } from "../trace/overview";
import { at, type Trace } from "../trace/trace";
import { type Viewport, whole, xAt } from "../trace/viewport";
import { pixelRatio } from "./canvas";
import { inksFor } from "./inks";
import { fillOverview } from "./overview";
import type { Theme } from "./palette";
import { Raster } from "./raster";
import { SMALL_FONT } from "./scene";

export interface MinimapScene {
  trace: Trace;
  overview: Overview;
  /** `partBegins` of the trace. */
  parts: Float64Array;
  view: Viewport;
  gutter: number;
  width: number;
  /** Height of the labels of the layers, above the strip, and of the strip. */
  labels: number;
  height: number;
}

/** The strip without the window, which changes far more often. */
export class MinimapPicture {
  private readonly raster = new Raster();
  private key: unknown[] = [];

  fill({ trace, overview, width, height }: MinimapScene, theme: Theme): Raster {
    const ratio = pixelRatio();
    const key = [overview, theme, ratio, width, height];
    if (key.every((part, index) => part === this.key[index])) return this.raster;
    this.key = key;
    const [deviceWidth, deviceHeight] = [Math.round(width * ratio), Math.round(height * ratio)];
    const inks = inksFor(theme, ratio);
    this.raster.resize(deviceWidth, deviceHeight);
    this.raster.clear(inks.surface);
    const plain = { ...inks, waits: inks.faintWaits };
    fillOverview(this.raster, overview, plain, trace.meta.blocks, deviceWidth, deviceHeight);
    return this.raster;
  }
}

export function paintMinimap(
  context: CanvasRenderingContext2D,
  picture: MinimapPicture,
  scene: MinimapScene,
  theme: Theme,
): void {
  const { trace, view, gutter, width, labels, height } = scene;
  const all = whole(trace.meta.tokenNs, width);
  const [left, right] = [xAt(all, view.beginNs), xAt(all, view.endNs)];
  context.fillStyle = theme.surface;
  context.fillRect(0, 0, gutter + width, labels + height);
  const ratio = pixelRatio();
  picture.fill(scene, theme).paint(context, Math.round(gutter * ratio), Math.round(labels * ratio));
  context.save();
  context.translate(gutter, 0);
  paintLabels(context, scene, theme);
  context.globalAlpha = 0.5;
  context.fillStyle = theme.surface;
  context.fillRect(0, labels, left, height);
  context.fillRect(right, labels, width - right, height);
  context.globalAlpha = 1;
  context.strokeStyle = theme.ink;
  context.lineWidth = 2;
  context.strokeRect(
    Math.max(left, 1),
    labels + 1,
    Math.max(Math.min(right, width - 1) - Math.max(left, 1), 3),
    height - 2,
  );
  context.restore();
}

/** Least distance between the labels of two layers. */
const LABEL_PITCH = 26;

function paintLabels(
  context: CanvasRenderingContext2D,
  { trace, parts, width, labels, view }: MinimapScene,
  theme: Theme,
): void {
  const { layers, tokenNs } = trace.meta;
  const all = whole(tokenNs, width);
  context.font = SMALL_FONT;
  context.textAlign = "center";
  context.textBaseline = "middle";
  let free = 0;
  const put = (text: string, from: number, to: number) => {
    const middle = (xAt(all, from) + xAt(all, to)) / 2;
    const half = context.measureText(text).width / 2;
    if (middle - half < free || to <= from) return;
    const inView = from < view.endNs && to > view.beginNs;
    context.fillStyle = inView ? theme.ink : theme.quiet;
    context.fillText(text, middle, labels / 2);
    free = Math.max(middle + half + 6, middle - half + LABEL_PITCH);
  };
  for (let layer = 0; layer < layers; layer++) {
    put(layer === 0 ? "layer 0" : String(layer), at(parts, layer + 1), at(parts, layer + 2));
  }
  if (layers > 0) put("head", at(parts, layers + 1), at(parts, layers + 2));
}
