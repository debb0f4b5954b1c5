#!/usr/bin/env python3
"""Dumps intermediates of transformers' Qwen3 in float32, to compare implementations with.

The last of three commands (see make_corpus.py and train_tiny.py), run on a CPU in seconds:

    python3 tools/make_golden.py

Reads data/tiny and writes data/golden: `tiny.safetensors` for the shipped model, and `odd/`, a
small random model with entirely different sizes. data/golden/README.md describes each tensor.
Weights are the bf16 values upcast; attention is the eager implementation.
"""

import argparse
import json
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import Qwen3ForCausalLM

TINY_POSITIONS = [0, 1, 17, -1]
ODD_POSITIONS = [0, 5, 1023, 1024, 1200]
ODD_TOKENS = 1201
GREEDY_TOKENS = 64

# 24 to 40 tokens of ordinary prose.
PROMPT = (
    "The Atlantic Ocean is the second largest of the world's five oceanic divisions. "
    "It separates the Old World of Africa and Europe from"
)

ODD_CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "torch_dtype": "bfloat16",
    "vocab_size": 131,
    "hidden_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 160,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "bos_token_id": 129,
    "eos_token_id": 130,
    "hidden_act": "silu",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "initializer_range": 0.02,
    "rope_scaling": None,
    "use_cache": True,
    "use_sliding_window": False,
    "sliding_window": None,
    "max_window_layers": 2,
}


def load(folder: Path, **overrides) -> Qwen3ForCausalLM:
    model = Qwen3ForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", **overrides
    )
    return model.eval()


def capture(model: Qwen3ForCausalLM, seen: dict[str, torch.Tensor]) -> None:
    """Hooks that fill `seen`; residual streams are read where the next norm reads them."""

    def output(name: str):
        return lambda module, inputs, result: seen.__setitem__(name, result[0])

    def first_input(name: str):
        return lambda module, inputs: seen.__setitem__(name, inputs[0][0])

    model.model.embed_tokens.register_forward_hook(output("embed"))
    model.model.norm.register_forward_pre_hook(first_input("last_residual"))
    model.model.norm.register_forward_hook(output("final_norm"))
    model.lm_head.register_forward_hook(output("logits"))
    for index, layer in enumerate(model.model.layers):
        name, attention = f"layers.{index}", layer.self_attn
        for letter in "qkv":
            projection = getattr(attention, f"{letter}_proj")
            projection.register_forward_hook(output(f"{name}.{letter}"))
        layer.input_layernorm.register_forward_pre_hook(first_input(f"{name}.entry"))
        attention.o_proj.register_forward_pre_hook(first_input(f"{name}.attention"))
        layer.post_attention_layernorm.register_forward_pre_hook(first_input(f"{name}.o_proj"))
        layer.mlp.down_proj.register_forward_pre_hook(first_input(f"{name}.gate_up"))


@torch.no_grad()
def intermediates(
    model: Qwen3ForCausalLM, tokens: torch.Tensor, positions: torch.Tensor
) -> dict[str, torch.Tensor]:
    seen: dict[str, torch.Tensor] = {}
    capture(model, seen)
    model(tokens[None], use_cache=False)
    at = {name: value[positions] for name, value in seen.items()}
    golden = {"tokens": tokens, "positions": positions, "embed": at["embed"]}
    layers = len(model.model.layers)
    for index in range(layers):
        name = f"layers.{index}"
        golden[f"{name}.qkv"] = torch.cat([at[f"{name}.{letter}"] for letter in "qkv"], -1)
        for phase in ("attention", "o_proj", "gate_up"):
            golden[f"{name}.{phase}"] = at[f"{name}.{phase}"]
        after = "last_residual" if index + 1 == layers else f"layers.{index + 1}.entry"
        golden[f"{name}.down"] = at[after]
    return golden | {"final_norm": at["final_norm"], "logits": at["logits"]}


