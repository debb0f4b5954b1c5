// Buttons, keys and the search field, handed to the chart.

import { found } from "../trace/find";
import type { Trace } from "../trace/trace";
import type { Chart } from "./chart";
import { element, node } from "./dom";
import { type Command, commandFor, KEY_LIST } from "./keys";

export interface ToolbarPage {
  trace(): Trace | null;
  /** Does what a button named `data-action` asks for beyond the chart. */
  act(action: string): void;
}

const help = () => element("help", HTMLDialogElement);
const field = () => element("find", HTMLInputElement);

export class Toolbar {
  constructor(
    private readonly chart: Chart,
    private readonly page: ToolbarPage,
  ) {
    listKeys();
    this.listenToKeys();
    this.listenToButtons();
    this.listenToSearch();
  }

  /** Fits the buttons to a trace, and searches it. */
  show(trace: Trace): void {
    element("streams").hidden = trace.streams.block.length === 0;
    element("path").hidden = trace.path === null;
    element("layers").hidden = trace.meta.layers === 0;
    this.search();
    this.follow();
  }

  /** Names the layer in the middle of the view. */
  follow(): void {
    const layer = this.chart.layer();
    element("layer").textContent = this.chart.isCrowded() ? "All layers" : `Layer ${layer}`;
  }

  /** Puts a query into the search field; the query that is there already is taken away. */
  find(query: string): void {
    field().value = field().value === query ? "" : query;
    this.search();
  }

  private run(command: Command): void {
    if (command.do === "help") help().showModal();
    else if (command.do === "find") field().focus();
    else if (command.do === "streams" || command.do === "path" || command.do === "select") {
      this.toggle(command.do);
    } else this.chart.run(command);
  }

  private toggle(what: "streams" | "path" | "select"): void {
    const button = element(what, HTMLButtonElement);
    if (button.hidden) return;
    const pressed = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(pressed));
    if (what === "streams") this.chart.setStreams(pressed);
    else if (what === "path") this.chart.setPath(pressed);
    else this.chart.setSelects(pressed);
  }

  private listenToKeys(): void {
    document.addEventListener("keydown", (event) => {
      // An open dialog or an input field keeps the keyboard, Esc included.
      const { target } = event;
      const inField = target instanceof HTMLInputElement || target instanceof HTMLSelectElement;
      if (help().open || inField) return;
      const inChart = document.activeElement === element("stage");
      const command = commandFor(event, inChart);
      if (!command || (!this.page.trace() && command.do !== "help")) return;
      event.preventDefault();
      this.run(command);
    });
  }

  private listenToButtons(): void {
    const actions: Record<string, Command> = {
      "zoom-in": { do: "zoom", factor: 2 },
      "zoom-out": { do: "zoom", factor: 1 / 2 },
      fit: { do: "fit" },
      "layer-before": { do: "layer", step: -1 },
      "layer-after": { do: "layer", step: 1 },
      layer: { do: "layer", step: 0 },
      streams: { do: "streams" },
      path: { do: "path" },
      select: { do: "select" },
      help: { do: "help" },
    };
    for (const button of document.querySelectorAll<HTMLButtonElement>("button[data-action]")) {
      const name = button.dataset.action ?? "";
      const command = actions[name];
      button.addEventListener("click", () => {
        if (command) this.run(command);
        else this.page.act(name);
      });
    }
    help().addEventListener("click", (event) => {
      // The content covers the dialog's box, so a click on the dialog itself is outside the content.
      if (event.target === help()) help().close();
    });
  }

  private listenToSearch(): void {
    field().addEventListener("input", () => this.search());
    field().addEventListener("keydown", (event) => {
      if (event.key === "Enter") {
        event.preventDefault();
        this.chart.stepFound(event.shiftKey ? -1 : 1);
      } else if (event.key === "Escape") {
        field().value = "";
        this.search();
        element("stage").focus();
      }
    });
  }

  private search(): void {
    const trace = this.page.trace();
    if (!trace) return;
    const result = found(trace, field().value);
    this.chart.setFound(result);
    const said = element("found");
    if (!result) said.textContent = "";
    else if (result.unknown.length > 0) {
      said.textContent = `no such thing: ${result.unknown.join(", ")}`;
    } else said.textContent = `${result.count.toLocaleString("en")} spans`;
  }
}

function listKeys(): void {
  for (const [keys, meaning] of KEY_LIST) {
    const caps = keys.flatMap((key) => [node("kbd", key), " "]);
    element("keys").append(node("dt", ...caps), node("dd", meaning));
  }
}
