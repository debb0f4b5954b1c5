// Glue: fetch or open a trace, show it, hand keys and buttons to the chart.

import { DARK, LIGHT, type Theme } from "./paint/palette";
import { TraceError } from "./trace/error";
import { traceFromFile } from "./trace/parse";
import { type Summary, summarized } from "./trace/summary";
import type { Trace } from "./trace/trace";
import { caveats, headline, unit } from "./trace/words";
import { Chart } from "./view/chart";
import { element } from "./view/dom";
import { commandFor, KEY_LIST } from "./view/keys";
import { showLegend } from "./view/legend";
import { showTables } from "./view/tables";

/** Left by `cargo xtask demo`. */
const TRACE_URL = "data/trace.json.gz";

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const theme = (): Theme => (dark.matches ? DARK : LIGHT);
const help = element("help", HTMLDialogElement);
const chart = new Chart(
  {
    axis: element("axis", HTMLCanvasElement),
    rows: element("rows", HTMLCanvasElement),
    stage: element("stage"),
    details: element("details"),
    sticky: element("sticky"),
  },
  theme(),
);
let shown: { trace: Trace; summary: Summary } | null = null;

function show(trace: Trace): void {
  const summary = summarized(trace);
  shown = { trace, summary };
  element("message").hidden = true;
  element("headline").textContent = headline(trace.meta, summary);
  element("caveats").textContent = caveats(trace.meta, summary);
  element("caveats").hidden = false;
  for (const word of document.querySelectorAll(".unit")) word.textContent = unit(trace.meta);
  element("chart").hidden = false;
  showLegend(element("legend"), trace.meta, summary, theme());
  streamsButton().hidden = summary.streams.length === 0;
  chart.show(trace);
  showTables(element("tables"), trace.meta, summary);
}

function streamsButton(): HTMLButtonElement {
  return element("streams", HTMLButtonElement);
}

/** Shows the streams of weights, or hides them, if the trace has any. */
function toggleStreams(): void {
  const button = streamsButton();
  if (button.hidden) return;
  const pressed = button.getAttribute("aria-pressed") !== "true";
  button.setAttribute("aria-pressed", String(pressed));
  chart.setStreams(pressed);
}

/** Says what went wrong; the trace shown before stays. */
function complain(...words: (string | Node)[]): void {
  const message = element("message");
  message.replaceChildren(...words);
  message.hidden = false;
  if (!shown) element("headline").textContent = "There is no trace to show yet.";
}

async function open(file: File): Promise<void> {
  try {
    show(await traceFromFile(new Uint8Array(await file.arrayBuffer())));
  } catch (error) {
    complain(`${file.name} was refused: ${reason(error)}.`);
  }
}

async function load(): Promise<void> {
  const response = await fetch(TRACE_URL).catch(() => null);
  if (!response?.ok) {
    complain("No trace was recorded here yet. Make one with ", code("cargo xtask demo"), ".");
    return;
  }
  // Servers that name the gzip as an encoding leave it to the browser, which may find it broken.
  const bytes = await response.arrayBuffer().catch(() => null);
  if (!bytes) {
    complain(
      `${TRACE_URL} did not arrive whole. Load the page again, or make it anew with `,
      code("cargo xtask demo"),
      ".",
    );
    return;
  }
  try {
    show(await traceFromFile(new Uint8Array(bytes)));
  } catch (error) {
    complain(
      `${TRACE_URL} was refused: ${reason(error)}. Make it anew with `,
      code("cargo xtask demo"),
      ".",
    );
  }
}

/** A refusal in its own words. Anything else is a mistake of this page, and is not hidden. */
function reason(error: unknown): string {
  if (error instanceof TraceError) return error.message;
  throw error;
}

function code(text: string): HTMLElement {
  const word = document.createElement("code");
  word.textContent = text;
  return word;
}

function listKeys(): void {
  for (const [keys, meaning] of KEY_LIST) {
    const term = document.createElement("dt");
    for (const key of keys) {
      const cap = document.createElement("kbd");
      cap.textContent = key;
      term.append(cap, " ");
    }
    const words = document.createElement("dd");
    words.textContent = meaning;
    element("keys").append(term, words);
  }
}

function listenToKeys(): void {
  document.addEventListener("keydown", (event) => {
    // An open dialog has the keyboard, Esc included; a file chooser or a text field as well.
    if (help.open || event.target instanceof HTMLInputElement) return;
    const inChart = document.activeElement === element("stage");
    const command = commandFor(event, inChart);
    if (!command || (!shown && command.do !== "help")) return;
    event.preventDefault();
    if (command.do === "help") help.showModal();
    else if (command.do === "streams") toggleStreams();
    else chart.run(command);
  });
}

function listenToButtons(): void {
  const actions: Record<string, () => void> = {
    "zoom-in": () => chart.run({ do: "zoom", factor: 2 }),
    "zoom-out": () => chart.run({ do: "zoom", factor: 1 / 2 }),
    fit: () => chart.run({ do: "fit" }),
    streams: toggleStreams,
    help: () => help.showModal(),
  };
  for (const button of document.querySelectorAll<HTMLButtonElement>("button[data-action]")) {
    button.addEventListener("click", () => actions[button.dataset.action ?? ""]?.());
  }
  help.addEventListener("click", (event) => {
    // The dialog's own box is covered by its content: a click on it is one beside it.
    if (event.target === help) help.close();
  });
}

function listenToFiles(): void {
  const chooser = element("file", HTMLInputElement);
  chooser.addEventListener("change", () => {
    const file = chooser.files?.[0];
    // Emptied, so that the same file can be chosen again after it was recorded anew.
    chooser.value = "";
    if (file) void open(file);
  });
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    document.body.classList.add("dropping");
  });
  document.addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) document.body.classList.remove("dropping");
  });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dropping");
    const file = event.dataTransfer?.files[0];
    if (file) void open(file);
  });
}

dark.addEventListener("change", () => {
  chart.setTheme(theme());
  if (shown) showLegend(element("legend"), shown.trace.meta, shown.summary, theme());
});
listKeys();
listenToKeys();
listenToButtons();
listenToFiles();
await load();
