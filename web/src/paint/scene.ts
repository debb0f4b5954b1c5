// What the chart shows, and the sizes that all painters share.

import type { Area } from "../trace/area";
import type { Found } from "../trace/find";
import type { Rows } from "../trace/layout";
import type { Overview } from "../trace/overview";
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
  /** How many blocks do what, instead of rows of spans: where the view is too long for them. */
  overview: Overview | null;
  /** The critical path's classes in columns of the view; null: the trace has no path. */
  pathShares: Float32Array | null;
  /** Whether to draw the critical path over the rows. */
  showPath: boolean;
  /** The spans that the search names; the others are faint. */
  found: Found | null;
  area: Area | null;
}

export const FONT = "12px system-ui, sans-serif";
export const LABEL_HEIGHT = 13;
export const SMALL_FONT = "11px system-ui, sans-serif";
