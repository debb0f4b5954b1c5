//! The model's configuration, as read from `config.json`, without assumed values.

use crate::{ModelError, json, small_file};
use monolith_abi::step::Dims;
use monolith_files::FileKind;
use serde_json::{Map, Value};
use std::path::Path;

mod rope;

/// Upper limit of every dimension: far above any model.
const DIMENSION_MAX: u64 = 1 << 24;

/// Upper limit of a model's weights: more than a hundred times the largest dense Qwen3. With it, no
/// sum or product of sizes from a configuration overflows 64 bits, including the padding of tiles.
const WEIGHTS_MAX: u128 = 1 << 42;

/// Upper limit of the KV cache of all positions, in bytes, for the same reason.
const KV_CACHE_MAX: u128 = 1 << 52;

/// A dense Qwen3 model's shape and constants.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the MLP.
    pub intermediate: usize,
    /// Number of layers.
    pub layers: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Elements of one head; even.
    pub head_dim: usize,
    /// Rows of the embedding and of the LM head.
    pub vocab: usize,
    /// Longest sequence that the model supports.
    pub max_positions: usize,
    /// RoPE base.
    pub rope_theta: f64,
    /// RMSNorm epsilon.
    pub norm_eps: f64,
    /// Whether the LM head is the embedding matrix.
    pub tied: bool,
    /// Token ids that end a generation.
    pub eos_ids: Vec<u32>,
}

impl Config {
    /// Qwen3-0.6B's published shape.
    pub fn qwen3_0_6b() -> Config {
        Config {
            hidden: 1024,
            intermediate: 3072,
            layers: 28,
            heads: 16,
            kv_heads: 8,
            head_dim: 128,
            vocab: 151_936,
            max_positions: 40_960,
            rope_theta: 1e6,
            norm_eps: 1e-6,
            tied: true,
            eos_ids: vec![151_645],
        }
    }

    /// The dimensions that enter into a step.
    pub fn dims(&self) -> Dims {
        Dims {
            hidden: self.hidden,
            intermediate: self.intermediate,
            layers: self.layers,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            vocab: self.vocab,
        }
    }

    /// Width of all query heads together.
    pub fn q_dim(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of all key heads together (and of all value heads).
    pub fn kv_dim(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Query heads that share one key and value head.
    pub fn group_heads(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Bytes that one position adds to the bf16 KV cache, all layers together.
    pub fn kv_bytes_per_position(&self) -> u64 {
        2 * (self.layers * 2 * self.kv_dim()) as u64
    }

    /// Reads `config.json`.
    ///
    /// # Errors
    /// A missing file or field, a value of the wrong type or out of range, or a kind of model
    /// that is not dense Qwen3. The message names it.
    pub fn read(path: &Path) -> Result<Config, ModelError> {
        Config::parse(&small_file::read(path)?, path)
    }

    /// Parses the text of a `config.json`; `path` is only for messages.
    ///
    /// # Errors
    /// See [`Config::read`].
    pub fn parse(text: &[u8], path: &Path) -> Result<Config, ModelError> {
        Config::from_fields(&fields(text, path)?, path)
    }

    /// The configuration that the fields of a `config.json` describe.
    pub(crate) fn from_fields(
        fields: &Map<String, Value>,
        path: &Path,
    ) -> Result<Config, ModelError> {
        let reader = Reader { fields, path };
        reader.refuse_unsupported()?;
        let config = reader.config()?;
        reader.check(&config)?;
        Ok(config)
    }

    /// The number of weights, including an untied LM head; exact for dimensions in range.
    fn weights(&self) -> u128 {
        let [hidden, inter, head_dim] =
            [self.hidden, self.intermediate, self.head_dim].map(|size| size as u128);
        let (q, kv) = (self.heads as u128 * head_dim, self.kv_heads as u128 * head_dim);
        let norms = 2 * hidden + 2 * head_dim;
        let layer = norms + hidden * (2 * q + 2 * kv) + 3 * hidden * inter;
        let heads = if self.tied { 1 } else { 2 };
        self.layers as u128 * layer + hidden + heads * hidden * self.vocab as u128
    }

    /// The configuration as a `config.json` that [`Config::parse`] and transformers read.
    pub fn to_json(&self) -> String {
        let value = serde_json::json!({
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "attention_bias": false,
            "hidden_act": "silu",
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab,
            "max_position_embeddings": self.max_positions,
            "rope_theta": self.rope_theta,
            "rope_scaling": null,
            "rms_norm_eps": self.norm_eps,
            "tie_word_embeddings": self.tied,
            "eos_token_id": self.eos_ids,
            "torch_dtype": "bfloat16",
            "use_sliding_window": false,
        });
        format!("{value:#}\n")
    }
}

/// The fields of a `config.json`.
///
/// # Errors
/// Text that is not a configuration (the message says what it is), or a duplicate key.
pub(crate) fn fields(text: &[u8], path: &Path) -> Result<Map<String, Value>, ModelError> {
    let wrong = |what: String| ModelError::Config { path: path.to_owned(), what };
    if let Some(kind) = FileKind::of(text).filter(|kind| *kind != FileKind::Json) {
        return Err(wrong(format!("not a config.json, but {kind}")));
    }
    match json::parse(text) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(wrong("not a JSON object".into())),
        Err(error) => Err(wrong(format!("not JSON: {error}"))),
    }
}

struct Reader<'a> {
    fields: &'a Map<String, Value>,
    path: &'a Path,
}

impl Reader<'_> {
    fn wrong(&self, what: String) -> ModelError {
        ModelError::Config { path: self.path.to_owned(), what }
    }

