// What the colours and the patterns mean, in words.

import type { Phase } from "../abi";
import { pixelRatio, prepared } from "../paint/canvas";
import { inksFor, plain, waitInk } from "../paint/inks";
import type { Theme } from "../paint/palette";
import { type Ink, Raster } from "../paint/raster";
import type { Summary } from "../trace/summary";
import type { Meta, WaitKind } from "../trace/trace";
import { waitMeaning } from "../trace/words";
import { node } from "./dom";

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

const SWATCH = { width: 20, height: 14 };

/** Lists what occurs in the trace; a click on an entry puts its query into the search field. */
export function showLegend(
  list: HTMLElement,
  meta: Meta,
  summary: Summary,
  theme: Theme,
  find: (query: string) => void,
  hasEpilogue: boolean,
): void {
  const ratio = pixelRatio();
  const one = (words: string, title: string, query: string, ink: Ink) =>
    item(
      words,
      title,
      () => find(query),
      (raster) => raster.rect(ink, 0, 0, SWATCH.width * ratio, SWATCH.height * ratio),
    );
  const entries = [
    ...summary.phases.map(({ phase }) =>
      one(phase, MEANINGS[phase], `work ${phase}`, plain(theme.phases[phase])),
    ),
    ...summary.kinds.map(({ kind }) =>
      one(
        SHORT[kind],
        `${PATTERN_NAMES[kind]}: waiting for ${waitMeaning(meta, kind)}`,
        KIND_QUERIES[kind],
        waitInk(theme, kind, ratio),
      ),
    ),
  ];
  if (hasEpilogue) list.replaceChildren(...entries, lighter(theme, ratio));
  else list.replaceChildren(...entries);
}

/** The one entry that no query stands for. */
function lighter(theme: Theme, ratio: number): HTMLLIElement {
  const inks = inksFor(theme, ratio);
  const ids = [1, 4, 5].map((id) => inks.epilogue[id] ?? inks.surface);
  const width = (SWATCH.width * ratio) / ids.length;
  const canvas = swatch((raster) => {
    ids.forEach((ink, index) => {
      raster.rect(ink, index * width, 0, (index + 1) * width, SWATCH.height * ratio);
    });
  });
  const words = node("span", canvas, "lighter: summing up and publishing");
  words.title = "One warp of each block adds the sums of the others and publishes them";
  return node("li", words);
}

const SHORT: Record<WaitKind, string> = {
  wait_exchange: "waits for others",
  wait_ring_full: "for weights",
  wait_ring_empty: "for room",
  wait_barrier: "for own warps",
  wait_copies: "for own copies",
};

const KIND_QUERIES: Record<WaitKind, string> = {
  wait_exchange: "wait hand-off",
  wait_ring_full: "wait weights",
  wait_ring_empty: "wait room",
  wait_barrier: "wait warps",
  wait_copies: "wait copies",
};

function item(
  words: string,
  title: string,
  pick: () => void,
  fill: (raster: Raster) => void,
): HTMLLIElement {
  const button = node("button", swatch(fill), words);
  button.type = "button";
  button.title = `${title} (click: only these)`;
  button.addEventListener("click", pick);
  return node("li", button);
}

function swatch(fill: (raster: Raster) => void): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  canvas.setAttribute("aria-hidden", "true");
  const context = prepared(canvas, SWATCH.width, SWATCH.height);
  if (context) {
    const raster = new Raster();
    raster.resize(canvas.width, canvas.height);
    fill(raster);
    raster.paint(context, 0, 0);
  }
  return canvas;
}
