#!/usr/bin/env python3
"""Trains the tiny model: Qwen3's architecture at 7 million parameters, one GPU, minutes.

The commands, in order, from the repository root:

    python3 tools/make_corpus.py                       # CPU, about a minute
    python3 tools/train_tiny.py --minutes 4.033 --dropout 0.2 --weight-decay 0.2 \
        --evaluations 12 --out .carry/first            # one GPU
    python3 tools/train_tiny.py --minutes 2.7 --dropout 0.1 --weight-decay 0.2 --lr 1e-3 \
        --evaluations 8 --repeats 16 --init .carry/first    # the same GPU; writes data/tiny
    python3 tools/make_golden.py                       # CPU, seconds

Reads tools/make_corpus.py's output and writes to --out a checkpoint that transformers'
Qwen3ForCausalLM loads as it is, with config, tokenizer, held-out text, `training.json` (every
number of the runs) and `loss.svg`. Needs torch, safetensors, tokenizers, numpy; transformers only
for the closing check that its logits agree with this file's.
"""

import argparse
import json
import math
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Callable

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import nn

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@dataclass(frozen=True)
class Shape:
    vocab_size: int = 4096
    hidden_size: int = 256
    num_hidden_layers: int = 6
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 128
    intermediate_size: int = 768
    rope_theta: float = 1_000_000.0
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 4096


# ---- the model; parameter names are Qwen3ForCausalLM's ----


class Norm(nn.Module):
    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + self.eps)
        return (x.float() * scale * self.weight).to(x.dtype)


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class Attention(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.heads, self.kv_heads = shape.num_attention_heads, shape.num_key_value_heads
        self.head_dim = shape.head_dim
        self.q_proj = linear(shape.hidden_size, self.heads * self.head_dim)
        self.k_proj = linear(shape.hidden_size, self.kv_heads * self.head_dim)
        self.v_proj = linear(shape.hidden_size, self.kv_heads * self.head_dim)
        self.o_proj = linear(self.heads * self.head_dim, shape.hidden_size)
        self.q_norm = Norm(self.head_dim, shape.rms_norm_eps)
        self.k_norm = Norm(self.head_dim, shape.rms_norm_eps)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q = self.q_proj(x).view(batch, length, self.heads, self.head_dim)
        k = self.k_proj(x).view(batch, length, self.kv_heads, self.head_dim)
        v = self.v_proj(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        q = rotate(self.q_norm(q).transpose(1, 2), cos, sin).to(v.dtype)
        k = rotate(self.k_norm(k).transpose(1, 2), cos, sin).to(v.dtype)
        repeat = self.heads // self.kv_heads
        k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), -1)
    return x * cos + turned * sin


def rope_tables(shape: Shape, length: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    exponents = torch.arange(0, shape.head_dim, 2, device=device).float() / shape.head_dim
    angles = torch.outer(torch.arange(length, device=device).float(), shape.rope_theta**-exponents)
    angles = torch.cat((angles, angles), -1)
    return angles.cos(), angles.sin()


class Mlp(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.gate_proj = linear(shape.hidden_size, shape.intermediate_size)
        self.up_proj = linear(shape.hidden_size, shape.intermediate_size)
        self.down_proj = linear(shape.intermediate_size, shape.hidden_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, shape: Shape, dropout: float):
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp = Mlp(shape)
        self.input_layernorm = Norm(shape.hidden_size, shape.rms_norm_eps)
        self.post_attention_layernorm = Norm(shape.hidden_size, shape.rms_norm_eps)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.drop(self.self_attn(self.input_layernorm(x), cos, sin))
        return x + self.drop(self.mlp(self.post_attention_layernorm(x)))


class Decoder(nn.Module):
    def __init__(self, shape: Shape, dropout: float):
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape, dropout) for _ in range(shape.num_hidden_layers))
        self.norm = Norm(shape.hidden_size, shape.rms_norm_eps)
        self.drop = nn.Dropout(dropout)


