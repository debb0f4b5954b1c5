//! One function for each phase. Every array has one row for each position. The results are the
//! contract with the engines (see the crate's table).

use crate::matrix::{norm, norm_row, product, product_into};
use crate::rope::Angles;
use crate::{LayerCache, ReferenceError};
use monolith_model::{LayerTensor, Tensor, Weights};
use ndarray::parallel::prelude::*;
use ndarray::{Array2, ArrayRef2, ArrayView1, ArrayViewMut2, Axis, s};

/// Query rows whose scores are in memory at once: bounds the memory for a long context.
const QUERY_ROWS: usize = 128;

/// Rows of the embedding, `[positions, hidden]`: the residual stream before the first layer.
///
/// # Errors
/// A token outside the vocabulary.
pub fn embed(weights: &dyn Weights, tokens: &[u32]) -> Result<Array2<f32>, ReferenceError> {
    let table = weights.stored(Tensor::Embedding);
    let mut out = Array2::zeros((tokens.len(), table.cols()));
    for (mut row, &token) in out.rows_mut().into_iter().zip(tokens) {
        if token as usize >= table.rows() {
            return Err(ReferenceError::Token { token, vocab: table.rows() });
        }
        row.assign(&ArrayView1::from(&table.row_f32(token as usize)));
    }
    Ok(out)
}

/// The q, k and v projections of the normed residual, side by side, before QK-norm and RoPE:
/// `[positions, q_dim + 2 * kv_dim]`.
pub fn qkv(weights: &dyn Weights, layer: usize, residual: &ArrayRef2<f32>) -> Array2<f32> {
    let (q_dim, kv_dim) = (weights.config().q_dim(), weights.config().kv_dim());
    let x = norm(weights, Tensor::Layer(layer, LayerTensor::InputNorm), residual);
    let mut out = Array2::zeros((x.nrows(), q_dim + 2 * kv_dim));
    let columns = [
        (LayerTensor::QProj, 0..q_dim),
        (LayerTensor::KProj, q_dim..q_dim + kv_dim),
        (LayerTensor::VProj, q_dim + kv_dim..q_dim + 2 * kv_dim),
    ];
    for (tensor, columns) in columns {
        let view = weights.stored(Tensor::Layer(layer, tensor));
        product_into(&x, view, out.slice_mut(s![.., columns]));
    }
    out
}

/// QK-norm, then RoPE at the positions that follow those in `cache`; keys and values appended to
/// `cache`; then causal attention over the cache, scaled by `1 / sqrt(head_dim)`:
/// `[positions, q_dim]`. Query head `h` reads kv head `h / group_heads`.
///
/// `qkv` is the output of [`qkv`].
pub fn attention(
    weights: &dyn Weights,
    layer: usize,
    qkv: &ArrayRef2<f32>,
    cache: &mut LayerCache,
) -> Array2<f32> {
    let config = weights.config();
    let (q_dim, kv_dim) = (config.q_dim(), config.kv_dim());
    let start = cache.positions();
    let angles = Angles::new(config.rope_theta, config.head_dim, start..start + qkv.nrows());
    let turned = |columns, tensor| {
        let gains = weights.stored(Tensor::Layer(layer, tensor)).row_f32(0);
        norm_and_turn(&qkv.slice(s![.., columns]), &gains, config.norm_eps, &angles)
    };
    let q = turned(0..q_dim, LayerTensor::QNorm);
    let k = turned(q_dim..q_dim + kv_dim, LayerTensor::KNorm);
    cache.append(&k, &qkv.slice(s![.., q_dim + kv_dim..]));

    let mut out = Array2::zeros((qkv.nrows(), q_dim));
    let cache = &*cache;
    let heads = out.axis_chunks_iter_mut(Axis(1), config.head_dim);
    heads.into_par_iter().enumerate().for_each(|(head, out)| {
        let q = q.slice(s![.., head * config.head_dim..(head + 1) * config.head_dim]);
        let (keys, values) = cache.head(head / config.group_heads(), config.head_dim);
        attend(&q, &keys, &values, out);
    });
    out
}

