import { describe, expect, test } from "vitest";
import { CPU, pathOf, traceFile } from "../../test/fixture";
import { TraceError } from "./error";
import { traceFromJson } from "./parse";
import { pathPhase, segmentAt, splitOf } from "./path";
import type { Trace } from "./trace";

const TOKEN = traceFile(CPU).meta.token_ns as number;
const GOOD = pathOf([
  ["compute", 1000],
  ["handoff", 500],
  ["compute", TOKEN - 1500],
]);

function traceWith(path: unknown): Trace {
  return traceFromJson(JSON.stringify({ ...traceFile(CPU), path }));
}

function refusal(path: unknown): string {
  try {
    traceWith(path);
  } catch (error) {
    if (error instanceof TraceError) return error.message;
    throw error;
  }
  return "";
}

describe("a path that is read", () => {
  const { path } = traceWith(GOOD);
  if (!path) throw new Error("the trace has no path");

  test("has its segments one after the other", () => {
    expect([...path.beginNs]).toEqual([0, 1000, 1500]);
    expect([...path.endNs]).toEqual([1000, 1500, TOKEN]);
    expect(pathPhase(path, 0)).toBe("qkv");
  });

  test("adds up by class, whole and in part", () => {
    expect(splitOf(path)).toMatchObject({ compute: TOKEN - 500, handoff: 500, skew: 0 });
    expect(splitOf(path, 900, 1600)).toMatchObject({ compute: 200, handoff: 500 });
  });

  test("says which segment is at a time", () => {
    expect([0, 999, 1000, 1499, 1500, TOKEN - 1].map((ns) => segmentAt(path, ns))).toEqual([
      0, 0, 1, 1, 2, 2,
    ]);
    expect([-1, TOKEN].map((ns) => segmentAt(path, ns))).toEqual([-1, -1]);
  });
});

test("a file without a path is read", () => {
  expect(traceFromJson(JSON.stringify(traceFile(CPU))).path).toBe(null);
});

test("a segment may be of no phase, and of no other that the file does not name", () => {
  const { path } = traceWith({ ...GOOD, phase: [255, 1, 1] });
  expect(path && pathPhase(path, 0)).toBe("");
  expect(refusal({ ...GOOD, phase: [8, 1, 1] })).toBe(
    "path.phase has an id that the file does not name",
  );
});

test.each([
  [{ ...GOOD, length_ns: [1000, 500, 1] }, `the path lasts 1501 ns, but the token ${TOKEN} ns`],
  [{ ...GOOD, block: [0, 1] }, "path.block has 2 values, but there are 3"],
  [{ ...GOOD, block: [0, 1, 2] }, "path.block[2] is 2, not a whole number between 0 and 1"],
  [{ ...GOOD, class: [0, 9, 0] }, "path.class[1] is 9, not a whole number between 0 and 4"],
  [{ ...GOOD, classes: ["compute", "luck"] }, 'path.classes: unknown name "luck"'],
  [{ ...GOOD, more: [] }, 'path: unknown field "more"'],
  [null, "path is not an object"],
])("a path that contradicts the file is refused: %#", (path, words) => {
  expect(refusal(path)).toBe(words);
});
