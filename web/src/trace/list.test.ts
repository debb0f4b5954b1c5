import { expect, test } from "vitest";
import { TraceError } from "./error";
import { fileInHash, hashFor, listFromJson } from "./list";

/** The exact text that xtask's own test expects (xtask/src/demo/data.rs). */
const WRITTEN =
  '{"schema":"monolith-traces/1","traces":[' +
  '{"file":"trace.json.gz","title":"recorded on this machine"},' +
  '{"file":"r3-xray-bf16-flag-2048.json.gz","title":"bf16-flag, position 2048, A"},' +
  '{"file":"r3-xray-fp8-flag-16.json.gz","title":"fp8-flag, position 16, A"},' +
  '{"file":"r3-xray-fp8-flag-2048.json.gz","title":"fp8-flag, position 2048, A"},' +
  '{"file":"r2-xray-whole.json.gz","title":"whole, B 1"}]}\n';

const A = { file: "a.json.gz", title: "a trace" };

function refusal(list: unknown): string {
  try {
    listFromJson(typeof list === "string" ? list : JSON.stringify(list));
  } catch (error) {
    if (error instanceof TraceError) return error.message;
    throw error;
  }
  return "";
}

const traces = (...traces: unknown[]) => ({ schema: "monolith-traces/1", traces });

test("what xtask writes is read, in its order", () => {
  const listed = listFromJson(WRITTEN);
  expect(listed.length).toBe(5);
  expect(listed[0]?.file).toBe("trace.json.gz");
  expect(listed[4]).toEqual({ file: "r2-xray-whole.json.gz", title: "whole, B 1" });
});

test.each([
  ["", "not a list's JSON: the text is cut short or damaged"],
  [WRITTEN.slice(0, 100), "not a list's JSON: the text is cut short or damaged"],
  ["<!doctype html>", "not a list's JSON: the text is cut short or damaged"],
  ["[]", "the list is not an object"],
  [{}, 'the list has no field "schema"'],
  [
    { schema: "monolith-traces/2", list: [] },
    'schema is "monolith-traces/2", this version reads "monolith-traces/1"',
  ],
  [{ schema: "monolith-traces/1" }, 'the list has no field "traces"'],
  [{ ...traces(A), more: 1 }, 'the list: unknown field "more"'],
  [{ schema: "monolith-traces/1", traces: {} }, "traces is not a list"],
  [traces(), "it lists no trace"],
  [traces(A, A), "a file is listed twice"],
  [traces(A, "b"), "traces[1] is not an object"],
  [traces({ file: "a.json.gz" }), 'traces[0] has no field "title"'],
  [traces({ ...A, url: "b" }), 'traces[0]: unknown field "url"'],
  [traces({ ...A, title: " " }), "traces[0].title is not a short line of text"],
  [traces({ ...A, title: "a\nb" }), "traces[0].title is not a short line of text"],
])("a list that is none is refused: %j", (list, words) => {
  expect(refusal(list)).toBe(words);
});

test.each([
  "",
  ".json.gz",
  "../a.json.gz",
  "a/b.json.gz",
  "//elsewhere/a.json.gz",
  "http:a.json.gz",
  "a%2fb.json.gz",
  "a b.json.gz",
  "a?.json.gz",
  "é.json.gz",
  "a.html",
  "a.json.gz\n",
  `${"a".repeat(120)}.json.gz`,
  7,
  null,
])("a name that leads elsewhere is refused: %j", (file) => {
  expect(refusal(traces({ file, title: "a" }))).toBe(
    "traces[0].file is not the plain name of a .json.gz file",
  );
});

test("the address names a file and gives it back", () => {
  expect(hashFor("r3-xray_a.json.gz")).toBe("#trace=r3-xray_a.json.gz");
  for (const file of ["trace.json.gz", "a-b_c.9.json.gz"]) {
    expect(fileInHash(hashFor(file))).toBe(file);
  }
});

test.each([
  ["", null],
  ["#", null],
  ["#other=a", null],
  ["#trace", ""],
  ["#trace=", ""],
  ["#trace=a%20b", "a b"],
  ["#trace=%zz", "%zz"],
  ["#x=1&trace=a&trace=b", "a"],
])("whatever stands in the address is read without a fault: %j", (hash, file) => {
  expect(fileInHash(hash)).toBe(file);
});
