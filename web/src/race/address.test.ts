import { expect, test } from "vitest";
import { placeFromHash } from "../trace/address";
import { type RacePlace, raceFromHash, withRace } from "./address";

const PLACE: RacePlace = {
  ...{ run: "2026-01-02-gpu-01", model: "a b/c&d", prompt: 3, atNs: 12_345_678, speed: 0.25 },
};
const BARE: RacePlace = { run: "r", model: "m", prompt: null, atNs: null, speed: null };

test("an address gives back the race that it was made of", () => {
  for (const place of [PLACE, BARE, { ...PLACE, atNs: 0, prompt: 0 }, null]) {
    expect(raceFromHash(withRace("", place))).toEqual(place);
  }
  expect(withRace("", null)).toBe("");
  expect(withRace("", BARE)).toBe("#race=r&model=m");
});

test("the trace's part of an address stays", () => {
  const both = withRace("#v=a.json.gz&l=7", PLACE);
  expect(placeFromHash(both)).toMatchObject({ file: "a.json.gz", layer: 7 });
  expect(raceFromHash(both)).toEqual(PLACE);
  expect(withRace(both, null)).toBe("#v=a.json.gz&l=7");
  expect(raceFromHash(withRace(both, BARE))).toEqual(BARE);
});

test.each([
  ["", null],
  ["#race", null],
  ["#race=", null],
  ["#v=a", null],
  ["#race=r", { ...BARE, model: "" }],
  ["#race=r&model=m&prompt=-1&rt=1e9&rx=2", BARE],
  ["#race=r&model=m&rt=12345678901234567890", BARE],
  ["#race=r&model=m&rx=0.05", { ...BARE, speed: 0.05 }],
])("whatever stands in an address is read without a fault: %j", (hash, place) => {
  expect(raceFromHash(hash)).toEqual(place);
});

test("a section's name is no part of a state", () => {
  expect(withRace("#race", BARE)).toBe("#race=r&model=m");
  expect(withRace("#budget", BARE)).toBe("#race=r&model=m");
});
