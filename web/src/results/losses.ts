// Where this loses, in sentences whose numbers come from the measurements.

import { variantName } from "../view/chooser";
import { node } from "../view/dom";
import { type Data, firstRun, models, processors, type Row, type Run } from "./data";
import { count, share, speed, theModel } from "./format";

export function showLosses(list: HTMLElement, data: Data): void {
  list.replaceChildren(...losses(data).map((sentence) => node("li", sentence)));
}

export function losses(data: Data): string[] {
  const gpus = processors(data.runs).filter(({ kind }) => kind === "gpu");
  return [
    ...gpus.flatMap(({ name, runs }) => {
      const run = firstRun(runs);
      return run ? ofRun(name, run) : [];
    }),
    ...qualityLosses(data.runs),
    ...unmeasured(data.runs),
  ];
}

function ofRun(gpu: string, run: Run): string[] {
  const said: string[] = [];
  const all = models(run.rows);
  const [large, ...small] = all;
  const rows = run.rows.filter((row) => row.model === large && row.position !== null);
  const first = rows.filter(({ position }) => position === Math.min(...positionsOf(rows)));
  const bf16 = first.find(({ format }) => format === "bf16");
  for (const row of first) {
    if (row === bf16 || !bf16?.tok_s_median || !row.tok_s_median) continue;
    if (!row.bytes_per_token || !bf16.bytes_per_token) continue;
    said.push(
      `Fewer bytes are not that much faster. On the ${gpu} ${variantName(row.variant)} reads ` +
        `${share(row.bytes_per_token / bf16.bytes_per_token)} of bf16's bytes and is ` +
        `${count(row.tok_s_median / bf16.tok_s_median, 2)} times as fast: ` +
        `${share(row.roofline_share)} of the measured bandwidth, against ${share(bf16.roofline_share)}.`,
    );
  }
  const long = slowdown(rows, "bf16");
  if (long) said.push(`Long texts cost speed. On the ${gpu} in bf16 ${long}.`);
  for (const model of small) {
    const own = run.rows.filter((row) => row.model === model && row.format === "bf16");
    const best = Math.max(...own.map((row) => row.roofline_share ?? 0));
    if (best > 0) {
      said.push(
        `A model that is small waits instead of reading: ${theModel(model)} uses ` +
          `${share(best)} of the ${gpu}'s bandwidth at most.`,
      );
    }
  }
  return said;
}

function positionsOf(rows: Row[]): number[] {
  return rows.flatMap(({ position }) => (position === null ? [] : [position]));
}

function slowdown(rows: Row[], format: string): string | null {
  const own = rows.filter((row) => row.format === format && row.tok_s_median !== null);
  const at = (position: number) => own.find((row) => row.position === position)?.tok_s_median ?? 0;
  const [near, far] = [Math.min(...positionsOf(own)), Math.max(...positionsOf(own))];
  if (!(far > near) || at(near) === 0) return null;
  return (
    `it makes ${speed(at(near))} tokens a second from position ${count(near)} and ` +
    `${speed(at(far))} from ${count(far)}`
  );
}

/** The newest verdict on each weight format that did not pass, whatever run it is from. */
function qualityLosses(runs: Run[]): string[] {
  const seen = new Set<string>();
  return runs.flatMap((run) =>
    run.kind !== "gpu"
      ? []
      : run.rows.flatMap((row) => {
          const { quality, model, variant } = row;
          const name = `${variant} ${model}`;
          if (!quality || quality.note || seen.has(name)) return [];
          seen.add(name);
          if (quality.as_written) return [];
          return [
            `${variantName(variant)} changes the text. Of ${theModel(model)} ` +
              `${share(quality.greedy, 1)} of its greedy tokens are bf16's where 90\u00a0% were ` +
              `asked for, each decoder running by itself (${share(quality.forced, 1)} after the ` +
              `same text); the quality gate as written failed. Measured in results/${run.folder}.`,
          ];
        }),
  );
}

function unmeasured(runs: Run[]): string[] {
  const gpus = [...new Set(runs.filter(({ kind }) => kind === "gpu").map(({ gpu }) => gpu))];
  const rows = runs.flatMap((run) => run.rows);
  const missing = [
    gpus.some((gpu) => gpu.includes("5090"))
      ? ""
      : "on an RTX 5090, which the kernel is built for too",
    rows.some(({ engine }) => engine !== "monolith")
      ? ""
      : "of llama.cpp, vLLM or transformers beside this decoder on the same GPU in the same run",
    rows.some((row) => row.tokens_per_joule !== null) ? "" : "of energy",
    rows.some(({ format }) => format === "nvfp4") ? "" : "of NVFP4",
  ].filter((what) => what !== "");
  const said =
    missing.length > 0
      ? [`Not measured so far, and so not on this page: anything ${missing.join("; ")}.`]
      : [];
  const none = rows.every(({ model }) => model === "standin" || model === "tiny");
  if (none) {
    said.push(
      "No row is of Qwen3-0.6B's published weights: the stand-in has its shape, and weights of its own.",
    );
  }
  return [
    ...said,
    "One sequence at a time, one dense Qwen3 model, one GPU, greedy tokens only. A server with many users wants none of this.",
  ];
}
