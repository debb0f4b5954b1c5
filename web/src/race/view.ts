// The race as a person sees and steers it.

import { classed, element, node } from "../view/dom";
import { copyLink } from "../view/share";
import type { RacePlace } from "./address";
import type { Prompt, Race, Races } from "./data";
import {
  advanced,
  arrivals,
  countAt,
  endOf,
  marks,
  nextToken,
  nsAt,
  SPEEDS,
  type Speed,
  sliderAt,
  sliderEnd,
  tokenBefore,
  written,
} from "./replay";
import { skyline } from "./skyline";
import {
  agreement,
  facts,
  finish,
  laneName,
  lede,
  ms,
  pace,
  pacing,
  progress,
  raceName,
  standing,
  visible,
} from "./words";

/** Tokens that a page key moves by. */
const PAGE = 16;
/** Colours of lanes, as in the sheet; more lanes begin again. */
const COLOURS = 4;
const PROMPT_CHARS = 46;
/** The end of a long prompt is what a stream goes on from. */
const TAIL_CHARS = 260;

/** The parts of a lane that change while it runs. */
interface Runner {
  at: Float64Array;
  speed: HTMLElement;
  count: HTMLElement;
  row: HTMLElement;
  text: HTMLElement;
  same: HTMLElement;
  own: HTMLElement;
  ahead: HTMLElement;
}

export class RaceView {
  private race: Race;
  private prompt: Prompt;
  private runners: Runner[] = [];
  private ns = 0;
  private endNs = 0;
  private speed: Speed = SPEEDS[0];
  /** The frame that is asked for while it plays; 0: it stands. */
  private frame = 0;
  private frameAt = 0;
  private readonly still = window.matchMedia("(prefers-reduced-motion: reduce)");

  constructor(
    private readonly all: Races,
    first: Race,
    private readonly moved: () => void,
  ) {
    this.race = first;
    this.prompt = promptOf(first, null);
    this.fillLists();
    this.listen();
    this.followMotion();
    this.show();
  }

  /** Where the replay is, for the address. */
  place(): RacePlace {
    const { run, model } = this.race;
    const atNs = this.ns >= this.endNs ? null : Math.round(this.ns);
    return { run, model, prompt: this.prompt.prompt, atNs, speed: this.speed };
  }

  /** Goes where an address says; what it does not name or what is not here stays. */
  goTo({ run, model, prompt, atNs, speed }: RacePlace): boolean {
    const race = this.all.races.find((race) => race.run === run && race.model === model);
    if (!race) return false;
    this.pause();
    this.race = race;
    this.prompt = promptOf(race, prompt);
    if (speed !== null) this.speed = speed;
    this.show();
    if (atNs !== null) this.seek(atNs);
    return true;
  }

  private fillLists(): void {
    const { races } = this.all;
    const chooser = element("race-of", HTMLSelectElement);
    chooser.replaceChildren(...races.map((race) => new Option(raceName(race))));
    element("race-which").hidden = races.length < 2;
    element("race-speeds").replaceChildren(
      ...SPEEDS.map((speed) => {
        const button = node("button", `${speed}×`);
        button.type = "button";
        button.title = `Replay ${pace(speed)}`;
        button.setAttribute("aria-label", `Replay ${speed}×, ${pace(speed)}`);
        button.addEventListener("click", () => {
          this.speed = speed;
          this.showSpeed();
          this.moved();
        });
        return button;
      }),
    );
  }

  /** Shows race and prompt as they ended: a text can be read before anything is played. */
  private show(): void {
    const { race, prompt } = this;
    element("race-of", HTMLSelectElement).selectedIndex = this.all.races.indexOf(race);
    const [model, rest] = lede(race);
    element("race-lede").replaceChildren(node("b", model), rest);
    const prompts = element("race-prompt", HTMLSelectElement);
    prompts.replaceChildren(...race.prompts.map(({ text }) => new Option(shortened(text))));
    prompts.selectedIndex = race.prompts.indexOf(prompt);
    const [tail, whole] = [element("race-tail"), element("race-whole")];
    const isLong = prompt.text.length > TAIL_CHARS;
    tail.textContent = visible(isLong ? `… ${prompt.text.slice(-TAIL_CHARS)}` : prompt.text);
    element("race-more").hidden = !isLong;
    whole.textContent = visible(prompt.text);
    const lanes = prompt.streams.map(({ ns }) => arrivals(ns));
    this.endNs = endOf(lanes);
    this.ns = this.endNs;
    this.runners = lanes.map((at, index) => this.runner(at, index));
    element("race-rows").replaceChildren(...this.runners.map(({ row }) => row));
    element("race-texts").replaceChildren(...this.runners.map(({ text }) => text));
    element("race-facts").replaceChildren(...facts(race, this.all).map((fact) => node("li", fact)));
    this.showAxis();
    this.showSpeed();
    this.paint();
    this.say();
  }

