// Reads a trace off the main thread, so that the page stays responsive meanwhile.

import { TraceError } from "./trace/error";
import { traceFromFile } from "./trace/parse";
import type { Trace } from "./trace/trace";

export interface Question {
  id: number;
  bytes: Uint8Array<ArrayBuffer>;
}

export type Answer =
  | { id: number; trace: Trace }
  | { id: number; refused: string }
  | { id: number; fault: string };

addEventListener("message", async ({ data }: MessageEvent<Question>) => {
  const { id, bytes } = data;
  try {
    const trace = await traceFromFile(bytes);
    answer({ id, trace }, buffersOf(trace));
  } catch (error) {
    if (error instanceof TraceError) answer({ id, refused: error.message });
    else answer({ id, fault: String(error) });
  }
});

function answer(message: Answer, transfer: ArrayBuffer[] = []): void {
  postMessage(message, { transfer });
}

/** The memory of all columns: moved to the page, not copied. */
function buffersOf({
  spans,
  streams,
  path,
  epilogue,
  rowStarts,
  streamStarts,
}: Trace): ArrayBuffer[] {
  const tables: Record<string, ArrayBufferView>[] = [
    { ...spans },
    { ...streams },
    { ...path },
    { ...epilogue?.spans },
  ];
  const columns = [...tables.flatMap((table) => Object.values(table)), rowStarts, streamStarts];
  if (epilogue) columns.push(epilogue.rowStarts);
  return columns.map((column) => column.buffer as ArrayBuffer);
}
