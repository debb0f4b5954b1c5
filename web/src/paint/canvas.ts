// The canvas itself: its size and its scale. Everything but a raster's pixels is in CSS px.

/** Device px to a CSS px. */
export function pixelRatio(): number {
  return window.devicePixelRatio || 1;
}

/** Sizes the canvas for the screen and scales it to CSS px. */
export function prepared(
  canvas: HTMLCanvasElement,
  width: number,
  height: number,
): CanvasRenderingContext2D | null {
  const ratio = pixelRatio();
  const [deviceWidth, deviceHeight] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== deviceWidth) canvas.width = deviceWidth;
  if (canvas.height !== deviceHeight) canvas.height = deviceHeight;
  const context = canvas.getContext("2d", { alpha: false });
  context?.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}
