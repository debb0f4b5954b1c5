// A lane as a drawing: a bar for each token, as wide and as high as the token took long.

import { arrivals, median } from "./replay";

/** The median token's share of the height: a stall stands out, to this many times the median. */
const MEDIAN_SHARE = 0.46;

/** An SVG path in a box of 1000 x 100 that ends at `endNs`; a stall beyond the top is cut there. */
export function skyline(ns: readonly number[], endNs: number): string {
  const at = arrivals(ns);
  const usual = median(ns) || 1;
  const x = (time: number) => ((1000 * time) / endNs).toFixed(2);
  const tops = ns.map((own, index) => {
    const top = 100 - Math.min(1, (own / usual) * MEDIAN_SHARE) * 100;
    return `V${top.toFixed(1)}H${x(at[index] ?? 0)}`;
  });
  return `M0 100${tops.join("")}V100Z`;
}
