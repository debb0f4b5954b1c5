import { gzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { CPU, gzipped, metaOf, seeded, type TraceFile, traceFile } from "../../test/fixture";
import { gpuTraceFile } from "../../test/gpu";
import { EVENT_KINDS, NO_BLOCK, NO_LAYER, PHASES } from "../abi";
import { TraceError } from "./error";
import { traceFromFile, traceFromJson } from "./parse";
import { MAX_JSON_BYTES } from "./unpack";

/** Two threads and one layer, small enough to change by hand. */
function small(): TraceFile {
  return {
    ...traceFile(CPU),
    meta: metaOf({ blocks: 2, layers: 1, token_ns: 1000, overflow: 2 }),
    spans: {
      counts: [3, 2],
      kind: [0, 0, 1, 0, 1],
      phase: [0, 1, 1, 1, 2],
      layer: [NO_LAYER, 0, 0, 0, 0],
      waits_on: [NO_BLOCK, NO_BLOCK, 1, NO_BLOCK, NO_BLOCK],
      gap_ns: [0, 0, 0, 150, 50],
      length_ns: [100, 300, 250, 500, 300],
    },
  };
}

/** The same with streams: three of block 0, the second within the first, and one of block 1. */
function streamed(): TraceFile {
  const file = small();
  file.meta.sms = [4, 9];
  file.meta.build = "3fa91c0d5be27748";
  file.meta.phase_bytes = { qkv: 300, lm_head: 7 };
  file.meta.pace = { headline_tok_s: 1500, instrumented_tok_s: 1470.5, overhead_pct: 2.01 };
  file.streams = {
    counts: [3, 1],
    phase: [1, 3, 6, 1],
    layer: [0, 0, NO_LAYER, 0],
    copies: [4, 2, 9, 4],
    bytes: [64, 32, 144, 64],
    begin_ns: [0, 50, 600, 20],
    length_ns: [500, 100, 300, 130],
  };
  return file;
}

/** The error from reading the small file after a change to it. */
function refusal(change: (file: TraceFile) => void, file = small()): string {
  change(file);
  try {
    traceFromJson(JSON.stringify(file));
  } catch (error) {
    if (error instanceof TraceError) return error.message;
    throw error;
  }
  return "accepted";
}

const bytes = (text: string) => new TextEncoder().encode(text);

describe("files that are traces", () => {
  test("columns, metadata and rows", () => {
    const { meta, spans, rowStarts } = traceFromJson(JSON.stringify(small()));
    expect(meta).toMatchObject({ blocks: 2, layers: 1, tokenNs: 1000, overflow: 2, position: 128 });
    expect(meta).toMatchObject({ build: null, pace: null, alignment: "one clock for all threads" });
    expect([...meta.sms]).toEqual([]);
    expect([...spans.block]).toEqual([0, 0, 0, 1, 1]);
    expect([...spans.beginNs]).toEqual([0, 100, 400, 150, 700]);
    expect([...spans.endNs]).toEqual([100, 400, 650, 650, 1000]);
    expect([...spans.waitsOn]).toEqual([NO_BLOCK, NO_BLOCK, 1, NO_BLOCK, NO_BLOCK]);
    expect([...rowStarts]).toEqual([0, 3, 5]);
  });

  test("streams, SMs, bytes and pace", () => {
    const { meta, streams, streamStarts } = traceFromJson(JSON.stringify(streamed()));
    expect([...meta.sms]).toEqual([4, 9]);
    expect([...meta.phaseBytes]).toEqual([
      ["qkv", 300],
      ["lm_head", 7],
    ]);
    expect(meta.pace).toEqual({ headlineTokS: 1500, instrumentedTokS: 1470.5, overheadPct: 2.01 });
    expect(meta.build).toBe("3fa91c0d5be27748");
    expect([...streamStarts]).toEqual([0, 3, 4]);
    expect([...streams.block]).toEqual([0, 0, 0, 1]);
    expect([...streams.endNs]).toEqual([500, 150, 900, 150]);
    expect([...streams.reachNs]).toEqual([500, 500, 900, 150]);
    expect([...streams.bytes]).toEqual([64, 32, 144, 64]);
  });

  test("where weights are streamed, a loader may begin before all spans and end after them", () => {
    const file = streamed();
    file.spans.gap_ns[0] = 60;
    file.spans.length_ns[1] = 240;
    file.meta.token_ns = 1100;
    expect(refusal(() => {}, file)).toBe("accepted");
  });

  test("the epilogue's spans are read and checked, apart from the others", () => {
    const file = small();
    const plain = traceFromJson(JSON.stringify(file));
    const more = { ...file, epilogue: file.spans };
    const { epilogue, ...rest } = traceFromJson(JSON.stringify(more));
    expect({ ...rest, epilogue: null }).toEqual(plain);
    expect(epilogue).toEqual({ spans: plain.spans, rowStarts: plain.rowStarts });
    const wrong = { ...file, epilogue: { ...file.spans, kind: file.spans.kind.slice(1) } };
    expect(() => traceFromJson(JSON.stringify(wrong))).toThrow(/epilogue/);
  });

  test("gzipped or not gives the same", async () => {
    const file = gpuTraceFile({ blocks: 8, layers: 28 });
    const plain = await traceFromFile(bytes(JSON.stringify(file)));
    const packed = await traceFromFile(new Uint8Array(gzipped(file)));
    expect(packed).toEqual(plain);
    expect(plain.spans.block.length).toBeGreaterThan(8000);
    expect(plain.streams.block.length).toBe(8 * 113);
  });

  test("ids go by name", () => {
    const file = small();
    file.phases = ["attention", "qkv", "embed"];
    file.kinds = ["wait_barrier", "wait_exchange", "work"];
    file.spans.phase = [2, 1, 1, 1, 0];
    file.spans.kind = [2, 2, 1, 2, 0];
    const { spans } = traceFromJson(JSON.stringify(file));
    expect([...spans.phase]).toEqual([0, 1, 1, 1, 2]);
    expect(PHASES[2]).toBe("attention");
    expect(Array.from(spans.kind, (kind) => EVENT_KINDS[kind])).toEqual([
      "work",
      "work",
      "wait_exchange",
      "work",
      "wait_barrier",
    ]);
  });

  test("a block without spans has an empty row", () => {
    const file = small();
    file.meta.blocks = 4;
    file.spans.counts = [3, 0, 2, 0];
    file.streams.counts = [0, 0, 0, 0];
    file.spans.waits_on[2] = 2;
    expect([...traceFromJson(JSON.stringify(file)).rowStarts]).toEqual([0, 3, 3, 5, 5]);
  });
});

describe("files that are not", () => {
  const refused = async (file: Uint8Array<ArrayBuffer>) =>
    expect(await traceFromFile(file).catch((error: unknown) => error)).toBeInstanceOf(TraceError);

  test("something else altogether", async () => {
    for (const text of ["", "PK\x03\x04", "<!doctype html>", "[1]", "null", "{", "{}"]) {
      await refused(bytes(text));
    }
    await expect(traceFromFile(bytes("<html>"))).rejects.toThrow("neither gzip nor JSON");
    await expect(traceFromFile(bytes('{"a":[]}'))).rejects.toThrow('no field "schema"');
  });

  test("cut short or damaged", async () => {
    const packed = new Uint8Array(gzipped(small()));
    for (let length = 2; length < packed.length; length += 7) {
      await refused(packed.slice(0, length));
    }
    const damaged = packed.slice();
    damaged[damaged.length - 8] = ~(damaged[damaged.length - 8] ?? 0);
    await expect(traceFromFile(damaged)).rejects.toThrow("broken gzip");
    await refused(new Uint8Array([...packed, 1, 2, 3]));
  });

  test("a small file that unpacks to fill the memory", async () => {
    const bomb = new Uint8Array(gzipSync(Buffer.alloc(MAX_JSON_BYTES + 1, " ")));
    await expect(traceFromFile(bomb)).rejects.toThrow("longer than");
  });
});

describe("refusals by name", () => {
  const cases: [string, (file: TraceFile) => void][] = [
    [
      'schema is "monolith-trace/1", this version reads "monolith-trace/2": record the token again with this version',
      (f) => {
        f.schema = "monolith-trace/1";
      },
    ],
    [
      'schema is "monolith-trace/3", this version reads "monolith-trace/2"',
      (f) => {
        f.schema = "monolith-trace/3";
      },
    ],
    [
      'schema is 2, this version reads "monolith-trace/2"',
      (f) => {
        Object.assign(f, { schema: 2 });
      },
    ],
    [
      'the file has no field "streams"',
      (f) => {
        Reflect.deleteProperty(f, "streams");
      },
    ],
    [
      'the file: unknown field "loader"',
      (f) => {
        Object.assign(f, { loader: [] });
      },
    ],
    [
      'kinds: unknown name "wait_ring"',
      (f) => {
        f.kinds = ["work", "wait_ring"];
      },
    ],
    [
      'phases: unknown name "qk_norm"',
      (f) => {
        f.phases[1] = "qk_norm";
      },
    ],
    [
      "phases: a name is listed twice",
      (f) => {
        f.phases[1] = "embed";
      },
    ],
    [
      'meta: unknown field "clock"',
      (f) => {
        f.meta.clock = 1;
      },
    ],
    [
      'meta has no field "model"',
      (f) => {
        delete f.meta.model;
      },
    ],
    [
      'meta has no field "alignment"',
      (f) => {
        delete f.meta.alignment;
      },
    ],
    [
      "meta.device is not a short line of text",
      (f) => {
        f.meta.device = "a\nb";
      },
    ],
    [
      "meta.engine is not a short line of text",
      (f) => {
        f.meta.engine = 3;
      },
    ],
    [
      "meta.build is not a short line of text",
      (f) => {
        f.meta.build = "";
      },
    ],
    [
      "meta.alignment is not a short line of text",
      (f) => {
        f.meta.alignment = "x".repeat(257);
      },
    ],
    [
      "the trace has no blocks",
      (f) => {
        f.meta.blocks = 0;
      },
    ],
    [
      "meta.token_ns is 1.5, not a whole number between 0 and 3600000000000",
      (f) => {
        f.meta.token_ns = 1.5;
      },
    ],
    [
      "meta.sms is not a list",
      (f) => {
        f.meta.sms = null;
      },
    ],
    [
      "meta.sms has 1 values for 2 blocks",
      (f) => {
        f.meta.sms = [3];
      },
    ],
    [
      "meta.sms[1] is 65536, not a whole number between 0 and 65535",
      (f) => {
        f.meta.sms = [3, 65_536];
      },
    ],
    [
      "meta.phase_bytes is not an object",
      (f) => {
        f.meta.phase_bytes = [1];
      },
    ],
    [
      'meta.phase_bytes: unknown name "norm"',
      (f) => {
        f.meta.phase_bytes = { norm: 1 };
      },
    ],
    [
      "meta.phase_bytes.qkv is -1, not a whole number between 0 and 9007199254740991",
      (f) => {
        f.meta.phase_bytes = { qkv: -1 };
      },
    ],
    [
      'meta.pace has no field "overhead_pct"',
      (f) => {
        f.meta.pace = { headline_tok_s: 1, instrumented_tok_s: 1 };
      },
    ],
    [
      "meta.pace.headline_tok_s is 0, not above 0",
      (f) => {
        f.meta.pace = { headline_tok_s: 0, instrumented_tok_s: 1, overhead_pct: 1 };
      },
    ],
    [
      "meta.pace.overhead_pct is null, not a number",
      (f) => {
        f.meta.pace = { headline_tok_s: 1, instrumented_tok_s: 1, overhead_pct: null };
      },
    ],
    [
      "spans.counts has 1 values for 2 blocks",
      (f) => {
        f.spans.counts = [5];
      },
    ],
    [
      "spans.counts[1] is -2, not a whole number between 0 and 4294967295",
      (f) => {
        f.spans.counts = [7, -2];
      },
    ],
    [
      "spans.kind has 5 values, but spans.counts adds up to 6",
      (f) => {
        f.spans.counts = [3, 3];
      },
    ],
    [
      "spans.layer has 1 values, but spans.counts adds up to 5",
      (f) => {
        f.spans.layer = [0];
      },
    ],
    [
      "spans.kind[0] is 7, not a whole number between 0 and 6",
      (f) => {
        f.spans.kind[0] = 7;
      },
    ],
    [
      "spans.phase has id 0, which the file does not name",
      (f) => {
        f.phases = [];
        f.spans.phase.fill(0);
      },
    ],
    [
      "spans.gap_ns[1] is -1, not a whole number between 0 and 3600000000000",
      (f) => {
        f.spans.gap_ns[1] = -1;
      },
    ],
    [
      "spans.length_ns[2] is 0.5, not a whole number between 0 and 3600000000000",
      (f) => {
        f.spans.length_ns[2] = 0.5;
      },
    ],
    [
      "span 1 (block 0, work qkv of layer 0) names a layer, but the model has 0 layers",
      (f) => {
        f.meta.layers = 0;
      },
    ],
    [
      "span 2 (block 0, wait_exchange qkv) lacks its layer",
      (f) => {
        f.spans.layer[2] = NO_LAYER;
      },
    ],
    [
      "span 0 (block 0, work embed of layer 0) has a layer, but its phase occurs once a step",
      (f) => {
        f.spans.layer[0] = 0;
      },
    ],
    [
      "span 2 (block 0, wait_exchange qkv of layer 0) waits on block 2, but there are 2 blocks",
      (f) => {
        f.spans.waits_on[2] = 2;
      },
    ],
    [
      "span 2 (block 0, wait_exchange qkv of layer 0) waits on its own block",
      (f) => {
        f.spans.waits_on[2] = 0;
      },
    ],
    [
      "span 1 (block 0, work qkv of layer 0) waits on no exchange, but names block 1",
      (f) => {
        f.spans.waits_on[1] = 1;
      },
    ],
    [
      "span 2 (block 0, wait_barrier qkv of layer 0) waits on no exchange, but names block 1",
      (f) => {
        f.spans.kind[2] = 4;
      },
    ],
    [
      "span 1 (block 0, unrecorded qkv of layer 0) is a span, but should be a gap",
      (f) => {
        f.spans.kind[1] = 5;
      },
    ],
    [
      "span 1 (block 0, work qkv of layer 0) has no length",
      (f) => {
        f.spans.length_ns[1] = 0;
      },
    ],
    [
      "meta.phase_bytes.qkv is 0, not above 0",
      (f) => {
        f.meta.phase_bytes = { qkv: 0 };
      },
    ],
    [
      "the first span begins at 1 ns, not at 0",
      (f) => {
        f.spans.gap_ns[0] = 1;
      },
    ],
    [
      "the last span ends at 1000 ns, but the token at 1001 ns",
      (f) => {
        f.meta.token_ns = 1001;
      },
    ],
    [
      "the last span ends at 1000 ns, but the token at 999 ns",
      (f) => {
        f.meta.token_ns = 999;
      },
    ],
    [
      "the trace has no spans",
      (f) => {
        for (const column of Object.values(f.spans)) column.length = 0;
        f.spans.counts = [0, 0];
      },
    ],
  ];
  test.each(cases)("%s", (words, change) => {
    expect(refusal(change)).toBe(words);
  });

  const streamCases: [string, (file: TraceFile) => void][] = [
    [
      'streams has no field "bytes"',
      (f) => {
        Reflect.deleteProperty(f.streams, "bytes");
      },
    ],
    [
      "streams.counts has 3 values for 2 blocks",
      (f) => {
        f.streams.counts = [3, 1, 0];
      },
    ],
    [
      "streams.bytes has 3 values, but streams.counts adds up to 4",
      (f) => {
        f.streams.bytes.pop();
      },
    ],
    [
      "streams.copies[1] is 1.5, not a whole number between 0 and 4294967295",
      (f) => {
        f.streams.copies[1] = 1.5;
      },
    ],
    [
      "streams.phase[3] is 8, not a whole number between 0 and 7",
      (f) => {
        f.streams.phase[3] = 8;
      },
    ],
    [
      "stream 1 (block 0, o_proj of layer 3) names a layer, but the model has 1 layers",
      (f) => {
        f.streams.layer[1] = 3;
      },
    ],
    [
      "stream 1 (block 0, o_proj) lacks its layer",
      (f) => {
        f.streams.layer[1] = NO_LAYER;
      },
    ],
    [
      "stream 2 (block 0, lm_head of layer 0) has a layer, but its phase occurs once a step",
      (f) => {
        f.streams.layer[2] = 0;
      },
    ],
    [
      "stream 1 (block 0, o_proj of layer 0) has no copies",
      (f) => {
        f.streams.copies[1] = 0;
      },
    ],
    [
      "stream 0 (block 0, qkv of layer 0) has copies without bytes",
      (f) => {
        f.streams.bytes[0] = 3;
      },
    ],
    [
      "stream 2 (block 0, lm_head) begins before the stream before it",
      (f) => {
        f.streams.begin_ns[2] = 49;
      },
    ],
    [
      "stream 2 (block 0, lm_head) arrives after the token's end",
      (f) => {
        f.streams.length_ns[2] = 500;
      },
    ],
    [
      "the last span ends at 1000 ns, but the token at 999 ns",
      (f) => {
        f.meta.token_ns = 999;
      },
    ],
  ];
  test.each(streamCases)("%s", (words, change) => {
    expect(refusal(change, streamed())).toBe(words);
  });

  test("a number beyond all numbers", () => {
    const text = JSON.stringify(streamed()).replace("2.01", "1e999");
    expect(() => traceFromJson(text)).toThrow("meta.pace.overhead_pct is Infinity, not a number");
  });
});

test("files changed at random are read or refused, never mistaken", async () => {
  const random = seeded(11);
  const text = JSON.stringify(streamed());
  for (let round = 0; round < 3000; round++) {
    const changed = [...bytes(text)];
    const changes = 1 + Math.floor(random() * 3);
    for (let change = 0; change < changes; change++) {
      const index = Math.floor(random() * changed.length);
      if (random() < 0.3) changed.splice(index, Math.ceil(random() * 9));
      else
        changed[index] =
          random() < 0.5 ? 48 + Math.floor(random() * 10) : Math.floor(random() * 256);
    }
    try {
      const { spans, meta } = await traceFromFile(new Uint8Array(changed));
      expect(Math.max(...spans.endNs)).toBeLessThanOrEqual(meta.tokenNs);
    } catch (error) {
      if (!(error instanceof TraceError)) throw error;
    }
  }
});
