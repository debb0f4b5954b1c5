import { expect, test } from "vitest";
import { TraceError } from "./error";
import { listFromJson } from "./list";

/** The exact text that xtask's own test expects (xtask/src/page_data.rs). */
const WRITTEN =
  '{"schema":"monolith-traces/2","traces":[' +
  '{"file":"trace.json.gz","of":null,"title":"recorded on this machine"},' +
  '{"file":"r3-xray-bf16-flag-2048.json.gz","of":{"gpu":"A","position":2048,' +
  '"run":"r3","variant":"bf16-flag"},"title":"bf16-flag, position 2048, A"},' +
  '{"file":"r3-xray-fp8-flag-16.json.gz","of":{"gpu":"A","position":16,' +
  '"run":"r3","variant":"fp8-flag"},"title":"fp8-flag, position 16, A"},' +
  '{"file":"r3-xray-fp8-flag-2048.json.gz","of":{"gpu":"A","position":2048,' +
  '"run":"r3","variant":"fp8-flag"},"title":"fp8-flag, position 2048, A"},' +
  '{"file":"r2-xray-whole.json.gz","of":{"gpu":"B 1","position":0,' +
  '"run":"r2","variant":"whole"},"title":"whole, B 1"}]}\n';

const A = { file: "a.json.gz", title: "a trace", of: null };

function refusal(list: unknown): string {
  try {
    listFromJson(typeof list === "string" ? list : JSON.stringify(list));
  } catch (error) {
    if (error instanceof TraceError) return error.message;
    throw error;
  }
  return "";
}

const traces = (...traces: unknown[]) => ({ schema: "monolith-traces/2", traces });

test("what xtask writes is read, in its order", () => {
  const listed = listFromJson(WRITTEN);
  expect(listed.length).toBe(5);
  expect(listed[0]?.file).toBe("trace.json.gz");
  expect(listed[4]).toEqual({
    file: "r2-xray-whole.json.gz",
    title: "whole, B 1",
    of: { run: "r2", gpu: "B 1", variant: "whole", position: 0 },
  });
  expect(listed[0]?.of).toBe(null);
});

test.each([
  ["", "not a list's JSON: the text is cut short or damaged"],
  [WRITTEN.slice(0, 100), "not a list's JSON: the text is cut short or damaged"],
  ["<!doctype html>", "not a list's JSON: the text is cut short or damaged"],
  ["[]", "the list is not an object"],
  [{}, 'the list has no field "schema"'],
  [
    { schema: "monolith-traces/1", list: [] },
    'schema is "monolith-traces/1", this version reads "monolith-traces/2"',
  ],
  [{ schema: "monolith-traces/2" }, 'the list has no field "traces"'],
  [{ ...traces(A), more: 1 }, 'the list: unknown field "more"'],
  [{ schema: "monolith-traces/2", traces: {} }, "traces is not a list"],
  [traces(), "it lists no trace"],
  [traces(A, A), "a file is listed twice"],
  [traces(A, "b"), "traces[1] is not an object"],
  [traces({ file: "a.json.gz" }), 'traces[0] has no field "title"'],
  [traces({ ...A, url: "b" }), 'traces[0]: unknown field "url"'],
  [traces({ ...A, of: {} }), 'traces[0].of has no field "run"'],
  [
    traces({ ...A, of: { run: "r", gpu: "A", variant: "v", position: -1 } }),
    "traces[0].of.position is -1, not a whole number between 0 and 4294967295",
  ],
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
  expect(refusal(traces({ file, title: "a", of: null }))).toBe(
    "traces[0].file is not the plain name of a .json.gz file",
  );
});
