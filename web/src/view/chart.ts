// The chart: what is in view, what is under the pointer, and when to paint.

import { paintAxis } from "../paint/axis";
import { prepared } from "../paint/canvas";
import type { Theme } from "../paint/palette";
import { Raster } from "../paint/raster";
import { paintRows } from "../paint/rows";
import type { Scene } from "../paint/scene";
import { layerBegins } from "../trace/axis";
import { stepped, steppedToWait } from "../trace/focus";
import { type Rows, rowsFor, spanAt, streamAt } from "../trace/layout";
import { at, type Trace } from "../trace/trace";
import { fitted, panned, revealed, whole, zoomed } from "../trace/viewport";
import { described, describedStream } from "../trace/words";
import { listen, type Point } from "./gestures";
import type { Command } from "./keys";

export interface ChartParts {
  axis: HTMLCanvasElement;
  rows: HTMLCanvasElement;
  /** Around the rows: has the keyboard's focus. */
  stage: HTMLElement;
  details: HTMLElement;
  /** Stays at the top of the window while the rows scroll under it. */
  sticky: HTMLElement;
}

const AXIS_HEIGHT = 40;
const HINT = "Point at a span, tap one, or step through the spans with the arrow keys.";

export class Chart {
  private scene: Scene | null = null;
  private pending = false;
  /** Whether to show weight streams, if there are any. */
  private streams = false;
  private readonly raster = new Raster();
  /** Where keys zoom: at the mouse while the mouse is over the chart. */
  private pointerX: number | null = null;

  constructor(
    private readonly parts: ChartParts,
    private theme: Theme,
  ) {
    for (const canvas of [parts.rows, parts.axis]) {
      listen(canvas, {
        zoom: (factor, x) => this.zoom(factor, x - this.gutter()),
        pan: (px) => this.pan(px),
        hover: (point) => this.hover(canvas === parts.rows ? point : null),
        pick: (point) => {
          if (canvas === parts.rows) this.pick(point);
        },
        fit: () => this.fit(),
      });
    }
    parts.stage.addEventListener("focus", () => this.focusSomething());
    new ResizeObserver(() => this.resize()).observe(parts.rows);
  }

  /** Shows another trace, whole. */
  show(trace: Trace): void {
    const rows = this.rowsOf(trace);
    const view = whole(trace.meta.tokenNs, rows.plotWidth);
    const layers = layerBegins(trace);
    this.scene = { trace, layers, view, rows, hovered: -1, pointedStream: -1, focused: -1 };
    this.parts.rows.style.height = `${rows.height}px`;
    this.announce();
    this.invalidate();
  }

  setTheme(theme: Theme): void {
    this.theme = theme;
    this.invalidate();
  }

  /** Shows the streams below each row, or hides them. */
  setStreams(shown: boolean): void {
    this.streams = shown;
    this.pointAtStream(-1);
    this.resize();
  }

  /** Does what a key or a button asks for. */
  run(command: Command): void {
    const { scene } = this;
    if (!scene) return;
    const { width } = scene.view;
    if (command.do === "zoom") this.zoom(command.factor, this.pointerX ?? width / 2);
    else if (command.do === "pan") this.pan(command.share * width);
    else if (command.do === "fit") this.fit();
    else if (command.do === "fit-span") this.fitSpan();
    else if (command.do === "escape") this.focusOn(-1);
    else if (command.do === "step") {
      const { focused, trace } = scene;
      this.focusOn(focused < 0 ? this.firstInView() : stepped(trace, focused, command.step));
    } else if (command.do === "wait") {
      const from = scene.focused < 0 ? this.firstInView() : scene.focused;
      this.focusOn(steppedToWait(scene.trace, from, command.direction));
    }
  }

  private rowsOf({ meta, streams }: Trace): Rows {
    const withStrips = this.streams && streams.block.length > 0;
    return rowsFor(this.parts.rows.clientWidth, meta.blocks, withStrips);
  }

  private gutter(): number {
    return this.scene?.rows.gutter ?? 0;
  }

  private zoom(factor: number, x: number): void {
    this.update((scene) => {
      scene.view = zoomed(scene.view, scene.trace.meta.tokenNs, factor, x);
    });
  }

  private pan(px: number): void {
    this.update((scene) => {
      scene.view = panned(scene.view, scene.trace.meta.tokenNs, px);
    });
  }

