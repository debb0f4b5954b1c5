//! A model whose greedy token is known for every input, and whose outputs cover every id.
//!
//! Layers add almost nothing (their matrices are [`NEARLY_NOTHING`], since some formats have no
//! scale for a row of zeros), so the final residual is the embedding. Embeddings are rows of
//! pseudo-random signs; row `2k + 1` is row `2k` times the final norm's weight, which is +1 on
//! even columns and -1 on odd ones. A product of a row with itself is the hidden width, any other
//! about its square root: the largest logit after token `t` is planted at `t ^ 1`. The last of an
//! odd number of ids has zeros on odd columns and stays itself.

use monolith_model::{Config, MemoryWeights, Tensor};
use monolith_pack::{Formats, Pack, PackError, Source, pack_to_bytes_as};
use std::sync::Arc;

/// The layers' weights. A layer's output sums some thousands of products of them.
const NEARLY_NOTHING: f32 = 1.0 / (1u64 << 40) as f32;

/// Returns the id that is planted after a token.
pub fn planted_next(token: u32, vocab: usize) -> u32 {
    let other = token ^ 1;
    if (other as usize) < vocab { other } else { token }
}

/// The model.
pub fn planted_weights(config: &Config) -> MemoryWeights {
    MemoryWeights::from_fn(config, |tensor, row, col| match tensor {
        Tensor::Embedding | Tensor::LmHead => embedding(row, col, config.vocab),
        Tensor::FinalNorm => flip(col),
        other if other.is_norm() => 1.0,
        _ => NEARLY_NOTHING,
    })
}

/// Returns the model's pack in these formats.
///
/// # Errors
/// Never in practice: the weights can be quantized, and a fresh pack is whole.
pub fn planted_pack(config: &Config, formats: Formats) -> Result<Arc<Pack>, PackError> {
    let weights = planted_weights(config);
    let source = Source { model: "planted maxima".into(), revision: None };
    Pack::from_bytes(pack_to_bytes_as(&weights, source, formats)?, "planted maxima").map(Arc::new)
}

fn flip(col: usize) -> f32 {
    if col.is_multiple_of(2) { 1.0 } else { -1.0 }
}

fn embedding(row: usize, col: usize, vocab: usize) -> f32 {
    let sign = sign(row / 2, col);
    let is_last_alone = row + 1 == vocab && row.is_multiple_of(2);
    match (is_last_alone, row % 2) {
        (true, _) if !col.is_multiple_of(2) => 0.0,
        (_, 0) => sign,
        _ => sign * flip(col),
    }
}

/// Returns a pseudo-random sign for a pair of rows and a column: splitmix64, one bit per column.
fn sign(pair: usize, col: usize) -> f32 {
    let mut bits = ((pair as u64) << 16 | (col / 64) as u64).wrapping_add(1);
    bits = bits.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    if bits >> (col % 64) & 1 == 0 { 1.0 } else { -1.0 }
}
