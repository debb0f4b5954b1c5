// The sums of the selected area, in a panel below the chart.

import { type Area, areaSum } from "../trace/area";
import type { Trace } from "../trace/trace";
import { blockName, bytes, duration, gbPerS, percent, unit, waitMeaning } from "../trace/words";
import { classed, node } from "./dom";

/** Shows the sums, or hides the panel; `close` deselects the area. */
export function showArea(
  panel: HTMLElement,
  trace: Trace | null,
  area: Area | null,
  close: () => void,
): void {
  panel.hidden = !trace || !area;
  panel.replaceChildren();
  if (!trace || !area) return;
  const { meta } = trace;
  const sum = areaSum(trace, area);
  const rows = [
    ...sum.work.map(({ phase, ns, spans }) => [phase, ns, spans] as const),
    ...sum.waits.map(({ kind, ns, spans }) => {
      const name = `waiting for ${waitMeaning(meta, kind)}`;
      return [name, ns, spans] as const;
    }),
    ["not recorded", sum.unrecordedNs, 0] as const,
  ];
  const head = node(
    "tr",
    ...["doing", "time", "share", "spans"].map((text) => heading(text, "col")),
  );
  const body = rows.map(([name, ns, spans]) =>
    node(
      "tr",
      heading(name, "row"),
      node("td", duration(ns)),
      node("td", percent(ns, sum.availableNs)),
      node("td", spans > 0 ? spans.toLocaleString("en") : ""),
    ),
  );
  const table = node("table", node("thead", head), node("tbody", ...body));
  table.createCaption().textContent = caption(trace, area, sum.bytes);
  const button = node("button", "Close");
  button.type = "button";
  button.addEventListener("click", close);
  const scroller = classed("div", "scroller", table);
  scroller.tabIndex = 0;
  panel.replaceChildren(node("h3", "Selected area"), scroller, button);
}

function caption({ meta }: Trace, area: Area, loaded: number): string {
  const { firstBlock, lastBlock, beginNs, endNs } = area;
  const count = lastBlock - firstBlock + 1;
  const who =
    count === 1
      ? blockName(meta, firstBlock)
      : `${count} ${unit(meta)}s, ${blockName(meta, firstBlock)} to ${blockName(meta, lastBlock)}`;
  const read =
    loaded > 0
      ? ` Weights that arrived: ${bytes(loaded)}, ${gbPerS(loaded, endNs - beginNs)}.`
      : "";
  return `${who}, for ${duration(endNs - beginNs)} from ${duration(beginNs)}. Times are sums over the ${unit(meta)}s.${read}`;
}

function heading(text: string, scope: "col" | "row"): HTMLTableCellElement {
  const cell = node("th", text);
  cell.scope = scope;
  return cell;
}