  private fit(): void {
    this.update((scene) => {
      scene.view = whole(scene.trace.meta.tokenNs, scene.view.width);
    });
  }

  private fitSpan(): void {
    this.update((scene) => {
      const { trace, focused, view } = scene;
      if (focused < 0) return;
      const { beginNs, endNs } = trace.spans;
      const { tokenNs } = trace.meta;
      scene.view = fitted(view, tokenNs, at(beginNs, focused), at(endNs, focused));
    });
  }

  private hover(point: Point | null): void {
    this.pointerX = point && point.x - this.gutter();
    this.update((scene) => {
      scene.hovered = point ? this.spanAt(scene, point) : -1;
      scene.pointedStream = point ? this.streamAt(scene, point) : -1;
    });
    this.announce();
  }

  private pick(point: Point): void {
    const { scene } = this;
    if (!scene) return;
    const stream = this.streamAt(scene, point);
    if (stream < 0) this.focusOn(this.spanAt(scene, point));
    else this.pointAtStream(stream);
  }

  private spanAt({ trace, view, rows }: Scene, { x, y }: Point): number {
    return spanAt(trace, view, rows, x - rows.gutter, y);
  }

  private pointAtStream(stream: number): void {
    this.update((scene) => {
      scene.hovered = -1;
      scene.pointedStream = stream;
    });
    this.announce();
  }

  private streamAt({ trace, view, rows }: Scene, { x, y }: Point): number {
    return streamAt(trace, view, rows, x - rows.gutter, y);
  }

  /** Keyboard focus must show on a span at once. */
  private focusSomething(): void {
    const { scene, parts } = this;
    if (!scene || scene.focused >= 0 || !parts.stage.matches(":focus-visible")) return;
    this.focusOn(this.firstInView());
  }

  private firstInView(): number {
    const { scene } = this;
    if (!scene) return -1;
    const { trace, view } = scene;
    const ends = trace.spans.endNs;
    return Math.max(
      ends.findIndex((end) => end > view.beginNs),
      0,
    );
  }

  private focusOn(span: number): void {
    this.update((scene) => {
      scene.focused = span;
      scene.hovered = -1;
      scene.pointedStream = -1;
      if (span < 0) return;
      const { beginNs, endNs } = scene.trace.spans;
      const { tokenNs } = scene.trace.meta;
      scene.view = revealed(scene.view, tokenNs, at(beginNs, span), at(endNs, span));
      this.scrollTo(scene, span);
    });
    this.announce();
  }

  /** Scrolls the page just enough to show the span's row between the axis and the window's end. */
  private scrollTo({ trace, rows }: Scene, span: number): void {
    const top = this.parts.rows.getBoundingClientRect().top;
    const rowTop = top + at(trace.spans.block, span) * rows.pitch;
    const above = rowTop - this.parts.sticky.offsetHeight;
    const below = rowTop + rows.pitch - window.innerHeight;
    if (above < 0) window.scrollBy(0, above);
    else if (below > 0) window.scrollBy(0, below);
  }

  private announce(): void {
    const { scene } = this;
    if (!scene) return;
    const words = wordsOf(scene);
    if (this.parts.details.textContent !== words) this.parts.details.textContent = words;
  }

  private resize(): void {
    this.update((scene) => {
      scene.rows = this.rowsOf(scene.trace);
      scene.view = { ...scene.view, width: scene.rows.plotWidth };
      this.parts.rows.style.height = `${scene.rows.height}px`;
    });
  }

  private update(change: (scene: Scene) => void): void {
    if (!this.scene) return;
    change(this.scene);
    this.invalidate();
  }

  /** Paints once before the next frame, however often it is called. */
  private invalidate(): void {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.paint();
    });
  }

  private paint(): void {
    const { scene, theme, parts } = this;
    if (!scene) return;
    const width = scene.rows.gutter + scene.rows.plotWidth;
    const rows = prepared(parts.rows, width, scene.rows.height);
    const axis = prepared(parts.axis, width, AXIS_HEIGHT);
    if (rows) paintRows(rows, this.raster, scene, theme);
    if (axis) paintAxis(axis, scene, theme, AXIS_HEIGHT);
  }
}

function wordsOf({ trace, hovered, pointedStream, focused }: Scene): string {
  if (pointedStream >= 0) return describedStream(trace, pointedStream);
  const span = hovered >= 0 ? hovered : focused;
  return span < 0 ? HINT : described(trace, span);
}
