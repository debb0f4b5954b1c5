// The colours. palette.test.ts measures how far apart they are for colour-blind eyes.

import type { Phase } from "../abi";
import type { PathClass } from "../trace/path";
import type { WaitKind } from "../trace/trace";

export type Colour = `#${string}`;

export interface Theme {
  surface: Colour;
  ink: Colour;
  quiet: Colour;
  line: Colour;
  /** The lines of a wait's pattern, and what lies between them. */
  waits: Record<WaitKind, { line: Colour; ground: Colour }>;
  phases: Record<Phase, Colour>;
  /** The classes of the critical path: a class that is a wait has that wait's colour. */
  classes: Record<PathClass, Colour>;
}

export const LIGHT: Theme = {
  surface: "#ffffff",
  ink: "#16181d",
  quiet: "#555b66",
  line: "#d5d9e0",
  waits: {
    wait_exchange: { line: "#d72540", ground: "#fbe3e6" },
    wait_ring_full: { line: "#c048fc", ground: "#f9e6ff" },
    wait_ring_empty: { line: "#c048fc", ground: "#f9e6ff" },
    wait_barrier: { line: "#54003c", ground: "#f1dcea" },
    wait_copies: { line: "#c048fc", ground: "#f9e6ff" },
  },
  phases: {
    embed: "#50545c",
    qkv: "#2a2fd8",
    attention: "#733a02",
    o_proj: "#45a4cc",
    gate_up: "#168369",
    down: "#9ca10b",
    lm_head: "#6b3a8f",
    argmax: "#101216",
  },
  classes: {
    compute: "#56647a",
    weights: "#c048fc",
    handoff: "#d72540",
    skew: "#54003c",
    unrecorded: "#d5d9e0",
  },
};

export const DARK: Theme = {
  surface: "#15181d",
  ink: "#e8eaee",
  quiet: "#a3abb8",
  line: "#363d48",
  waits: {
    wait_exchange: { line: "#e96c72", ground: "#40191d" },
    wait_ring_full: { line: "#c41aa6", ground: "#2b0a26" },
    wait_ring_empty: { line: "#c41aa6", ground: "#2b0a26" },
    wait_barrier: { line: "#7f3cff", ground: "#181030" },
    wait_copies: { line: "#c41aa6", ground: "#2b0a26" },
  },
  phases: {
    embed: "#979da6",
    qkv: "#6892fe",
    attention: "#f2a413",
    o_proj: "#7ad0f7",
    gate_up: "#bafcb9",
    down: "#8f7617",
    lm_head: "#b010d8",
    argmax: "#63656a",
  },
  classes: {
    compute: "#8793a3",
    weights: "#c41aa6",
    handoff: "#e96c72",
    skew: "#7f3cff",
    unrecorded: "#363d48",
  },
};

/** Red, green, blue as light, 0 to 1. */
export function linear(colour: Colour): [number, number, number] {
  const channel = (at: number) => {
    const value = Number.parseInt(colour.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  return [channel(1), channel(3), channel(5)];
}

/** Contrast as WCAG 2 defines it, 1 to 21. */
export function contrast(one: Colour, other: Colour): number {
  const luminance = (colour: Colour) => {
    const [red, green, blue] = linear(colour);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return ((light ?? 0) + 0.05) / ((dark ?? 0) + 0.05);
}

/** The colour, this far on the way to another (0 to 1). */
export function mixed(colour: Colour, to: Colour, share: number): Colour {
  const channel = (at: number) => {
    const [from, end] = [colour, to].map((text) => Number.parseInt(text.slice(at, at + 2), 16));
    const value = Math.round((from ?? 0) + share * ((end ?? 0) - (from ?? 0)));
    return value.toString(16).padStart(2, "0");
  };
  return `#${channel(1)}${channel(3)}${channel(5)}`;
}

/** Black or white, whichever is easier to read on the colour. */
export function readableOn(colour: Colour): Colour {
  return contrast(colour, "#000000") > contrast(colour, "#ffffff") ? "#000000" : "#ffffff";
}
