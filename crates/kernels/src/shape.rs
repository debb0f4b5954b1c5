//! The dimensions of a model that the kernels are compiled for.

use monolith_abi::step::Dims;
use monolith_model::Config;
use std::fmt;

/// The dimensions that are compile-time constants of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shape(Dims);

/// A dimension that the kernels cannot run, by its name in `config.json`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the GPU kernel does not run {name} {value}: it needs {wanted} (--engine cpu runs it)")]
pub struct ShapeError {
    /// The dimension's name in `config.json`, or a product of names.
    pub name: &'static str,
    /// Its value.
    pub value: usize,
    /// The values that the kernels run.
    pub wanted: &'static str,
}

/// A warp's part of a row: warps take columns in such units.
const COLUMNS_UNIT: usize = 256;
const HEAD_DIM: usize = 128;
/// The tensor cores' B operand has eight columns: one for each query head of a group.
const GROUP_HEADS_MAX: usize = 8;

impl Shape {
    /// Returns the shape of a model.
    ///
    /// # Errors
    /// The first dimension that the kernels cannot run, by name.
    pub fn of(config: &Config) -> Result<Shape, ShapeError> {
        let refuse = |name, value, wanted| Err(ShapeError { name, value, wanted });
        if config.head_dim != HEAD_DIM {
            return refuse("head_dim", config.head_dim, "128");
        }
        for (name, value) in [
            ("hidden_size", config.hidden),
            ("intermediate_size", config.intermediate),
            ("num_attention_heads x head_dim", config.q_dim()),
        ] {
            if value == 0 || !value.is_multiple_of(COLUMNS_UNIT) {
                return refuse(name, value, "a multiple of 256");
            }
        }
        for (name, value) in [
            ("num_hidden_layers", config.layers),
            ("num_key_value_heads", config.kv_heads),
            ("vocab_size", config.vocab),
        ] {
            if value == 0 {
                return refuse(name, value, "at least 1");
            }
        }
        if !config.heads.is_multiple_of(config.kv_heads) {
            let wanted = "a multiple of num_key_value_heads";
            return refuse("num_attention_heads", config.heads, wanted);
        }
        if config.group_heads() > GROUP_HEADS_MAX {
            let name = "num_attention_heads / num_key_value_heads";
            return refuse(name, config.group_heads(), "at most 8");
        }
        Ok(Shape(config.dims()))
    }

    /// Returns the dimensions.
    pub const fn dims(&self) -> Dims {
        self.0
    }
}

/// Displays a short name, part of a cubin's file name: `h1024-i3072-l28-q16-kv8-v151936`.
impl fmt::Display for Shape {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Dims { hidden, intermediate, layers, heads, kv_heads, vocab, head_dim: _ } = &self.0;
        let name = format!("h{hidden}-i{intermediate}-l{layers}-q{heads}-kv{kv_heads}-v{vocab}");
        out.pad(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use monolith_model::synth;

    #[test]
    fn the_named_shapes_are_run() {
        for name in ["qwen3-0.6b", "tiny"] {
            Shape::of(&synth::shape(name).unwrap()).unwrap();
        }
        let full = Shape::of(&Config::qwen3_0_6b()).unwrap();
        assert_eq!(full.to_string(), "h1024-i3072-l28-q16-kv8-v151936");
        assert_eq!(full.dims().hidden, 1024);
    }

    #[test]
    fn the_larger_dense_models_are_run() {
        for (hidden, intermediate, layers, heads) in
            [(2048, 6144, 28, 16), (2560, 9728, 36, 32), (4096, 12_288, 36, 32)]
        {
            let full = Config::qwen3_0_6b();
            Shape::of(&Config { hidden, intermediate, layers, heads, ..full }).unwrap();
        }
    }

    #[test]
    fn what_is_not_run_is_refused_by_name() {
        let full = Config::qwen3_0_6b;
        for (config, name) in [
            (Config { head_dim: 64, ..full() }, "head_dim 64"),
            (Config { hidden: 1000, ..full() }, "hidden_size 1000"),
            (Config { intermediate: 3200, ..full() }, "intermediate_size 3200"),
            (Config { heads: 3, kv_heads: 1, ..full() }, "num_attention_heads x head_dim 384"),
            (Config { heads: 16, kv_heads: 1, ..full() }, "num_key_value_heads 16"),
            (Config { heads: 16, kv_heads: 3, ..full() }, "num_attention_heads 16"),
            (Config { kv_heads: 0, ..full() }, "num_key_value_heads 0"),
            (Config { vocab: 0, ..full() }, "vocab_size 0"),
            (Config { layers: 0, ..full() }, "num_hidden_layers 0"),
            (Config { hidden: 0, ..full() }, "hidden_size 0"),
        ] {
            let message = Shape::of(&config).unwrap_err().to_string();
            assert!(message.contains(name) && message.contains("it needs"), "{message}");
        }
    }
}
