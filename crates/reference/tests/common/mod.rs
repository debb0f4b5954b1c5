//! Small models for tests, of values that depend only on the tensor and the place in it.

// Every test file compiles this module for itself and uses a part of it.
#![allow(dead_code)]

use monolith_model::{Config, LayerTensor, MemoryWeights, StoredView, Tensor, Weights};

/// A model of two layers in which four query heads share two kv heads.
pub fn small() -> Config {
    Config {
        hidden: 32,
        intermediate: 48,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        vocab: 331,
        max_positions: 2048,
        ..Config::qwen3_0_6b()
    }
}

/// Uniform in -1 to 1.
pub fn noise(seed: u64) -> f32 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ (x >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0
}

/// Matrices uniform and scaled to keep a row's size, norms' weights from 0.5 to 1.5 (QK-norm's
/// from 1 to 3, so that attention is neither flat nor a copy of one position).
pub fn weights(config: &Config, seed: u64) -> MemoryWeights {
    MemoryWeights::from_fn(config, |tensor, row, col| {
        let (rows, cols) = tensor.shape(config);
        let name = tensor.name().bytes().fold(seed, |hash, byte| {
            hash.wrapping_mul(0x0100_0000_01b3).wrapping_add(u64::from(byte))
        });
        let x = noise(name.wrapping_mul(31).wrapping_add((row * cols + col) as u64));
        match tensor {
            Tensor::Layer(_, LayerTensor::QNorm | LayerTensor::KNorm) => 2.0 + x,
            _ if rows == 1 => 1.0 + 0.5 * x,
            _ => 2.0 * x / (cols as f32).sqrt(),
        }
    })
}

/// `count` tokens of the vocabulary.
pub fn tokens(config: &Config, count: usize) -> Vec<u32> {
    (0..count as u64).map(|at| (noise(at + 77).abs() * config.vocab as f32) as u32).collect()
}

/// Largest difference, relative to the largest magnitude on the left.
pub fn relative_difference<'a>(
    left: impl IntoIterator<Item = &'a f32>,
    right: impl IntoIterator<Item = &'a f32>,
) -> f32 {
    let (mut difference, mut size) = (0.0f32, 0.0f32);
    for (a, b) in left.into_iter().zip(right) {
        assert!(a.is_finite() && b.is_finite());
        difference = difference.max((a - b).abs());
        size = size.max(a.abs());
    }
    difference / size
}

/// The same weights with another RoPE base.
pub struct WithTheta<'a> {
    weights: &'a dyn Weights,
    config: Config,
}

impl WithTheta<'_> {
    /// `weights` with base `rope_theta`.
    pub fn new(weights: &dyn Weights, rope_theta: f64) -> WithTheta<'_> {
        WithTheta { weights, config: Config { rope_theta, ..weights.config().clone() } }
    }
}

impl Weights for WithTheta<'_> {
    fn config(&self) -> &Config {
        &self.config
    }

    fn stored(&self, tensor: Tensor) -> StoredView<'_> {
        self.weights.stored(tensor)
    }
}
