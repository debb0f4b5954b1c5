//! Recognizes other kinds of checkpoints by their tensors' names or by the folder's files, since
//! the message that a tensor is missing would not help.

use super::shard::Shard;
use crate::ModelError;
use std::path::Path;

/// How a kind of checkpoint is recognized: a part of a tensor's name, and a description.
struct Layout {
    is_one: fn(&str) -> bool,
    what: &'static str,
}

/// In order: earlier entries are more specific.
const LAYOUTS: [Layout; 9] = [
    Layout {
        is_one: |name| name.contains("lora_A") || name.contains("lora_B"),
        what: "this looks like a LoRA adapter: merge it into its base model first (PEFT's \
               merge_and_unload) and name the merged folder",
    },
    Layout {
        is_one: |name| name.ends_with(".qweight") || name.ends_with(".qzeros"),
        what: "this looks like a GPTQ or AWQ checkpoint (packed integers): name the bf16 \
               checkpoint, and pack it with `--format fp8` for smaller weights",
    },
    Layout {
        is_one: |name| name.ends_with(".weight_packed"),
        what: "this looks like a compressed-tensors checkpoint of packed 4-bit weights: bf16, F32, \
               F16 and FP8 with a scale a row are read",
    },
    Layout {
        is_one: |name| name.contains(".weight.quant_state.") || name.ends_with(".weight.absmax"),
        what: "this looks like a bitsandbytes checkpoint: name the bf16 checkpoint it was made of",
    },
    Layout {
        is_one: |name| name.contains("language_model.") || name.starts_with("thinker."),
        what: "this looks like the language model inside a multimodal checkpoint (names with \
               `language_model.`): name a text-only Qwen3 checkpoint",
    },
    Layout {
        is_one: |name| name.starts_with("score."),
        what: "this looks like a classifier or reranker (a `score` head): it predicts no tokens",
    },
    Layout {
        is_one: |name| name.contains(".mlp.experts.") || name.ends_with(".mlp.gate.weight"),
        what: "this looks like a mixture of experts: dense Qwen3 is run",
    },
    Layout {
        is_one: |name| name.starts_with("layers.") || name == "embed_tokens.weight",
        what: "its tensors are named without `model.`: this looks like a checkpoint without an LM \
               head, such as an embedding model (Qwen3-Embedding), which predicts no tokens: a \
               Qwen3ForCausalLM checkpoint is needed",
    },
    Layout {
        is_one: |name| name.starts_with("_orig_mod.") || name.starts_with("module."),
        what: "its names have the prefix of a training wrapper (torch.compile, DataParallel): save \
               the unwrapped model with save_pretrained",
    },
];

/// Returns the error, or a better one if the names show the kind of checkpoint.
pub(super) fn explained(error: ModelError, shards: &[Shard]) -> ModelError {
    if !matches!(error, ModelError::Tensor { .. }) {
        return error;
    }
    for layout in &LAYOUTS {
        for shard in shards {
            if let Some(name) = shard.names().find(|name| (layout.is_one)(name)) {
                let what = format!("{} (it holds {})", layout.what, name.escape_debug());
                return ModelError::Unsupported { path: shard.path.clone(), what };
            }
        }
    }
    error
}

/// Files in a folder that has neither weights nor an index: the end of a file's name, and the
/// advice.
const FILES: [(&str, &str); 6] = [
    ("adapter_model.safetensors", "a LoRA adapter: merge it into its base model first"),
    ("adapter_config.json", "a LoRA adapter: merge it into its base model first"),
    (".gguf", "a GGUF file, which is not read: name the safetensors checkpoint it was made of"),
    (
        "pytorch_model.bin",
        "a PyTorch pickle, which is not read: save the model with save_pretrained, which writes \
         safetensors",
    ),
    (
        "pytorch_model.bin.index.json",
        "PyTorch pickles, which are not read: save the model with save_pretrained, which writes \
         safetensors",
    ),
    (
        "consolidated.safetensors",
        "consolidated.safetensors, which has names of its own: name the folder in transformers' \
         layout",
    ),
];

/// Returns why a folder has no weights, if its other files show that.
pub(super) fn instead_of_weights(dir: &Path) -> Option<ModelError> {
    if dir.join(super::SINGLE).exists() {
        return None;
    }
    let entries = std::fs::read_dir(dir).ok()?;
    let names: Vec<String> = entries
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .collect();
    let found = FILES.iter().find(|(end, _)| names.iter().any(|name| name.ends_with(end)))?;
    let what = format!("no {} and no index; it holds {}", super::SINGLE, found.1);
    Some(ModelError::NoWeights { dir: dir.to_owned(), what })
}