@torch.no_grad()
def greedy(model: Qwen3ForCausalLM, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The argmax continuation, and each token's margin over the runner-up."""
    margins = []
    for _ in range(GREEDY_TOKENS):
        logits = model(tokens[None], use_cache=False).logits[0, -1]
        first, second = logits.topk(2).values
        margins.append(first - second)
        tokens = torch.cat((tokens, logits.argmax()[None]))
    return tokens[-GREEDY_TOKENS:], torch.stack(margins)


def save(path: Path, tensors: dict[str, torch.Tensor], **notes: str) -> None:
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    kept = {name: tensor.detach().contiguous().clone() for name, tensor in tensors.items()}
    save_file(kept, path, versions | notes)
    path.chmod(0o644)  # save_file leaves the file to its owner alone


def tiny_golden(tiny: Path, prompt: str, path: Path) -> None:
    ids = Tokenizer.from_file(str(tiny / "tokenizer.json")).encode(prompt).ids
    assert 24 <= len(ids) <= 40, f"{len(ids)} tokens in the prompt"
    tokens = torch.tensor(ids)
    positions = torch.tensor([p % len(ids) for p in TINY_POSITIONS])
    golden = intermediates(load(tiny), tokens, positions)
    golden["greedy"], golden["greedy_margin"] = greedy(load(tiny), tokens)
    save(path, golden, prompt=prompt)


def odd_weights(generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Norm weights spread around 1; query and key norms around 1.8, so that attention is peaky."""
    c = ODD_CONFIG
    hidden, inter = c["hidden_size"], c["intermediate_size"]
    q_dim, kv_dim = (c[f"num_{kind}_heads"] * c["head_dim"] for kind in ("attention", "key_value"))

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * columns**-0.5

    def norm(size: int, mean: float = 1.0) -> torch.Tensor:
        return mean + 0.25 * torch.randn(size, generator=generator)

    weights = {
        "model.embed_tokens.weight": torch.randn(c["vocab_size"], hidden, generator=generator),
        "model.norm.weight": norm(hidden),
        "lm_head.weight": 3 * matrix(c["vocab_size"], hidden),
    }
    for index in range(c["num_hidden_layers"]):
        weights |= {
            f"model.layers.{index}.{name}.weight": weight
            for name, weight in {
                "input_layernorm": norm(hidden),
                "self_attn.q_proj": matrix(q_dim, hidden),
                "self_attn.k_proj": matrix(kv_dim, hidden),
                "self_attn.v_proj": matrix(kv_dim, hidden),
                "self_attn.q_norm": norm(c["head_dim"], 1.8),
                "self_attn.k_norm": norm(c["head_dim"], 1.8),
                "self_attn.o_proj": matrix(hidden, q_dim),
                "post_attention_layernorm": norm(hidden),
                "mlp.gate_proj": matrix(inter, hidden),
                "mlp.up_proj": matrix(inter, hidden),
                "mlp.down_proj": matrix(hidden, inter),
            }.items()
        }
    return {name: weight.to(torch.bfloat16) for name, weight in weights.items()}


def odd_golden(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(20)
    (folder / "config.json").write_text(json.dumps(ODD_CONFIG, indent=2) + "\n")
    save(folder / "model.safetensors", odd_weights(generator), format="pt")
    tokens = torch.randint(0, ODD_CONFIG["vocab_size"], (ODD_TOKENS,), generator=generator)
    positions = torch.tensor(ODD_POSITIONS)
    golden = intermediates(load(folder), tokens, positions)
    golden["logits_theta_1e6"] = logits_with_theta(folder, tokens, 1e6)
    difference = (golden["logits"][-1] - golden["logits_theta_1e6"]).abs().max().item()
    assert difference > 0.1, f"rope_theta changes the logits by only {difference}"
    print(f"odd: rope_theta 1e6 moves the last logits by up to {difference:.2f}")
    save(folder / "golden.safetensors", golden)


@torch.no_grad()
def logits_with_theta(folder: Path, tokens: torch.Tensor, theta: float) -> torch.Tensor:
    config = transformers.Qwen3Config(**ODD_CONFIG | {"rope_theta": theta})
    config._attn_implementation = "eager"
    model = Qwen3ForCausalLM(config).float()
    model.load_state_dict(load_file(folder / "model.safetensors"))
    assert model.config.rope_parameters["rope_theta"] == theta
    return model.eval()(tokens[None], use_cache=False).logits[0, -1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", type=Path, default=Path("data/tiny"))
    parser.add_argument("--out", type=Path, default=Path("data/golden"))
    parser.add_argument("--prompt", type=str, default=PROMPT)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    odd_golden(arguments.out / "odd")
    tiny_golden(arguments.tiny, arguments.prompt, arguments.out / "tiny.safetensors")


if __name__ == "__main__":
    main()
