#!/usr/bin/env python3
"""How far transformers' bf16 and f32 agree on the same weights: `monolith quality --control`.

    python3 tools/control.py --model DIR --ids ids.json --out control.json

`monolith ids --prompts data/prompts/quality.jsonl` writes `ids.json`. Nothing is quantized here:
the model decodes the prompts greedily in bf16, and again in f32 (TF32 off), each by itself; and
f32 is teacher-forced with the tokens of bf16, so that both continue the same text. `monolith
quality` puts these figures beside a weight format's, and compares its own bf16 engine with the f32
tokens. They loosen no threshold.

Writes one JSON file: versions, hashes, and three lists of tokens per prompt (`bf16`, `f32`,
`f32_fed`). Progress goes to stderr. Needs torch, transformers and safetensors; runs on a CPU too,
for small models.
"""

import argparse
import json
import time

import torch
import transformers
from output import Progress, write_whole
from reference import (
    device_name,
    exact_float32,
    forward,
    generate,
    load,
    lowest_argmax,
    prompt_ids_sha256,
    read_prompts,
    sequences,
    tensors_sha256,
)

SCHEMA_VERSION = 1


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="folder of the checkpoint")
    parser.add_argument("--ids", required=True, help="prompt token ids, as JSON")
    parser.add_argument("--new", type=int, default=64, help="greedy tokens a prompt")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", required=True, help="file to write")
    return parser.parse_args()


def same(one, other):
    pairs = [(a, b) for row, others in zip(one, other) for a, b in zip(row, others)]
    return sum(a == b for a, b in pairs) / max(len(pairs), 1)


def main():
    arguments = parse_arguments()
    device, new, began = arguments.device, arguments.new, time.monotonic()
    progress = Progress()
    prompts = read_prompts(arguments.ids)
    exact_float32()
    model = load(arguments.model, torch.bfloat16, device, progress)
    tied = model.config.tie_word_embeddings
    bf16 = generate(model, prompts, new, device, progress)[0].tolist()
    del model
    model = load(arguments.model, torch.float32, device, progress)
    fed = []
    for tokens in sequences(prompts, bf16):
        progress.step("prompts in float32, fed the tokens of bf16", len(fed), len(prompts))
        fed.append(lowest_argmax(forward(model, tokens, new, device)).tolist())
    f32 = generate(model, prompts, new, device, progress)[0].tolist()
    progress.say("hashing the weights")
    record = {
        "schema_version": SCHEMA_VERSION,
        "engine": "transformers",
        "attention": "eager",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": device_name(device),
        "tensors_sha256": tensors_sha256(arguments.model, tied),
        "prompt_ids_sha256": prompt_ids_sha256(prompts),
        "new": new,
        "bf16": bf16,
        "f32": f32,
        "f32_fed": fed,
    }
    write_whole(arguments.out, json.dumps(record, separators=(",", ":")) + "\n")
    took = time.monotonic() - began
    print(f"{len(prompts)} prompts x {new} tokens, {took:.0f} s")
    print(f"bf16 and f32 agree in {same(bf16, f32):.2%}, after the same text {same(bf16, fed):.2%}")


if __name__ == "__main__":
    main()
