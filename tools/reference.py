#!/usr/bin/env python3
"""Writes transformers' tokens and logits, the reference of `monolith gate`.

    python3 tools/reference.py --model DIR --ids ids.json --out DIR

`ids.json` holds lists of prompt token ids, or an object with such lists in `ids` (the harness
writes one). The script loads the model as Qwen3ForCausalLM with eager attention, in bf16, and
decodes all prompts greedily as one batch, left-padded. Of equal logits the lowest id wins, and
end-of-text tokens do not end the text. Then each prompt's whole sequence separately goes through
the model in f32 (TF32 off) and once more in bf16.

Writes two files:

reference.json          versions, hashes, the prompts, the tokens, and the tolerance: the 99.9th
                        percentile of |bf16 - f32| over every logit of every compared position
reference.safetensors   one value per compared position, [prompts, new]: `margin` (top-2, of the
                        bf16 logits that chose the token), `f32_argmax`,
                        `error_max`, `error_p999`, `error_rms` (|bf16 - f32| over the vocabulary).
                        Whole rows of logits, [rows, vocab]: `rows_f32`, `rows_bf16`, with
                        `rows_index`, [rows, 2]: prompt and step.
                        A sequence to the end of the context: `long_tokens`, and for its last
                        positions `long_positions`, `long_margin`, `long_bf16_argmax`,
                        `long_rows_f32`, `long_rows_bf16`.

Needs torch, transformers and safetensors; runs on a CPU too, for small models.
"""

import argparse
import hashlib
import json
import math
import time
from pathlib import Path

import torch
import transformers
from output import Progress, replaced, write_whole
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import DynamicCache, Qwen3ForCausalLM

PERCENTILE = 0.999
SCHEMA_VERSION = 1


class ErrorStats:
    """Maximum, root mean square and an exact percentile of absolute errors, in any number of
    pieces. Positive floats and their bits have the same order, so two histograms of 16 bits find
    the percentile."""

    def __init__(self, device):
        self.device = device
        self.count = 0
        self.largest = 0.0
        self.squares = 0.0
        self.high = torch.zeros(1 << 15, dtype=torch.int64, device=device)

    def add(self, error):
        flat = error.reshape(-1).contiguous()
        self.count += flat.numel()
        self.largest = max(self.largest, flat.max().item())
        self.squares += flat.double().square().sum().item()
        self.high += torch.bincount(flat.view(torch.int32) >> 16, minlength=1 << 15)

    def rank(self):
        return min(self.count, math.ceil(PERCENTILE * self.count))

    def bin(self):
        """The bin that holds the percentile, and the errors below it."""
        below = self.high.cumsum(0)
        at = int(torch.searchsorted(below, torch.tensor(self.rank(), device=self.device)).item())
        return at, int(below[at - 1].item()) if at else 0

    def percentile(self, again):
        """`again` returns the same pieces a second time."""
        at, below = self.bin()
        low = torch.zeros(1 << 16, dtype=torch.int64, device=self.device)
        for error in again():
            bits = error.reshape(-1).contiguous().view(torch.int32)
            low += torch.bincount(bits[(bits >> 16) == at] & 0xFFFF, minlength=1 << 16)
        wanted = torch.tensor(self.rank() - below, device=self.device)
        found = int(torch.searchsorted(low.cumsum(0), wanted).item())
        bits = torch.tensor([(at << 16) | found], dtype=torch.int32)
        return bits.view(torch.float32).item()

    def summary(self, again):
        return {
            "count": self.count,
            "max": self.largest,
            "p999": self.percentile(again),
            "rms": math.sqrt(self.squares / self.count),
        }


def load(folder, dtype, device, progress=None):
    progress = progress or Progress()
    progress.say(f"loading {folder} in {str(dtype).removeprefix('torch.')}")
    model = Qwen3ForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    return model.to(device).eval()


def lowest_argmax(logits):
    """The lowest id of the largest logit, along the last dimension."""
    is_largest = logits == logits.max(dim=-1, keepdim=True).values
    ids = torch.arange(logits.shape[-1], device=logits.device)
    return torch.where(is_largest, ids, logits.shape[-1]).min(dim=-1).values


def margin(logits):
    top = logits.float().topk(2, dim=-1).values
    return top[..., 0] - top[..., 1]


