import { expect, test } from "vitest";
import { raceFile } from "../../test/race";
import { racesFrom } from "./data";

const FILE = JSON.parse(JSON.stringify(raceFile(12)));
/** A copy with another value in a place, or without it. */
function with_(path: (string | number)[], value: unknown): unknown {
  const copy = structuredClone(FILE);
  const at = path.slice(0, -1).reduce((value, key) => value[key], copy);
  const last = path.at(-1) ?? "";
  if (value === undefined) delete at[last];
  else at[last] = value;
  return copy;
}

test("a race file is read as it was written", () => {
  const { races, missing } = racesFrom(FILE);
  expect(races.map(({ run, lanes, prompts }) => [run, lanes.length, prompts.length])).toEqual([
    ["2026-01-02-gpu-01", 3, 2],
    ["2026-01-01-cpu-01", 3, 2],
  ]);
  const [lane, stream] = [races[0]?.lanes[1], races[0]?.prompts[1]?.streams[1]];
  expect(lane).toMatchObject({ variant: "fp8-flag", gate: "passed", passPrompts: 20 });
  expect([stream?.pieces.length, stream?.ns.length]).toEqual([12, 12]);
  expect(missing).toEqual(["Another GPU: no run so far has timed single tokens"]);
});

const RACE = ["races", 0] as const;
const STREAM = [...RACE, "prompts", 1, "streams", 2] as const;

test.each([
  [["schema"], "monolith-race/9", 'reads "monolith-race/1"'],
  [["races"], {}, "races is not a list"],
  [[...RACE, "run"], undefined, 'races[0] has no field "run"'],
  [[...RACE, "gpu"], "a\u0007b", "races[0].gpu is not a short line of text"],
  [[...RACE, "lanes"], [], "races[0].lanes is empty"],
  [[...RACE, "lanes", 1, "pass_tok_s"], 0, "races[0].lanes[1].pass_tok_s is 0, not above 0"],
  [[...RACE, "prompts", 0, "streams"], [], "races[0].prompts[0] has 0 streams for 3 lanes"],
  [[...STREAM, "ns"], [1], "races[0].prompts[1].streams[2] has 12 tokens and 1 times"],
  [[...STREAM, "ns", 3], -1, "streams[2].ns[3] is -1, not a whole number"],
  [[...STREAM, "ns", 3], 1.5, "streams[2].ns[3] is 1.5, not a whole number"],
  [[...STREAM, "ns"], Array(12).fill(0), "streams[2]: its tokens took no time"],
  [[...STREAM, "pieces", 4], null, "streams[2].pieces[4] is not text"],
  [[...STREAM, "agrees"], 14, "streams[2].agrees is 14, not a whole number between 0 and 13"],
  [["missing"], [3], "missing[0] is not text"],
])("what is wrong is named by its place: %j", (path, value, words) => {
  expect(() => racesFrom(with_([...path], value))).toThrow(words);
});

/** No value anywhere in the file makes anything but a result or a refusal. */
test("any value in any place is read or refused", () => {
  const paths: (string | number)[][] = [];
  const visit = (value: unknown, path: (string | number)[]) => {
    if (path.length > 0) paths.push(path);
    if (typeof value !== "object" || value === null) return;
    for (const [key, own] of Object.entries(value)) {
      visit(own, [...path, Array.isArray(value) ? Number(key) : key]);
    }
  };
  visit(FILE, []);
  for (const path of paths) {
    for (const value of [undefined, null, -1, 1e300, "", "x", [], {}, [[]]]) {
      try {
        racesFrom(with_(path, value));
      } catch (error) {
        expect((error as Error).name, path.join(".")).toBe("TraceError");
      }
    }
  }
});
