// Rectangles as pixels of the screen, filled one by one. A GPU's trace is 100,000 of them in a
// frame, most one px wide. Panning takes 17 ms a frame this way, and 200 ms with
// one path for each fill (test/browser/scale.test.ts: software rendering, two cores).

/** Fill of a rectangle: a repeated square of `side` x `side` pixels; one pixel is plain colour. */
export interface Ink {
  side: number;
  pixels: Uint32Array;
}

/** From this width on, in px, filling a line of one colour at once is quicker than px by px. */
const WIDE = 8;

export class Raster {
  private image: ImageData | null = null;
  private pixels = new Uint32Array();

  /** Sets the size, in device px, and discards the old pixels. */
  resize(width: number, height: number): void {
    if (this.image?.width === width && this.image.height === height) return;
    this.image = new ImageData(Math.max(width, 1), Math.max(height, 1));
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  /** Everything in one colour. */
  clear(ink: Ink): void {
    this.pixels.fill(ink.pixels[0] ?? 0);
  }

  /** Fills a rectangle. Edges are rounded, so touching rectangles share the same pixel edge. */
  rect({ side, pixels }: Ink, x0: number, y0: number, x1: number, y1: number): void {
    const { width, height } = this.image ?? { width: 0, height: 0 };
    const left = Math.max(Math.round(x0), 0);
    const right = Math.min(Math.round(x1), width);
    const top = Math.max(Math.round(y0), 0);
    const bottom = Math.min(Math.round(y1), height);
    if (side === 1) {
      this.plain(pixels[0] ?? 0, left, top, right, bottom, width);
      return;
    }
    for (let y = top; y < bottom; y++) {
      const row = (y % side) * side;
      let place = left % side;
      for (let at = y * width + left; at < y * width + right; at++) {
        this.pixels[at] = pixels[row + place] ?? 0;
        place = place + 1 < side ? place + 1 : 0;
      }
    }
  }

  /** One colour needs no look into a pattern. */
  private plain(
    colour: number,
    left: number,
    top: number,
    right: number,
    bottom: number,
    width: number,
  ): void {
    for (let y = top; y < bottom; y++) {
      const from = y * width + left;
      const to = y * width + right;
      if (to - from >= WIDE) this.pixels.fill(colour, from, to);
      else for (let at = from; at < to; at++) this.pixels[at] = colour;
    }
  }

  /** Puts all pixels at this place of the canvas, in device px. */
  paint(context: CanvasRenderingContext2D, x: number, y: number): void {
    if (this.image) context.putImageData(this.image, x, y);
  }
}
