#!/usr/bin/env python3
"""Trains a stand-in for Qwen3-0.6B: its exact shape, on the tiny model's text, one GPU, minutes.

    monolith synth --shape qwen3-0.6b --seed 0 -o BASE          # the seeded random weights
    monolith synth --deltas OUT -o DIR      # rebuilds what lowrank has written, without Python
    python3 tools/train_standin.py --form lowrank --base BASE --out OUT --checkpoint DIR
    python3 tools/train_standin.py --form full --out OUT --checkpoint DIR
    python3 tools/train_standin.py --rebuild --base BASE --deltas OUT --checkpoint DIR   # a CPU
    python3 tools/train_standin.py --evaluate --checkpoint DIR --out OUT                 # either

Text and tokenizer come from tools/make_corpus.py (`--corpus`). The tokenizer has 4,096 tokens, but
the model 151,936 rows: every step's softmax includes a random sample of the unused rows, so that
they never win. `--out` receives standin.json with every number of the run; `--checkpoint` receives
a folder that transformers' Qwen3ForCausalLM loads. All closing numbers are of that folder. The
shipped model (data/standin) was trained as `lowrank`, by the command in its card.

There are two forms. `full` trains every weight. `lowrank` ships megabytes: the seeded random
weights stay, and --out receives the trained changes in `deltas-*.safetensors` (at most 15 MiB each)
with config and tokenizer, so that it is a folder for `monolith synth --deltas`:

    norms               NAME                  BF16 [n]           as they are
    projections         NAME.scale            F32 [1]
                        NAME.a, NAME.a_scale  I8 [R, cols], F32 [R]
                        NAME.b, NAME.b_scale  I8 [R, rows], F32 [R]
    embedding           NAME.rows             I8 [used, cols]    rows that tokens use
                        NAME.rows_scale       F32 [used]
                        NAME.scale            F32 [1]            the other rows
                        NAME.offset           F32 [cols]

The rebuild is exact, here and in crates/model/src/synth/deltas.rs. It computes in f32, rounds each
product and each sum separately (no fused multiply-add), and rounds to bf16 to nearest even:

    A[r, col] = a[r, col] * a_scale[r]        B[row, r] = b[r, row] * b_scale[r]
    projection[row, col] = bf16(((scale * base[row, col] + B[row, 0] * A[0, col]) + ...) with r
                           ascending to R - 1
    used row   = bf16(rows[row, col] * rows_scale[row])
    other row  = bf16(scale * base[row, col] + offset[col])

Needs torch, transformers, safetensors, tokenizers, numpy. `--dry` is a trial on a CPU.
"""

import argparse
import hashlib
import json
import math
import shutil
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, Iterator

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import nn

from reference import forward, generate, load, lowest_argmax, margin
from train_tiny import (
    Corpus,
    Shape,
    autocast,
    config_json,
    evaluate,
    learning_rate,
    repeat_penalty,
    rope_tables,
    rotate,
    write_json,
)

QWEN3_0_6B = Shape(
    vocab_size=151_936, hidden_size=1024, num_hidden_layers=28, num_attention_heads=16,
    num_key_value_heads=8, head_dim=128, intermediate_size=3072, max_position_embeddings=40_960,
)  # fmt: skip
DRY = Shape(
    vocab_size=8192, hidden_size=64, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, head_dim=32, intermediate_size=192,
)  # fmt: skip
FILE_BYTES_MAX = 15 << 20
BASE_SEED = 0  # of `monolith synth`; the Rust rebuild reads it from standin.json
EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
DTYPES = {"F32": np.dtype("<f4"), "BF16": np.dtype("<u2"), "I8": np.dtype("i1")}


def projection_shapes(shape: Shape) -> dict[str, tuple[int, int]]:
    """Rows and columns of a layer's matrices, in the order of the checkpoint."""
    hidden, inner = shape.hidden_size, shape.intermediate_size
    query = shape.num_attention_heads * shape.head_dim
    kv = shape.num_key_value_heads * shape.head_dim
    return {
        "self_attn.q_proj": (query, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, query),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }


def shape_of_config(path: Path) -> Shape:
    config = json.loads(path.read_text())
    return Shape(**{name: config[name] for name in Shape.__dataclass_fields__})


# ---- safetensors, in numpy: arrays of bf16 are their 16 bits ----


def read_header(path: Path) -> tuple[dict, int]:
    """The file's entries, and the offset of its data."""
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    return header, 8 + size


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """Views of the mapped file."""
    header, begin = read_header(path)
    data = np.memmap(path, np.uint8, "r")
    arrays = {}
    for name, entry in header.items():
        low, high = (begin + offset for offset in entry["data_offsets"])
        arrays[name] = data[low:high].view(DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return arrays


def write_tensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    names = {dtype: name for name, dtype in DTYPES.items()}
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": names[array.dtype], "shape": list(array.shape),
                        "data_offsets": [end, end + array.nbytes]}  # fmt: skip
        end += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).data)


def f32_of_bf16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def bf16_of_f32(values: np.ndarray) -> np.ndarray:
    """Rounds to nearest, ties to even; there are no NaNs."""
    bits = values.view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


