// Glue: read the chosen trace, show it, hand keys and buttons to the chart.

import { DARK, LIGHT, type Theme } from "./paint/palette";
import { TraceError } from "./trace/error";
import { fileInHash, hashFor } from "./trace/list";
import { traceFromFile } from "./trace/parse";
import { type Summary, summarized } from "./trace/summary";
import type { Trace } from "./trace/trace";
import { caveats, headline, unit } from "./trace/words";
import { BesideError, listBeside, RECORDED, recordedBeside, traceBeside } from "./view/beside";
import { Chart } from "./view/chart";
import { Chooser, type Entry } from "./view/chooser";
import { element } from "./view/dom";
import { commandFor, KEY_LIST } from "./view/keys";
import { showLegend } from "./view/legend";
import { showTables } from "./view/tables";

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
const chooser = new Chooser(
  { choice: element("choice"), select: element("trace", HTMLSelectElement) },
  (entry) => void choose(entry),
);
let shown: { entry: Entry; trace: Trace; summary: Summary } | null = null;
/** Number of choices so far: a trace that arrives after a newer choice is dropped. */
let choices = 0;

/** Reads a trace and shows it; if the trace is refused, the previous one stays. */
async function choose(entry: Entry): Promise<void> {
  const choice = ++choices;
  chooser.mark(entry);
  element("loading").textContent = `Reading ${entry.title}…`;
  try {
    const trace = await entry.read();
    if (choice !== choices) return;
    chooser.add(entry);
    chooser.mark(entry);
    show(entry, trace);
  } catch (error) {
    if (choice !== choices) return;
    chooser.mark(shown?.entry ?? null);
    complain(error);
  } finally {
    if (choice === choices) element("loading").textContent = "";
  }
}

function show(entry: Entry, trace: Trace): void {
  const summary = summarized(trace);
  keepInAddress(entry);
  shown = { entry, trace, summary };
  document.title = `${entry.title} · monolith X-ray`;
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

/** Shows or hides the weight streams, if the trace has any. */
function toggleStreams(): void {
  const button = streamsButton();
  if (button.hidden) return;
  const pressed = button.getAttribute("aria-pressed") !== "true";
  button.setAttribute("aria-pressed", String(pressed));
  chart.setStreams(pressed);
}

/** Puts the file shown into the address. The first one goes there only to replace another. */
function keepInAddress({ file }: Entry): void {
  const { hash, pathname, search } = window.location;
  if (fileInHash(hash) === (shown ? file : null)) return;
  history.replaceState(null, "", file === null ? pathname + search : hashFor(file));
}

/** Says why a trace was refused. Any other error is a bug of the page and is thrown again. */
function complain(error: unknown): void {
  if (!(error instanceof TraceError)) throw error;
  const message = element("message");
  message.replaceChildren(`${error.message}.`);
  if (error instanceof BesideError) {
    message.append(` ${error.remedy} `, code("cargo xtask demo"), ".");
  }
  message.hidden = false;
  if (!shown) element("headline").textContent = "There is no trace to show yet.";
}

/** Shows a file from the user's disk and adds it to the list of traces. */
async function open(file: File): Promise<void> {
  const read = async () => {
    const bytes = await file.arrayBuffer().catch(() => null);
    if (!bytes) throw new TraceError(`${file.name} cannot be read any more: open it again`);
    try {
      return await traceFromFile(new Uint8Array(bytes));
    } catch (error) {
      if (!(error instanceof TraceError)) throw error;
      throw new TraceError(`${file.name} was refused: ${error.message}`);
    }
  };
  await choose({ title: `${file.name}, opened here`, file: null, read });
}

/** Shows the trace that the address names, or else the first. */
async function begin(): Promise<void> {
  const list = await listBeside();
  if (!list) {
    await choose({ ...RECORDED, read: recordedBeside });
    return;
  }
  const entries = list.map((listed) => ({ ...listed, read: () => traceBeside(listed.file) }));
  chooser.add(...entries);
  const [first] = entries;
  const file = fileInHash(window.location.hash);
  const entry = file === null ? first : chooser.named(file);
  if (entry) await choose(entry);
  else if (first) {
    await choose(first);
    complain(notHere());
  }
}

function followAddress(): void {
  const file = fileInHash(window.location.hash);
  if (file === null || file === shown?.entry.file) return;
  const entry = chooser.named(file);
  if (entry) void choose(entry);
  else complain(notHere());
}

function notHere(): TraceError {
  return new TraceError("The trace that the address names is not available here");
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
    // An open dialog or an input field keeps the keyboard, Esc included.
    const { target } = event;
    const inField = target instanceof HTMLInputElement || target instanceof HTMLSelectElement;
    if (help.open || inField) return;
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
    // The content covers the dialog's box, so a click on the dialog itself is outside the content.
    if (event.target === help) help.close();
  });
}

function listenToFiles(): void {
  const chooser = element("file", HTMLInputElement);
  chooser.addEventListener("change", () => {
    const file = chooser.files?.[0];
    // Cleared, so that the same file can be chosen again after a new recording.
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
window.addEventListener("hashchange", followAddress);
await begin().catch(complain);
