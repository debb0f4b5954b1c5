// Hands files to the worker and takes traces back.

import { TraceError } from "../trace/error";
import type { Trace } from "../trace/trace";
import type { Answer, Question } from "../worker";

interface Waiting {
  resolve(trace: Trace): void;
  reject(error: Error): void;
}

let worker: Worker | null = null;
const waiting = new Map<number, Waiting>();
let questions = 0;

/** Reads a file's bytes, which the caller must not use afterwards. */
export function readTrace(bytes: Uint8Array<ArrayBuffer>): Promise<Trace> {
  worker ??= started();
  const question: Question = { id: ++questions, bytes };
  const answer = new Promise<Trace>((resolve, reject) => {
    waiting.set(question.id, { resolve, reject });
  });
  worker.postMessage(question, [bytes.buffer]);
  return answer;
}

function started(): Worker {
  const worker = new Worker(new URL("../worker.ts", import.meta.url), { type: "module" });
  worker.addEventListener("message", ({ data }: MessageEvent<Answer>) => {
    const asked = waiting.get(data.id);
    waiting.delete(data.id);
    if ("trace" in data) asked?.resolve(data.trace);
    else if ("refused" in data) asked?.reject(new TraceError(data.refused));
    else asked?.reject(new Error(data.fault));
  });
  worker.addEventListener("error", () => {
    for (const { reject } of waiting.values()) {
      reject(new TraceError("the part of this page that reads traces did not load: reload it"));
    }
    waiting.clear();
  });
  return worker;
}
