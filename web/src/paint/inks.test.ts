import { describe, expect, test } from "vitest";
import { WAIT_KINDS } from "../trace/trace";
import { plain, waitInk } from "./inks";
import { LIGHT } from "./palette";

describe.each([1, 1.25, 2])("at %f device px to a CSS px", (ratio) => {
  test("each kind of wait has a pattern of its own, part line and part ground", () => {
    const covers = WAIT_KINDS.map((kind) => {
      const { line, ground } = LIGHT.waits[kind];
      const { side, pixels } = waitInk(LIGHT, kind, ratio);
      expect(pixels.length).toBe(side * side);
      const known = [plain(line).pixels[0], plain(ground).pixels[0]];
      expect(new Set(pixels)).toEqual(new Set(known));
      const lines = pixels.filter((pixel) => pixel === known[0]).length;
      expect(lines / pixels.length).toBeGreaterThan(0.25);
      expect(lines / pixels.length).toBeLessThan(0.6);
      return Array.from(pixels, (pixel) => (pixel === known[0] ? "#" : ".")).join("");
    });
    expect(new Set(covers).size).toBe(WAIT_KINDS.length);
  });
});

test("a colour is opaque pixels of it", () => {
  const [pixel = 0] = plain("#123456").pixels;
  expect([...new Uint8Array(Uint32Array.of(pixel).buffer)]).toEqual([0x12, 0x34, 0x56, 255]);
});
