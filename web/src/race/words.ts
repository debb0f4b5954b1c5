// The race in words.

import { count, modelName, share, signedShare, speed, theModel } from "../results/format";
import { variantName } from "../view/chooser";
import type { Lane, Race, Races } from "./data";
import { countAt, speedAt } from "./replay";

/** A lane's name: the variant's, with the engine's if it is not ours. */
export function laneName({ engine, variant }: Lane): string {
  return engine === "monolith" ? variantName(variant) : `${engine} ${variant}`;
}

/** A race in the list of races. */
export function raceName({ gpu, model, run }: Race): string {
  return `${modelName(model)}, ${gpu}, ${run}`;
}

export function ms(ns: number): string {
  const value = ns / 1e6;
  return `${count(value, value < 10 ? 2 : value < 1000 ? 1 : 0)}\u00a0ms`;
}

/** What is replayed: the model, which is no published one, and where and when it ran. */
export function lede(race: Race): [model: string, rest: string] {
  const { gpu, kind, model, run } = race;
  const where = kind === "cpu" ? `${gpu}: a CPU's speeds, not a GPU's` : gpu;
  return [
    capital(theModel(model)),
    `${OWN[model] ?? ""} on ${where}. All lanes are of one run, results/${run}.${unquiet(race)}`,
  ];
}

/** Runs of one prompt that differ by more than this are no verdict on the lanes. */
const QUIET = 0.1;

function unquiet(race: Race): string {
  const spread = spreadOf(race);
  if (spread <= QUIET) return "";
  return ` The machine was not quiet: runs of one prompt differ by up to ${share(spread)}, so who is first is no verdict.`;
}

/** How much longer the longest run of a prompt took than its shortest, at most, of all lanes. */
export function spreadOf({ prompts }: Race): number {
  const runs = prompts.flatMap(({ streams }) => streams.map(({ runsNs }) => runsNs));
  return Math.max(...runs.map((ns) => Math.max(...ns) / Math.min(...ns) - 1));
}

const OWN: Record<string, string> = {
  standin: ", not Qwen's weights,",
  tiny: ", a small one of our own whose text soon falls apart,",
};

function capital(words: string): string {
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** The replay's speed, as a person meets it. */
export function pace(share: number): string {
  if (share === 1) return "as fast as it was";
  return `${count(1 / share)} times slower than it was`;
}

/** Where every lane is. */
export function standing(lanes: Lane[], arrivals: Float64Array[], ns: number): string {
  const parts = lanes.map((lane, index) => {
    const at = arrivals[index] ?? new Float64Array();
    return `${laneName(lane)} ${count(countAt(at, ns))} of ${count(at.length)} tokens`;
  });
  return `${ms(ns)}: ${parts.join(", ")}`;
}

/** Text with a dot for each character that has no shape of its own, or would turn the line around. */
export function visible(text: string): string {
  // Joiners shape their neighbours in some scripts, and stay.
  return text.replaceAll(/[^\n\t\P{C}]/gu, (seen) => ("\u200c\u200d".includes(seen) ? seen : "·"));
}

/** How many tokens of a lane are there, or how long all of them took. */
export function progress(at: Float64Array, ns: number): string {
  const [there, end] = [countAt(at, ns), at.at(-1) ?? 0];
  if (there < at.length) return `${count(there)} of ${count(at.length)} tokens`;
  return `${count(there)} tokens in ${ms(end)}`;
}

/** Who was done first, and by how much; null before all are done. */
export function finish(lanes: Lane[], arrivals: Float64Array[], ns: number): string | null {
  const ends = arrivals.map((at) => at.at(-1) ?? 0);
  if (ends.length < 2 || ends.some((end) => end > ns)) return null;
  const first = Math.min(...ends);
  const lane = lanes[ends.indexOf(first)];
  const next = Math.min(...ends.filter((_, index) => index !== ends.indexOf(first)));
  if (!lane) return null;
  return `${laneName(lane)} was done first, after ${ms(first)}; the next one ${ms(next - first)} later.`;
}

/** Tokens per second so far. */
export function pacing(at: Float64Array, ns: number): string {
  return speed(speedAt(at, ns));
}

const CLOCKS: Record<string, string> = {
  "CUDA events": "by an event on the GPU after each launch",
  "monotonic clock": "by the host's clock after each step",
};

/** How the race was measured, and what is not in it. */
export function facts(race: Race, { missing }: Races): string[] {
  const { lanes, clock, absent } = race;
  const stream = race.prompts[0]?.streams[0];
  const tokens = stream?.pieces.length ?? 0;
  const costs = lanes.map(
    (lane) =>
      `${laneName(lane)} ${signedShare(lane.headlineTokS / lane.passTokS - 1)} a token against the ` +
      `benchmark's median of ${speed(lane.headlineTokS)} tokens/s`,
  );
  const passes = lanes[0]?.passPrompts ?? 0;
  const said = [
    `Each token's time was read ${CLOCKS[clock] ?? `by ${clock}`}, in a pass of its own over ` +
      `the benchmark's ${count(passes)} prompts. ${count(race.prompts.length)} of them are kept, ` +
      `each as the median of ${count(stream?.runsNs.length ?? 1)} runs, which differ by up to ` +
      `${share(spreadOf(race), 1)}. ` +
      `That pass took ${costs.join("; ")}.`,
    `Greedy decoding of ${count(tokens)} tokens a prompt. The first token comes with the prompt and ` +
      "is not timed; an end-of-text token ends nothing.",
    `Every lane passed its gate in the same run (${gates(lanes)}).`,
    "A dot stands for a character that cannot be seen.",
    "Tinted text is no longer the first lane's: from there on each lane goes on by itself.",
  ];
  if (absent.length > 0) said.push(`Not in this race: ${absent.join("; ")}.`);
  if (lanes.every(({ engine }) => engine === "monolith")) {
    said.push("No other engine was timed token by token in this run.");
  }
  return [...said, ...missing.map((line) => `${line}.`)];
}

function gates(lanes: Lane[]): string {
  const all = new Set(lanes.map(({ gate }) => gate));
  const [only] = all;
  if (all.size === 1 && only !== undefined) return only;
  return lanes.map((lane) => `${laneName(lane)}: ${lane.gate}`).join("; ");
}

/** How far a lane's text is the first lane's. */
export function agreement(agrees: number, tokens: number, first: Lane): string {
  if (agrees > tokens) return `same text as ${laneName(first)}`;
  if (agrees === 0) return `other text than ${laneName(first)}'s from the first token on`;
  return `same text as ${laneName(first)} for ${count(agrees)} tokens`;
}
