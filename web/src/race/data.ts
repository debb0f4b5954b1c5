// The token streams beside the page, as `monolith report --race` writes them, checked.

import { TraceError } from "../trace/error";
import { array, integer, isWhole, object, positive, text } from "../trace/values";

const SCHEMA = "monolith-race/1";
/** Longest time of one token, in ns: an hour. A stream of them is exact as a float64. */
const TOKEN_NS_MAX = 3_600_000_000_000;
const TOKENS_MAX = 1_000_000;

/** One engine in a race. */
export interface Lane {
  engine: string;
  variant: string;
  format: string;
  gate: string;
  /** Tokens per second of the whole pass in which every token was timed, over this many prompts. */
  passTokS: number;
  passPrompts: number;
  /** The benchmark's median, of runs in which only the whole was timed. */
  headlineTokS: number;
}

/** What one lane wrote after one prompt. */
export interface Stream {
  /** Text of the token that the prompt itself gives, which is not timed. */
  first: string;
  /** The text that each token completes; empty for a token that ends inside a character. */
  pieces: string[];
  /** Nanoseconds of each token, from the one before. */
  ns: number[];
  /** The whole time of each run, of which this is the median. */
  runsNs: number[];
  /** Tokens that are the first lane's, from the prompt's own token on. */
  agrees: number;
}

export interface Prompt {
  prompt: number;
  text: string;
  /** One for each lane. */
  streams: Stream[];
}

/** Streams of one measuring run on one processor: no lane names a run of its own. */
export interface Race {
  run: string;
  date: string;
  kind: string;
  gpu: string;
  model: string;
  test: string;
  clock: string;
  lanes: Lane[];
  prompts: Prompt[];
  /** Which engines of the same run do not race, and why. */
  absent: string[];
}

export interface Races {
  races: Race[];
  /** Processors without a race, and why. */
  missing: string[];
}

/** Checks the parsed JSON. */
export function racesFrom(value: unknown): Races {
  const file = object(value, "the races", ["schema", "races", "missing"], true);
  if (file.schema !== SCHEMA) {
    throw new TraceError(
      `schema is ${JSON.stringify(file.schema)}, this version reads "${SCHEMA}"`,
    );
  }
  return {
    races: array(file.races, "races").map((race, index) => raceFrom(race, `races[${index}]`)),
    missing: lines(file.missing, "missing"),
  };
}

const RACE_FIELDS = [
  ...["run", "date", "kind", "gpu", "model", "test", "clock"],
  ...["lanes", "prompts", "absent"],
] as const;

function raceFrom(value: unknown, what: string): Race {
  const own = object(value, what, RACE_FIELDS, true);
  const word = (key: (typeof RACE_FIELDS)[number]) => text(own[key], `${what}.${key}`);
  const lanes = filled(own.lanes, `${what}.lanes`).map((lane, index) =>
    laneFrom(lane, `${what}.lanes[${index}]`),
  );
  return {
    run: word("run"),
    date: word("date"),
    kind: word("kind"),
    gpu: word("gpu"),
    model: word("model"),
    test: word("test"),
    clock: word("clock"),
    lanes,
    prompts: filled(own.prompts, `${what}.prompts`).map((prompt, index) =>
      promptFrom(prompt, `${what}.prompts[${index}]`, lanes.length),
    ),
    absent: lines(own.absent, `${what}.absent`),
  };
}

function laneFrom(value: unknown, what: string): Lane {
  const own = object(
    value,
    what,
    ["engine", "variant", "format", "gate", "pass_tok_s", "pass_prompts", "headline_tok_s"],
    true,
  );
  return {
    engine: text(own.engine, `${what}.engine`),
    variant: text(own.variant, `${what}.variant`),
    format: text(own.format, `${what}.format`),
    gate: text(own.gate, `${what}.gate`),
    passTokS: positive(own.pass_tok_s, `${what}.pass_tok_s`),
    passPrompts: integer(own.pass_prompts, `${what}.pass_prompts`, TOKENS_MAX),
    headlineTokS: positive(own.headline_tok_s, `${what}.headline_tok_s`),
  };
}

function promptFrom(value: unknown, what: string, lanes: number): Prompt {
  const own = object(value, what, ["prompt", "text", "streams"]);
  const streams = array(own.streams, `${what}.streams`);
  if (streams.length !== lanes) {
    throw new TraceError(`${what} has ${streams.length} streams for ${lanes} lanes`);
  }
  return {
    prompt: integer(own.prompt, `${what}.prompt`, TOKENS_MAX),
    text: prose(own.text, `${what}.text`),
    streams: streams.map((stream, index) => streamFrom(stream, `${what}.streams[${index}]`)),
  };
}

function streamFrom(value: unknown, what: string): Stream {
  const own = object(value, what, ["first", "pieces", "ns", "runs_ns", "agrees"]);
  const pieces = filled(own.pieces, `${what}.pieces`).map((piece, index) =>
    prose(piece, `${what}.pieces[${index}]`),
  );
  const ns = array(own.ns, `${what}.ns`).map((ns, index) => {
    // Named only when needed: there are thousands of them.
    if (isWhole(ns, TOKEN_NS_MAX)) return ns;
    return integer(ns, `${what}.ns[${index}]`, TOKEN_NS_MAX);
  });
  if (ns.length !== pieces.length) {
    throw new TraceError(`${what} has ${pieces.length} tokens and ${ns.length} times`);
  }
  if (!ns.some((ns) => ns > 0)) throw new TraceError(`${what}: its tokens took no time`);
  return {
    first: prose(own.first, `${what}.first`),
    pieces,
    ns,
    runsNs: filled(own.runs_ns, `${what}.runs_ns`).map((ns, index) =>
      positive(ns, `${what}.runs_ns[${index}]`),
    ),
    agrees: integer(own.agrees, `${what}.agrees`, pieces.length + 1),
  };
}

function filled(value: unknown, what: string): unknown[] {
  const list = array(value, what);
  if (list.length === 0 || list.length > TOKENS_MAX) throw new TraceError(`${what} is empty`);
  return list;
}

function prose(value: unknown, what: string): string {
  if (typeof value !== "string") throw new TraceError(`${what} is not text`);
  return value;
}

function lines(value: unknown, what: string): string[] {
  return array(value, what).map((line, index) => prose(line, `${what}[${index}]`));
}
