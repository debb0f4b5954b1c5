//! A small model for the gate: planted maxima, with layers that disturb them, so that text does
//! not repeat and a few of its tokens are near ties.

use monolith_harness::gate::planted_weights;
use monolith_model::{Config, MemoryWeights, Tensor, Weights};

/// Scale of the layers' weights: more, and too many tokens hang on bf16's rounding.
const DISTURBANCE: f32 = 0.2;
/// Logits of about 8, where bf16's steps are small beside the margins.
const EMBEDDING_SCALE: f32 = 0.125;

pub fn config() -> Config {
    Config {
        hidden: 128,
        intermediate: 96,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        vocab: 173,
        max_positions: 640,
        rope_theta: 1e4,
        eos_ids: Vec::new(),
        ..Config::qwen3_0_6b()
    }
}

pub fn weights() -> MemoryWeights {
    let config = config();
    let planted = planted_weights(&config);
    let mut state = 11u64;
    MemoryWeights::from_fn(&config, |tensor, row, col| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let unit = (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
        match tensor {
            Tensor::Embedding => EMBEDDING_SCALE * planted.view(tensor).at(row, col).to_f32(),
            Tensor::FinalNorm => planted.view(tensor).at(row, col).to_f32(),
            other if other.is_norm() => 1.0 + 0.3 * unit,
            _ => DISTURBANCE * unit,
        }
    })
}
