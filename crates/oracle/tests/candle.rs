//! Final norms of every position and logits of the last, reference against candle.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test, helpers and all")]

use candle_core::{DType, Device, Tensor as CandleTensor};
use candle_nn::{Activation, VarBuilder};
use candle_transformers::models::qwen3::{Config as CandleConfig, Model, ModelForCausalLM};
use monolith_model::{Config, MemoryWeights, Tensor, Weights, synth};
use monolith_reference::{KvFormat, Reference, phases};
use ndarray::Array2;
use std::collections::HashMap;

fn candle_config(config: &Config) -> CandleConfig {
    CandleConfig {
        vocab_size: config.vocab,
        hidden_size: config.hidden,
        intermediate_size: config.intermediate,
        num_hidden_layers: config.layers,
        num_attention_heads: config.heads,
        head_dim: config.head_dim,
        attention_bias: false,
        num_key_value_heads: config.kv_heads,
        max_position_embeddings: config.max_positions,
        sliding_window: None,
        max_window_layers: config.layers,
        tie_word_embeddings: config.tied,
        rope_theta: config.rope_theta,
        rms_norm_eps: config.norm_eps,
        use_sliding_window: false,
        hidden_act: Activation::Silu,
    }
}

fn candle_weights(weights: &dyn Weights) -> VarBuilder<'static> {
    let tensors = Tensor::all(weights.config()).into_iter().map(|tensor| {
        let view = weights.view(tensor);
        let shape = if tensor.is_norm() { vec![view.cols] } else { vec![view.rows, view.cols] };
        let values = view.rows_f32(0..view.rows);
        (tensor.name(), CandleTensor::from_vec(values, shape, &Device::Cpu).unwrap())
    });
    let tensors: HashMap<String, CandleTensor> = tensors.collect();
    VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu)
}

fn rows(tensor: &CandleTensor) -> Array2<f32> {
    let rows: Vec<Vec<f32>> = tensor.squeeze(0).unwrap().to_vec2().unwrap();
    Array2::from_shape_fn((rows.len(), rows[0].len()), |(row, col)| rows[row][col])
}

/// The worst row's largest difference, relative to the row's largest magnitude.
fn difference(left: &Array2<f32>, right: &Array2<f32>) -> f32 {
    assert_eq!(left.shape(), right.shape());
    let row_difference = |(a, b): (ndarray::ArrayView1<f32>, ndarray::ArrayView1<f32>)| {
        let largest =
            |row: &ndarray::Array1<f32>| row.iter().fold(0.0, |max: f32, x| max.max(x.abs()));
        assert!(a.iter().chain(&b).all(|x| x.is_finite()));
        largest(&(&a - &b)) / largest(&a.to_owned())
    };
    left.rows().into_iter().zip(right.rows()).map(row_difference).fold(0.0, f32::max)
}

/// Differences of final norms and of the last logits; greedy tokens must be the same.
fn compare(weights: &MemoryWeights, tokens: &[u32]) -> (f32, f32) {
    let (config, builder) = (candle_config(weights.config()), candle_weights(weights));
    let input = CandleTensor::new(tokens, &Device::Cpu).unwrap().unsqueeze(0).unwrap();
    let normed = Model::new(&config, builder.clone()).unwrap().forward(&input, 0).unwrap();
    let mut model = ModelForCausalLM::new(&config, builder).unwrap();
    let logits = rows(&model.forward(&input, 0).unwrap());

    let residual = Reference::new(weights, KvFormat::F32).advance(tokens).unwrap();
    let ours = phases::final_norm(weights, &residual);
    let last = residual.slice(ndarray::s![-1.., ..]);
    let our_logits = phases::lm_head(weights, &last);
    assert_eq!(phases::argmax(&our_logits).unwrap(), phases::argmax(&logits).unwrap());
    (difference(&ours, &rows(&normed)), difference(&our_logits, &logits))
}

fn tokens(config: &Config, count: usize) -> Vec<u32> {
    (0..count).map(|at| ((at * at * 7 + at * 31 + 5) % config.vocab) as u32).collect()
}

fn small() -> Config {
    Config {
        hidden: 64,
        intermediate: 96,
        layers: 3,
        heads: 4,
        kv_heads: 2,
        head_dim: 32,
        vocab: 500,
        max_positions: 2048,
        eos_ids: Vec::new(),
        ..Config::qwen3_0_6b()
    }
}

/// Two f32 implementations sum in different orders. The largest difference seen is 7e-6; four times
/// that is still far below what a fault causes.
const TOLERANCE: f32 = 3e-5;

#[test]
fn small_models_of_every_kind() {
    let kinds = [
        ("tied, two heads a kv head", small()),
        ("untied", Config { tied: false, ..small() }),
        ("theta 1e4", Config { rope_theta: 1e4, ..small() }),
        ("a kv head for every head", Config { kv_heads: 4, ..small() }),
        ("one kv head", Config { kv_heads: 1, ..small() }),
        ("six heads of 16, eps 1e-3", Config { heads: 6, head_dim: 16, norm_eps: 1e-3, ..small() }),
        ("q_dim above hidden", Config { heads: 8, kv_heads: 2, ..small() }),
        ("head_dim 128", Config { head_dim: 128, ..small() }),
    ];
    for (seed, (kind, config)) in kinds.into_iter().enumerate() {
        let weights = synth::weights(&config, seed as u64);
        let (normed, logits) = compare(&weights, &tokens(&config, 40));
        println!("{kind}: final norm {normed:.1e}, logits {logits:.1e}");
        assert!(normed < TOLERANCE && logits < TOLERANCE, "{kind}: {normed:e}, {logits:e}");
    }
}

#[test]
fn the_tiny_shape() {
    let config = synth::shape("tiny").unwrap();
    let weights = synth::weights(&config, 1);
    let (normed, logits) = compare(&weights, &tokens(&config, 100));
    println!("final norm {normed:.1e}, logits {logits:.1e}");
    assert!(normed < TOLERANCE && logits < TOLERANCE, "{normed:e}, {logits:e}");
}

/// Past position 1024, candle's angles (f32 products of position and frequency) are off by up to
/// 6e-8 * 1,500 = 1e-4 radians. Two layers carry that error to the result: 6e-5 was seen.
const FAR_TOLERANCE: f32 = 2e-4;

#[test]
fn past_position_1024() {
    let config = Config { layers: 2, ..small() };
    let weights = synth::weights(&config, 9);
    let (normed, logits) = compare(&weights, &tokens(&config, 1500));
    println!("final norm {normed:.1e}, logits {logits:.1e}");
    assert!(normed < FAR_TOLERANCE && logits < FAR_TOLERANCE, "{normed:e}, {logits:e}");
}

/// The comparison notices another theta and another eps.
#[test]
fn a_wrong_constant_shows() {
    let config = small();
    let weights = synth::weights(&config, 4);
    let tokens = tokens(&config, 40);
    let right = Reference::new(&weights, KvFormat::F32).advance(&tokens).unwrap();
    for wrong in [Config { rope_theta: 1e4, ..config.clone() }, Config { norm_eps: 1e-3, ..config }]
    {
        let mut changed = weights.clone();
        *changed.config_mut() = wrong;
        let other = Reference::new(&changed, KvFormat::F32).advance(&tokens).unwrap();
        assert!(difference(&right, &other) > 10.0 * FAR_TOLERANCE);
    }
}
