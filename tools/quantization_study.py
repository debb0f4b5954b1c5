#!/usr/bin/env python3
"""Which form of FP8 weights keeps the greedy tokens of the unquantized model?

    python3 tools/quantization_study.py --model DIR --ids quality-ids.json \
        --calibration-ids bench-ids.json --text text.txt --out study.json

Every scheme quantizes the seven matrices of a layer, and the tied embedding and LM head unless the
scheme keeps them in bf16. It then replaces the weights by the float32 values of their codes and
scales. The arithmetic is transformers' in float32 (TF32 off), so two schemes differ only in the
weights. The unquantized weights are the baseline. For each scheme the study reports

greedy   share of the first 64 greedy tokens that are the same, both models decoding by themselves
prefix   the same share, counted only up to each prompt's first difference
forced   share of the same argmax when the scheme is fed the baseline's tokens (teacher-forced)
rise     rise of the perplexity of the text
kl       mean KL(baseline || scheme) of the next-token distribution, in nats
error    Frobenius norm of the weights' difference over the norm of the weights

`bf16-activations` quantizes nothing and runs transformers in bf16 instead: a yardstick.

The GPTQ schemes round one column at a time and correct the remaining columns by the second moments
of the activations (Frantar et al., arXiv:2210.17323, written from the paper's arithmetic). Their
calibration text is the unquantized model's continuation of the benchmark prompts; it contains no
prompt of the comparison.

Needs torch, transformers, tokenizers and safetensors.
"""

import argparse
import json
import time
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer
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

E4M3_MAX = 448.0
# Candidate scales of the search map the largest magnitude to the largest code's value, or up to 2.5
# times beyond it (clipping), or to a value down to half as large.
SEARCH = [2.0 ** (step / 16) for step in range(-16, 22)]

# (name, columns that share a scale (0: the row), how a scale is found, head in bf16)
SCHEMES = [
    ("row-amax", 0, "amax", False),
    ("row-amax-head-bf16", 0, "amax", True),
    ("row-search", 0, "search", False),
    ("row-search-head-bf16", 0, "search", True),
    ("group128-amax", 128, "amax", False),
    ("group32-amax", 32, "amax", False),
    ("group32-search", 32, "search", False),
    ("group16-search", 16, "search", False),
    ("group16-search-head-bf16", 16, "search", True),
    ("row-gptq", 0, "gptq", False),
    ("row-gptq-head-bf16", 0, "gptq", True),
    ("layers-bf16-head-row-amax", 0, "layers-bf16", False),
]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="folder of the checkpoint")
    parser.add_argument("--ids", required=True, help="ids of the compared prompts, as JSON")
    parser.add_argument("--calibration-ids", required=True, help="ids of other prompts, as JSON")
    parser.add_argument("--text", required=True, help="a text, for the perplexity")
    parser.add_argument("--new", type=int, default=64, help="greedy tokens a prompt")
    parser.add_argument("--windows", type=int, default=10, help="windows of the text")
    parser.add_argument("--context", type=int, default=1024, help="tokens of a window")
    parser.add_argument("--schemes", nargs="*", help="only these")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", required=True, help="file to write")
    return parser.parse_args()


def e4m3(values):
    """The nearest E4M3 values; larger values are clipped."""
    return values.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn).float()


def rounded(weights, scales):
    return e4m3(weights / scales) * scales


def amax_scales(groups):
    largest = groups.abs().amax(dim=-1, keepdim=True)
    return torch.where(largest > 0, largest, torch.ones_like(largest)) / E4M3_MAX


def searched_scales(groups):
    """The scales with the least squared error among the candidates; the amax scale is one."""
    base = amax_scales(groups)
    best, least = base, (rounded(groups, base) - groups).square().sum(dim=-1, keepdim=True)
    for factor in SEARCH:
        scales = base / factor
        error = (rounded(groups, scales) - groups).square().sum(dim=-1, keepdim=True)
        best, least = torch.where(error < least, scales, best), torch.minimum(error, least)
    return best


