import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { CUTS, stopFrom } from "./tour";

const SOURCES = fileURLToPath(new URL("../../crates/kernels/cu/", import.meta.url));

test.each(CUTS)("$title: cut from $file, every note on a line of its own", (cut) => {
  const source = readFileSync(SOURCES + cut.file, "utf8");
  const { code, notes, firstLine } = stopFrom(cut, source);
  const lines = source.split("\n");
  code.forEach((tokens, at) => {
    const text = tokens.map(([text]) => text).join("");
    expect(text.trim()).toBe((lines[firstLine - 1 + at] ?? "").trim());
  });
  expect(code.length).toBeGreaterThan(10);
  expect(code.length).toBeLessThan(50);
  expect(new Set(notes.map(({ line }) => line)).size).toBe(notes.length);
  expect(notes.length).toBeGreaterThanOrEqual(2);
  expect(notes.length).toBeLessThanOrEqual(3);
});

test("a cut that the source does not hold fails the build", () => {
  const [cut] = CUTS;
  if (!cut) throw new Error("a cut");
  const source = `${cut.from}\n${cut.to}\n`;
  expect(() => stopFrom(cut, source)).toThrow(/no line in the cut holds/);
  expect(() => stopFrom(cut, "int main() {}")).toThrow(/no lines from/);
});
