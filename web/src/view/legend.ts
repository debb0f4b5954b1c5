// What the colours and the hatch mean, in words.

import { PHASES, type Phase } from "../abi";
import { hatch, prepared } from "../paint/canvas";
import type { Theme } from "../paint/palette";
import type { Meta } from "../trace/trace";
import { unit } from "../trace/words";

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

const SWATCH = { width: 28, height: 16 };

/** Fills the list; again after the theme changed. */
export function showLegend(list: HTMLElement, meta: Meta, shown: Phase[], theme: Theme): void {
  const phases = PHASES.filter((phase) => shown.includes(phase));
  list.replaceChildren(
    ...phases.map((phase) => item(`${phase}: ${MEANINGS[phase]}`, () => theme.phases[phase])),
    item(`hatched: waiting for another ${unit(meta)}'s values`, (context) => hatch(context, theme)),
    item("empty: nothing recorded", () => theme.surface),
  );
}

function item(
  words: string,
  fill: (context: CanvasRenderingContext2D) => CanvasPattern | string,
): HTMLLIElement {
  const swatch = document.createElement("canvas");
  swatch.setAttribute("aria-hidden", "true");
  const context = prepared(swatch, SWATCH.width, SWATCH.height);
  if (context) {
    context.fillStyle = fill(context);
    context.fillRect(0, 0, SWATCH.width, SWATCH.height);
  }
  const entry = document.createElement("li");
  entry.append(swatch, words);
  return entry;
}
