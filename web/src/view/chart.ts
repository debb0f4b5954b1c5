// The chart: what is in view, what is under the pointer, and when to paint.

import { axisHeight, paintAxis } from "../paint/axis";
import { prepared } from "../paint/canvas";
import { MinimapPicture, paintMinimap } from "../paint/minimap";
import type { Theme } from "../paint/palette";
import { Raster } from "../paint/raster";
import { paintRows } from "../paint/rows";
import type { Scene } from "../paint/scene";
import type { Place } from "../trace/address";
import type { Area } from "../trace/area";
import { layerBegins } from "../trace/axis";
import type { Found } from "../trace/find";
import { nextFound } from "../trace/find";
import { stepped, steppedToWait } from "../trace/focus";
import { layerAt, layerWindow, partBegins, sameParts } from "../trace/layers";
import { nearestSpan, type Rows, rowsFor, spanAt, streamAt } from "../trace/layout";
import { isCrowded, type Overview, overviewOf, pathOverview } from "../trace/overview";
import { segmentAt } from "../trace/path";
import { at, type Trace } from "../trace/trace";
import {
  fitted,
  panned,
  revealed,
  timeAt,
  type Viewport,
  whole,
  windowed,
  zoomed,
} from "../trace/viewport";
import { described, describedCounts, describedSegment, describedStream } from "../trace/words";
import { listen, type Point } from "./gestures";
import type { Command } from "./keys";
import { listenToMinimap } from "./minimap";

export interface ChartParts {
  minimap: HTMLCanvasElement;
  axis: HTMLCanvasElement;
  rows: HTMLCanvasElement;
  /** Around the rows: has the keyboard's focus. */
  stage: HTMLElement;
  details: HTMLElement;
  /** Stays at the top of the window while the rows scroll under it. */
  sticky: HTMLElement;
}

/** What the rest of the page follows. */
export interface ChartListener {
  /** The view, the selected span or the area changed by a person's doing. */
  moved(): void;
  area(area: Area | null): void;
}

const MINIMAP_LABELS = 16;
const MINIMAP_HEIGHT = 40;
const HINT = "Point at a span, tap one, or step through the spans with the arrow keys.";
const HINT_COUNTS =
  "How many blocks work on what, and how many wait (hatched). Click a layer to see its blocks.";

export class Chart {
  private scene: Scene | null = null;
  private parts: Float64Array = new Float64Array();
  /** Of the whole token, for the minimap. */
  private all: Overview | null = null;
  private pending = false;
  /** Whether to show weight streams, if there are any. */
  private streams = false;
  private path = true;
  private selects = false;
  private readonly raster = new Raster();
  private readonly axisRaster = new Raster();
  private readonly picture = new MinimapPicture();
  /** Where keys zoom: at the mouse while the mouse is over the chart. */
  private pointerX: number | null = null;
  /** The time under the mouse where it is over the axis; the details are of the path there. */
  private axisNs: number | null = null;
  /** The column under the mouse where the view is of counts. */
  private column = -1;

  constructor(
    private readonly elements: ChartParts,
    private theme: Theme,
    private readonly listener: ChartListener,
  ) {
    for (const canvas of [elements.rows, elements.axis]) {
      const inRows = canvas === elements.rows;
      listen(canvas, {
        zoom: (factor, x) => this.zoom(factor, x - this.gutter()),
        pan: (px) => this.pan(px),
        hover: (point) => (inRows ? this.hover(point) : this.hoverAxis(point)),
        pick: (point) => (inRows ? this.pick(point) : this.hoverAxis(point)),
        fit: () => this.run({ do: "fit" }),
        selects: (event) => inRows && (this.selects || event.shiftKey),
        select: (from, to) => this.select(from, to),
      });
    }
    listenToMinimap(elements.minimap, {
      view: () => this.scene?.view ?? null,
      tokenNs: () => this.scene?.trace.meta.tokenNs ?? 1,
      gutter: () => this.gutter(),
      show: (beginNs, endNs) => this.lookAt(beginNs, endNs),
      pick: (ns) => this.showLayer(layerAt(this.parts, ns)),
    });
    elements.stage.addEventListener("focus", () => this.focusSomething());
    new ResizeObserver(() => this.resize()).observe(elements.rows);
  }