@torch.inference_mode()
def generate(model, prompts, new, device, progress=None):
    """Greedy tokens and the logits that chose them, all prompts as one batch."""
    progress = progress or Progress()
    dtype = str(model.dtype).removeprefix("torch.")
    longest = max(len(prompt) for prompt in prompts)
    pad = [longest - len(prompt) for prompt in prompts]
    ids = torch.tensor([[0] * n + p for n, p in zip(pad, prompts)], device=device)
    mask = torch.tensor([[0] * n + [1] * len(p) for n, p in zip(pad, prompts)], device=device)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    vocab = model.config.vocab_size
    logits = torch.empty((len(prompts), new, vocab), dtype=model.dtype, device=device)
    tokens = torch.empty((len(prompts), new), dtype=torch.int64, device=device)
    cache = DynamicCache()
    for step in range(new):
        progress.step(f"greedy steps in {dtype}", step, new)
        out = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits[:, step] = out.logits[:, -1]
        tokens[:, step] = lowest_argmax(logits[:, step])
        ids = tokens[:, step : step + 1]
        mask = torch.cat([mask, mask.new_ones((len(prompts), 1))], dim=1)
        positions = positions[:, -1:] + 1
    return tokens, logits


@torch.inference_mode()
def forward(model, tokens, keep, device):
    """Logits after each of the last `keep` tokens of one sequence."""
    ids = torch.tensor([tokens], device=device)
    return model(input_ids=ids, use_cache=False, logits_to_keep=keep).logits[0]


def sequences(prompts, tokens):
    """The input that produces each of the tokens: the prompt and all tokens but the last."""
    return [prompt + row[:-1] for prompt, row in zip(prompts, tokens)]


def long_tokens(prompts, tokens, context):
    """Prompts and their tokens one after another, repeated up to the context's end."""
    once = [token for prompt, row in zip(prompts, tokens) for token in prompt + row]
    return (once * math.ceil(context / len(once)))[:context]


