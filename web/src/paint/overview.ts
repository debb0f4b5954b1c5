// The number of blocks in each state, stacked: work from the bottom, phase by phase, waits above.

import { EVENT_KINDS, PHASES } from "../abi";
import { EPILOGUE_FROM, type Overview, STATES, WAITS_FROM } from "../trace/overview";
import { PATH_CLASSES } from "../trace/path";
import { at } from "../trace/trace";
import type { Inks } from "./inks";
import type { Ink, Raster } from "./raster";

/** Fills the columns; `width` and `height` are in device px, `blocks` is the full height. */
export function fillOverview(
  raster: Raster,
  overview: Overview,
  inks: Inks,
  blocks: number,
  width: number,
  height: number,
): void {
  const scale = height / blocks;
  const stack: [state: number, ink: Ink][] = [
    ...PHASES.flatMap((_, id): [number, Ink][] => [
      [id, inks.phases[id] ?? inks.surface],
      [EPILOGUE_FROM + id, inks.epilogue[id] ?? inks.surface],
    ]),
    ...EVENT_KINDS.map((_, id): [number, Ink] => [WAITS_FROM + id, inks.waits[id] ?? inks.surface]),
  ];
  for (let column = 0; column < overview.columns; column++) {
    const x0 = (column * width) / overview.columns;
    const x1 = ((column + 1) * width) / overview.columns;
    let y = height;
    for (const [state, ink] of stack) {
      const value = at(overview.blocks, column * STATES + state);
      if (value <= 0) continue;
      const top = y - value * scale;
      raster.rect(ink, x0, top, x1, y);
      y = top;
    }
  }
}

/** Fills the strip of the critical path: each column's classes, stacked from the bottom. */
export function fillPathStrip(
  raster: Raster,
  shares: Float32Array,
  inks: Inks,
  width: number,
  top: number,
  height: number,
): void {
  const columns = shares.length / PATH_CLASSES.length;
  for (let column = 0; column < columns; column++) {
    const x0 = (column * width) / columns;
    const x1 = ((column + 1) * width) / columns;
    let y = top + height;
    PATH_CLASSES.forEach((_, cls) => {
      const share = at(shares, column * PATH_CLASSES.length + cls);
      if (share <= 0) return;
      raster.rect(inks.classes[cls] ?? inks.surface, x0, y - share * height, x1, y);
      y -= share * height;
    });
  }
}
