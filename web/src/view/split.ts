// The critical path's split: a bar, and the same in words and numbers.

import type { Theme } from "../paint/palette";
import { PATH_CLASSES, type Path, splitOf } from "../trace/path";
import type { Meta } from "../trace/trace";
import { CLASS_MEANINGS, CLASS_NAMES, duration, percent } from "../trace/words";
import { classed, node } from "./dom";

/** Less than this share of the token would be shown as 0.0 %. */
const LEAST_SHARE = 0.0005;

export function showSplit(bar: HTMLElement, meta: Meta, path: Path | null): void {
  bar.hidden = path === null;
  if (!path) return;
  const split = splitOf(path);
  const shown = PATH_CLASSES.filter((cls) => split[cls] / meta.tokenNs >= LEAST_SHARE);
  const parts = shown.map((cls) => {
    const share = split[cls] / meta.tokenNs;
    const part = classed("span", `part ${cls}`, node("span", CLASS_NAMES[cls]));
    part.style.flexGrow = String(share);
    return part;
  });
  const strip = node("div", ...parts);
  strip.className = "strip";
  strip.setAttribute("aria-hidden", "true");
  const items = shown.map((cls) => {
    const swatch = node("i");
    swatch.className = `swatch ${cls}`;
    const share = node("b", percent(split[cls], meta.tokenNs));
    const item = node("li", swatch, `${CLASS_NAMES[cls]} `, share, ` ${duration(split[cls])}`);
    item.title = CLASS_MEANINGS[cls];
    return item;
  });
  const list = node("ul", ...items);
  list.setAttribute("aria-label", "Critical path: where the token's time went");
  bar.replaceChildren(strip, list);
}

/** Puts the theme's colours where the style sheet finds them. */
export function setColours(theme: Theme): void {
  const { style } = document.documentElement;
  for (const cls of PATH_CLASSES) {
    style.setProperty(`--class-${cls}`, theme.classes[cls]);
  }
  for (const [phase, colour] of Object.entries(theme.phases)) {
    style.setProperty(`--phase-${phase}`, colour);
  }
}