def row_places(prompts, new, every, limit):
    """(prompt, step) of the rows that are kept whole."""
    places = [(p, s) for p in range(prompts) for s in range(every - 1, new, every)]
    if limit and len(places) > limit:
        places = [places[i * len(places) // limit] for i in range(limit)]
    return places


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def read_prompts(path):
    """The prompts' ids, from the file of `monolith ids` or from bare lists."""
    said = json.loads(Path(path).read_text())
    return said["ids"] if isinstance(said, dict) else said


def prompt_ids_sha256(prompts):
    return sha256(json.dumps(prompts, separators=(",", ":")).encode())


def sha256_of_file(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tensors_sha256(folder, tied):
    """One hash of the weights' values, independent of their files: of a line `name hash` for each
    tensor, in order of name; the head of a tied model is its embedding and has no line."""
    lines = []
    for path in sorted(Path(folder).glob("model*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():
                if tied and name == "lm_head.weight":
                    continue
                values = file.get_tensor(name).contiguous().view(torch.uint8)
                lines.append(f"{name} {sha256(values.numpy().tobytes())}\n")
    return sha256("".join(sorted(lines)).encode())


def prompt_columns(model, prompts, tokens, logits, arguments, device, progress):
    """The columns and rows of the comparison of bf16 logits with f32's, and the errors' summary."""
    new = logits.shape[1]
    stats = ErrorStats(device)
    columns = {name: [] for name in ["f32_argmax", "error_max", "error_p999", "error_rms"]}
    places = row_places(len(prompts), new, arguments.rows_every, arguments.rows)
    rows = []
    kth = min(logits.shape[2], math.ceil(PERCENTILE * logits.shape[2]))
    fed = sequences(prompts, tokens)

    def error_of(prompt, what):
        progress.step(what, prompt, len(prompts))
        exact = forward(model, fed[prompt], new, device)
        return exact, (logits[prompt].float() - exact).abs()

    for prompt in range(len(prompts)):
        exact, error = error_of(prompt, "prompts in float32")
        stats.add(error)
        columns["f32_argmax"].append(lowest_argmax(exact).int())
        columns["error_max"].append(error.max(dim=1).values)
        columns["error_p999"].append(error.kthvalue(kth, dim=1).values)
        columns["error_rms"].append(error.double().square().mean(dim=1).sqrt().float())
        rows += [exact[s].cpu() for p, s in places if p == prompt]
    again = "prompts in float32, for the percentile"
    summary = stats.summary(lambda: (error_of(p, again)[1] for p in range(len(prompts))))
    found = {name: torch.stack(values).cpu() for name, values in columns.items()}
    found["margin"] = margin(logits).cpu()
    found["rows_f32"] = torch.stack(rows)
    found["rows_bf16"] = torch.stack([logits[p, s].cpu() for p, s in places])
    found["rows_index"] = torch.tensor(places, dtype=torch.int32)
    return found, summary


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="folder of the checkpoint")
    parser.add_argument("--ids", required=True, help="prompt token ids, as JSON")
    parser.add_argument("--new", type=int, default=256, help="greedy tokens a prompt")
    parser.add_argument("--context", type=int, default=4096, help="length of the long sequence")
    parser.add_argument("--long-rows", type=int, default=16, help="positions compared at its end")
    parser.add_argument("--rows-every", type=int, default=16, help="keep every n-th logits row")
    parser.add_argument("--rows", type=int, default=0, help="and at most so many; 0: all")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", required=True, help="folder to write to")
    return parser.parse_args()


def exact_float32():
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def device_name(device):
    return torch.cuda.get_device_name() if device.startswith("cuda") else "cpu"


def main():
    arguments = parse_arguments()
    device, began = arguments.device, time.monotonic()
    progress = Progress()
    prompts = read_prompts(arguments.ids)
    exact_float32()
    model = load(arguments.model, torch.bfloat16, device, progress)
    config = model.config
    context = min(arguments.context, config.max_position_embeddings)
    drawn, logits = generate(model, prompts, arguments.new, device, progress)
    tokens = drawn.tolist()
    alone = []
    for fed, row in zip(sequences(prompts, tokens), drawn):
        progress.step("prompts in bfloat16, each alone", len(alone), len(prompts))
        found = lowest_argmax(forward(model, fed, arguments.new, device))
        alone.append(int((found != row).sum()))
    long = long_tokens(prompts, tokens, context)
    progress.say(f"{len(long)} positions in bfloat16")
    long_bf16 = forward(model, long, arguments.long_rows, device).cpu()
    del model
    model = load(arguments.model, torch.float32, device, progress)
    tensors, error = prompt_columns(model, prompts, tokens, logits, arguments, device, progress)
    progress.say(f"{len(long)} positions in float32")
    long_f32 = forward(model, long, arguments.long_rows, device).cpu()
    tensors |= {
        "long_tokens": torch.tensor(long, dtype=torch.int32),
        "long_positions": torch.arange(context - arguments.long_rows, context).int(),
        "long_margin": margin(long_bf16),
        "long_bf16_argmax": lowest_argmax(long_bf16).int(),
        "long_rows_f32": long_f32,
        "long_rows_bf16": long_bf16,
    }
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    progress.say(f"writing {out}")
    with replaced(out / "reference.safetensors") as part:
        save_file({k: v.contiguous() for k, v in tensors.items()}, part)
    near_ties = int((tensors["margin"] < error["p999"]).sum())
    differs = tensors["f32_argmax"] != drawn.cpu()
    refused = differs & (tensors["margin"] >= error["p999"])
    record = {
        "schema_version": SCHEMA_VERSION,
        "engine": "transformers",
        "format": "bf16",
        "attention": "eager",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": device_name(device),
        "tensors_sha256": tensors_sha256(arguments.model, config.tie_word_embeddings),
        "files_sha256": {
            path.name: sha256_of_file(path)
            for path in sorted(Path(arguments.model).glob("model*.safetensors"))
        },
        "prompt_ids_sha256": prompt_ids_sha256(prompts),
        "logits_sha256": sha256_of_file(out / "reference.safetensors"),
        "vocab": config.vocab_size,
        "new": arguments.new,
        "context": context,
        "tolerance": error["p999"],
        "error": error,
        "near_ties": near_ties,
        "f32_divergences": int(differs.sum()),
        "f32_divergences_beyond_tolerance": int(refused.sum()),
        "tokens_that_one_pass_alone_would_choose_otherwise": sum(alone),
        "prompts": prompts,
        "tokens": tokens,
    }
    # Written last: it holds the other file's hash, so an interrupted run leaves no reference.
    write_whole(out / "reference.json", json.dumps(record, separators=(",", ":")) + "\n")
    took = time.monotonic() - began
    positions = len(prompts) * arguments.new
    print(f"tolerance {error['p999']:.6g}, rms {error['rms']:.3g}, {took:.0f} s")
    print(f"{near_ties} near ties in {positions} positions; {sum(alone)} times alone otherwise")
    print(f"f32 says another token {int(differs.sum())} times, {int(refused.sum())} beyond it")


if __name__ == "__main__":
    main()
