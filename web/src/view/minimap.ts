// Pointers on the minimap: drag the window or one of its edges, draw a new one, or pick a layer.

import { type Viewport, whole, xAt } from "../trace/viewport";

export interface MinimapHandlers {
  view(): Viewport | null;
  tokenNs(): number;
  gutter(): number;
  show(beginNs: number, endNs: number): void;
  pick(ns: number): void;
}

/** How near to an edge of the window a press takes hold of it, in px. */
const EDGE = 7;
/** A press that moves farther than this is a drag. */
const CLICK_REACH = 4;

type Grip = "begin" | "end" | "window" | "new";

/** Times at the press; `offset` is from the window's begin to the press. */
interface Press {
  grip: Grip;
  x: number;
  ns: number;
  beginNs: number;
  endNs: number;
  dragged: boolean;
}

export function listenToMinimap(canvas: HTMLCanvasElement, handlers: MinimapHandlers): void {
  let press: Press | null = null;
  const timeOf = (event: PointerEvent, width: number) => {
    const x = event.clientX - canvas.getBoundingClientRect().left - handlers.gutter();
    return { x, ns: (Math.min(Math.max(x, 0), width) / width) * handlers.tokenNs() };
  };
  canvas.addEventListener("pointerdown", (event) => {
    const view = handlers.view();
    if (!view || event.button !== 0) return;
    const { x, ns } = timeOf(event, view.width);
    const { beginNs, endNs } = view;
    press = { grip: gripAt(view, handlers.tokenNs(), x), x, ns, beginNs, endNs, dragged: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const view = handlers.view();
    if (!view) return;
    const { x, ns } = timeOf(event, view.width);
    if (!press) {
      canvas.style.cursor = CURSORS[gripAt(view, handlers.tokenNs(), x)];
      return;
    }
    if (Math.abs(x - press.x) > CLICK_REACH) press.dragged = true;
    if (press.dragged) handlers.show(...dragged(press, ns));
  });
  const end = (event: PointerEvent) => {
    const view = handlers.view();
    if (press && !press.dragged && event.type === "pointerup" && view) handlers.pick(press.ns);
    press = null;
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
}

const CURSORS: Record<Grip, string> = {
  begin: "ew-resize",
  end: "ew-resize",
  window: "grab",
  new: "crosshair",
};

function gripAt(view: Viewport, tokenNs: number, x: number): Grip {
  const all = whole(tokenNs, view.width);
  const [left, right] = [xAt(all, view.beginNs), xAt(all, view.endNs)];
  // Of a narrow window the middle moves it, and its edges are outside.
  const inner = Math.min(EDGE, (right - left) / 4);
  if (x > left - EDGE && x < left + inner) return "begin";
  if (x > right - inner && x < right + EDGE) return "end";
  if (x >= left && x <= right) return "window";
  return "new";
}

function dragged(press: Press, ns: number): [beginNs: number, endNs: number] {
  const ordered = (a: number, b: number): [number, number] => [Math.min(a, b), Math.max(a, b)];
  switch (press.grip) {
    case "begin":
      return ordered(ns, press.endNs);
    case "end":
      return ordered(press.beginNs, ns);
    case "window":
      return [press.beginNs + ns - press.ns, press.endNs + ns - press.ns];
    case "new":
      return ordered(press.ns, ns);
  }
}