  /** Shows another trace: where the address says, else the part that was in view before. */
  show(trace: Trace, place: Place | null): void {
    const before = this.scene && { view: this.scene.view, parts: this.parts };
    const rows = this.rowsOf(trace);
    const layers = layerBegins(trace);
    const view = whole(trace.meta.tokenNs, rows.plotWidth);
    this.parts = partBegins(trace);
    this.all = null;
    this.scene = {
      ...{ trace, layers, view, rows },
      ...{ hovered: -1, pointedStream: -1, focused: -1 },
      ...{ overview: null, pathShares: null, showPath: this.path, found: null, area: null },
    };
    this.forgetPointer();
    if (before) {
      const old = { ...before.view, width: rows.plotWidth };
      this.scene.view = this.inside(sameParts(old, before.parts, this.parts));
    } else if (isCrowded(trace, view)) this.scene.view = this.layerView(this.middleLayer());
    if (place) this.goTo(this.scene, place);
    this.elements.rows.style.height = `${rows.height}px`;
    this.elements.axis.style.height = `${axisHeight(trace.path !== null)}px`;
    this.elements.minimap.style.height = `${MINIMAP_LABELS + MINIMAP_HEIGHT}px`;
    this.listener.area(null);
    this.refresh();
    this.announce();
  }

  /** What is in view, for the address; the span is null if none is selected. */
  place(): Omit<Place, "file"> | null {
    const { scene } = this;
    if (!scene) return null;
    const { view, focused, trace } = scene;
    const layer = layerAt(this.parts, (view.beginNs + view.endNs) / 2);
    return {
      layer: layer < 0 ? null : layer,
      beginNs: Math.round(view.beginNs),
      endNs: Math.round(view.endNs),
      block: focused < 0 ? null : at(trace.spans.block, focused),
      atNs: focused < 0 ? null : at(trace.spans.beginNs, focused),
    };
  }

  /** The layer in the middle of the view, or -1. */
  layer(): number {
    const view = this.scene?.view;
    return view ? layerAt(this.parts, (view.beginNs + view.endNs) / 2) : -1;
  }

  /** Whether the view is of counts instead of single spans. */
  isCrowded(): boolean {
    return this.scene?.overview != null;
  }

