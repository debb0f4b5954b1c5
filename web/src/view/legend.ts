// What the colours and the patterns mean, in words.

import type { Phase } from "../abi";
import { pixelRatio, prepared } from "../paint/canvas";
import { plain, waitInk } from "../paint/inks";
import type { Theme } from "../paint/palette";
import { type Ink, Raster } from "../paint/raster";
import type { Summary } from "../trace/summary";
import type { Meta, WaitKind } from "../trace/trace";
import { waitMeaning } from "../trace/words";

const MEANINGS: Record<Phase, string> = {
  embed: "token to residual stream",
  qkv: "norm, then q, k and v",
  attention: "attention over the cache",
  o_proj: "output projection",
  gate_up: "norm, then gate and up",
  down: "down projection",
  lm_head: "norm, then the logits",
  argmax: "largest logit",
};

const PATTERN_NAMES: Record<WaitKind, string> = {
  wait_exchange: "hatched",
  wait_ring_full: "vertical lines",
  wait_ring_empty: "hatched downwards",
  wait_barrier: "checked",
  wait_copies: "horizontal lines",
};

const SWATCH = { width: 28, height: 16 };

/** Lists what occurs in the trace; called again when the theme changes. */
export function showLegend(list: HTMLElement, meta: Meta, summary: Summary, theme: Theme): void {
  const ratio = pixelRatio();
  const surface = plain(theme.surface);
  const one = (words: string, ink: Ink) =>
    item(words, (raster) => raster.rect(ink, 0, 0, SWATCH.width * ratio, SWATCH.height * ratio));
  const entries = [
    ...summary.phases.map(({ phase }) =>
      one(`${phase}: ${MEANINGS[phase]}`, plain(theme.phases[phase])),
    ),
    ...summary.kinds.map(({ kind }) =>
      one(
        `${PATTERN_NAMES[kind]}: waiting for ${waitMeaning(meta, kind)}`,
        waitInk(theme, kind, ratio),
      ),
    ),
    one("empty: nothing recorded", surface),
  ];
  const [first, second] = summary.streams.slice(-2).map(({ phase }) => plain(theme.phases[phase]));
  if (first) {
    entries.push(
      item("strips below the rows (key P): weights in flight", (raster) => {
        raster.clear(surface);
        raster.rect(first, 0, 4 * ratio, 18 * ratio, 7 * ratio);
        raster.rect(second ?? first, 10 * ratio, 9 * ratio, 28 * ratio, 12 * ratio);
      }),
    );
  }
  list.replaceChildren(...entries);
}

function item(words: string, fill: (raster: Raster) => void): HTMLLIElement {
  const swatch = document.createElement("canvas");
  swatch.setAttribute("aria-hidden", "true");
  const context = prepared(swatch, SWATCH.width, SWATCH.height);
  if (context) {
    const raster = new Raster();
    raster.resize(swatch.width, swatch.height);
    fill(raster);
    raster.paint(context, 0, 0);
  }
  const entry = document.createElement("li");
  entry.append(swatch, words);
  return entry;
}