class Tiny(nn.Module):
    def __init__(self, shape: Shape, dropout: float):
        super().__init__()
        self.model = Decoder(shape, dropout)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                # The two matrices that write to the residual stream start smaller.
                writes = name.endswith(("o_proj.weight", "down_proj.weight"))
                shrink = (2 * shape.num_hidden_layers) ** -0.5 if writes else 1.0
                nn.init.normal_(weight, std=0.02 * shrink)

    def forward(self, tokens: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = self.model.drop(self.model.embed_tokens(tokens))
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight)

    def losses(
        self, tokens: torch.Tensor, targets: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> torch.Tensor:
        logits = self(tokens, cos, sin).float()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")


# ---- data ----


class Corpus:
    """The token files on the device, and the places where a window may begin."""

    def __init__(self, arguments: argparse.Namespace):
        folder, device = arguments.corpus, arguments.device
        self.sources = json.loads((folder / "corpus.json").read_text())["sources"]
        self.length, self.device = arguments.length, device
        self.heldout_windows_max = arguments.heldout_windows
        self.train = self.load(folder / "train.bin")
        self.heldout = self.load(folder / "heldout.bin")
        self.begins = self.window_begins(folder / "tokenizer.json")
        ranges = [source["train"]["range"] for source in self.sources]
        self.weights = torch.tensor([s["weight"] for s in self.sources], device=device)
        self.low = torch.tensor([low for low, _ in ranges], device=device)
        self.span = torch.tensor([high - low for low, high in ranges], device=device)

    def load(self, path: Path) -> torch.Tensor:
        return torch.from_numpy(np.fromfile(path, np.uint16).astype(np.int32)).to(self.device)

    def window_begins(self, tokenizer_path: Path) -> torch.Tensor:
        """For each token, the start of its paragraph: where a prompt would begin."""
        tokenizer = Tokenizer.from_file(str(tokenizer_path))
        breaks = torch.tensor(
            [
                tokenizer.decode([token], skip_special_tokens=False).endswith(
                    ("\n\n", "<|endoftext|>")
                )
                for token in range(tokenizer.get_vocab_size())
            ],
            device=self.device,
        )
        index = torch.arange(len(self.train), device=self.device)
        after_break = torch.roll(breaks[self.train], 1)
        return torch.cummax(torch.where(after_break, index, 0), 0).values

    def windows(self, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Sources by weight; three windows in four begin at a paragraph, as prompts do."""
        source = torch.multinomial(self.weights, batch, replacement=True)
        at = self.low[source] + (torch.rand(batch, device=self.device) * self.span[source]).long()
        snapped = torch.maximum(self.begins[at], self.low[source])
        at = torch.where(torch.rand(batch, device=self.device) < 0.75, snapped, at)
        at = at.clamp(max=len(self.train) - self.length - 1)
        rows = self.train[at[:, None] + torch.arange(self.length + 1, device=self.device)].long()
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    def repeat_windows(self, batch: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Windows that fall into a loop: real text whose last few tokens then repeat."""
        tokens, targets = self.windows(batch)
        rows = torch.cat((tokens, targets[:, -1:]), 1)
        low, high = math.log(2), math.log(64)
        period = torch.empty(batch, 1, device=self.device).uniform_(low, high).exp().long()
        lead = torch.randint(0, 256, (batch, 1), device=self.device)
        at = torch.arange(self.length + 1, device=self.device)[None]
        rows = rows.gather(1, torch.where(at < lead, at, lead + (at - lead) % period))
        # A target recurs when the place one period before it is already part of the loop.
        recurs = at[:, 1:] - period >= lead
        counterpart = torch.where(recurs, at[:, 1:] - period - 1, -1)
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous(), counterpart

    def heldout_windows(self, source: dict) -> tuple[torch.Tensor, torch.Tensor]:
        low, high = source["heldout"]["range"]
        count = min((high - low - 1) // self.length, self.heldout_windows_max)
        rows = self.heldout[low : low + count * self.length + 1].long()
        return rows[:-1].view(count, -1), rows[1:].view(count, -1)


# ---- training ----


def optimizer_for(model: Tiny, arguments: argparse.Namespace) -> torch.optim.AdamW:
    matrices = [p for p in model.parameters() if p.dim() == 2]
    norms = [p for p in model.parameters() if p.dim() == 1]
    groups = [
        {"params": matrices, "weight_decay": arguments.weight_decay},
        {"params": norms, "weight_decay": 0.0},
    ]
    fused = arguments.device == "cuda"
    return torch.optim.AdamW(groups, lr=arguments.lr, betas=(0.9, 0.95), fused=fused)


def learning_rate(peak: float, step: int, progress: float) -> float:
    """200 steps of warm-up, then a cosine to zero over the run's time, at any speed."""
    return peak * min(1.0, (step + 1) / 200) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def autocast(device: str) -> torch.autocast:
    return torch.autocast(device, torch.bfloat16, enabled=device == "cuda")


@torch.no_grad()
def evaluate(model: Tiny, corpus: Corpus, shape: Shape) -> dict:
    """Mean held-out loss of each source, of the training mixture, and by position."""
    model.eval()
    cos, sin = rope_tables(shape, corpus.length, corpus.device)
    by_source, by_position = {}, torch.zeros(corpus.length, device=corpus.device)
    for source in corpus.sources:
        tokens, targets = corpus.heldout_windows(source)
        parts = []
        for start in range(0, len(tokens), 16):
            rows = slice(start, start + 16)
            with autocast(corpus.device):
                loss = model.losses(tokens[rows], targets[rows], cos, sin)
            parts.append(loss.view(-1, corpus.length))
        losses = torch.cat(parts)
        by_source[source["name"]] = losses.mean().item()
        by_position += source["weight"] * losses.mean(0)
    model.train()
    mixture = sum(s["weight"] * by_source[s["name"]] for s in corpus.sources)
    buckets = by_position.view(8, -1).mean(1).tolist()
    return {"mixture": mixture, "sources": by_source, "position_eighths": buckets}


def repeat_penalty(losses: torch.Tensor, counterpart: torch.Tensor) -> torch.Tensor:
    """Asks each recurrence to be half as likely as the one before it (DITTO, Xu et al. 2022).

    A small model under greedy decoding otherwise loops: each repeat makes the next more likely.
    """
    recurs = counterpart >= 0
    likely = (-losses).exp()
    before = likely.detach().gather(1, counterpart.clamp(min=0))
    distance = (likely - 0.5 * before).abs().clamp(max=1 - 1e-6)
    return -(1 - distance).log()[recurs].mean()


def train_step(
    step_losses: Callable, corpus: Corpus, rope: tuple[torch.Tensor, torch.Tensor],
    arguments: argparse.Namespace,
) -> torch.Tensor:  # fmt: skip
    """Backpropagates one batch; returns the plain loss of its ordinary windows."""
    tokens, targets = corpus.windows(arguments.batch - arguments.repeats)
    if arguments.repeats:
        loops, loop_targets, counterpart = corpus.repeat_windows(arguments.repeats)
        tokens, targets = torch.cat((tokens, loops)), torch.cat((targets, loop_targets))
    with autocast(corpus.device):
        losses = step_losses(tokens, targets, *rope).view(arguments.batch, -1)
    plain = losses[: arguments.batch - arguments.repeats].mean()
    penalty = 0.0
    if arguments.repeats:
        penalty = repeat_penalty(losses[arguments.batch - arguments.repeats :], counterpart)
    (plain + penalty).backward()
    return plain


def train(model: Tiny, corpus: Corpus, shape: Shape, arguments: argparse.Namespace) -> dict:
    optimizer = optimizer_for(model, arguments)
    rope = rope_tables(shape, corpus.length, corpus.device)
    step_losses = model.losses if arguments.no_compile else torch.compile(model.losses)
    curve, recent, step, evaluations = [], [], 0, 0
    begin = training_begin = time.monotonic()
    while True:
        seconds = time.monotonic() - training_begin
        progress = max(seconds / (60 * arguments.minutes), step / arguments.max_steps)
        if progress * arguments.evaluations >= evaluations or progress >= 1:
            evaluations += 1
            heldout = evaluate(model, corpus, shape)
            curve.append(curve_point(step, seconds, recent, heldout, arguments))
            recent = []
        if progress >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(arguments.lr, step, progress)
        loss = train_step(step_losses, corpus, rope, arguments)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step % 50 == 1:  # reading the loss waits for the GPU, so that the clock is right
            recent.append(loss.item())
        if step == 3:
            training_begin = time.monotonic()  # compilation is over
            print(f"compiled in {training_begin - begin:.0f} s", flush=True)
    tokens_seen = step * arguments.batch * arguments.length
    return {"curve": curve, "steps": step, "tokens": tokens_seen, "seconds": seconds,
            "compile_seconds": training_begin - begin}  # fmt: skip


def curve_point(
    step: int, seconds: float, recent: list[float], heldout: dict, arguments: argparse.Namespace
) -> dict:
    tokens = step * arguments.batch * arguments.length
    train_loss = sum(recent) / len(recent) if recent else None
    shown = "   -  " if train_loss is None else f"{train_loss:.4f}"
    wiki = heldout["sources"]["wiki"]
    print(f"{seconds:5.0f} s  step {step:6}  {tokens / 1e6:7.1f} M tokens  train {shown}  "
          f"held-out {heldout['mixture']:.4f}  wiki {wiki:.4f}", flush=True)  # fmt: skip
    return {"step": step, "tokens": tokens, "seconds": round(seconds, 1), "train": train_loss,
            "heldout": heldout["mixture"], "heldout_sources": heldout["sources"]}  # fmt: skip


# ---- shipping ----


def config_json(shape: Shape, end_of_text: int) -> dict:
    return asdict(shape) | {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": True,
        "bos_token_id": end_of_text,
        "eos_token_id": end_of_text,
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "rope_scaling": None,
        "use_cache": True,
        "use_sliding_window": False,
        "sliding_window": None,
        "max_window_layers": shape.num_hidden_layers,
    }


def export(model: Tiny, shape: Shape, corpus_folder: Path, out: Path) -> None:
    tokenizer = Tokenizer.from_file(str(corpus_folder / "tokenizer.json"))
    end_of_text, end_of_turn = map(tokenizer.token_to_id, ("<|endoftext|>", "<|im_end|>"))
    weights = {k: v.to(torch.bfloat16).cpu().contiguous() for k, v in model.state_dict().items()}
    save_file(weights, out / "model.safetensors", {"format": "pt"})
    (out / "model.safetensors").chmod(0o644)  # save_file leaves it to its owner alone
    write_json(out / "config.json", config_json(shape, end_of_text))
    write_json(
        out / "generation_config.json",
        {"bos_token_id": end_of_text, "eos_token_id": [end_of_turn, end_of_text],
         "pad_token_id": end_of_text, "do_sample": True, "temperature": 0.7, "top_p": 0.9},
    )  # fmt: skip
    write_json(
        out / "tokenizer_config.json",
        {"tokenizer_class": "Qwen2Tokenizer", "model_max_length": shape.max_position_embeddings,
         "add_prefix_space": False, "clean_up_tokenization_spaces": False, "bos_token": None,
         "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>", "unk_token": None,
         "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
         "chat_template": CHAT_TEMPLATE},
    )  # fmt: skip
    for name in ("tokenizer.json", "heldout.txt", "corpus.json"):
        shutil.copyfile(corpus_folder / name, out / name)


def write_json(path: Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def load_shipped_weights(model: Tiny) -> None:
    """Rounds to the shipped bf16 weights, so that every later number is of these."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.to(torch.bfloat16))


@torch.no_grad()
def check_against_transformers(model: Tiny, corpus: Corpus, shape: Shape, out: Path) -> float:
    """Largest logit difference from Qwen3ForCausalLM in float32, on a held-out window."""
    from transformers import Qwen3ForCausalLM

    model = model.float().cpu().eval()
    theirs = Qwen3ForCausalLM.from_pretrained(out, dtype=torch.float32)
    theirs.set_attn_implementation("eager")
    tokens = corpus.heldout[: corpus.length].long().cpu()[None]
    cos, sin = rope_tables(shape, corpus.length, "cpu")
    difference = (model(tokens, cos, sin) - theirs.eval()(tokens).logits).abs().max().item()
    assert difference < 1e-3, f"logits differ from transformers' by {difference}"
    return difference


def joined_curve(runs: list[dict]) -> list[dict]:
    points, tokens = [], 0
    for run in runs:
        measured = [point for point in run["curve"] if point["train"] is not None]
        points += [point | {"tokens": tokens + point["tokens"]} for point in measured]
        tokens += run["tokens"]
    return points


def loss_svg(points: list[dict]) -> str:
    """Draws training and held-out loss over tokens, without a plotting library."""
    right = points[-1]["tokens"]
    values = [p[key] for p in points for key in ("train", "heldout")]
    low, high = math.floor(min(values) * 2) / 2, math.ceil(max(values) * 2) / 2

    def place(tokens: float, loss: float) -> str:
        return f"{60 + 520 * tokens / right:.1f},{20 + 240 * (high - loss) / (high - low):.1f}"

    def line(key: str, style: str) -> str:
        path = " ".join(place(p["tokens"], p[key]) for p in points)
        return f'<polyline fill="none" stroke-width="2" {style} points="{path}"/>'

    ticks = []
    for half in range(int(2 * low), int(2 * high) + 1):
        y = 20 + 240 * (high - half / 2) / (high - low)
        ticks.append(f'<path stroke="#ddd" d="M60 {y:.1f}h520"/>')
        ticks.append(f'<text x="52" y="{y + 4:.1f}" text-anchor="end">{half / 2:.1f}</text>')
    return "\n".join([
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 600 310" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="600" height="310" fill="#fff"/>', *ticks,
        line("train", 'stroke="#888" stroke-dasharray="5 3"'), line("heldout", 'stroke="#06c"'),
        '<text x="60" y="282">0</text>',
        f'<text x="580" y="282" text-anchor="end">{right / 1e6:.0f} million tokens</text>',
        '<text x="60" y="302">loss (nats per token): held-out (solid blue), '
        "training with dropout (dashed grey)</text>", "</svg>", "",
    ])  # fmt: skip


def about(model: Tiny, arguments: argparse.Namespace) -> dict:
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "gpu": torch.cuda.get_device_name() if arguments.device == "cuda" else "none",
        "torch": torch.__version__,
        "arguments": {k: str(v) if isinstance(v, Path) else v for k, v in vars(arguments).items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, default=Path(".carry/corpus"))
    parser.add_argument("--out", type=Path, default=Path("data/tiny"))
    parser.add_argument("--minutes", type=float, default=6.0, help="after compilation")
    parser.add_argument("--max-steps", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=64, help="windows a step")
    parser.add_argument("--length", type=int, default=1024, help="tokens a window")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--repeats", type=int, default=0, help="looping windows a step")
    parser.add_argument("--init", type=Path, help="folder of an earlier run to go on from")
    parser.add_argument("--evaluations", type=int, default=24)
    parser.add_argument("--heldout-windows", type=int, default=1000, help="a source, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--no-compile", action="store_true", help="for a trial on a CPU")
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    torch.set_float32_matmul_precision("high")
    arguments.out.mkdir(parents=True, exist_ok=True)
    shape = Shape()
    corpus = Corpus(arguments)
    model = Tiny(shape, arguments.dropout).to(arguments.device)
    earlier = []
    if arguments.init:
        model.load_state_dict(load_file(arguments.init / "model.safetensors"))
        earlier = json.loads((arguments.init / "training.json").read_text())["runs"]
    result = train(model, corpus, shape, arguments)
    load_shipped_weights(model)
    result["shipped_heldout"] = evaluate(model, corpus, shape)
    export(model, shape, arguments.corpus, arguments.out)
    result |= about(model, arguments)
    result["largest_logit_difference"] = check_against_transformers(
        model, corpus, shape, arguments.out
    )
    runs = earlier + [result]
    (arguments.out / "loss.svg").write_text(loss_svg(joined_curve(runs)))
    write_json(arguments.out / "training.json", {"runs": runs})
    print(json.dumps(result["shipped_heldout"]), flush=True)


if __name__ == "__main__":
    main()
