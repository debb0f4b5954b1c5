// Speed by position, as a drawing: a line a version, its spread, and what the bytes would allow.

import { variantName } from "../view/chooser";
import { classed, node } from "../view/dom";
import { type Data, firstRun, models, processors, type Row, type Run } from "./data";
import { count, modelName, speed } from "./format";

export interface Line {
  variant: string;
  points: { position: number; median: number; min: number; max: number; bound: number | null }[];
}

/** A line for each version of a model in a run: the tests at fixed positions. */
export function linesOf(rows: Row[], model: string): Line[] {
  const own = rows.filter((row) => row.model === model && row.position !== null);
  return [...new Set(own.map(({ variant }) => variant))].map((variant) => ({
    variant,
    points: own
      .filter((row) => row.variant === variant)
      .flatMap((row) => {
        const { position, tok_s_median, tok_s_min, tok_s_max, bytes_per_token: bytes } = row;
        if (position === null || tok_s_median === null) return [];
        const bound = bytes && row.roofline_gb_s ? (1e9 * row.roofline_gb_s) / bytes : null;
        const [min, max] = [tok_s_min ?? tok_s_median, tok_s_max ?? tok_s_median];
        return [{ position, median: tok_s_median, min, max, bound }];
      })
      .sort((a, b) => a.position - b.position),
  }));
}

const SIZE = { width: 760, height: 340, left: 62, right: 92, top: 16, bottom: 40 };

export function showSweep(section: HTMLElement, data: Data): void {
  for (const { name, runs, kind } of processors(data.runs)) {
    if (kind !== "gpu") continue;
    const run = firstRun(runs);
    const model = run && models(run.rows)[0];
    if (!run || model === undefined) continue;
    const lines = linesOf(run.rows, model).filter(({ points }) => points.length > 1);
    if (lines.length > 0) section.append(figure(name, run, model, lines));
  }
}

function figure(gpu: string, run: Run, model: string, lines: Line[]): HTMLElement {
  const drop = lines.map((line) => {
    const [first, last] = [line.points[0], line.points.at(-1)];
    if (!first || !last) return "";
    const loss = count(100 * (1 - last.median / first.median));
    return `${variantName(line.variant)} ${speed(first.median)} tokens/s at ${count(first.position)} and ${speed(last.median)} at ${count(last.position)} (${loss}\u00a0% fewer)`;
  });
  const above = lines
    .filter((line) => isAbove(line, highest(lines)))
    .map(({ variant }) => ` That of ${variantName(variant)} lies above the drawing.`);
  const caption = node(
    "figcaption",
    `${gpu}, ${modelName(model)}, results/${run.folder}: ${drop.join("; ")}. Bars: slowest to fastest run. Dashed: what the bytes alone would allow at the measured bandwidth.${above.join("")}`,
  );
  caption.className = "quiet";
  return classed("figure", "sweep", drawing(lines, drop.join("; ")), caption);
}

/** A bound this many times as high as the highest speed would make the lines low, and is left out. */
const BOUND_MAX = 1.6;

function highest(lines: Line[]): number {
  return Math.max(...lines.flatMap(({ points }) => points.map(({ max }) => max)));
}

function isAbove({ points }: Line, most: number): boolean {
  return points.some(({ bound }) => (bound ?? 0) > BOUND_MAX * most);
}

/** The speed at the drawing's upper edge. */
export function topOf(lines: Line[]): number {
  const most = highest(lines);
  const bounds = lines
    .filter((line) => !isAbove(line, most))
    .flatMap(({ points }) => points.map(({ bound }) => bound ?? 0));
  return 1.04 * Math.max(most, ...bounds);
}

/** A round number of tokens a second between two lines of the grid. */
function gridStep(most: number): number {
  const power = 10 ** Math.floor(Math.log10(most / 4));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => most / step <= 5) ?? most;
}

function drawing(lines: Line[], label: string): SVGElement {
  const points = lines.flatMap((line) => line.points);
  const positions = [...new Set(points.map(({ position }) => position))].sort((a, b) => a - b);
  const [least, farthest] = [positions[0] ?? 1, positions.at(-1) ?? 1];
  const most = topOf(lines);
  const { width, height, left, right, top, bottom } = SIZE;
  const log = (position: number) => Math.log2(position + 16);
  const x = (position: number) =>
    left +
    ((log(position) - log(least)) / Math.max(log(farthest) - log(least), 1e-9)) *
      (width - left - right);
  const y = (value: number) => height - bottom - (value / most) * (height - top - bottom);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  const step = gridStep(most);
  for (let value = 0; value <= most; value += step) {
    svg.append(
      draw("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      draw("text", { class: "tick end", x: left - 8, y: y(value) + 4 }, count(value)),
    );
  }
  for (const position of positions) {
    svg.append(
      draw(
        "text",
        { class: "tick middle", x: x(position), y: height - bottom + 18 },
        count(position),
      ),
    );
  }
  svg.append(
    draw("text", { class: "tick", x: left, y: height - 4 }, "cached positions"),
    draw("text", { class: "tick end", x: left - 8, y: 11 }, "tok/s"),
  );
  lines.forEach((line, index) => {
    svg.append(...lineNodes(line, index, x, y, most));
  });
  return svg;
}

function lineNodes(
  { variant, points }: Line,
  index: number,
  x: (position: number) => number,
  y: (value: number) => number,
  most: number,
): SVGElement[] {
  const series = `series s${index % 4}`;
  const path = (values: [number, number][]) =>
    values
      .map(([px, py], at) => `${at === 0 ? "M" : "L"}${px.toFixed(1)} ${py.toFixed(1)}`)
      .join("");
  const hidden = points.some(({ bound }) => (bound ?? 0) > most);
  const bounds = points.flatMap(({ position, bound }): [number, number][] =>
    bound === null || hidden ? [] : [[x(position), y(bound)]],
  );
  const nodes = [
    draw("path", { class: `${series} bound`, d: path(bounds) }),
    draw("path", {
      class: series,
      d: path(points.map(({ position, median }) => [x(position), y(median)])),
    }),
  ];
  for (const { position, median, min, max } of points) {
    nodes.push(
      draw("line", {
        class: `${series} spread`,
        x1: x(position),
        x2: x(position),
        y1: y(min),
        y2: y(max),
      }),
      draw("circle", { class: `${series} dot`, cx: x(position), cy: y(median), r: 3.5 }),
    );
  }
  const last = points.at(-1);
  if (last) {
    const place = { x: x(last.position) + 10, y: y(last.median) + 4 };
    nodes.push(draw("text", { class: `${series} name`, ...place }, variantName(variant)));
  }
  return nodes;
}

function draw(tag: string, attributes: Record<string, string | number>, text?: string): SVGElement {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  if (text !== undefined) made.textContent = text;
  return made;
}
