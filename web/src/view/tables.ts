// The chart's numbers as tables, also for readers who cannot see the chart.

import { NO_BLOCK } from "../abi";
import type { StreamTime, Summary } from "../trace/summary";
import type { Meta } from "../trace/trace";
import {
  blockOnSm,
  duration,
  megabytes,
  microseconds,
  percent,
  unit,
  waitMeaning,
} from "../trace/words";

/** Rows of waits shown; the rest is one row. */
const WAIT_ROWS = 12;
/** For tokens at least this long, a second decimal is noise. */
const ONE_DECIMAL_NS = 1_000_000;

/** Microseconds with the same number of decimals in all tables, so that they line up. */
function formatFor(meta: Meta): (ns: number) => string {
  const digits = meta.tokenNs < ONE_DECIMAL_NS ? 2 : 1;
  return (ns) => microseconds(ns, digits);
}

export function showTables(section: HTMLElement, meta: Meta, summary: Summary): void {
  section.replaceChildren(
    phases(meta, summary),
    ...kinds(meta, summary),
    ...waits(meta, summary),
    ...streams(meta, summary),
  );
  section.hidden = false;
}

function phases(meta: Meta, summary: Summary): HTMLElement {
  const us = formatFor(meta);
  const most = `max ${unit(meta)}`;
  const share = (ns: number) => percent(ns, summary.availableNs);
  const read = [...meta.phaseBytes.values()].reduce((sum, count) => sum + count, 0);
  // Without byte counts there is no column for them.
  const withBytes = (cells: string[], bytes: string) => (read > 0 ? [...cells, bytes] : cells);
  const rows = summary.phases.map(({ phase, workNs, workMaxNs, waitNs, waitMaxNs }) => {
    const bytes = meta.phaseBytes.get(phase);
    const times = [workNs, workMaxNs, waitNs, waitMaxNs].map(us);
    return withBytes([phase, ...times, share(waitNs)], bytes ? megabytes(bytes) : "");
  });
  const { workNs, waitNs } = summary;
  const total = ["total", us(workNs), "", us(waitNs), "", share(waitNs)];
  const caption =
    `Sums over all ${unit(meta)}s, and the maximum of one ${unit(meta)}. A wait counts for the phase whose values or weights it waits for. ` +
    `Work is ${share(workNs)} of the ${unit(meta)}s' time, waits ${share(waitNs)}, ` +
    `and ${share(summary.unrecordedNs)} is not recorded.${rate(meta, read)}`;
  const head = ["phase", "work µs", most, "wait µs", most, "wait share"];
  return titled(
    "Time by phase",
    table(caption, withBytes(head, "read MB"), [...rows, withBytes(total, megabytes(read))]),
  );
}

/** Bytes over the whole token: a rate that needs no explanation. */
function rate(meta: Meta, bytes: number): string {
  if (bytes === 0 || meta.tokenNs === 0) return "";
  const gbPerS = (bytes / meta.tokenNs).toLocaleString("en", { maximumFractionDigits: 1 });
  return ` ${megabytes(bytes)}\u00a0MB in ${duration(meta.tokenNs)} are ${gbPerS}\u00a0GB/s.`;
}

function kinds(meta: Meta, summary: Summary): HTMLElement[] {
  if (summary.kinds.length === 0) return [];
  const us = formatFor(meta);
  const share = (ns: number) => percent(ns, summary.availableNs);
  const rows = summary.kinds.map(({ kind, waits, totalNs, longestNs }) => [
    waitMeaning(meta, kind),
    waits.toLocaleString("en"),
    us(totalNs),
    us(longestNs),
    share(totalNs),
  ]);
  const lost = ["not recorded", "", us(summary.unrecordedNs), "", share(summary.unrecordedNs)];
  const handOff = percent(summary.handOffNs, summary.layersNs);
  const layers = `the layers' time, from the first qkv to the last down`;
  const caption =
    `Sums over all ${unit(meta)}s.` +
    (summary.layersNs > 0
      ? ` Waits for another ${unit(meta)}'s values, the hand-offs, are ${handOff} of ${layers}.`
      : "");
  const head = ["waits for", "waits", "total µs", "longest µs", "share"];
  return [titled("Waits by kind", table(caption, head, [...rows, lost]))];
}

function waits(meta: Meta, summary: Summary): HTMLElement[] {
  if (summary.waits.length === 0) return [];
  const us = formatFor(meta);
  const shown = summary.waits
    .slice(0, WAIT_ROWS)
    .map((wait) => [
      wait.producer === NO_BLOCK
        ? `${wait.phase}, there at the first poll`
        : `${wait.phase} from ${blockOnSm(meta, wait.producer)}`,
      wait.waits.toLocaleString("en"),
      us(wait.totalNs),
      us(wait.longestNs),
    ]);
  const rest = summary.waits.slice(WAIT_ROWS);
  const restNs = rest.reduce((sum, wait) => sum + wait.totalNs, 0);
  if (rest.length > 0) shown.push([`${rest.length} more`, "", us(restNs), ""]);
  const caption = `A wait counts for the ${unit(meta)} whose value arrived last. Costliest first.`;
  const head = ["waits for", "waits", "total µs", "longest µs"];
  return [titled("Waits by producer", table(caption, head, shown))];
}

function streams(meta: Meta, summary: Summary): HTMLElement[] {
  if (summary.streams.length === 0) return [];
  const us = formatFor(meta);
  const rows = summary.streams.map((time) => [
    time.phase,
    time.streams.toLocaleString("en"),
    time.copies.toLocaleString("en"),
    megabytes(time.bytes),
    us(time.flightNs / time.streams),
    lead(time, us),
  ]);
  const caption =
    `A stream is what one ${unit(meta)} loads for one phase of one layer. In flight: from the ` +
    "first copy's issue to the last copy's arrival. Ahead: from that issue to the first work on " +
    "the stream. Both are means.";
  const head = ["weights of", "streams", "copies", "MB", "in flight µs", "ahead µs"];
  return [titled("Weights in flight", table(caption, head, rows))];
}

function lead({ used, leadNs }: StreamTime, us: (ns: number) => string): string {
  return used === 0 ? "" : us(leadNs / used);
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