def quantized(weights, group, method):
    rows, cols = weights.shape
    groups = weights.reshape(rows, -1, group if group else cols)
    scales = searched_scales(groups) if method == "search" else amax_scales(groups)
    return rounded(groups, scales).reshape(rows, cols)


def gptq(weights, moments):
    """Rounds column by column; the rest of the row compensates each column's error."""
    scales = amax_scales(weights)
    cols = weights.shape[1]
    moments = moments.double()
    damp = 0.01 * moments.diagonal().mean()
    moments += damp * torch.eye(cols, dtype=torch.float64, device=moments.device)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(moments))
    upper = torch.linalg.cholesky(inverse, upper=True).float()
    left, found = weights.clone(), torch.empty_like(weights)
    block = 128
    for begin in range(0, cols, block):
        end = min(begin + block, cols)
        errors = torch.zeros((weights.shape[0], end - begin), device=weights.device)
        for col in range(begin, end):
            found[:, col] = rounded(left[:, col : col + 1], scales)[:, 0]
            error = (left[:, col] - found[:, col]) / upper[col, col]
            left[:, col:end] -= error[:, None] * upper[col, col:end][None, :]
            errors[:, col - begin] = error
        left[:, end:] -= errors @ upper[begin:end, end:]
    return found


class Model:
    """The model in float32, with its unquantized matrices kept beside it."""

    def __init__(self, folder, device):
        self.model = load(folder, torch.float32, device)
        self.device = device
        self.linears = {
            name: module
            for name, module in self.model.model.named_modules()
            if isinstance(module, torch.nn.Linear)
        }
        self.kept = {name: m.weight.detach().clone() for name, m in self.linears.items()}
        self.head = self.model.lm_head.weight.detach().clone()
        self.moments = {}

    @torch.inference_mode()
    def calibrate(self, texts):
        """Second moments of every matrix's inputs."""
        rows = 0

        def hook(name):
            def add(_, inputs, __):
                x = inputs[0].reshape(-1, inputs[0].shape[-1]).float()
                self.moments[name] = self.moments.get(name, 0) + x.T @ x

            return add

        hooks = [m.register_forward_hook(hook(n)) for n, m in self.linears.items()]
        hooks.append(self.model.lm_head.register_forward_hook(hook("lm_head")))
        for text in texts:
            forward(self.model, text, len(text), self.device)
            rows += len(text)
        for handle in hooks:
            handle.remove()
        return rows

    @torch.inference_mode()
    def set(self, group, method, head_bf16):
        """Installs a scheme's values; returns the relative error of the weights."""
        lost, size = 0.0, 0.0
        for name, kept in [*self.kept.items(), ("lm_head", self.head)]:
            head = name == "lm_head"
            if method is None or (head and head_bf16) or (method == "layers-bf16" and not head):
                values = kept
            elif method == "gptq":
                values = gptq(kept, self.moments[name])
            else:
                values = quantized(kept, group, method)
            lost += (values - kept).double().square().sum().item()
            size += kept.double().square().sum().item()
            module = self.model.lm_head if head else self.linears[name]
            # The embedding is tied: both share one storage.
            module.weight.copy_(values)
        return (lost / size) ** 0.5


def windows(text, count, context):
    return [text[i * context : (i + 1) * context] for i in range(count) if (i + 1) * context <= len(text)]


@torch.inference_mode()
def text_scores(model, parts, device, baseline=None):
    """Mean negative log-likelihood, and KL against the baseline's log-probabilities."""
    nll, kl, count, kept = 0.0, 0.0, 0, []
    for index, part in enumerate(parts):
        logs = forward(model, part, len(part), device)[:-1].float().log_softmax(-1)
        targets = torch.tensor(part[1:], device=device)
        nll -= logs.gather(1, targets[:, None]).double().sum().item()
        count += len(part) - 1
        if baseline is None:
            kept.append(logs)
        else:
            own = baseline[index]
            kl += (own.exp() * (own - logs)).double().sum().item()
    return nll / count, kl / count, count, kept


