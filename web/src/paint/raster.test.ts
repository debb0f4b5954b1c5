import { beforeAll, expect, test, vi } from "vitest";
import { plain } from "./inks";
import { type Ink, Raster } from "./raster";

beforeAll(() => {
  // The browser's parts that a raster needs and Node lacks.
  class Image {
    readonly data: Uint8ClampedArray;
    constructor(
      readonly width: number,
      readonly height: number,
    ) {
      this.data = new Uint8ClampedArray(4 * width * height);
    }
  }
  vi.stubGlobal("ImageData", Image);
});

/** The painted pixels as letters, line by line. */
function painted(raster: Raster, letters: [Ink, string][]): string[] {
  const lines: string[] = [];
  const putImageData = ({ data, width }: ImageData) => {
    const pixels = new Uint32Array(data.buffer);
    for (let at = 0; at < pixels.length; at += width) {
      const line = [...pixels.subarray(at, at + width)];
      lines.push(
        line.map((pixel) => letters.find(([ink]) => ink.pixels[0] === pixel)?.[1] ?? "?").join(""),
      );
    }
  };
  raster.paint({ putImageData } as unknown as CanvasRenderingContext2D, 0, 0);
  return lines;
}

const [ground, red, blue] = [plain("#ffffff"), plain("#ff0000"), plain("#0000ff")];
const letters: [Ink, string][] = [
  [ground, "."],
  [red, "r"],
  [blue, "b"],
];

function raster(): Raster {
  const raster = new Raster();
  raster.resize(8, 3);
  raster.clear(ground);
  return raster;
}

test("rectangles that touch share no pixel and leave none out", () => {
  const one = raster();
  one.rect(red, 0.6, 0, 3.4, 2);
  one.rect(blue, 3.4, 0, 5.5, 2);
  expect(painted(one, letters)).toEqual([".rrbbb..", ".rrbbb..", "........"]);
});

test("what sticks out is cut off", () => {
  const one = raster();
  one.rect(red, -5, -5, 2, 1);
  one.rect(blue, 6, 2, 99, 99);
  one.rect(red, 9, 0, 12, 3);
  one.rect(red, 4, 1, 3, 2);
  expect(painted(one, letters)).toEqual(["rr......", "........", "......bb"]);
});

test("a pattern goes by its place on the screen, not by where the rectangle begins", () => {
  const one = raster();
  const [r = 0, b = 0] = [red.pixels[0], blue.pixels[0]];
  const checks: Ink = { side: 2, pixels: Uint32Array.of(r, b, b, r) };
  one.rect(checks, 1, 0, 7, 3);
  expect(painted(one, letters)).toEqual([".brbrbr.", ".rbrbrb.", ".brbrbr."]);
});

test("a size that changed is made room for", () => {
  const one = raster();
  one.resize(2, 1);
  one.clear(blue);
  expect(painted(one, letters)).toEqual(["bb"]);
});

test("a wide rectangle of one colour is filled to its edges and no farther", () => {
  const one = new Raster();
  one.resize(12, 3);
  one.clear(ground);
  one.rect(red, 1, 1, 10, 2);
  expect(painted(one, letters)).toEqual(["............", ".rrrrrrrrr..", "............"]);
});
