// What the page holds for readers without its script, and for links to it elsewhere: a table of
// speeds and a picture, from the data that `cargo xtask page-data` and `npm run picture` wrote.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Plugin } from "vite";
import { count, modelName, share, speed } from "../src/results/format.ts";
import { firstRun, models, processors, type Row, type Run } from "../src/results/runs.ts";

const PLACE = "<!-- fallback -->";
const PICTURE = "data/picture.png";

function escaped(text: string): string {
  return text
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;");
}

/** A table for each GPU: its first run and largest model. */
export function fallbackTables(runs: Run[]): string {
  const gpus = processors(runs).filter(({ kind }) => kind === "gpu");
  return gpus.map(({ name, runs: own }) => gpuTable(name, firstRun(own))).join("");
}

function gpuTable(gpu: string, run: Run | undefined): string {
  const model = run && models(run.rows)[0];
  if (!run || model === undefined) return "";
  const cells = (row: Row) => [
    row.variant,
    row.test,
    `${speed(row.tok_s_median)} (${speed(row.tok_s_min)} to ${speed(row.tok_s_max)})`,
    count(row.bytes_per_token === null ? null : row.bytes_per_token / 1e6, 1),
    share(row.roofline_share),
    row.gate,
  ];
  const line = (tag: string, texts: string[]) =>
    `<tr>${texts.map((text) => `<${tag}>${escaped(text)}</${tag}>`).join("")}</tr>`;
  const head = ["version", "test", "tokens/s", "MB/token", "of roofline", "gate"];
  const rows = run.rows.filter((row) => row.model === model).map((row) => line("td", cells(row)));
  const caption = `${gpu}, ${modelName(model)}, results/${run.folder}`;
  return `<table><caption>${escaped(caption)}</caption><thead>${line("th", head)}</thead><tbody>${rows.join("")}</tbody></table>`;
}

/** `address` is where the page will be, for links elsewhere, which need whole addresses. */
export function fallback(address = process.env.PAGE_ADDRESS ?? ""): Plugin {
  let folder = "";
  return {
    name: "monolith-fallback",
    configResolved(config) {
      folder = config.publicDir;
    },
    transformIndexHtml(html) {
      const results = join(folder, "data/results.json");
      const tables = existsSync(results)
        ? fallbackTables((JSON.parse(readFileSync(results, "utf8")) as { runs: Run[] }).runs)
        : "";
      const hasPicture = existsSync(join(folder, PICTURE));
      const picture = hasPicture
        ? `<img src="${PICTURE}" width="1200" height="630" alt="One layer of a token: a row for each thread block, colour for work, hatching for waits">`
        : "";
      const filled = html.replace(PLACE, picture + tables);
      if (!hasPicture) return filled;
      const image = { property: "og:image", content: address + PICTURE };
      const card = { name: "twitter:card", content: "summary_large_image" };
      return {
        html: filled,
        tags: [image, card].map((attrs) => ({ tag: "meta", attrs, injectTo: "head" as const })),
      };
    },
  };
}