/// QK-norm of every head of every row, then RoPE.
fn norm_and_turn(x: &ArrayRef2<f32>, gains: &[f32], eps: f64, angles: &Angles) -> Array2<f32> {
    let mut out = x.to_owned();
    for (at, mut row) in out.rows_mut().into_iter().enumerate() {
        let row = row.as_slice_mut().expect("a new array's rows are contiguous");
        for head in row.chunks_exact_mut(gains.len()) {
            norm_row(head, gains, eps);
            angles.turn(at, head);
        }
    }
    out
}

/// Causal softmax attention of one head; the last row of `q` is at the last position of `keys`.
fn attend(
    q: &ArrayRef2<f32>,
    keys: &ArrayRef2<f32>,
    values: &ArrayRef2<f32>,
    mut out: ArrayViewMut2<f32>,
) {
    let start = keys.nrows() - q.nrows();
    let scale = 1.0 / (q.ncols() as f32).sqrt();
    for begin in (0..q.nrows()).step_by(QUERY_ROWS) {
        let end = q.nrows().min(begin + QUERY_ROWS);
        let seen = start + end;
        let mut scores = q.slice(s![begin..end, ..]).dot(&keys.slice(s![..seen, ..]).t());
        for (row, mut scores) in scores.rows_mut().into_iter().enumerate() {
            let scores = scores.as_slice_mut().expect("a new array's rows are contiguous");
            let (past, future) = scores.split_at_mut(start + begin + row + 1);
            softmax(past, scale);
            future.fill(0.0);
        }
        let mixed = scores.dot(&values.slice(s![..seen, ..]));
        out.slice_mut(s![begin..end, ..]).assign(&mixed);
    }
}

fn softmax(scores: &mut [f32], scale: f32) {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for score in scores.iter_mut() {
        *score = ((*score - largest) * scale).exp();
        sum += *score;
    }
    for score in scores {
        *score /= sum;
    }
}

/// The output projection of `attention`, added to `residual`: `[positions, hidden]`.
pub fn o_proj(
    weights: &dyn Weights,
    layer: usize,
    attention: &ArrayRef2<f32>,
    residual: &ArrayRef2<f32>,
) -> Array2<f32> {
    product(attention, weights.stored(Tensor::Layer(layer, LayerTensor::OProj))) + residual
}

/// `silu(gate) * up` of the normed residual: `[positions, intermediate]`.
pub fn gate_up(weights: &dyn Weights, layer: usize, residual: &ArrayRef2<f32>) -> Array2<f32> {
    let x = norm(weights, Tensor::Layer(layer, LayerTensor::PostNorm), residual);
    let mut out = product(&x, weights.stored(Tensor::Layer(layer, LayerTensor::GateProj)));
    let up = product(&x, weights.stored(Tensor::Layer(layer, LayerTensor::UpProj)));
    out.zip_mut_with(&up, |gate, up| *gate = *gate / (1.0 + (-*gate).exp()) * up);
    out
}

/// The down projection of `gate_up`, added to `residual`: `[positions, hidden]`.
pub fn down(
    weights: &dyn Weights,
    layer: usize,
    gate_up: &ArrayRef2<f32>,
    residual: &ArrayRef2<f32>,
) -> Array2<f32> {
    product(gate_up, weights.stored(Tensor::Layer(layer, LayerTensor::DownProj))) + residual
}

/// The normed residual that the LM head multiplies: `[positions, hidden]`.
pub fn final_norm(weights: &dyn Weights, residual: &ArrayRef2<f32>) -> Array2<f32> {
    norm(weights, Tensor::FinalNorm, residual)
}

/// Logits, `[positions, vocab]`: the LM head's product with [`final_norm`].
pub fn lm_head(weights: &dyn Weights, residual: &ArrayRef2<f32>) -> Array2<f32> {
    product(&final_norm(weights, residual), weights.stored(Tensor::LmHead))
}

/// The lowest index of the largest logit of every row.
///
/// # Errors
/// The first NaN logit, row by row.
pub fn argmax(logits: &ArrayRef2<f32>) -> Result<Vec<u32>, ReferenceError> {
    let row_argmax = |(row, logits): (usize, ArrayView1<f32>)| {
        let mut best = (0, f32::NEG_INFINITY);
        for (index, &logit) in logits.iter().enumerate() {
            if logit.is_nan() {
                return Err(ReferenceError::Nan { row, index });
            }
            if logit > best.1 {
                best = (index, logit);
            }
        }
        Ok(best.0 as u32)
    };
    logits.rows().into_iter().enumerate().map(row_argmax).collect()
}
