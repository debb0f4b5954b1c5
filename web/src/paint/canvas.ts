// The canvas itself: its size, its scale and the hatch. All else works in CSS px.

import type { Theme } from "./palette";

/** Sizes the canvas for the screen and scales it to CSS px. */
export function prepared(
  canvas: HTMLCanvasElement,
  width: number,
  height: number,
): CanvasRenderingContext2D | null {
  const ratio = window.devicePixelRatio || 1;
  const [deviceWidth, deviceHeight] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== deviceWidth) canvas.width = deviceWidth;
  if (canvas.height !== deviceHeight) canvas.height = deviceHeight;
  const context = canvas.getContext("2d", { alpha: false });
  context?.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/** Diagonal lines of the wait's colour: the same in the chart and in the legend. */
export function hatch(context: CanvasRenderingContext2D, theme: Theme): CanvasPattern | string {
  const tile = document.createElement("canvas");
  const side = 6;
  const ratio = window.devicePixelRatio || 1;
  tile.width = Math.round(side * ratio);
  tile.height = tile.width;
  const ink = tile.getContext("2d");
  if (!ink) return theme.wait;
  ink.scale(tile.width / side, tile.width / side);
  ink.fillStyle = theme.waitGround;
  ink.fillRect(0, 0, side, side);
  ink.strokeStyle = theme.wait;
  ink.lineWidth = 2;
  ink.beginPath();
  for (const shift of [-side, 0, side]) {
    ink.moveTo(shift - 1, side + 1);
    ink.lineTo(shift + side + 1, -1);
  }
  ink.stroke();
  const pattern = context.createPattern(tile, "repeat");
  pattern?.setTransform(new DOMMatrix().scale(side / tile.width));
  return pattern ?? theme.wait;
}
