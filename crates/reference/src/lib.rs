//! The oracle: a phase-by-phase f32 forward pass of a dense Qwen3 model on the CPU.
//!
//! The code is meant to be read and trusted, not to be fast. It has one function for each phase
//! ([`phases`]) and plain f32 arrays with one row for each position, and shares nothing with the
//! engines' packs, tiles or hand-offs. Each function's result is the contract for every engine's
//! intermediate of the same name.
//!
//! | phase | output, one row a position | width |
//! |---|---|---|
//! | `embed` | residual | hidden |
//! | `qkv` | q, k, v projections of the normed residual, before QK-norm and RoPE | q_dim + 2 kv_dim |
//! | `attention` | input of the output projection | q_dim |
//! | `o_proj` | residual after adding | hidden |
//! | `gate_up` | silu(gate) * up | intermediate |
//! | `down` | residual after adding | hidden |
//! | `lm_head` | logits of the normed residual | vocab |
//! | `argmax` | lowest index of the largest logit | 1 |
//!
//! Arithmetic: weights are bf16 and exact in f32; products and sums are f32, except a norm's mean
//! of squares, which is summed in f64. RoPE's cosines and sines are computed in f64 from the
//! position and rounded once, so they stay right to f32's last bits at any position (an
//! implementation that multiplies position by frequency in f32 is off by up to 6e-8 times the
//! position, in radians).

mod cache;
mod intermediates;
mod matrix;
pub mod phases;
mod reference;
mod rope;

pub use cache::{KvFormat, LayerCache};
pub use intermediates::{Difference, Intermediates, Place, Stop, first_difference};
pub use reference::{Reference, StepOutputs};

/// Why the reference refuses to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// The embedding has no row for the token id.
    #[error("token {token} is outside the vocabulary of {vocab} tokens")]
    Token {
        /// The token id.
        token: u32,
        /// Rows of the embedding.
        vocab: usize,
    },
    /// More positions than the model supports.
    #[error("{wanted} positions requested; the model supports {max_positions}")]
    Positions {
        /// Positions that the cache would hold.
        wanted: usize,
        /// The model's limit.
        max_positions: usize,
    },
    /// A logit is not a number.
    #[error("logit {index} of row {row} is NaN")]
    Nan {
        /// Row (position within the call).
        row: usize,
        /// The first vocabulary id whose logit is NaN.
        index: usize,
    },
    /// The stop names a layer that does not exist.
    #[error("cannot stop after {phase} with {layers} layers: the model has {model_layers}")]
    Stop {
        /// Layers to be run.
        layers: usize,
        /// The phase's name.
        phase: &'static str,
        /// Layers of the model.
        model_layers: usize,
    },
}
