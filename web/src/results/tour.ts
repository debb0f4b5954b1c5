// The code tour: what the build cut from the kernel's sources, with notes beside it.

import { TOUR } from "virtual:tour";
import { classed, node } from "../view/dom";

/** Text, and what it is if it is not plain code. */
export type Token = [text: string, kind?: "word" | "comment"];

export interface Note {
  /** Line of the cut, from 0. */
  line: number;
  says: string;
}

export interface Stop {
  title: string;
  lead: string;
  /** Below crates/kernels/cu/. */
  file: string;
  /** Line of the file, from 1, with which the cut begins. */
  firstLine: number;
  code: Token[][];
  notes: Note[];
  find: string;
  finds: string;
}

/** Shows every stop; `find` searches the chart and goes there. */
export function showTour(section: HTMLElement, find: (query: string) => void): void {
  section.append(...TOUR.map((stop) => article(stop, find)));
}

function article(stop: Stop, find: (query: string) => void): HTMLElement {
  const code = classed(
    "code",
    "source",
    ...stop.code.map((tokens, line) => {
      const number = stop.notes.findIndex((note) => note.line === line);
      const mark = number < 0 ? [] : [classed("span", "mark", String(number + 1))];
      const row = classed("span", number < 0 ? "line" : "line noted", ...mark);
      row.append(
        ...tokens.map(([text, kind]) => (kind ? classed("span", kind, text) : text)),
        "\n",
      );
      return row;
    }),
  );
  const pre = node("pre", code);
  pre.tabIndex = 0;
  pre.setAttribute("role", "region");
  pre.setAttribute("aria-label", `Source: ${stop.file}`);
  const button = node("button", `Show ${stop.finds}`);
  button.type = "button";
  button.addEventListener("click", () => find(stop.find));
  const last = stop.firstLine + stop.code.length - 1;
  const where = `crates/kernels/cu/${stop.file}, lines ${stop.firstLine} to ${last}`;
  const notes = node("ol", ...stop.notes.map(({ says }) => node("li", says)));
  return classed(
    "article",
    "stop",
    node("h3", stop.title),
    node("p", stop.lead),
    classed(
      "div",
      "beside",
      node("div", pre, classed("p", "quiet", where)),
      node("div", notes, button),
    ),
  );
}
