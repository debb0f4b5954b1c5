// The keyboard: one table for what keys do and for the list that `?` shows.

import type { Step } from "../trace/focus";

/** What a key asks for. */
export type Command =
  | { do: "zoom"; factor: number }
  | { do: "pan"; share: number }
  | { do: "step"; step: Step }
  | { do: "wait"; direction: 1 | -1 }
  | { do: "layer"; step: 1 | -1 | 0 }
  | { do: "fit" | "fit-span" | "streams" | "path" | "select" | "find" | "help" | "escape" };

/** The factor of a zoom key, and the share of the view that a pan key moves by. */
const ZOOM = 1.5;
const PAN = 0.15;

interface Binding {
  keys: string[];
  command: Command;
  /** Only while the chart has the focus; otherwise the key is the page's. */
  inChart?: true;
}

const BINDINGS: Binding[] = [
  { keys: ["w", "+", "="], command: { do: "zoom", factor: ZOOM } },
  { keys: ["s", "-", "_"], command: { do: "zoom", factor: 1 / ZOOM } },
  { keys: ["a"], command: { do: "pan", share: -PAN } },
  { keys: ["d"], command: { do: "pan", share: PAN } },
  { keys: ["0"], command: { do: "fit" } },
  { keys: ["f"], command: { do: "fit-span" } },
  { keys: ["."], command: { do: "wait", direction: 1 } },
  { keys: [","], command: { do: "wait", direction: -1 } },
  { keys: ["["], command: { do: "layer", step: -1 } },
  { keys: ["]"], command: { do: "layer", step: 1 } },
  { keys: ["l"], command: { do: "layer", step: 0 } },
  { keys: ["p"], command: { do: "streams" } },
  { keys: ["c"], command: { do: "path" } },
  { keys: ["x"], command: { do: "select" } },
  { keys: ["/"], command: { do: "find" } },
  { keys: ["?"], command: { do: "help" } },
  { keys: ["escape"], command: { do: "escape" } },
  { keys: ["arrowleft"], command: { do: "step", step: "previous" }, inChart: true },
  { keys: ["arrowright"], command: { do: "step", step: "next" }, inChart: true },
  { keys: ["arrowup"], command: { do: "step", step: "up" }, inChart: true },
  { keys: ["arrowdown"], command: { do: "step", step: "down" }, inChart: true },
  { keys: ["home"], command: { do: "step", step: "first" }, inChart: true },
  { keys: ["end"], command: { do: "step", step: "last" }, inChart: true },
];

/** Keys and meanings, as the list shows them. */
export const KEY_LIST: [keys: string[], meaning: string][] = [
  [["W", "S"], "zoom in, out (also + and −)"],
  [["A", "D"], "move earlier, later"],
  [["0"], "show the whole token (also a double-click)"],
  [["L"], "one layer: the one in the middle"],
  [["[", "]"], "layer before, after"],
  [["←", "→"], "span before, after"],
  [["↑", "↓"], "row above, below"],
  [["Home", "End"], "first, last span of the row"],
  [[",", "."], "wait before, after"],
  [["F"], "zoom to the selected span or area"],
  [["C"], "show or hide the critical path"],
  [["P"], "prefetch: show or hide the weights in flight below each row"],
  [["/"], "search; Enter and Shift+Enter go to the next and the last match"],
  [["X"], "dragging selects an area, and its sums appear (also Shift with a drag)"],
  [["Esc"], "deselect the span, then the area; close this list"],
  [["?"], "this list"],
  [["Ctrl", "wheel"], "zoom at the pointer (Cmd on a Mac, or pinch)"],
  [["drag"], "move through time"],
];

/** The command for a key, or null if the key has none or is part of a browser shortcut. */
export function commandFor(event: KeyboardEvent, chartHasFocus: boolean): Command | null {
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  const key = event.key.toLowerCase();
  const binding = BINDINGS.find((binding) => binding.keys.includes(key));
  if (!binding || (binding.inChart && !chartHasFocus)) return null;
  return binding.command;
}
