import { expect, test } from "vitest";
import { CPU_RUN, RUN, row } from "../test/results";
import { fallbackTables } from "./fallback";

test("without the script: a table of each GPU, its first run and largest model", () => {
  const html = fallbackTables([RUN, CPU_RUN]);
  expect(html.match(/<table>/g)?.length).toBe(1);
  expect(html).toContain("A made-up GPU, stand-in (Qwen3-0.6B's shape), results/2026-01-02-gpu-01");
  expect(html).toContain("<td>2,000 (1,990 to 2,010)</td>");
  expect(html.match(/<tr>/g)?.length).toBe(5);
  expect(html).not.toContain("12,000");
});

test("text from the records is text, whatever it holds", () => {
  const run = { ...RUN, rows: [row({ variant: '<img src="x">&' })] };
  expect(fallbackTables([run])).toContain("<td>&lt;img src=&quot;x&quot;&gt;&amp;</td>");
  expect(fallbackTables([])).toBe("");
});