# ---- the rebuild ----


def int8_rows(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes of each row, and the row's scale."""
    scale = np.maximum(np.abs(values).max(1), np.float32(1e-30)) / np.float32(127)
    return np.rint(values / scale[:, None]).astype(np.int8), scale.astype(np.float32)


def f32_of_int8(codes: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return codes.astype(np.float32) * scale[:, None]


def read_deltas(path: Path) -> dict[str, np.ndarray]:
    """Reads one file, or every deltas file of a folder."""
    files = sorted(path.glob("deltas-*.safetensors")) if path.is_dir() else [path]
    assert files, f"no deltas in {path}"
    return {name: array for file in files for name, array in read_tensors(file).items()}


def rebuilt_projection(base: np.ndarray, deltas: dict, name: str, out: np.ndarray) -> None:
    a = f32_of_int8(deltas[f"{name}.a"], deltas[f"{name}.a_scale"])
    b = f32_of_int8(deltas[f"{name}.b"], deltas[f"{name}.b_scale"])
    scale = deltas[f"{name}.scale"][0]
    for begin in range(0, len(base), 128):  # so that a part and its products stay in cache
        rows = slice(begin, begin + 128)
        values = f32_of_bf16(base[rows]) * scale
        for r in range(len(a)):
            values += b[r, rows, None] * a[r]  # two roundings: the product is an array first
        out[rows] = bf16_of_f32(values)


def rebuilt_embedding(base: np.ndarray, deltas: dict, out: np.ndarray) -> None:
    used = len(deltas[f"{EMBEDDING}.rows"])
    scale, offset = deltas[f"{EMBEDDING}.scale"][0], deltas[f"{EMBEDDING}.offset"]
    rows = f32_of_int8(deltas[f"{EMBEDDING}.rows"], deltas[f"{EMBEDDING}.rows_scale"])
    out[:used] = bf16_of_f32(rows)
    for begin in range(used, len(base), 1024):
        part = slice(begin, begin + 1024)
        out[part] = bf16_of_f32(f32_of_bf16(base[part]) * scale + offset)


def rebuild(base_dir: Path, deltas_path: Path, out_dir: Path) -> None:
    """Writes `model.safetensors` with the base's header and the values defined at the top of this
    file."""
    source, target = base_dir / "model.safetensors", out_dir / "model.safetensors"
    base, deltas = read_tensors(source), read_deltas(deltas_path)
    header, begin = read_header(source)
    out_dir.mkdir(parents=True, exist_ok=True)
    data = np.memmap(target, np.uint8, "w+", shape=(source.stat().st_size,))
    with open(source, "rb") as file:
        data[:begin] = np.frombuffer(file.read(begin), np.uint8)

    def rebuild_one(name: str) -> None:
        low, high = (begin + offset for offset in header[name]["data_offsets"])
        out = data[low:high].view(np.uint16).reshape(header[name]["shape"])
        if name == EMBEDDING:
            rebuilt_embedding(base[name], deltas, out)
        elif name in deltas:
            out[:] = deltas[name]
        else:
            rebuilt_projection(base[name], deltas, name, out)

    with ThreadPoolExecutor() as threads:  # numpy's loops release the interpreter's lock
        list(threads.map(rebuild_one, header))
    data.flush()


def write_companions(shape: Shape, tiny: Path, out: Path) -> None:
    """The tiny model's tokenizer, and a configuration with its end-of-text token."""
    end_of_text = json.loads((tiny / "config.json").read_text())["eos_token_id"]
    write_json(out / "config.json", config_json(shape, end_of_text))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copyfile(tiny / name, out / name)


# ---- the model; parameter names of a dense one are Qwen3ForCausalLM's ----


class Norm(nn.Module):
    """With a weight rounded as shipped, and a fused kernel if torch has one."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.eps).to(x.dtype)


class LowRank(nn.Module):
    """`gain * start * base + reach * b a`: base, start and reach fixed, the rest trained.

    `start` and `reach` are tensors: as numbers they would be compiled into every layer anew.
    """

    def __init__(self, base: torch.Tensor, rank: int, deviation: float, reach: float):
        super().__init__()
        rows, cols = base.shape
        # Some rows or columns of the base have another deviation; the usual one counts.
        usual = base.float().std(0).median()
        self.register_buffer("base", base)
        self.register_buffer("start", deviation / usual)
        self.register_buffer("reach", torch.tensor(reach, device=base.device))
        self.gain = nn.Parameter(torch.ones((), device=base.device))
        self.a = nn.Parameter(torch.randn(rank, cols, device=base.device) * cols**-0.5)
        self.b = nn.Parameter(torch.zeros(rows, rank, device=base.device))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        usual = F.linear(x, self.base) * (self.start * self.gain).to(x.dtype)
        return usual + F.linear(F.linear(x, self.a), self.b * self.reach)


Project = Callable[[str, int, int], nn.Module]  # of a name, rows and columns


class Layer(nn.Module):
    def __init__(self, shape: Shape, dropout: float, project: Callable[[str], nn.Module]):
        super().__init__()
        self.self_attn, self.mlp = nn.Module(), nn.Module()
        for name in projection_shapes(shape):
            part, matrix = name.split(".")
            setattr(getattr(self, part), matrix, project(name))
        self.self_attn.q_norm = Norm(shape.head_dim, shape.rms_norm_eps)
        self.self_attn.k_norm = Norm(shape.head_dim, shape.rms_norm_eps)
        self.input_layernorm = Norm(shape.hidden_size, shape.rms_norm_eps)
        self.post_attention_layernorm = Norm(shape.hidden_size, shape.rms_norm_eps)
        self.head_dim = shape.head_dim
        self.drop = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.drop(self.attention(self.input_layernorm(x), cos, sin))
        mlp, normed = self.mlp, self.post_attention_layernorm(x)
        inner = F.silu(mlp.gate_proj(normed)) * mlp.up_proj(normed)
        return x + self.drop(mlp.down_proj(inner))

    def attention(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        part, (batch, length, _) = self.self_attn, x.shape
        q, k, v = (
            project(x).view(batch, length, -1, self.head_dim)
            for project in (part.q_proj, part.k_proj, part.v_proj)
        )
        q = rotate(part.q_norm(q).transpose(1, 2), cos, sin)
        k = rotate(part.k_norm(k).transpose(1, 2), cos, sin)
        mixed = F.scaled_dot_product_attention(
            q, k, v.transpose(1, 2), is_causal=True, enable_gqa=True
        )
        return part.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))


class StandIn(nn.Module):
    """`used` are the embedding rows of the tokenizer's tokens. The others are fixed rows,
    `unused_scale` times `unused`, plus one trained row that pushes them all down."""

    def __init__(
        self, shape: Shape, used: torch.Tensor, unused: torch.Tensor, unused_scale: float,
        project: Project, arguments: argparse.Namespace,
    ):  # fmt: skip
        super().__init__()
        self.used = nn.Parameter(used)
        self.register_buffer("unused", unused)
        self.unused_scale, self.sample = unused_scale, min(arguments.sample, len(unused))
        self.offset = nn.Parameter(torch.zeros(shape.hidden_size))
        sizes = projection_shapes(shape)
        self.layers = nn.ModuleList(
            Layer(shape, arguments.dropout, lambda name, at=at: project(
                f"model.layers.{at}.{name}.weight", *sizes[name]))
            for at in range(shape.num_hidden_layers)
        )  # fmt: skip
        self.norm = Norm(shape.hidden_size, shape.rms_norm_eps)
        self.drop = nn.Dropout(arguments.dropout)
        # All layers share one compiled layer; evaluation has other sizes and stays eager.
        self.train_layer = torch.compile(Layer.forward) if arguments.compile else Layer.forward

    def hidden(self, tokens: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        dtype = self.unused.dtype  # also of the residual stream: bf16 on a GPU, as when served
        x = self.drop(F.embedding(tokens, self.used).to(dtype))
        cos, sin = cos.to(dtype), sin.to(dtype)
        run = self.train_layer if self.training else Layer.forward
        for layer in self.layers:
            x = run(layer, x, cos, sin)
        return self.norm(x)

    def sampled_rows(self) -> torch.Tensor:
        index = torch.randint(len(self.unused), (self.sample,), device=self.unused.device)
        return self.unused_scale * self.unused[index].float() + self.offset

    def losses(
        self, tokens: torch.Tensor, targets: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> torch.Tensor:
        return self.losses_and_partition(tokens, targets, cos, sin)[0]

    def losses_and_partition(
        self, tokens: torch.Tensor, targets: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss of every token, and the logarithm of its softmax's denominator, in which each
        sampled row stands for its share of all unused rows."""
        x = self.hidden(tokens, cos, sin).flatten(0, 1)
        used = F.linear(x, self.used).float()
        partition = used.logsumexp(1)
        if self.sample:
            unused = F.linear(x, self.sampled_rows()).float()
            share = math.log(len(self.unused) / self.sample)
            partition = torch.logaddexp(partition, unused.logsumexp(1) + share)
        return partition - used.gather(1, targets.reshape(-1, 1))[:, 0], partition


def write_deviation(shape: Shape, arguments: argparse.Namespace) -> float:
    """Size of the output of each of a layer's two matrices that write to the residual stream."""
    return arguments.write * (2 * shape.num_hidden_layers) ** -0.5


def is_writer(name: str) -> bool:
    return name.endswith(("o_proj.weight", "down_proj.weight"))


def used_rows(shape: Shape, arguments: argparse.Namespace) -> torch.Tensor:
    return 0.02 * torch.randn(arguments.used, shape.hidden_size)


def full_model(shape: Shape, arguments: argparse.Namespace) -> StandIn:
    def project(name: str, rows: int, cols: int) -> nn.Module:
        matrix = nn.Linear(cols, rows, bias=False, device=arguments.device)
        # The two matrices that write to the residual stream start smaller.
        shrink = (2 * shape.num_hidden_layers) ** -0.5 if is_writer(name) else 1.0
        nn.init.normal_(matrix.weight, std=0.02 * shrink)
        return matrix

    unused = torch.randn(shape.vocab_size - arguments.used, shape.hidden_size)
    unused = unused.to(compute_dtype(arguments.device))
    model = StandIn(shape, used_rows(shape, arguments), unused, 0.02, project, arguments)
    return model.to(arguments.device)


def lowrank_model(shape: Shape, arguments: argparse.Namespace) -> StandIn:
    base = read_tensors(arguments.base / "model.safetensors")
    dtype, device = compute_dtype(arguments.device), arguments.device

    def tensor(name: str) -> torch.Tensor:
        bits = torch.from_numpy(np.array(base[name]).view(np.int16))
        return bits.view(torch.bfloat16).to(device, dtype)

    def project(name: str, rows: int, cols: int) -> nn.Module:
        assert base[name].shape == (rows, cols), name
        reach = write_deviation(shape, arguments) if is_writer(name) else 1.0
        return LowRank(tensor(name), arguments.rank, reach * cols**-0.5, reach)

    unused = tensor(EMBEDDING)[arguments.used :]
    used = used_rows(shape, arguments)
    model = StandIn(shape, used, unused, arguments.unused_scale, project, arguments).to(device)
    calm_input_norms(model)
    return model


@torch.no_grad()
def calm_input_norms(model: StandIn) -> None:
    """Gives less to columns that the base's queries and keys read with a larger weight."""
    for layer in model.layers:
        deviations = layer.self_attn.k_proj.base.float().std(0)
        layer.input_layernorm.weight.copy_((deviations.median() / deviations).clamp(max=1))


def compute_dtype(device: str) -> torch.dtype:
    return torch.bfloat16 if device == "cuda" else torch.float32


# ---- training ----


def optimizer_for(model: StandIn, arguments: argparse.Namespace) -> torch.optim.AdamW:
    """Every group has its own peak; vectors have no weight decay.

    The factor b sums over 16 inputs where other matrices sum over 1,024 or more: a step of the
    same size changes its output less, so it takes larger ones (LoRA+, Hayou et al. 2024).
    """
    groups: dict[str, list] = {"matrices": [], "b": [], "embedding": [], "vectors": []}
    for name, weight in model.named_parameters():
        kind = "matrices" if weight.dim() == 2 else "vectors"
        groups[{"used": "embedding", "b": "b"}.get(name.split(".")[-1], kind)].append(weight)
    peaks = {"matrices": arguments.lr, "b": arguments.lr_b, "embedding": arguments.lr_embedding,
             "vectors": arguments.lr_vectors}  # fmt: skip
    return torch.optim.AdamW(
        [{"params": weights, "peak": peaks[kind],
          "weight_decay": 0.0 if kind == "vectors" else arguments.weight_decay}
         for kind, weights in groups.items() if weights],
        lr=arguments.lr, betas=(0.9, 0.95), fused=arguments.device == "cuda",
    )  # fmt: skip


def train_step(
    model: StandIn, corpus: Corpus, rope: tuple[torch.Tensor, torch.Tensor],
    arguments: argparse.Namespace,
) -> torch.Tensor:  # fmt: skip
    """Backpropagates one batch; returns the plain loss of its ordinary windows."""
    ordinary = arguments.batch - arguments.repeats
    tokens, targets = corpus.windows(ordinary)
    if arguments.repeats:
        loops, loop_targets, counterpart = corpus.repeat_windows(arguments.repeats)
        tokens, targets = torch.cat((tokens, loops)), torch.cat((targets, loop_targets))
    with autocast(corpus.device):
        losses, partition = model.losses_and_partition(tokens, targets, *rope)
    losses = losses.view(arguments.batch, -1)
    plain = losses[:ordinary].mean()
    # Keeps logits in bf16's fine range: the larger ones are then logarithms of probabilities.
    total = plain + arguments.z_loss * partition.square().mean()
    if arguments.repeats:
        total = total + repeat_penalty(losses[ordinary:], counterpart)
    total.backward()
    return plain.detach()


class Progress:
    """The clock of a run, from the third step on, and its progress reports."""

    def __init__(self, arguments: argparse.Namespace):
        self.arguments = arguments
        self.begin = self.training_begin = self.told = time.monotonic()
        self.step, self.told_step, self.curve, self.recent = 0, 0, [], []

    def share(self) -> float:
        # Compilation, in the first steps, does not count as the run's time.
        seconds = time.monotonic() - self.training_begin if self.step >= 3 else 0.0
        limit = 60 * self.arguments.minutes
        return max(seconds / limit, self.step / self.arguments.max_steps)

    def stepped(self, loss: torch.Tensor) -> None:
        self.step += 1
        if self.step % 10 == 1:  # reading the loss waits for the GPU, so that the clock is right
            self.recent.append(loss.item())
        if self.step == 3:
            self.training_begin = self.told = time.monotonic()
            self.told_step = 3
            print(f"first steps {self.training_begin - self.begin:.0f} s", flush=True)
        if time.monotonic() - self.told > 10:
            self.tell()

    def tell(self) -> None:
        now, tokens = time.monotonic(), self.arguments.batch * self.arguments.length
        speed = (self.step - self.told_step) * tokens / max(now - self.told, 1e-9)
        loss = f"{sum(self.recent[-10:]) / len(self.recent[-10:]):.4f}" if self.recent else "-"
        print(f"{now - self.training_begin:5.0f} s  step {self.step:6}  {speed:9,.0f} tok/s  "
              f"train {loss}", flush=True)  # fmt: skip
        self.told, self.told_step = now, self.step

    def evaluated(self, heldout: dict) -> None:
        seconds = time.monotonic() - self.training_begin
        tokens = self.step * self.arguments.batch * self.arguments.length
        train_loss = sum(self.recent) / len(self.recent) if self.recent else None
        wiki = heldout["sources"]["wiki"]
        print(f"{seconds:5.0f} s  step {self.step:6}  {tokens / 1e6:.1f} M tokens  "
              f"held-out {heldout['mixture']:.4f}  wiki {wiki:.4f}", flush=True)  # fmt: skip
        self.curve.append({"step": self.step, "tokens": tokens, "seconds": round(seconds, 1),
                           "train": train_loss, "heldout": heldout["mixture"]})  # fmt: skip
        self.recent = []
        self.told, self.told_step = time.monotonic(), self.step

    def summary(self) -> dict:
        seconds = time.monotonic() - self.training_begin
        tokens = self.step * self.arguments.batch * self.arguments.length
        return {"curve": self.curve, "steps": self.step, "tokens": tokens, "seconds": seconds,
                "tokens_per_second": tokens / seconds,
                "first_steps_seconds": self.training_begin - self.begin}  # fmt: skip


def train(model: StandIn, corpus: Corpus, shape: Shape, arguments: argparse.Namespace) -> dict:
    optimizer = optimizer_for(model, arguments)
    rope = rope_tables(shape, corpus.length, corpus.device)
    progress, evaluations = Progress(arguments), 1
    while (share := progress.share()) < 1:
        if share * arguments.evaluations >= evaluations:
            evaluations += 1
            progress.evaluated(evaluate(model, corpus, shape))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(group["peak"], progress.step, share)
        loss = train_step(model, corpus, rope, arguments)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        progress.stepped(loss)
    progress.evaluated(evaluate(model, corpus, shape))
    return progress.summary()


# ---- shipping ----


def f32(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().float().cpu().numpy()


def layer_tensors(model: StandIn) -> Iterator[tuple[str, nn.Module]]:
    """Name of each tensor of the layers, and the module that holds it, in checkpoint order."""
    attention = ["q_proj", "k_proj", "v_proj", "q_norm", "k_norm", "o_proj"]
    mlp = ["gate_proj", "up_proj", "down_proj"]
    names = ["input_layernorm", *(f"self_attn.{name}" for name in attention),
             "post_attention_layernorm", *(f"mlp.{name}" for name in mlp)]  # fmt: skip
    for at, layer in enumerate(model.layers):
        for name in names:
            yield f"model.layers.{at}.{name}.weight", layer.get_submodule(name)


def full_tensors(model: StandIn) -> dict[str, np.ndarray]:
    unused = model.unused.float() * model.unused_scale + model.offset
    tensors = {EMBEDDING: torch.cat((model.used, unused))}
    tensors |= {name: module.weight for name, module in layer_tensors(model)}
    tensors[FINAL_NORM] = model.norm.weight
    return {name: bf16_of_f32(f32(weight)) for name, weight in tensors.items()}


def deltas(model: StandIn) -> dict[str, np.ndarray]:
    rows, rows_scale = int8_rows(f32(model.used))
    tensors = {
        f"{EMBEDDING}.scale": np.array([model.unused_scale], np.float32),
        f"{EMBEDDING}.offset": f32(model.offset),
        f"{EMBEDDING}.rows_scale": rows_scale,
        f"{EMBEDDING}.rows": rows,
        FINAL_NORM: bf16_of_f32(f32(model.norm.weight)),
    }
    for name, module in layer_tensors(model):
        if isinstance(module, Norm):
            tensors[name] = bf16_of_f32(f32(module.weight))
        else:
            tensors |= projection_deltas(name, module)
    return tensors


def projection_deltas(name: str, module: LowRank) -> dict[str, np.ndarray]:
    a, a_scale = int8_rows(f32(module.a))
    b, b_scale = int8_rows(f32(module.b * module.reach).T.copy())
    scale = f32(module.start * module.gain).reshape(1)
    return {f"{name}.scale": scale, f"{name}.a_scale": a_scale, f"{name}.b_scale": b_scale,
            f"{name}.a": a, f"{name}.b": b}  # fmt: skip


def write_deltas(tensors: dict[str, np.ndarray], out: Path) -> list[dict]:
    """Writes as few files as their limit allows; returns their names and sizes."""
    parts: list[dict[str, np.ndarray]] = [{}]
    # Wide types first, so that every array of a file is aligned for its type.
    for name in sorted(tensors, key=lambda name: -tensors[name].itemsize):
        # A tensor's entry in the header takes less than 160 bytes.
        size = sum(array.nbytes + 160 for array in parts[-1].values())
        if size + tensors[name].nbytes + 1024 > FILE_BYTES_MAX:
            parts.append({})
        parts[-1][name] = tensors[name]
    for stale in out.glob("deltas-*.safetensors"):
        stale.unlink()
    files = []
    for at, part in enumerate(parts):
        path = out / f"deltas-{at + 1:05}-of-{len(parts):05}.safetensors"
        write_tensors(path, part)
        assert path.stat().st_size <= FILE_BYTES_MAX
        files.append({"file": path.name, "bytes": path.stat().st_size, "sha256": sha256(path)})
    return files


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_checkpoint(model: StandIn, shape: Shape, arguments: argparse.Namespace) -> dict:
    out = arguments.checkpoint
    out.mkdir(parents=True, exist_ok=True)
    result = {}
    if arguments.form == "lowrank":
        result["base_seed"] = BASE_SEED
        result["base_sha256"] = sha256(arguments.base / "model.safetensors")
        result["deltas"] = write_deltas(deltas(model), arguments.out)
        write_companions(shape, arguments.tiny, arguments.out)
        result["deltas_bytes"] = sum(file["bytes"] for file in result["deltas"])
        began = time.monotonic()
        rebuild(arguments.base, arguments.out, out)
        result["rebuild_seconds"] = time.monotonic() - began
    else:
        write_tensors(out / "model.safetensors", full_tensors(model))
    write_companions(shape, arguments.tiny, out)
    return result | {"model_sha256": sha256(out / "model.safetensors")}


# ---- closing numbers, of the checkpoint as transformers reads it ----


def windows_of(tokens: torch.Tensor, length: int, most: int) -> Iterator[tuple]:
    count = min((len(tokens) - 1) // length, most)
    for at in range(0, count * length, length):
        yield tokens[at : at + length][None], tokens[at + 1 : at + length + 1]


@torch.inference_mode()
def heldout_text(models: dict, tokens: torch.Tensor, arguments: argparse.Namespace) -> dict:
    """Loss in both types on the repository's excerpt, measured as in the tiny model's card; and
    where their argmax differs."""
    losses: dict[str, list] = {name: [] for name in models}
    differ, unused, margins = [], [], []
    for window, targets in windows_of(tokens, 1024, arguments.heldout_windows):
        logits = {name: model(input_ids=window, use_cache=False).logits[0]
                  for name, model in models.items()}  # fmt: skip
        for name, rows in logits.items():
            losses[name].append(F.cross_entropy(rows.float(), targets).item())
        best = lowest_argmax(logits["f32"])
        differ.append(best != lowest_argmax(logits["bf16"]))
        unused.append(best >= arguments.used)
        margins.append(margin(logits["f32"]))
    loss = {name: sum(values) / len(values) for name, values in losses.items()}
    return {"loss": loss, "perplexity": {name: math.exp(value) for name, value in loss.items()},
            "windows": len(differ), "argmax_differs": share_of(differ),
            "unused_row_wins": share_of(unused), "f32_margin": deciles(margins)}  # fmt: skip


def share_of(parts: list[torch.Tensor]) -> float:
    return torch.cat(parts).float().mean().item()


def deciles(parts: list[torch.Tensor]) -> dict:
    values = torch.cat(parts).float().cpu().numpy()
    return {"deciles": np.quantile(values, np.arange(11) / 10).tolist(),
            "below_0.02": float((values < 0.02).mean()),
            "below_0.1": float((values < 0.1).mean())}  # fmt: skip


@torch.inference_mode()
def heldout_mixture(model: nn.Module, corpus: Corpus, arguments: argparse.Namespace) -> dict:
    """Held-out loss of each source in windows of 1,024, weighted by share, in bf16."""
    by_source = {}
    for source in corpus.sources:
        low, high = source["heldout"]["range"]
        tokens = corpus.heldout[low:high].long()
        losses = [
            F.cross_entropy(model(input_ids=w, use_cache=False).logits[0].float(), t).item()
            for w, t in windows_of(tokens, 1024, arguments.heldout_windows)
        ]
        by_source[source["name"]] = sum(losses) / len(losses)
    mixture = sum(source["weight"] * by_source[source["name"]] for source in corpus.sources)
    return {"mixture": mixture, "perplexity": math.exp(mixture), "sources": by_source}


def bench_prompts(tokenizer: Tokenizer, arguments: argparse.Namespace) -> list[list[int]]:
    prompts = []
    for line in arguments.prompts.read_text().splitlines()[: arguments.prompt_count]:
        prompt = json.loads(line)
        text = prompt["text"]
        if prompt["chat"]:
            text = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
        prompts.append(tokenizer.encode(text).ids)
    return prompts


@torch.inference_mode()
def greedy(models: dict, prompts: list[list[int]], arguments: argparse.Namespace) -> dict:
    """Decodes in bf16 as one batch, then compares each chosen token with f32."""
    new, device = arguments.new_tokens, arguments.device
    tokens, logits = generate(models["bf16"], prompts, new, device)
    differ, unused, margins = [], [], []
    for prompt, row in zip(prompts, tokens):
        exact = forward(models["f32"], prompt + row[:-1].tolist(), new, device)
        differ.append(lowest_argmax(exact) != row)
        unused.append(row >= arguments.used)
        margins.append(margin(exact))
    texts = [arguments.tokenizer.decode(row.tolist()) for row in tokens]
    return {"prompts": len(prompts), "new_tokens": new, "argmax_differs": share_of(differ),
            "argmax_differs_by_prompt": [part.float().mean().item() for part in differ],
            "unused_row_wins": share_of(unused), "f32_margin": deciles(margins),
            "bf16_ties": (margin(logits) == 0).float().mean().item(),
            "repeated_4_words": sum(map(repeated_share, texts)) / len(texts),
            "texts": texts}  # fmt: skip


def repeated_share(text: str) -> float:
    """Share of four-word sequences that occurred earlier in the same text."""
    words = text.split()
    grams = [tuple(words[at : at + 4]) for at in range(len(words) - 3)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


@torch.inference_mode()
def largest_logit_difference(theirs: nn.Module, tokens: torch.Tensor) -> float:
    """Between transformers' f32 logits and this file's layers with the checkpoint's weights."""
    shape = Shape(**{n: getattr(theirs.config, n, getattr(Shape, n))
                     for n in Shape.__dataclass_fields__ if n != "rope_theta"})  # fmt: skip
    weights = theirs.state_dict()
    layers = nn.ModuleList(
        Layer(shape, 0.0, lambda name: nn.Linear(*projection_shapes(shape)[name][::-1], bias=False))
        for _ in range(shape.num_hidden_layers)
    )
    prefix = "model.layers."
    own = {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
    layers.load_state_dict(own)
    layers.to(tokens.device)
    cos, sin = rope_tables(shape, tokens.shape[1], tokens.device)
    x = F.embedding(tokens, weights[EMBEDDING])
    for layer in layers:
        x = layer(x, cos, sin)
    x = F.rms_norm(x, (x.shape[-1],), weights[FINAL_NORM], shape.rms_norm_eps)
    ours = F.linear(x, weights[EMBEDDING])
    return (ours - theirs(input_ids=tokens, use_cache=False).logits).abs().max().item()


def closing_numbers(corpus: Corpus, arguments: argparse.Namespace) -> dict:
    torch.set_float32_matmul_precision("highest")
    device = arguments.device
    models = {"bf16": load(arguments.checkpoint, torch.bfloat16, device),
              "f32": load(arguments.checkpoint, torch.float32, device)}  # fmt: skip
    text = arguments.tokenizer.encode((arguments.tiny / "heldout.txt").read_text()).ids
    text = torch.tensor(text, device=device)
    began, result = time.monotonic(), {}

    def measured(name: str, value: dict | float) -> None:
        result[name] = value
        if isinstance(value, dict):
            value = {k: v for k, v in value.items() if k not in ("texts", "sources")}
        print(f"{time.monotonic() - began:5.0f} s  {name}: {json.dumps(value)}", flush=True)

    difference = largest_logit_difference(models["f32"], text[None, :256])
    assert difference < 1e-2, f"logits differ from transformers' by {difference}"
    measured("largest_logit_difference", difference)
    measured("heldout_text", heldout_text(models, text, arguments))
    measured("heldout_mixture", heldout_mixture(models["bf16"], corpus, arguments))
    measured("greedy", greedy(models, bench_prompts(arguments.tokenizer, arguments), arguments))
    prompts = ["My fellow Americans, tonight", "Mathematics is", "He opened the door and"]
    encoded = [arguments.tokenizer.encode(prompt).ids for prompt in prompts]
    samples = greedy(models, encoded, arguments)
    measured("samples", {"prompts": prompts, "texts": samples["texts"]})
    tell_verdict(result)
    return result


def tell_verdict(closing: dict) -> None:
    for prompt, text in zip(closing["samples"]["prompts"], closing["samples"]["texts"]):
        print(f"--- {prompt}|{text[:600]}\n    four words repeated: {repeated_share(text):.1%}")
    greedy, text = closing["greedy"], closing["heldout_text"]
    print(f"bf16 and f32 choose differently: {greedy['argmax_differs']:.2%} of greedy tokens, "
          f"{text['argmax_differs']:.2%} of held-out positions; four words repeated: "
          f"{greedy['repeated_4_words']:.1%}; perplexity {text['perplexity']['f32']:.2f} "
          f"(tiny: 22.73)", flush=True)  # fmt: skip


# ---- the command line ----


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--form", choices=["lowrank", "full"], default="lowrank")
    parser.add_argument("--rebuild", action="store_true", help="only make the checkpoint")
    parser.add_argument("--evaluate", action="store_true", help="only measure the checkpoint")
    parser.add_argument("--pilot", action="store_true", help="train, write no checkpoint")
    parser.add_argument("--dry", action="store_true", help="a trial: a CPU, few steps and windows")
    parser.add_argument("--base", type=Path, help="folder of `monolith synth --seed 0`")
    parser.add_argument("--deltas", type=Path, help="for --rebuild: a folder or a file")
    parser.add_argument("--config", type=Path, help="config.json of another shape")
    parser.add_argument("--corpus", type=Path, default=Path(".carry/corpus"))
    parser.add_argument("--tiny", type=Path, default=Path("data/tiny"), help="tokenizer, excerpt")
    parser.add_argument("--prompts", type=Path, default=Path("data/prompts/bench.jsonl"))
    parser.add_argument("--out", type=Path, help="for standin.json and the deltas")
    parser.add_argument("--checkpoint", type=Path, default=Path(".scratch/standin"))
    parser.add_argument("--minutes", type=float, default=4.0, help="after the first steps")
    parser.add_argument("--max-steps", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=16, help="windows a step")
    parser.add_argument("--length", type=int, default=1024, help="tokens a window")
    parser.add_argument("--repeats", type=int, default=0, help="looping windows a step")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1.5e-3, help="of matrices; lowrank: of a")
    parser.add_argument("--lr-b", type=float, default=6e-3, help="of b (lowrank)")
    parser.add_argument("--lr-embedding", type=float, default=3e-3)
    parser.add_argument("--lr-vectors", type=float, default=1e-3, help="norms, gains, offset")
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--dropout", type=float, help="0 (lowrank), 0.1 (full)")
    parser.add_argument("--z-loss", type=float, default=1e-3)
    parser.add_argument("--write", type=float, default=0.1, help="see write_deviation (lowrank)")
    parser.add_argument("--used", type=int, default=4096, help="rows that tokens use")
    parser.add_argument("--sample", type=int, default=2048, help="unused rows in a softmax")
    parser.add_argument("--unused-scale", type=float, default=0.5, help="of the base (lowrank)")
    parser.add_argument("--evaluations", type=int, default=6)
    parser.add_argument("--heldout-windows", type=int, default=1000, help="a source, at most")
    parser.add_argument("--prompt-count", type=int, default=20)
    parser.add_argument("--new-tokens", type=int, default=256)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compile", action="store_true")
    return with_defaults(parser.parse_args())


def with_defaults(arguments: argparse.Namespace) -> argparse.Namespace:
    if arguments.dropout is None:
        arguments.dropout = 0.0 if arguments.form == "lowrank" else 0.1
    if arguments.dry:
        arguments.device, arguments.batch, arguments.length = "cpu", 8, 128
        arguments.max_steps, arguments.sample, arguments.evaluations = 300, 512, 3
        arguments.heldout_windows, arguments.prompt_count, arguments.new_tokens = 2, 3, 32
    arguments.tokenizer = Tokenizer.from_file(str(arguments.tiny / "tokenizer.json"))
    return arguments


def shape_for(arguments: argparse.Namespace) -> Shape:
    if arguments.config:
        return shape_of_config(arguments.config)
    if arguments.base:
        return shape_of_config(arguments.base / "config.json")
    return DRY if arguments.dry else QWEN3_0_6B


def about(model: StandIn, shape: Shape, arguments: argparse.Namespace) -> dict:
    gpu = torch.cuda.get_device_name() if arguments.device == "cuda" else "none"
    plain = {k: str(v) if isinstance(v, Path) else v
             for k, v in vars(arguments).items() if k != "tokenizer"}  # fmt: skip
    return {"form": arguments.form, "shape": vars(shape), "arguments": plain,
            "trained_parameters": sum(p.numel() for p in model.parameters()),
            "torch": torch.__version__, "gpu": gpu}  # fmt: skip


def train_and_write(shape: Shape, corpus: Corpus, arguments: argparse.Namespace) -> dict:
    began = time.monotonic()
    make = lowrank_model if arguments.form == "lowrank" else full_model
    model = make(shape, arguments)
    print(f"model ready in {time.monotonic() - began:.0f} s", flush=True)
    result = about(model, shape, arguments)
    result["training"] = train(model, corpus, shape, arguments)
    if arguments.device == "cuda":
        result["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    if not arguments.pilot:
        result |= write_checkpoint(model, shape, arguments)
        print(f"checkpoint after {time.monotonic() - began:.0f} s, deltas of "
              f"{result.get('deltas_bytes', 0):,} bytes", flush=True)  # fmt: skip
    write_json(arguments.out / "standin.json", result)  # before anything else can fail
    return result


def main() -> None:
    arguments = parse()
    shape = shape_for(arguments)
    if arguments.rebuild:
        rebuild(arguments.base, arguments.deltas, arguments.checkpoint)
        write_companions(shape, arguments.tiny, arguments.checkpoint)
        print(f"sha256 {sha256(arguments.checkpoint / 'model.safetensors')}")
        return
    torch.manual_seed(arguments.seed)
    torch.set_float32_matmul_precision("high")
    arguments.out.mkdir(parents=True, exist_ok=True)
    corpus = Corpus(arguments)
    result = {} if arguments.evaluate else train_and_write(shape, corpus, arguments)
    if not arguments.pilot:
        result["closing"] = closing_numbers(corpus, arguments)
    name = "evaluation.json" if arguments.evaluate else "standin.json"
    write_json(arguments.out / name, result)


if __name__ == "__main__":
    main()