  goToPlace(place: Place): void {
    this.update((scene) => this.goTo(scene, place));
    this.announce();
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

  setPath(shown: boolean): void {
    this.path = shown;
    this.look((scene) => {
      scene.showPath = shown;
    });
  }

  /** Whether a drag selects an area instead of moving the view. */
  setSelects(selects: boolean): void {
    this.selects = selects;
    this.elements.rows.classList.toggle("selecting", selects);
  }

  setFound(found: Found | null): void {
    if (!this.scene) return;
    this.scene.found = found;
    this.refresh();
  }

  /** Selects the next span that the search names, or the one before. */
  stepFound(direction: 1 | -1): void {
    const { scene } = this;
    if (!scene?.found) return;
    const { trace, found, focused, view } = scene;
    const span = nextFound(trace, found, focused, view.beginNs, direction);
    if (span >= 0) this.focusOn(span);
  }

  setArea(area: Area | null): void {
    this.update((scene) => {
      scene.area = area;
    });
    this.listener.area(area);
  }

  /** The pictures that a download puts together: minimap, axis, rows. */
  canvases(): HTMLCanvasElement[] {
    const { minimap, axis, rows } = this.elements;
    return [minimap, axis, rows];
  }

  /** Does what a key or a button asks for. */
  run(command: Command): void {
    const { scene } = this;
    if (!scene) return;
    if (command.do === "step" || command.do === "wait") this.step(scene, command);
    else if (command.do === "escape") this.escape(scene);
    else this.move(scene, command);
  }

  private move(scene: Scene, command: Command): void {
    const { width } = scene.view;
    switch (command.do) {
      case "zoom":
        this.zoom(command.factor, this.pointerX ?? width / 2);
        break;
      case "pan":
        this.pan(command.share * width);
        break;
      case "fit":
        this.lookAt(0, scene.trace.meta.tokenNs);
        break;
      case "fit-span":
        this.fitSpan();
        break;
      case "layer":
        this.showLayer(Math.max(this.layer(), 0) + command.step);
        break;
      default:
    }
  }

  private step({ focused, trace }: Scene, command: Command): void {
    const from = focused < 0 ? this.firstInView() : focused;
    if (command.do === "wait") this.focusOn(steppedToWait(trace, from, command.direction));
    else if (command.do === "step") {
      this.focusOn(focused < 0 ? from : stepped(trace, from, command.step));
    }
  }

  /** Deselects the span; if none is selected, the area. */
  private escape({ focused, area }: Scene): void {
    if (focused < 0 && area) this.setArea(null);
    this.focusOn(-1);
  }

  private goTo(scene: Scene, place: Place): void {
    const { trace } = scene;
    const { beginNs, endNs, layer, block, atNs } = place;
    if (beginNs !== null && endNs !== null && endNs > beginNs) {
      scene.view = this.inside(windowed(scene.view, trace.meta.tokenNs, beginNs, endNs));
    } else if (layer !== null && layer < trace.meta.layers) scene.view = this.layerView(layer);
    if (block === null || atNs === null || block >= trace.meta.blocks) return;
    scene.focused = nearestSpan(trace, block, atNs, Number.POSITIVE_INFINITY);
  }

  private inside(view: Viewport): Viewport {
    return panned(view, this.scene?.trace.meta.tokenNs ?? 1, 0);
  }

  private rowsOf({ meta, streams }: Trace): Rows {
    const withStrips = this.streams && streams.block.length > 0;
    return rowsFor(this.elements.rows.clientWidth, meta.blocks, withStrips);
  }

  private gutter(): number {
    return this.scene?.rows.gutter ?? 0;
  }

  private middleLayer(): number {
    return Math.floor((this.parts.length - 3) / 2);
  }

  private layerView(layer: number): Viewport {
    const { scene } = this;
    if (!scene) throw new Error("no trace is shown");
    const { tokenNs } = scene.trace.meta;
    if (layer < 0) return whole(tokenNs, scene.view.width);
    const [beginNs, endNs] = layerWindow(this.parts, layer);
    return fitted(scene.view, tokenNs, beginNs, endNs, 1.06);
  }

  private showLayer(layer: number): void {
    const last = this.parts.length - 4;
    this.update((scene) => {
      scene.view = this.layerView(Math.min(Math.max(layer, 0), last));
    });
  }

  private lookAt(beginNs: number, endNs: number): void {
    this.update((scene) => {
      scene.view = windowed(scene.view, scene.trace.meta.tokenNs, beginNs, endNs);
    });
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

  private fitSpan(): void {
    this.update((scene) => {
      const { trace, focused, view, area } = scene;
      const { tokenNs } = trace.meta;
      const { beginNs, endNs } = trace.spans;
      if (focused >= 0)
        scene.view = fitted(view, tokenNs, at(beginNs, focused), at(endNs, focused));
      else if (area) scene.view = fitted(view, tokenNs, area.beginNs, area.endNs);
    });
  }

  private forgetPointer(): void {
    [this.axisNs, this.column] = [null, -1];
  }

  private hover(point: Point | null): void {
    this.pointerX = point && point.x - this.gutter();
    this.forgetPointer();
    const { scene } = this;
    if (scene?.overview && point) this.column = Math.floor(point.x - this.gutter());
    this.look((scene) => {
      scene.hovered = point ? this.spanAt(scene, point) : -1;
      scene.pointedStream = point ? this.streamAt(scene, point) : -1;
    });
    this.announce();
  }

  private hoverAxis(point: Point | null): void {
    this.hover(null);
    if (this.scene && point) this.axisNs = timeAt(this.scene.view, point.x - this.gutter());
    this.announce();
  }

  private pick(point: Point): void {
    const { scene } = this;
    if (!scene) return;
    if (scene.overview) {
      const ns = timeAt(scene.view, point.x - scene.rows.gutter);
      this.showLayer(layerAt(this.parts, ns));
      return;
    }
    const stream = this.streamAt(scene, point);
    if (stream < 0) this.focusOn(this.spanAt(scene, point));
    else this.pointAtStream(stream);
  }

  private select(from: Point, to: Point): void {
    const { scene } = this;
    if (!scene) return;
    const { view, rows, trace } = scene;
    const ns = [from, to].map(({ x }) => timeAt(view, Math.max(x - rows.gutter, 0)));
    const [beginNs = 0, endNs = 0] = ns.sort((a, b) => a - b).map(Math.round);
    const last = trace.meta.blocks - 1;
    const block = ({ y }: Point) => Math.min(Math.max(Math.floor(y / rows.pitch), 0), last);
    // Counts have no rows, so an area of them is of all blocks.
    const [top, bottom] = scene.overview
      ? [0, last]
      : [Math.min(block(from), block(to)), Math.max(block(from), block(to))];
    const end = Math.min(endNs, trace.meta.tokenNs);
    if (end > beginNs) this.setArea({ firstBlock: top, lastBlock: bottom, beginNs, endNs: end });
  }

  private spanAt({ trace, view, rows, overview }: Scene, { x, y }: Point): number {
    return overview ? -1 : spanAt(trace, view, rows, x - rows.gutter, y);
  }

  private pointAtStream(stream: number): void {
    this.look((scene) => {
      scene.hovered = -1;
      scene.pointedStream = stream;
    });
    this.announce();
  }

  private streamAt({ trace, view, rows, overview }: Scene, { x, y }: Point): number {
    return overview ? -1 : streamAt(trace, view, rows, x - rows.gutter, y);
  }

  /** Keyboard focus must show on a span at once. */
  private focusSomething(): void {
    const { scene, elements } = this;
    if (!scene || scene.focused >= 0 || !elements.stage.matches(":focus-visible")) return;
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
      const [begin, end] = [at(beginNs, span), at(endNs, span)];
      // A span cannot be seen among counts: go to its layer.
      if (isCrowded(scene.trace, scene.view)) {
        scene.view = this.layerView(layerAt(this.parts, begin));
      }
      scene.view = revealed(scene.view, tokenNs, begin, end);
      this.scrollTo(scene, span);
    });
    this.announce();
  }

