import { expect, test } from "vitest";
import { hashFor, type Place, placeFromHash } from "./address";

const NOTHING: Place = {
  ...{ file: null, layer: null, beginNs: null, endNs: null, block: null, atNs: null },
};
const FULL: Place = {
  ...{ file: "r3-xray_a.json.gz", layer: 14, beginNs: 156_000, endNs: 168_000 },
  ...{ block: 47, atNs: 160_335 },
};

test("an address gives back what it was made of", () => {
  for (const place of [NOTHING, FULL, { ...NOTHING, file: "a" }, { ...NOTHING, layer: 0 }]) {
    expect(placeFromHash(hashFor(place))).toEqual(place);
  }
  expect(hashFor(NOTHING)).toBe("");
  expect(hashFor({ ...NOTHING, file: "a.json.gz", layer: 7 })).toBe("#v=a.json.gz&l=7");
});

test("older links name the trace alone", () => {
  expect(placeFromHash("#trace=a.json.gz")).toEqual({ ...NOTHING, file: "a.json.gz" });
});

test.each([
  ["", NOTHING],
  ["#", NOTHING],
  ["#other=a", NOTHING],
  ["#v", { ...NOTHING, file: "" }],
  ["#v=a%20b", { ...NOTHING, file: "a b" }],
  ["#trace=%zz", { ...NOTHING, file: "%zz" }],
  ["#l=-1&t0=1e9&t1=0x10&b=1.5&at=", NOTHING],
  ["#l=12345678901234567890", NOTHING],
  ["#l=3&l=4", { ...NOTHING, layer: 3 }],
])("whatever stands in an address is read without a fault: %j", (hash, place) => {
  expect(placeFromHash(hash)).toEqual(place);
});
