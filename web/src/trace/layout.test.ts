import { describe, expect, test } from "vitest";
import { CPU, traceFile } from "../../test/fixture";
import { gpuTraceFile } from "../../test/gpu";
import {
  labelStep,
  layoutRow,
  layoutStrip,
  nearestSpan,
  rowsFor,
  spanAt,
  streamAt,
} from "./layout";
import { traceFromJson } from "./parse";
import { at, durationNs, isWait } from "./trace";
import { nsPerPx, type Viewport, whole, zoomed } from "./viewport";

const trace = traceFromJson(JSON.stringify(gpuTraceFile({ blocks: 24, layers: 28 })));
const few = traceFromJson(JSON.stringify(traceFile(CPU)));

describe("rows", () => {
  test("few blocks are tall, many still have a row each", () => {
    expect(rowsFor(1200, 2)).toMatchObject({ pitch: 56, height: 112, plotWidth: 1116 });
    expect(rowsFor(1200, 132)).toMatchObject({ pitch: 5, barHeight: 4, height: 660 });
    expect(rowsFor(1200, 170)).toMatchObject({ pitch: 5, height: 850 });
    expect(rowsFor(320, 2).gutter).toBeLessThan(rowsFor(1200, 2).gutter);
    expect(rowsFor(0, 1).plotWidth).toBe(1);
  });

  test("a strip takes room of its own", () => {
    const low = rowsFor(1200, 132, true);
    expect(low).toMatchObject({ pitch: 12, barHeight: 4, stripTop: 5, stripHeight: 4 });
    expect(rowsFor(1200, 2, true)).toMatchObject({ pitch: 69, barHeight: 52, stripHeight: 12 });
    expect(rowsFor(1200, 2).stripHeight).toBe(0);
  });

  test("labels do not touch", () => {
    expect(labelStep(rowsFor(1200, 2), 17)).toBe(1);
    expect(labelStep(rowsFor(1200, 170), 17)).toBe(5);
  });
});

/** All spans of a block that overlap the view in time, found the slow way. */
function inView(block: number, view: Viewport): number[] {
  const spans: number[] = [];
  trace.spans.block.forEach((owner, span) => {
    const overlaps =
      at(trace.spans.endNs, span) > view.beginNs && at(trace.spans.beginNs, span) < view.endNs;
    if (owner === block && overlaps) spans.push(span);
  });
  return spans;
}

describe("a row", () => {
  const view = whole(trace.meta.tokenNs, 400);
  const close = zoomed(view, trace.meta.tokenNs, 150, 171);

  test("has every span in view and no other", () => {
    const { bars, slivers } = layoutRow(trace, close, 17);
    expect(slivers).toEqual([]);
    expect(bars.map((bar) => bar.span)).toEqual(inView(17, close));
    for (const { x0, x1 } of bars) {
      expect(x0).toBeGreaterThanOrEqual(0);
      expect(x1).toBeLessThanOrEqual(close.width);
    }
  });

  test("adds up what is too narrow, and loses no wait", () => {
    const px = nsPerPx(view);
    let [narrow, waits] = [0, 0];
    for (let block = 0; block < trace.meta.blocks; block++) {
      const { bars, slivers } = layoutRow(trace, view, block);
      const wide = new Set(bars.map((bar) => bar.span));
      const rest = inView(block, view).filter((span) => !wide.has(span));
      const total = (wait: boolean) =>
        rest
          .filter((span) => isWait(trace, span) === wait)
          .reduce((sum, span) => sum + durationNs(trace, span), 0);
      const shares = (share: "workShare" | "waitShare") =>
        slivers.reduce((sum, sliver) => sum + sliver[share], 0) * px;
      // A px that several spans share may claim more than its own time: shares end at 1.
      expect(shares("waitShare")).toBeLessThanOrEqual(total(true) + 1e-6);
      expect(shares("workShare")).toBeLessThanOrEqual(total(false) + 1e-6);
      if (total(true) > 0) expect(shares("waitShare")).toBeGreaterThan(0);
      narrow += rest.length;
      waits += total(true);
    }
    expect(narrow).toBeGreaterThan(1000);
    expect(waits).toBeGreaterThan(0);
  });

  test("slivers go by time, one to a px", () => {
    const { slivers } = layoutRow(trace, view, 3);
    const places = slivers.map((sliver) => sliver.x);
    expect(places).toEqual([...new Set(places)].sort((a, b) => a - b));
  });
});

describe("a strip of streams", () => {
  const rows = rowsFor(484, 132, true);
  const view = zoomed(whole(trace.meta.tokenNs, rows.plotWidth), trace.meta.tokenNs, 20, 200);
  const { streams } = trace;

  test("has every stream in view and no other, those that overlap in lanes of their own", () => {
    const expected: number[] = [];
    streams.block.forEach((owner, stream) => {
      const inView =
        at(streams.endNs, stream) > view.beginNs && at(streams.beginNs, stream) < view.endNs;
      if (owner === 17 && inView) expected.push(stream);
    });
    const lanes = layoutStrip(trace, view, rows, 17);
    expect(lanes.map(({ stream }) => stream)).toEqual(expected);
    expect(expected.length).toBeGreaterThan(3);
    lanes.slice(1).forEach((lane, index) => {
      expect(lane.top).not.toBe(lanes[index]?.top);
      expect(lane.top).toBeGreaterThan(rows.barHeight);
      expect(lane.top + rows.laneHeight).toBeLessThan(rows.pitch);
      expect(lane.x1 - lane.x0).toBeGreaterThanOrEqual(1);
      expect(lane.x1).toBeLessThanOrEqual(view.width);
    });
  });

  test("is pointed at below the bars, and they above it", () => {
    const lane = layoutStrip(trace, view, rows, 17)[1];
    if (!lane) throw new Error("no second stream in view");
    const x = (lane.x0 + lane.x1) / 2;
    const y = 17 * rows.pitch + lane.top + rows.laneHeight / 2;
    expect(streamAt(trace, view, rows, x, y)).toBe(lane.stream);
    expect(spanAt(trace, view, rows, x, y)).toBe(-1);
    expect(streamAt(trace, view, rows, x, 17 * rows.pitch + 1)).toBe(-1);
    expect(streamAt(trace, view, rows, x, -1)).toBe(-1);
    const hidden = rowsFor(484, 132);
    expect(streamAt(trace, view, hidden, x, 17 * hidden.pitch + hidden.barHeight + 0.5)).toBe(-1);
  });
});

describe("the span at a point", () => {
  const rows = rowsFor(1084, 2);
  const view = whole(few.meta.tokenNs, rows.plotWidth);

  test("is the one drawn there", () => {
    for (const block of [0, 1]) {
      for (const { span, x0, x1 } of layoutRow(few, view, block).bars) {
        const y = block * rows.pitch + 5;
        expect(spanAt(few, view, rows, (x0 + x1) / 2, y)).toBe(span);
      }
    }
  });

  test("is none outside", () => {
    expect(spanAt(few, view, rows, 10, -1)).toBe(-1);
    expect(spanAt(few, view, rows, 10, rows.height)).toBe(-1);
    expect(spanAt(few, view, rows, -1, 10)).toBe(-1);
    expect(spanAt(few, view, rows, view.width + 1, 10)).toBe(-1);
  });

  test("may be a little beside it, no more", () => {
    const last = at(few.rowStarts, 2) - 1;
    const end = at(few.spans.endNs, last);
    expect(nearestSpan(few, 1, end + 5, 10)).toBe(last);
    expect(nearestSpan(few, 1, end + 15, 10)).toBe(-1);
  });
});
