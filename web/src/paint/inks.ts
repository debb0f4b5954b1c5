// The theme's inks: a plain colour for each phase, a colour and a pattern for each kind of wait.

import { EVENT_KINDS, PHASES } from "../abi";
import { PATH_CLASSES } from "../trace/path";
import { WAIT_KINDS, type WaitKind } from "../trace/trace";
import { type Colour, mixed, type Theme } from "./palette";
import type { Ink } from "./raster";

export interface Inks {
  surface: Ink;
  line: Ink;
  /** By id of the phase. */
  phases: Ink[];
  /** By id of the kind: the pattern, and the plain colour where the wait is too narrow for it. */
  waits: Ink[];
  plainWaits: Ink[];
  /** The same without a pattern and close to the ground: for the minimap. */
  faintWaits: Ink[];
  /** Work of the warp that sums up and publishes. */
  epilogue: Ink[];
  /** For spans that the search does not name. */
  faintPhases: Ink[];
  /** By index of the critical path's class. */
  classes: Ink[];
}

/** How much lighter the epilogue's work is. */
const LIGHTER = 0.5;
/** How near to the surface's colour a span is that the search does not name. */
const FAINT = 0.86;

/** Side of a pattern, in CSS px. */
const SIDE = 6;
/** Width of a pattern's lines, in CSS px. */
const STROKE = 2;

/**
 * Whether the pattern's lines cover a pixel of the pattern's square. The patterns differ visibly
 * even in rows of 4 px.
 */
const PATTERNS: Record<WaitKind, (x: number, y: number) => boolean> = {
  // Diagonals upwards, for another block.
  wait_exchange: (x, y) => (x + y) % SIDE < STROKE,
  // Vertical lines, for weights.
  wait_ring_full: (x) => x < STROKE,
  // Diagonals downwards, for a free ring stage.
  wait_ring_empty: (x, y) => (x - y + SIDE) % SIDE < STROKE,
  // Checks, for own warps.
  wait_barrier: (x, y) => x % 4 < STROKE === y % 4 < STROKE,
  // Horizontal lines, for the loader's own copies.
  wait_copies: (_, y) => y < STROKE,
};
/** The checks repeat after 4 px, the others after 6. */
const SIDES: Record<WaitKind, number> = {
  wait_exchange: SIDE,
  wait_ring_full: SIDE,
  wait_ring_empty: SIDE,
  wait_barrier: 4,
  wait_copies: SIDE,
};

/** For a screen of this many device px to a CSS px. */
export function inksFor(theme: Theme, ratio: number): Inks {
  const isWaitKind = (kind: string): kind is WaitKind =>
    (WAIT_KINDS as readonly string[]).includes(kind);
  const waits = EVENT_KINDS.map((kind) => (isWaitKind(kind) ? kind : null));
  const surface = plain(theme.surface);
  return {
    surface,
    line: plain(theme.line),
    phases: PHASES.map((phase) => plain(theme.phases[phase])),
    waits: waits.map((kind) => (kind ? waitInk(theme, kind, ratio) : surface)),
    plainWaits: waits.map((kind) => (kind ? plain(theme.waits[kind].line) : surface)),
    faintWaits: waits.map((kind) => (kind ? plain(theme.waits[kind].ground) : surface)),
    epilogue: PHASES.map((phase) => plain(mixed(theme.phases[phase], theme.surface, LIGHTER))),
    faintPhases: PHASES.map((phase) => plain(mixed(theme.phases[phase], theme.surface, FAINT))),
    classes: PATH_CLASSES.map((cls) => plain(theme.classes[cls])),
  };
}

export function plain(colour: Colour): Ink {
  return { side: 1, pixels: Uint32Array.of(pixel(colour)) };
}

export function waitInk(theme: Theme, kind: WaitKind, ratio: number): Ink {
  const cssSide = SIDES[kind];
  const side = Math.max(Math.round(cssSide * ratio), 1);
  const line = pixel(theme.waits[kind].line);
  const ground = pixel(theme.waits[kind].ground);
  const pixels = new Uint32Array(side * side);
  const place = (index: number) => (index * cssSide) / side;
  for (let y = 0; y < side; y++) {
    for (let x = 0; x < side; x++) {
      pixels[y * side + x] = PATTERNS[kind](place(x), place(y)) ? line : ground;
    }
  }
  return { side, pixels };
}

/** An opaque pixel in the byte order of image data (red, green, blue, alpha) on any machine. */
function pixel(colour: Colour): number {
  const channel = (at: number) => Number.parseInt(colour.slice(at, at + 2), 16);
  const bytes = Uint8Array.of(channel(1), channel(3), channel(5), 255);
  return new Uint32Array(bytes.buffer)[0] ?? 0;
}