    fn unsupported(&self, what: String) -> ModelError {
        ModelError::Unsupported { path: self.path.to_owned(), what }
    }

    /// The field, with `null` read as absent.
    fn get(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    fn dimension(&self, name: &str) -> Result<usize, ModelError> {
        let value = self.get(name).ok_or_else(|| self.wrong(format!("{name} is missing")))?;
        match value.as_u64() {
            Some(number @ 1..=DIMENSION_MAX) => Ok(number as usize),
            _ => Err(self.wrong(format!(
                "{name} is {value}; expected a whole number from 1 to {DIMENSION_MAX}"
            ))),
        }
    }

    fn positive(&self, name: &str, value: Option<&Value>) -> Result<f64, ModelError> {
        let value = value.ok_or_else(|| self.wrong(format!("{name} is missing")))?;
        match value.as_f64() {
            Some(number) if number > 0.0 && number.is_finite() => Ok(number),
            _ => Err(self.wrong(format!("{name} is {value}; expected a positive number"))),
        }
    }

    fn flag(&self, name: &str) -> Result<Option<bool>, ModelError> {
        self.get(name)
            .map(|value| {
                value
                    .as_bool()
                    .ok_or_else(|| self.wrong(format!("{name} is {value}; expected true or false")))
            })
            .transpose()
    }

    /// Refuses, by name, fields that would silently change the computation.
    fn refuse_unsupported(&self) -> Result<(), ModelError> {
        match self.get("model_type") {
            Some(kind) if kind.as_str() == Some("qwen3") => {}
            Some(other) => {
                return Err(
                    self.unsupported(format!("model_type {other} (only dense qwen3 is supported)"))
                );
            }
            None => return Err(self.wrong("model_type is missing".into())),
        }
        if let Some(act) = self.get("hidden_act")
            && act.as_str() != Some("silu")
        {
            return Err(self.unsupported(format!("hidden_act {act} (only silu is supported)")));
        }
        for name in ["attention_bias", "use_sliding_window"] {
            if self.flag(name)? == Some(true) {
                return Err(self.unsupported(format!("{name} true")));
            }
        }
        self.refuse_layer_types()?;
        self.refuse_partial_rope()?;
        if let Some(quant) = self.get("quantization_config") {
            let method = quant.get("quant_method").unwrap_or(quant);
            return Err(self.unsupported(format!("quantization_config {method}")));
        }
        Ok(())
    }

    fn refuse_layer_types(&self) -> Result<(), ModelError> {
        let Some(value) = self.get("layer_types") else { return Ok(()) };
        let Value::Array(kinds) = value else {
            return Err(self.wrong(format!("layer_types is {value}; expected a list or null")));
        };
        match kinds.iter().find(|kind| kind.as_str() != Some("full_attention")) {
            Some(kind) => Err(self.unsupported(format!(
                "layer_types with {kind} (only full_attention is supported)"
            ))),
            None => Ok(()),
        }
    }

    fn config(&self) -> Result<Config, ModelError> {
        Ok(Config {
            hidden: self.dimension("hidden_size")?,
            intermediate: self.dimension("intermediate_size")?,
            layers: self.dimension("num_hidden_layers")?,
            heads: self.dimension("num_attention_heads")?,
            kv_heads: self.dimension("num_key_value_heads")?,
            head_dim: self.dimension("head_dim")?,
            vocab: self.dimension("vocab_size")?,
            max_positions: self.dimension("max_position_embeddings")?,
            rope_theta: self.rope_theta()?,
            norm_eps: self.positive("rms_norm_eps", self.get("rms_norm_eps"))?,
            tied: self
                .flag("tie_word_embeddings")?
                .ok_or_else(|| self.wrong("tie_word_embeddings is missing".into()))?,
            eos_ids: self.eos_ids()?,
        })
    }

    fn eos_ids(&self) -> Result<Vec<u32>, ModelError> {
        let Some(value) = self.get("eos_token_id") else { return Ok(Vec::new()) };
        let list = match value {
            Value::Array(list) => list.iter().collect(),
            one => vec![one],
        };
        list.into_iter()
            .map(|id| {
                id.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(|| {
                    self.wrong(format!("eos_token_id is {value}; expected token ids"))
                })
            })
            .collect()
    }

    fn check(&self, config: &Config) -> Result<(), ModelError> {
        if !config.heads.is_multiple_of(config.kv_heads) {
            return Err(self.wrong(format!(
                "num_attention_heads {} is not a multiple of num_key_value_heads {}",
                config.heads, config.kv_heads
            )));
        }
        if !config.head_dim.is_multiple_of(2) {
            return Err(self.wrong(format!("head_dim {} is odd", config.head_dim)));
        }
        for (name, size) in [("q", config.q_dim()), ("k and v", config.kv_dim())] {
            if size as u64 > DIMENSION_MAX {
                return Err(self.wrong(format!("the {name} heads together are {size} wide")));
            }
        }
        if config.layers > usize::from(u16::MAX - 1) {
            return Err(self.wrong(format!("num_hidden_layers {} is too large", config.layers)));
        }
        // The same fact twice.
        if let Some(kinds) = self.get("layer_types").and_then(Value::as_array)
            && kinds.len() != config.layers
        {
            return Err(self.wrong(format!(
                "layer_types lists {} layers, num_hidden_layers is {}",
                kinds.len(),
                config.layers
            )));
        }
        self.check_sizes(config)
    }

    fn check_sizes(&self, config: &Config) -> Result<(), ModelError> {
        let weights = config.weights();
        if weights > WEIGHTS_MAX {
            return Err(self.wrong(format!(
                "its dimensions make {weights} weights ({} in bf16): no more than {WEIGHTS_MAX} \
                 are taken",
                size_shown(2 * weights)
            )));
        }
        let position = 4 * config.layers as u128 * config.kv_dim() as u128;
        let cache = position * config.max_positions as u128;
        if cache > KV_CACHE_MAX {
            return Err(self.wrong(format!(
                "max_position_embeddings {} makes a KV cache of {}",
                config.max_positions,
                size_shown(cache)
            )));
        }
        Ok(())
    }
}

/// Formats bytes for people.
fn size_shown(bytes: u128) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}

#[cfg(test)]
mod tests;
