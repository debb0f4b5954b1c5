import { gzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { CPU, CUDA, gzipped, seeded, type TraceFile, traceFile } from "../../test/fixture";
import { NO_BLOCK, NO_LAYER, PHASES } from "../abi";
import { TraceError } from "./error";
import { MAX_JSON_BYTES, traceFromFile, traceFromJson } from "./parse";

/** Two threads and one layer, small enough to change by hand. */
function small(): TraceFile {
  return {
    ...traceFile(CPU),
    meta: { ...traceFile(CPU).meta, blocks: 2, layers: 1, token_ns: 1000, overflow: 2 },
    spans: {
      block: [0, 0, 0, 1, 1],
      kind: [0, 0, 1, 0, 1],
      phase: [0, 1, 1, 1, 2],
      layer: [NO_LAYER, 0, 0, 0, 0],
      waits_on: [NO_BLOCK, NO_BLOCK, 1, NO_BLOCK, NO_BLOCK],
      begin_ns: [0, 100, 400, 150, 700],
      end_ns: [100, 400, 650, 650, 1000],
    },
  };
}

/** What reading the small file says after a change to it. */
function refusal(change: (file: TraceFile) => void): string {
  const file = small();
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
    expect([...spans.beginNs]).toEqual([0, 100, 400, 150, 700]);
    expect([...spans.waitsOn]).toEqual([NO_BLOCK, NO_BLOCK, 1, NO_BLOCK, NO_BLOCK]);
    expect([...rowStarts]).toEqual([0, 3, 5]);
  });

  test("gzipped or not gives the same", async () => {
    const file = traceFile(CUDA);
    const plain = await traceFromFile(bytes(JSON.stringify(file)));
    const packed = await traceFromFile(new Uint8Array(gzipped(file)));
    expect(packed).toEqual(plain);
    expect(plain.spans.block.length).toBeGreaterThan(20_000);
  });

  test("ids go by name", () => {
    const file = small();
    file.phases = ["attention", "qkv", "embed"];
    file.spans.phase = [2, 1, 1, 1, 0];
    const { spans } = traceFromJson(JSON.stringify(file));
    expect([...spans.phase]).toEqual([0, 1, 1, 1, 2]);
    expect(PHASES[2]).toBe("attention");
  });

  test("a block without spans has an empty row", () => {
    const file = small();
    file.meta.blocks = 4;
    file.spans.block = [0, 0, 0, 2, 2];
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
    await expect(traceFromFile(bytes('{"traceEvents":[]}'))).rejects.toThrow('no field "schema"');
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
  const at = "record 2 (block 0, wait_exchange qkv of layer 0)";
  const cases: [string, (file: TraceFile) => void][] = [
    [
      'schema is "monolith-trace/2", this version reads "monolith-trace/1"',
      (f) => {
        f.schema = "monolith-trace/2";
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
      "spans.layer has 1 values, spans.block 5",
      (f) => {
        f.spans.layer = [0];
      },
    ],
    [
      "spans.kind[0] is 7, not a whole number between 0 and 1",
      (f) => {
        f.spans.kind[0] = 7;
      },
    ],
    [
      "spans.begin_ns[1] is -1, not a whole number between 0 and 3600000000000",
      (f) => {
        f.spans.begin_ns[1] = -1;
      },
    ],
    [
      `${at} ends before it begins`,
      (f) => {
        f.spans.end_ns[2] = 399;
      },
    ],
    [
      `${at} names a layer, but the model has 0 layers`.replace(
        "2 (block 0, wait_exchange",
        "1 (block 0, work",
      ),
      (f) => {
        f.meta.layers = 0;
      },
    ],
    [
      `${at.replace(" of layer 0", "")} lacks its layer`,
      (f) => {
        f.spans.layer[2] = NO_LAYER;
      },
    ],
    [
      "record 0 (block 0, work embed of layer 0) has a layer, but its phase occurs once a step",
      (f) => {
        f.spans.layer[0] = 0;
      },
    ],
    [
      `${at} waits on block 2, but there are 2 blocks`,
      (f) => {
        f.spans.waits_on[2] = 2;
      },
    ],
    [
      `${at} waits on its own block`,
      (f) => {
        f.spans.waits_on[2] = 0;
      },
    ],
    [
      "record 1 (block 0, work qkv of layer 0) is work, but waits on block 1",
      (f) => {
        f.spans.waits_on[1] = 1;
      },
    ],
    [
      `${at} begins 10 ns before the end of the record before it`,
      (f) => {
        f.spans.begin_ns[2] = 390;
      },
    ],
    [
      "record 2 (block 0, wait_exchange qkv of layer 0) comes after the records of block 1",
      (f) => {
        f.spans.block[1] = 1;
      },
    ],
    [
      "record 4 (block 2, wait_exchange attention of layer 0) names a block, but there are 2 blocks",
      (f) => {
        f.spans.block[4] = 2;
      },
    ],
    [
      "the first span begins at 1 ns, not at 0",
      (f) => {
        f.spans.begin_ns[0] = 1;
      },
    ],
    [
      "the last span ends at 1000 ns, but the token at 1001 ns",
      (f) => {
        f.meta.token_ns = 1001;
      },
    ],
    [
      "the trace has no spans",
      (f) => {
        for (const column of Object.values(f.spans)) column.length = 0;
      },
    ],
  ];
  test.each(cases)("%s", (words, change) => {
    expect(refusal(change)).toBe(words);
  });
});

test("files changed at random are read or refused, never mistaken", async () => {
  const random = seeded(11);
  const text = JSON.stringify(small());
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
      expect(Math.max(...spans.endNs)).toBe(meta.tokenNs);
    } catch (error) {
      if (!(error instanceof TraceError)) throw error;
    }
  }
});
