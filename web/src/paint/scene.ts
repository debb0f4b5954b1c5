// What the chart shows, and the sizes that all painters share.

import type { Rows } from "../trace/layout";
import type { Trace } from "../trace/trace";
import type { Viewport } from "../trace/viewport";

/** Spans and streams are indices, -1 for none. */
export interface Scene {
  trace: Trace;
  /** When each layer began: `layerBegins` of the trace. */
  layers: Float64Array;
  view: Viewport;
  rows: Rows;
  hovered: number;
  /** Under the mouse, or tapped. */
  pointedStream: number;
  focused: number;
}

export const FONT = "12px system-ui, sans-serif";
export const LABEL_HEIGHT = 13;
