//! Attention against a naive f64 one written here, past position 1024; RoPE's base; which heads
//! read which.

mod common;

use common::{noise, relative_difference, small, tokens, weights};
use monolith_model::{Config, LayerTensor, MemoryWeights, Tensor, Weights};
use monolith_reference::{KvFormat, LayerCache, Reference, phases};
use ndarray::{Array2, s};

/// In which order the naive attention norms and turns.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    NormThenTurn,
    TurnThenNorm,
}

/// One head after QK-norm and RoPE, all in f64, straight from the definitions.
fn head_at(config: &Config, order: Order, gains: &[f32], x: &[f32], position: usize) -> Vec<f64> {
    let norm = |x: Vec<f64>| -> Vec<f64> {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        let scale = 1.0 / (mean + config.norm_eps).sqrt();
        x.iter().zip(gains).map(|(x, &gain)| x * scale * f64::from(gain)).collect()
    };
    let turn = |x: Vec<f64>| -> Vec<f64> {
        let half = x.len() / 2;
        let angle = |i: usize| {
            position as f64 / config.rope_theta.powf(2.0 * (i % half) as f64 / x.len() as f64)
        };
        let rotated = |i: usize| if i < half { -x[i + half] } else { x[i - half] };
        (0..x.len()).map(|i| x[i] * angle(i).cos() + rotated(i) * angle(i).sin()).collect()
    };
    let x: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
    match order {
        Order::NormThenTurn => turn(norm(x)),
        Order::TurnThenNorm => norm(turn(x)),
    }
}

/// Attention of the last row of `qkv`, `[q_dim]`, for rows at positions 0, 1, ...
fn naive(weights: &MemoryWeights, order: Order, qkv: &Array2<f32>) -> Vec<f32> {
    let config = weights.config();
    let (dim, last) = (config.head_dim, qkv.nrows() - 1);
    let gains = |tensor| weights.view(Tensor::Layer(0, tensor)).row_f32(0);
    let (q_gains, k_gains) = (gains(LayerTensor::QNorm), gains(LayerTensor::KNorm));
    let slice = |row: usize, offset: usize, head: usize| {
        let begin = offset + head * dim;
        qkv.slice(s![row, begin..begin + dim]).to_vec()
    };
    let mut out = Vec::new();
    for head in 0..config.heads {
        let kv = head / (config.heads / config.kv_heads);
        let q = head_at(config, order, &q_gains, &slice(last, 0, head), last);
        let scores: Vec<f64> = (0..=last)
            .map(|row| {
                let k = slice(row, config.q_dim(), kv);
                let k = head_at(config, order, &k_gains, &k, row);
                q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>() / (dim as f64).sqrt()
            })
            .collect();
        let largest = scores.iter().copied().fold(f64::MIN, f64::max);
        let sum: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
        let mut mixed = vec![0.0; dim];
        for (row, score) in scores.iter().enumerate() {
            let values = slice(row, config.q_dim() + config.kv_dim(), kv);
            for (mixed, value) in mixed.iter_mut().zip(values) {
                *mixed += (score - largest).exp() / sum * f64::from(value);
            }
        }
        out.extend(mixed.into_iter().map(|x| x as f32));
    }
    out
}

fn random_qkv(config: &Config, rows: usize) -> Array2<f32> {
    let width = config.q_dim() + 2 * config.kv_dim();
    Array2::from_shape_fn((rows, width), |(row, col)| noise((row * width + col) as u64))
}

fn attend(weights: &MemoryWeights, qkv: &Array2<f32>) -> Array2<f32> {
    let mut cache = LayerCache::new(weights.config().kv_dim(), KvFormat::F32);
    phases::attention(weights, 0, qkv, &mut cache)
}

/// f32 against f64: sums of up to 1,400 terms and scores of size 10 leave about 1e-6; 1e-5 is ten
/// times that, and a thousandth of what a wrong angle or mapping gives.
const TOLERANCE: f32 = 1e-5;

#[test]
fn agrees_with_f64_at_every_kind_of_position() {
    let config = small();
    let weights = weights(&config, 1);
    let qkv = random_qkv(&config, 1400);
    let out = attend(&weights, &qkv);
    for last in [0, 1, 15, 127, 128, 129, 1023, 1024, 1025, 1279, 1399] {
        let wanted = naive(&weights, Order::NormThenTurn, &qkv.slice(s![..=last, ..]).to_owned());
        let difference = relative_difference(&wanted, out.row(last));
        assert!(difference < TOLERANCE, "position {last}: {difference:e}");
    }
}

#[test]
fn qk_norm_comes_before_rope() {
    let config = small();
    let weights = weights(&config, 1);
    let qkv = random_qkv(&config, 40);
    let out = attend(&weights, &qkv);
    let swapped = naive(&weights, Order::TurnThenNorm, &qkv);
    let difference = relative_difference(&swapped, out.row(39));
    assert!(difference > 0.01, "the order does not show: {difference:e}");
}

#[test]
fn theta_shows_and_grows_with_position() {
    let config = small();
    let mut weights = weights(&config, 1);
    let tokens = tokens(&config, 1100);
    let far = Reference::new(&weights, KvFormat::F32).advance(&tokens).unwrap();
    weights.config_mut().rope_theta = 1e4;
    let near = Reference::new(&weights, KvFormat::F32).advance(&tokens).unwrap();
    assert_eq!(far.row(0), near.row(0), "at position 0 nothing turns");
    for row in [1, 100, 1024, 1099] {
        let difference = relative_difference(far.row(row), near.row(row));
        assert!(difference > 1e-3, "position {row}: {difference:e}");
    }
}

#[test]
fn a_kv_head_reaches_only_its_group() {
    for (heads, kv_heads) in [(4, 2), (8, 2), (4, 4), (4, 1)] {
        let config = Config { heads, kv_heads, ..small() };
        let weights = weights(&config, 1);
        let qkv = random_qkv(&config, 20);
        let out = attend(&weights, &qkv);
        let dim = config.head_dim;
        for kv in 0..kv_heads {
            for offset in [config.q_dim(), config.q_dim() + config.kv_dim()] {
                let mut changed = qkv.clone();
                let begin = offset + kv * dim;
                changed.slice_mut(s![.., begin..begin + dim]).mapv_inplace(|x| x * x - 0.3);
                let other = attend(&weights, &changed);
                for head in 0..heads {
                    let columns = s![1.., head * dim..(head + 1) * dim];
                    let same = out.slice(columns) == other.slice(columns);
                    assert_eq!(same, head / (heads / kv_heads) != kv, "head {head}, kv {kv}");
                }
            }
        }
    }
}

#[test]
fn the_past_shows_and_the_future_does_not() {
    let config = small();
    let weights = weights(&config, 1);
    let tokens = tokens(&config, 12);
    let base = Reference::new(&weights, KvFormat::F32).advance(&tokens).unwrap();
    let mut changed = tokens.clone();
    changed[6] = (changed[6] + 1) % config.vocab as u32;
    let other = Reference::new(&weights, KvFormat::F32).advance(&changed).unwrap();
    assert_eq!(base.slice(s![..6, ..]), other.slice(s![..6, ..]));
    for row in 6..12 {
        assert!(relative_difference(base.row(row), other.row(row)) > 1e-3, "row {row}");
    }
}
