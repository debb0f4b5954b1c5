import { describe, expect, test } from "vitest";
import { PHASES, type Phase } from "../abi";
import { WAIT_KINDS } from "../trace/trace";
import { type Colour, contrast, DARK, LIGHT, linear, readableOn } from "./palette";

/** Light as colour-blind eyes see it (Machado et al. 2009, complete deficiency). */
const EYES = {
  normal: [1, 0, 0, 0, 1, 0, 0, 0, 1],
  protan: [
    0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998,
  ],
  deutan: [
    0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.01182, 0.04294, 0.968881,
  ],
  tritan: [
    1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.3039,
  ],
};
/** Light to OKLab: to the cones, and after the cube root to lightness and two hues. */
const TO_CONES = [
  0.4122214708, 0.5363325363, 0.0514459929, 0.2119034982, 0.6806995451, 0.1073969566, 0.0883024619,
  0.2817188376, 0.6299787005,
];
const TO_LAB = [
  0.2104542553, 0.793617785, -0.0040720468, 1.9779984951, -2.428592205, 0.4505937099, 0.0259040371,
  0.7827717662, -0.808675766,
];

function times(matrix: number[], vector: number[]): number[] {
  return [0, 3, 6].map((row) =>
    vector.reduce((sum, value, column) => sum + value * (matrix[row + column] ?? 0), 0),
  );
}

function seen(colour: Colour, eyes: number[]): number[] {
  const light = times(eyes, linear(colour)).map((value) => Math.min(Math.max(value, 0), 1));
  return times(TO_LAB, times(TO_CONES, light).map(Math.cbrt));
}

/** Distance of two colours for the eyes that see the smallest one (OKLab). */
function distance(one: Colour, other: Colour): number {
  const distances = Object.values(EYES).map((eyes) => {
    const [a, b] = [seen(one, eyes), seen(other, eyes)];
    return Math.hypot(...a.map((value, axis) => value - (b[axis] ?? 0)));
  });
  return Math.min(...distances);
}

const ONCE: Phase[] = ["embed", "lm_head", "argmax"];
const PER_LAYER = PHASES.filter((phase) => !ONCE.includes(phase));

describe.each([
  ["light", LIGHT],
  ["dark", DARK],
])("%s theme", (_, theme) => {
  test("phases of a layer look different to every eye", () => {
    for (const one of PER_LAYER) {
      for (const other of PER_LAYER) {
        if (one === other) continue;
        const apart = distance(theme.phases[one], theme.phases[other]);
        expect(apart, `${one} and ${other}`).toBeGreaterThan(0.1);
      }
    }
  });

  test("the others are told apart too: they occur once, at the ends", () => {
    for (const one of ONCE) {
      for (const other of PHASES) {
        if (one === other) continue;
        const apart = distance(theme.phases[one], theme.phases[other]);
        expect(apart, `${one} and ${other}`).toBeGreaterThan(0.05);
      }
    }
  });

  test("a wait's colour differs where its pattern is too narrow to see", () => {
    for (const kind of WAIT_KINDS) {
      const { line } = theme.waits[kind];
      for (const phase of PER_LAYER) {
        expect(distance(line, theme.phases[phase]), `${kind}, ${phase}`).toBeGreaterThan(0.08);
      }
      for (const phase of ONCE) {
        expect(distance(line, theme.phases[phase]), `${kind}, ${phase}`).toBeGreaterThan(0.05);
      }
    }
  });

  test("kinds of waits differ: the loader's never occur in one row with the others", () => {
    const kinds = WAIT_KINDS.filter((kind) => kind !== "wait_ring_empty" && kind !== "wait_copies");
    for (const one of kinds) {
      for (const other of kinds) {
        if (one === other) continue;
        const apart = distance(theme.waits[one].line, theme.waits[other].line);
        expect(apart, `${one} and ${other}`).toBeGreaterThan(0.1);
      }
    }
  });

  test("everything stands out from the surface, and text can be read", () => {
    for (const phase of PHASES) {
      const colour = theme.phases[phase];
      expect(contrast(colour, theme.surface), phase).toBeGreaterThan(2.7);
      expect(contrast(colour, readableOn(colour)), phase).toBeGreaterThan(4.5);
    }
    for (const { line, ground } of Object.values(theme.waits)) {
      expect(contrast(line, theme.surface), line).toBeGreaterThan(3);
      expect(contrast(line, ground), line).toBeGreaterThan(3);
    }
    expect(contrast(theme.ink, theme.surface)).toBeGreaterThan(7);
    expect(contrast(theme.quiet, theme.surface)).toBeGreaterThan(4.5);
  });
});