  private runner(at: Float64Array, index: number): Runner {
    const { lanes } = this.race;
    const [lane, first, stream] = [lanes[index], lanes[0], this.prompt.streams[index]];
    if (!lane || !first || !stream) throw new Error("a race has a stream for each lane");
    const colour = `lane s${index % COLOURS}`;
    const [speed, count] = [node("b"), node("small")];
    const row = classed(
      "div",
      colour,
      classed("div", "lane-name", laneName(lane)),
      classed("div", "lane-track", ...drawings(stream.ns, this.endNs)),
      classed("div", "lane-count", speed, " tokens/s ", count),
    );
    const [same, own, ahead] = [node("span"), classed("span", "own"), classed("span", "ahead")];
    ahead.setAttribute("aria-hidden", "true");
    const note = index === 0 ? "" : agreement(stream.agrees, stream.pieces.length, first);
    const body = classed("p", "lane-text", same, own, classed("i", "caret"), ahead);
    body.tabIndex = 0;
    body.setAttribute("role", "region");
    body.setAttribute("aria-label", `Text of ${laneName(lane)}`);
    const head = node("header", classed("b", "", laneName(lane)), classed("small", "", note));
    return {
      at,
      speed,
      count,
      row,
      text: classed("article", colour, head, body),
      same,
      own,
      ahead,
    };
  }

  private showAxis(): void {
    const times = marks(this.endNs, 6);
    const labels = times.map((ns) => {
      const label = node("span", ns === 0 ? "0" : ms(ns).replace(/\.0+(?=\D)/, ""));
      label.style.left = `${(100 * ns) / this.endNs}%`;
      return label;
    });
    // A label near the right edge would leave the drawing.
    element("race-axis").replaceChildren(
      ...labels.filter((_, index) => (times[index] ?? 0) <= 0.87 * this.endNs),
    );
    const course = element("race-course");
    course.style.setProperty("--step", `${(100 * (times[1] ?? this.endNs)) / this.endNs}%`);
    element("race-at", HTMLInputElement).max = String(sliderEnd(this.endNs));
  }

  private showSpeed(): void {
    const buttons = element("race-speeds").querySelectorAll("button");
    for (const [index, button] of [...buttons].entries()) {
      button.setAttribute("aria-pressed", String(SPEEDS[index] === this.speed));
    }
  }

  /** Shows the time that the replay stands at. */
  private paint(): void {
    const { ns, endNs } = this;
    element("race-course").style.setProperty("--at", `${((100 * ns) / endNs).toFixed(3)}%`);
    const slider = element("race-at", HTMLInputElement);
    slider.value = String(sliderAt(ns, endNs));
    const at = this.runners.map((runner) => runner.at);
    slider.setAttribute("aria-valuetext", standing(this.race.lanes, at, ns));
    element("race-time").textContent = ms(ns);
    const firstEnd = Math.min(...at.map((own) => own.at(-1) ?? 0));
    for (const [index, runner] of this.runners.entries()) {
      const stream = this.prompt.streams[index];
      if (!stream) continue;
      const { same, own, ahead } = written(stream, countAt(runner.at, ns));
      runner.speed.textContent = pacing(runner.at, ns);
      runner.count.textContent = progress(runner.at, ns);
      [runner.same.textContent, runner.own.textContent] = [visible(same), visible(own)];
      runner.ahead.textContent = visible(ahead);
      const end = runner.at.at(-1) ?? 0;
      runner.row.classList.toggle("won", end <= ns && end === firstEnd && this.runners.length > 1);
      runner.text.classList.toggle("done", end <= ns);
    }
  }

  /** Says where the replay stands: not while it plays, which would never end. */
  private say(): void {
    const at = this.runners.map((runner) => runner.at);
    const { lanes } = this.race;
    const words = finish(lanes, at, this.ns) ?? `${standing(lanes, at, this.ns)}.`;
    element("race-said").textContent = words;
  }

  private seek(ns: number): void {
    this.ns = Math.min(Math.max(ns, 0), this.endNs);
    this.paint();
    for (const { text } of this.runners) keepInSight(text);
    if (this.frame === 0) this.say();
  }

  /** Seeks by hand: pauses, and the address follows. */
  private seekByHand(ns: number): void {
    this.pause();
    this.seek(ns);
    this.moved();
  }

  private stepTokens(tokens: number): void {
    const at = this.runners.map((runner) => runner.at);
    const step = tokens > 0 ? nextToken : tokenBefore;
    let ns = this.ns;
    for (let left = Math.abs(tokens); left > 0; left--) ns = step(at, ns);
    this.seekByHand(ns);
  }