def share(pairs):
    pairs = list(pairs)
    return sum(a == b for a, b in pairs) / max(len(pairs), 1)


def prefix(own, other):
    same = 0
    for a, b in zip(own, other):
        if a != b:
            break
        same += 1
    return same


class Study:
    def __init__(self, arguments, model):
        self.arguments, self.model, self.device = arguments, model, arguments.device
        self.prompts = read_prompts(arguments.ids)
        tokenizer = Tokenizer.from_file(str(Path(arguments.model) / "tokenizer.json"))
        text = tokenizer.encode(Path(arguments.text).read_text(), add_special_tokens=False).ids
        self.parts = windows(text, arguments.windows, arguments.context)
        self.tokens = generate(model.model, self.prompts, arguments.new, self.device)[0].tolist()
        self.nll, _, self.count, self.logs = text_scores(model.model, self.parts, self.device)

    def compare(self, model):
        new = self.arguments.new
        own = generate(model, self.prompts, new, self.device)[0].tolist()
        fed = [
            lowest_argmax(forward(model, tokens, new, self.device)).tolist()
            for tokens in sequences(self.prompts, self.tokens)
        ]
        nll, kl, _, _ = text_scores(model, self.parts, self.device, self.logs)
        flat = lambda rows: (token for row in rows for token in row)
        places = len(self.prompts) * new
        return {
            "greedy": share(zip(flat(own), flat(self.tokens))),
            "prefix": sum(prefix(a, b) for a, b in zip(own, self.tokens)) / places,
            "whole": sum(a == b for a, b in zip(own, self.tokens)),
            "forced": share(zip(flat(fed), flat(self.tokens))),
            "rise": float(torch.tensor(nll - self.nll, dtype=torch.float64).expm1()),
            "kl": kl,
            "tokens": own,
        }


def show(name, found):
    print(
        f"{name:26} greedy {found['greedy']:7.2%}  prefix {found['prefix']:7.2%}  "
        f"whole {found['whole']:3}  forced {found['forced']:7.2%}  rise {found['rise']:+8.3%}  "
        f"KL {found['kl']:.6f}  error {found['error']:.5f}",
        flush=True,
    )


def main():
    arguments = parse_arguments()
    device, began = arguments.device, time.monotonic()
    exact_float32()
    model = Model(arguments.model, device)
    prompts = read_prompts(arguments.calibration_ids)
    written = generate(model.model, prompts, 256, device)[0].tolist()
    rows = model.calibrate([prompt + row for prompt, row in zip(prompts, written)])
    study = Study(arguments, model)
    print(f"calibrated on {rows} tokens; perplexity of {study.count} tokens in f32: "
          f"{torch.tensor(study.nll).exp():.4f}", flush=True)
    schemes = {}
    for name, group, method, head_bf16 in SCHEMES:
        if arguments.schemes and name not in arguments.schemes:
            continue
        error = model.set(group, method, head_bf16)
        schemes[name] = study.compare(model.model) | {"error": error}
        show(name, schemes[name])
    model.set(0, None, False)
    lower = load(arguments.model, torch.bfloat16, device)
    schemes["bf16-activations"] = study.compare(lower) | {"error": 0.0}
    show("bf16-activations", schemes["bf16-activations"])
    record = {
        "schema_version": 1,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": device_name(device),
        "tensors_sha256": tensors_sha256(arguments.model, model.model.config.tie_word_embeddings),
        "prompt_ids_sha256": prompt_ids_sha256(study.prompts),
        "new": arguments.new,
        "calibration_tokens": rows,
        "text_tokens": study.count,
        "nll_f32": study.nll,
        "f32": study.tokens,
        "schemes": schemes,
    }
    Path(arguments.out).write_text(json.dumps(record, separators=(",", ":")) + "\n")
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
