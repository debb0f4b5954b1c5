//! The model's configuration, as read from `config.json`: nothing is assumed.

use crate::ModelError;
use serde_json::{Map, Value};
use std::path::Path;

/// Upper limit of every dimension: far above any model, low enough that no product overflows.
const DIMENSION_MAX: u64 = 1 << 24;

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
    /// Longest sequence that the model was made for.
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
    /// that is not dense Qwen3 (each named).
    pub fn read(path: &Path) -> Result<Config, ModelError> {
        let text = std::fs::read(path).map_err(ModelError::io(path))?;
        Config::parse(&text, path)
    }

    /// Parses the text of a `config.json`; `path` is only for messages.
    ///
    /// # Errors
    /// See [`Config::read`].
    pub fn parse(text: &[u8], path: &Path) -> Result<Config, ModelError> {
        let value: Value = serde_json::from_slice(text).map_err(|error| ModelError::Config {
            path: path.to_owned(),
            what: format!("not JSON: {error}"),
        })?;
        let Value::Object(fields) = value else {
            return Err(ModelError::Config {
                path: path.to_owned(),
                what: "not a JSON object".into(),
            });
        };
        let reader = Reader { fields: &fields, path };
        reader.refuse_unsupported()?;
        let config = reader.config()?;
        reader.check(&config)?;
        Ok(config)
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
                "{name} is {value}: a whole number from 1 to {DIMENSION_MAX} is wanted"
            ))),
        }
    }

    fn positive(&self, name: &str, value: Option<&Value>) -> Result<f64, ModelError> {
        let value = value.ok_or_else(|| self.wrong(format!("{name} is missing")))?;
        match value.as_f64() {
            Some(number) if number > 0.0 && number.is_finite() => Ok(number),
            _ => Err(self.wrong(format!("{name} is {value}: a positive number is wanted"))),
        }
    }

    fn flag(&self, name: &str) -> Result<Option<bool>, ModelError> {
        self.get(name)
            .map(|value| {
                value.as_bool().ok_or_else(|| {
                    self.wrong(format!("{name} is {value}: true or false is wanted"))
                })
            })
            .transpose()
    }

    /// Refuses, by name, what would silently compute something else.
    fn refuse_unsupported(&self) -> Result<(), ModelError> {
        match self.get("model_type").and_then(Value::as_str) {
            Some("qwen3") => {}
            Some(other) => {
                return Err(self.unsupported(format!("model_type {other} (dense qwen3 is run)")));
            }
            None => return Err(self.wrong("model_type is missing".into())),
        }
        if let Some(act) = self.get("hidden_act")
            && act.as_str() != Some("silu")
        {
            return Err(self.unsupported(format!("hidden_act {act} (silu is run)")));
        }
        for name in ["attention_bias", "use_sliding_window"] {
            if self.flag(name)? == Some(true) {
                return Err(self.unsupported(format!("{name} true")));
            }
        }
        if let Some(Value::Array(kinds)) = self.get("layer_types")
            && let Some(kind) = kinds.iter().find(|kind| kind.as_str() != Some("full_attention"))
        {
            return Err(
                self.unsupported(format!("layer_types with {kind} (full_attention is run)"))
            );
        }
        if let Some(quant) = self.get("quantization_config") {
            let method = quant.get("quant_method").unwrap_or(quant);
            return Err(self.unsupported(format!("quantization_config {method}")));
        }
        for name in ["rope_scaling", "rope_parameters"] {
            self.refuse_rope_scaling(name)?;
        }
        Ok(())
    }

    fn refuse_rope_scaling(&self, name: &str) -> Result<(), ModelError> {
        let Some(value) = self.get(name) else { return Ok(()) };
        let Value::Object(scaling) = value else {
            return Err(self.wrong(format!("{name} is {value}: an object or null is wanted")));
        };
        for key in ["rope_type", "type"] {
            if let Some(kind) = scaling.get(key)
                && kind.as_str() != Some("default")
            {
                return Err(self.unsupported(format!("{name} with {key} {kind} (none is run)")));
            }
        }
        if let Some(factor) = scaling.get("factor").filter(|factor| !factor.is_null()) {
            return Err(self.unsupported(format!("{name} with factor {factor} (none is run)")));
        }
        Ok(())
    }

    fn config(&self) -> Result<Config, ModelError> {
        // transformers 5 writes the RoPE base inside rope_parameters, earlier versions beside it.
        let nested = self.get("rope_parameters").and_then(|rope| rope.get("rope_theta"));
        let theta = self.get("rope_theta").or(nested);
        Ok(Config {
            hidden: self.dimension("hidden_size")?,
            intermediate: self.dimension("intermediate_size")?,
            layers: self.dimension("num_hidden_layers")?,
            heads: self.dimension("num_attention_heads")?,
            kv_heads: self.dimension("num_key_value_heads")?,
            head_dim: self.dimension("head_dim")?,
            vocab: self.dimension("vocab_size")?,
            max_positions: self.dimension("max_position_embeddings")?,
            rope_theta: self.positive("rope_theta", theta)?,
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
                    self.wrong(format!("eos_token_id is {value}: token ids are wanted"))
                })
            })
            .collect()
    }

    fn check(&self, config: &Config) -> Result<(), ModelError> {
        if !config.heads.is_multiple_of(config.kv_heads) {
            return Err(self.wrong(format!(
                "num_attention_heads {} is no multiple of num_key_value_heads {}",
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
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Config, ModelError> {
        Config::parse(text.as_bytes(), Path::new("config.json"))
    }

    fn with(name: &str, value: Value) -> String {
        let mut json: Value = serde_json::from_str(&Config::qwen3_0_6b().to_json()).unwrap();
        json[name] = value;
        json.to_string()
    }

    #[test]
    fn round_trips() {
        let config = Config::qwen3_0_6b();
        assert_eq!(parse(&config.to_json()).unwrap(), config);
        assert_eq!(config.kv_bytes_per_position(), 28 * 4096);
    }

    #[test]
    fn reads_both_homes_of_theta() {
        let mut json: Value = serde_json::from_str(&Config::qwen3_0_6b().to_json()).unwrap();
        json.as_object_mut().unwrap().remove("rope_theta");
        json["rope_parameters"] = serde_json::json!({"rope_type": "default", "rope_theta": 5e5});
        assert_eq!(parse(&json.to_string()).unwrap().rope_theta, 5e5);
    }

    #[test]
    fn every_missing_field_is_named() {
        for name in [
            "model_type",
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "vocab_size",
            "max_position_embeddings",
            "rope_theta",
            "rms_norm_eps",
            "tie_word_embeddings",
        ] {
            let message = parse(&with(name, Value::Null)).unwrap_err().to_string();
            assert!(message.contains(name) && message.contains("missing"), "{message}");
        }
    }

    #[test]
    fn what_is_not_run_is_refused_by_name() {
        for (name, value, word) in [
            ("model_type", "qwen3_moe".into(), "qwen3_moe"),
            ("hidden_act", "gelu".into(), "gelu"),
            ("attention_bias", true.into(), "attention_bias"),
            ("use_sliding_window", true.into(), "use_sliding_window"),
            ("rope_scaling", serde_json::json!({"rope_type": "yarn", "factor": 4.0}), "yarn"),
            ("rope_scaling", serde_json::json!({"factor": 2.0}), "factor"),
            ("rope_parameters", serde_json::json!({"rope_type": "linear"}), "linear"),
            ("layer_types", serde_json::json!(["sliding_attention"]), "sliding_attention"),
            ("quantization_config", serde_json::json!({"quant_method": "fp8"}), "fp8"),
        ] {
            let error = parse(&with(name, value)).unwrap_err();
            assert!(matches!(error, ModelError::Unsupported { .. }), "{error}");
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn wrong_values_are_refused_by_name() {
        for (name, value) in [
            ("hidden_size", Value::from(0)),
            ("hidden_size", Value::from(-4)),
            ("vocab_size", Value::from(1u64 << 40)),
            ("head_dim", Value::from(127)),
            ("num_key_value_heads", Value::from(3)),
            ("rope_theta", Value::from("1e6")),
            ("rms_norm_eps", Value::from(-1.0)),
            ("tie_word_embeddings", Value::from(1)),
            ("eos_token_id", Value::from("</s>")),
            ("rope_scaling", Value::from(3)),
        ] {
            let message = parse(&with(name, value)).unwrap_err().to_string();
            assert!(message.contains(name), "{message}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Config::parse(&text, Path::new("config.json"));
        }

        #[test]
        fn a_mutated_config_never_panics(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut text = Config::qwen3_0_6b().to_json().into_bytes();
            let at = at.index(text.len());
            text[at] = byte;
            let _ = Config::parse(&text, Path::new("config.json"));
        }
    }
}