  private play(): void {
    if (this.ns >= this.endNs) this.seek(0);
    element("race-said").textContent = "";
    this.frameAt = performance.now();
    const next = (now: number) => {
      this.seek(advanced(this.ns, now - this.frameAt, this.speed, this.endNs));
      this.frameAt = now;
      if (this.ns < this.endNs) this.frame = requestAnimationFrame(next);
      else this.pause();
    };
    this.frame = requestAnimationFrame(next);
    this.showPlaying();
  }

  private pause(): void {
    if (this.frame === 0) return;
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.showPlaying();
    this.say();
    this.moved();
  }

  private showPlaying(): void {
    const plays = this.frame !== 0;
    const button = element("race-play");
    button.textContent = plays ? "Pause" : "Play";
    button.classList.toggle("plays", plays);
    element("race").classList.toggle("plays", plays);
  }

  /** Whoever asked for less motion steps by token. */
  private followMotion(): void {
    const still = this.still.matches;
    if (still) this.pause();
    for (const id of ["race-play", "race-speeds"]) element(id).hidden = still;
    element("race-still").hidden = !still;
  }

  private listen(): void {
    element("race-play").addEventListener("click", () => {
      if (this.frame === 0) this.play();
      else this.pause();
    });
    element("race-back").addEventListener("click", () => this.stepTokens(-1));
    element("race-next").addEventListener("click", () => this.stepTokens(1));
    element("race-begin").addEventListener("click", () => this.seekByHand(0));
    element("race-link").addEventListener("click", () => void this.link());
    const slider = element("race-at", HTMLInputElement);
    slider.addEventListener("input", () => this.seekByHand(nsAt(Number(slider.value), this.endNs)));
    slider.addEventListener("keydown", (event) => this.key(event));
    element("race-of", HTMLSelectElement).addEventListener("change", (event) => {
      const { selectedIndex } = event.target as HTMLSelectElement;
      const race = this.all.races[selectedIndex];
      if (race) this.choose(race, promptOf(race, this.prompt.prompt));
    });
    element("race-prompt", HTMLSelectElement).addEventListener("change", (event) => {
      const { selectedIndex } = event.target as HTMLSelectElement;
      this.choose(this.race, this.race.prompts[selectedIndex] ?? this.prompt);
    });
    this.still.addEventListener("change", () => this.followMotion());
  }

  private choose(race: Race, prompt: Prompt): void {
    this.pause();
    [this.race, this.prompt] = [race, prompt];
    this.show();
    this.moved();
  }

  /** On the slider: arrows go from token to token. */
  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const tokens: Record<string, number> = {
      ...{ ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 },
      ...{ PageUp: PAGE, PageDown: -PAGE },
    };
    const step = tokens[event.key];
    if (step !== undefined) this.stepTokens(step);
    else if (event.key === "Home") this.seekByHand(0);
    else if (event.key === "End") this.seekByHand(this.endNs);
    else return;
    event.preventDefault();
  }

  private async link(): Promise<void> {
    this.moved();
    const copied = await copyLink(window.location.href);
    element("race-said").textContent = copied
      ? "Link copied: it opens this prompt at this token."
      : "The browser did not allow copying: the address bar has the link.";
  }
}

function promptOf(race: Race, number: number | null): Prompt {
  const named = race.prompts.find(({ prompt }) => prompt === number) ?? race.prompts[0];
  if (!named) throw new Error("a race has a prompt");
  return named;
}

function shortened(text: string): string {
  const line = text.replaceAll(/\s+/g, " ").trim();
  return line.length <= PROMPT_CHARS ? line : `${line.slice(0, PROMPT_CHARS)}…`;
}

/** The lane's drawing twice: what is to come, and over it what has been. */
function drawings(ns: number[], endNs: number): SVGElement[] {
  const path = skyline(ns, endNs);
  return ["to-come", "been"].map((name) => {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const drawn = document.createElementNS("http://www.w3.org/2000/svg", "path");
    svg.setAttribute("class", name);
    svg.setAttribute("viewBox", "0 0 1000 100");
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    drawn.setAttribute("d", path);
    svg.append(drawn);
    return svg;
  });
}

/** Scrolls a text that is higher than its box to its last line; no line is cut. */
function keepInSight(article: HTMLElement): void {
  const body = article.querySelector<HTMLElement>(".lane-text");
  const caret = article.querySelector<HTMLElement>(".caret");
  if (!body || !caret || body.scrollHeight <= body.clientHeight) return;
  const { lineHeight, paddingTop } = getComputedStyle(body);
  const [line, pad] = [Number.parseFloat(lineHeight), Number.parseFloat(paddingTop)];
  const lines = Math.floor((body.clientHeight - pad) / line);
  const row = Math.round((caret.offsetTop - pad) / line);
  body.scrollTop = row < lines ? 0 : pad + (row - lines + 1) * line;
}
