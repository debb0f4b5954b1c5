// The critical path over the rows: along a block's row while its time passes there, and straight to
// the next block's row where the chain goes on.

import type { Path } from "../trace/path";
import { segmentAt } from "../trace/path";
import { at } from "../trace/trace";
import { xAt } from "../trace/viewport";
import type { Theme } from "./palette";
import type { Scene } from "./scene";

export function paintPath(
  context: CanvasRenderingContext2D,
  scene: Scene,
  path: Path,
  theme: Theme,
): void {
  const { view, rows } = scene;
  const line = new Path2D();
  const middle = (row: number) => at(path.block, row) * rows.pitch + rows.barHeight / 2;
  const first = Math.max(segmentAt(path, view.beginNs), 0);
  for (let row = first; row < path.cls.length; row++) {
    const x0 = xAt(view, at(path.beginNs, row));
    if (x0 > view.width) break;
    if (row === first) line.moveTo(x0, middle(row));
    line.lineTo(x0, middle(row));
    line.lineTo(xAt(view, at(path.endNs, row)), middle(row));
  }
  context.lineJoin = "round";
  context.strokeStyle = theme.surface;
  context.lineWidth = 5;
  context.stroke(line);
  context.strokeStyle = theme.ink;
  context.lineWidth = 2;
  context.stroke(line);
}
