// The numbers behind the chart, for everybody and for those who cannot see it.

import { NO_BLOCK } from "../abi";
import type { Summary } from "../trace/summary";
import type { Meta } from "../trace/trace";
import { blockName, microseconds, percent, unit } from "../trace/words";

/** Rows of waits shown; the rest is one row. */
const WAIT_ROWS = 12;
/** From this token on, a second decimal is noise. */
const ONE_DECIMAL_NS = 1_000_000;

/** Microseconds with as many decimals all through the tables: they line up. */
function formatFor(meta: Meta): (ns: number) => string {
  const digits = meta.tokenNs < ONE_DECIMAL_NS ? 2 : 1;
  return (ns) => microseconds(ns, digits);
}

export function showTables(section: HTMLElement, meta: Meta, summary: Summary): void {
  section.replaceChildren(phases(meta, summary), ...waits(meta, summary));
  section.hidden = false;
}

function phases(meta: Meta, summary: Summary): HTMLElement {
  const us = formatFor(meta);
  const most = `max ${unit(meta)}`;
  const share = (ns: number) => percent(ns, summary.availableNs);
  const rows = summary.phases.map(({ phase, workNs, workMaxNs, waitNs, waitMaxNs }) => [
    phase,
    ...[workNs, workMaxNs, waitNs, waitMaxNs].map(us),
    share(waitNs),
  ]);
  const { workNs, waitNs } = summary;
  const total = ["together", us(workNs), "", us(waitNs), "", share(waitNs)];
  const caption =
    `All ${unit(meta)}s together, and the most of any one ${unit(meta)}. A wait counts for the phase whose values were waited for. ` +
    `Work is ${share(workNs)} of the ${unit(meta)}s' time, waits ${share(waitNs)}, ` +
    `and ${share(summary.unrecordedNs)} is not recorded.`;
  const head = ["phase", "work µs", most, "wait µs", most, "wait share"];
  return titled("Time by phase", table(caption, head, [...rows, total]));
}

function waits(meta: Meta, summary: Summary): HTMLElement[] {
  if (summary.waits.length === 0) return [];
  const us = formatFor(meta);
  const shown = summary.waits
    .slice(0, WAIT_ROWS)
    .map((wait) => [
      wait.producer === NO_BLOCK
        ? wait.phase
        : `${wait.phase} from ${blockName(meta, wait.producer)}`,
      String(wait.waits),
      us(wait.totalNs),
      us(wait.longestNs),
    ]);
  const rest = summary.waits.slice(WAIT_ROWS);
  const restNs = rest.reduce((sum, wait) => sum + wait.totalNs, 0);
  if (rest.length > 0) shown.push([`${rest.length} more`, "", us(restNs), ""]);
  const caption = `Named after the ${unit(meta)} whose value arrived last; costliest first.`;
  const head = ["waits for", "waits", "together µs", "longest µs"];
  return [titled("Who was waited for", table(caption, head, shown))];
}

function titled(title: string, content: HTMLElement): HTMLElement {
  const heading = document.createElement("h2");
  heading.textContent = title;
  const block = document.createElement("div");
  block.append(heading, content);
  return block;
}

function table(caption: string, head: string[], rows: string[][]): HTMLElement {
  const element = document.createElement("table");
  element.createCaption().textContent = caption;
  element.createTHead().append(row(head, () => ["th", "col"]));
  const body = element.createTBody();
  for (const cells of rows)
    body.append(row(cells, (column) => (column === 0 ? ["th", "row"] : ["td", ""])));
  const scroller = document.createElement("div");
  scroller.className = "scroller";
  scroller.tabIndex = 0;
  scroller.append(element);
  return scroller;
}

function row(cells: string[], kindOf: (column: number) => [string, string]): HTMLTableRowElement {
  const line = document.createElement("tr");
  cells.forEach((text, column) => {
    const [tag, scope] = kindOf(column);
    const cell = document.createElement(tag);
    if (scope !== "") cell.setAttribute("scope", scope);
    cell.textContent = text;
    line.append(cell);
  });
  return line;
}
