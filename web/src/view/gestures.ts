// Translates mouse, finger and wheel input on the chart.

export interface GestureHandlers {
  /** Zoom in by the factor (out below 1), around x. */
  zoom(factor: number, x: number): void;
  /** Move the view this far, later in time when positive. */
  pan(px: number): void;
  /** The pointer is over a point; null: it left the chart. */
  hover(point: Point | null): void;
  pick(point: Point): void;
  fit(): void;
  /** Whether the press that begins here selects an area instead of moving the view. */
  selects(event: PointerEvent): boolean;
  /** The area between two points is being selected. */
  select(from: Point, to: Point): void;
}

/** In CSS px from the canvas's upper left corner. */
export interface Point {
  x: number;
  y: number;
}

/** A press that moves farther than this, in px, is a drag. */
const CLICK_REACH = 4;
/** Wheel travel that doubles the zoom, in px. */
const WHEEL_DOUBLING = 240;
const WHEEL_LINE = 16;

export function listen(canvas: HTMLElement, handlers: GestureHandlers): void {
  const pointers = new Pointers(canvas, handlers);
  canvas.addEventListener("pointerdown", (event) => pointers.down(event));
  canvas.addEventListener("pointermove", (event) => pointers.move(event));
  canvas.addEventListener("pointerup", (event) => pointers.up(event));
  canvas.addEventListener("pointercancel", (event) => pointers.cancel(event));
  // A finger leaves whenever it is lifted; the span it tapped stays shown.
  canvas.addEventListener("pointerleave", ({ pointerType }) => {
    if (pointerType === "mouse") handlers.hover(null);
  });
  canvas.addEventListener("dblclick", () => handlers.fit());
  canvas.addEventListener("wheel", (event) => wheel(event, canvas, handlers), { passive: false });
}

/** Ctrl or cmd (a trackpad's pinch sends ctrl): zoom; sideways: move; else the page scrolls. */
function wheel(event: WheelEvent, canvas: HTMLElement, handlers: GestureHandlers): void {
  const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? WHEEL_LINE : 1;
  if (event.ctrlKey || event.metaKey) {
    event.preventDefault();
    handlers.zoom(2 ** ((-event.deltaY * unit) / WHEEL_DOUBLING), pointOf(event, canvas).x);
  } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    event.preventDefault();
    handlers.pan(event.deltaX * unit);
  }
}

function pointOf(event: MouseEvent, canvas: HTMLElement): Point {
  const box = canvas.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}

/** The pointers that are down: one drags, two pinch. */
class Pointers {
  private readonly at = new Map<number, Point>();
  private start: Point | null = null;
  private dragged = false;
  private selecting = false;

  constructor(
    private readonly canvas: HTMLElement,
    private readonly handlers: GestureHandlers,
  ) {}

  down(event: PointerEvent): void {
    if (event.button !== 0) return;
    const point = pointOf(event, this.canvas);
    if (this.at.size === 0) {
      this.start = point;
      this.dragged = false;
      this.selecting = this.handlers.selects(event);
    } else {
      this.dragged = true;
      this.selecting = false;
    }
    this.at.set(event.pointerId, point);
    this.canvas.setPointerCapture(event.pointerId);
  }

  move(event: PointerEvent): void {
    const point = pointOf(event, this.canvas);
    const before = this.at.get(event.pointerId);
    if (!before) {
      if (event.pointerType === "mouse") this.handlers.hover(point);
      return;
    }
    const [one, two] = [...this.at.values()];
    if (one && two) this.pinch(point, before === one ? two : one, before);
    else this.drag(point, before);
    this.at.set(event.pointerId, point);
  }

  up(event: PointerEvent): void {
    const picked = this.at.delete(event.pointerId) && this.at.size === 0 && !this.dragged;
    if (this.at.size === 0) this.canvas.classList.remove("dragging");
    if (picked) this.handlers.pick(pointOf(event, this.canvas));
  }

  cancel(event: PointerEvent): void {
    this.at.delete(event.pointerId);
    if (this.at.size === 0) this.canvas.classList.remove("dragging");
  }

  private drag(point: Point, before: Point): void {
    const start = this.start ?? before;
    if (Math.hypot(point.x - start.x, point.y - start.y) > CLICK_REACH) this.dragged = true;
    if (!this.dragged) return;
    if (this.selecting) {
      this.handlers.select(start, point);
      return;
    }
    this.canvas.classList.add("dragging");
    this.handlers.hover(null);
    this.handlers.pan(before.x - point.x);
  }

  private pinch(point: Point, other: Point, before: Point): void {
    const distance = (from: Point) => Math.max(Math.abs(from.x - other.x), CLICK_REACH);
    this.handlers.zoom(distance(point) / distance(before), (point.x + other.x) / 2);
    this.handlers.pan((before.x - point.x) / 2);
  }
}