  /** Scrolls the page just enough to show the span's row between the axis and the window's end. */
  private scrollTo({ trace, rows }: Scene, span: number): void {
    const top = this.elements.rows.getBoundingClientRect().top;
    const rowTop = top + at(trace.spans.block, span) * rows.pitch;
    const above = rowTop - this.elements.sticky.offsetHeight;
    const below = rowTop + rows.pitch - window.innerHeight;
    if (above < 0) window.scrollBy(0, above);
    else if (below > 0) window.scrollBy(0, below);
  }

  private announce(): void {
    const { scene } = this;
    if (!scene) return;
    const words = this.words(scene);
    if (this.elements.details.textContent !== words) this.elements.details.textContent = words;
  }

  private words(scene: Scene): string {
    const { trace, hovered, pointedStream, focused, overview } = scene;
    if (this.axisNs !== null && trace.path) {
      const segment = segmentAt(trace.path, this.axisNs);
      if (segment >= 0) return describedSegment(trace, trace.path, segment);
    }
    if (pointedStream >= 0) return describedStream(trace, pointedStream);
    if (overview && this.column >= 0 && this.column < overview.columns) {
      return describedCounts(trace, overview, this.column, timeAt(scene.view, this.column + 0.5));
    }
    const span = hovered >= 0 ? hovered : focused;
    if (span >= 0) return described(trace, span);
    return overview ? HINT_COUNTS : HINT;
  }

  private resize(): void {
    if (!this.scene) return;
    const rows = this.rowsOf(this.scene.trace);
    if (rows.plotWidth !== this.scene.view.width) this.all = null;
    this.scene.rows = rows;
    this.scene.view = { ...this.scene.view, width: rows.plotWidth };
    this.elements.rows.style.height = `${rows.height}px`;
    this.refresh();
  }

  /** Changes what is shown, because a person asked for it. */
  private update(change: (scene: Scene) => void): void {
    if (!this.scene) return;
    change(this.scene);
    this.refresh();
    this.listener.moved();
  }

  /** Changes what is pointed at: the view stays. */
  private look(change: (scene: Scene) => void): void {
    if (!this.scene) return;
    change(this.scene);
    this.invalidate();
  }

  /** Recounts what the view shows. */
  private refresh(): void {
    const { scene } = this;
    if (!scene) return;
    const { trace, view } = scene;
    const columns = Math.max(Math.round(view.width), 1);
    const crowded = isCrowded(trace, view);
    scene.overview = crowded ? overviewOf(trace, view, columns, scene.found?.mask ?? null) : null;
    scene.pathShares = trace.path && pathOverview(trace.path, view, columns);
    this.all ??= overviewOf(trace, whole(trace.meta.tokenNs, view.width), columns, null);
    this.elements.stage.classList.toggle("counts", crowded);
    this.announce();
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
    const { scene, theme, elements, all } = this;
    if (!scene || !all) return;
    const { trace, view } = scene;
    const { gutter, plotWidth, height } = scene.rows;
    const width = gutter + plotWidth;
    const rows = prepared(elements.rows, width, height);
    const axis = prepared(elements.axis, width, axisHeight(trace.path !== null));
    const minimap = prepared(elements.minimap, width, MINIMAP_LABELS + MINIMAP_HEIGHT);
    if (rows) paintRows(rows, this.raster, scene, theme);
    if (axis) paintAxis(axis, this.axisRaster, scene, theme);
    if (!minimap) return;
    const sizes = { gutter, width: plotWidth, labels: MINIMAP_LABELS, height: MINIMAP_HEIGHT };
    paintMinimap(
      minimap,
      this.picture,
      { trace, view, overview: all, parts: this.parts, ...sizes },
      theme,
    );
  }
}
