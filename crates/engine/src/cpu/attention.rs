//! Attention of one KV head's query heads over its cache.

use super::simd::{
    Kernel, LANES, Level, Registers, Sums, Words, add_pairs, exp_nonpositive, load, narrow, store,
};

/// The bf16 keys and values of one KV head in one layer, two to a word.
///
/// Keys are stored in blocks of 16 positions: a lane is a position and a word two dimensions, so
/// that 16 scores are summed at once without a sum across lanes. Values are stored in columns of 16
/// dimensions: a lane is a dimension and a word two positions, so that a column's sum reads memory
/// in order.
#[derive(Clone, Debug)]
pub(crate) struct HeadCache {
    head_dim: usize,
    /// `[block of 16 positions][pair of dimensions]`
    keys: Vec<Words>,
    /// `[column of 16 dimensions][pair of positions]`
    values: Vec<Words>,
    /// Pairs of positions in a column.
    pairs: usize,
}

impl HeadCache {
    /// A cache for `context` positions. `head_dim` is even.
    pub(crate) fn new(context: usize, head_dim: usize) -> HeadCache {
        let pairs = context.div_ceil(2);
        HeadCache {
            head_dim,
            keys: vec![[0; LANES]; context.div_ceil(LANES) * (head_dim / 2)],
            values: vec![[0; LANES]; head_dim.div_ceil(LANES) * pairs],
            pairs,
        }
    }

    /// Stores one position's key and value, rounded to bf16.
    pub(crate) fn store(&mut self, position: usize, key: &[f32], value: &[f32]) {
        let block = position / LANES * (self.head_dim / 2);
        for (dim, &element) in key.iter().enumerate() {
            let word = &mut self.keys[block + dim / 2][position % LANES];
            set_half(word, dim % 2, narrow(element));
        }
        for (dim, &element) in value.iter().enumerate() {
            let word = &mut self.values[dim / LANES * self.pairs + position / 2][dim % LANES];
            set_half(word, position % 2, narrow(element));
        }
    }
}

/// Sets the low (0) or high (1) half of a word.
fn set_half(word: &mut u32, half: usize, bits: u16) {
    let shift = 16 * half as u32;
    *word = (*word & !(0xffff << shift)) | (u32::from(bits) << shift);
}

/// `out = softmax(q . K) V` for every query head of a KV head.
pub(crate) struct Attend<'a> {
    pub(crate) cache: &'a HeadCache,
    /// Positions to attend to, from 0.
    pub(crate) positions: usize,
    /// Query heads one after another, already scaled.
    pub(crate) q: &'a [f32],
    /// Room for the scores of one query head, `positions` rounded up to whole lanes.
    pub(crate) scores: &'a mut [f32],
    /// One output per query head, in the order of `q`.
    pub(crate) out: &'a mut [f32],
}

impl Kernel for Attend<'_> {
    #[inline(always)]
    fn run<S: Level, const R: usize>(self, simd: S) {
        let head_dim = self.cache.head_dim;
        let heads = self.q.chunks_exact(head_dim).zip(self.out.chunks_exact_mut(head_dim));
        for (q, out) in heads {
            let (scores, _) = self.scores.as_chunks_mut::<LANES>();
            let scores = &mut scores[..self.positions.div_ceil(LANES)];
            score::<S, R>(simd, self.cache, q, scores);
            let total = softmax_unscaled::<S, R>(simd, self.positions, scores);
            mix::<S, R>(simd, self.cache, scores.as_flattened(), 1.0 / total, out);
        }
    }
}

/// `scores[p] = q . K[p]`, 16 positions at a time.
#[inline(always)]
fn score<S: Registers, const R: usize>(
    simd: S,
    cache: &HeadCache,
    q: &[f32],
    scores: &mut [[f32; LANES]],
) {
    for (block, out) in cache.keys.chunks_exact(cache.head_dim / 2).zip(scores) {
        let sums = dot::<S, R>(simd, block, q);
        store::<S, R>(out, sums);
    }
}

/// The sum of `words[i]`'s low half times `factors[2 i]` and high half times `factors[2 i + 1]`.
/// Four partial sums, so that one addition need not wait for the one before it.
#[inline(always)]
fn dot<S: Registers, const R: usize>(simd: S, words: &[Words], factors: &[f32]) -> Sums<S, R> {
    let mut parts: [Sums<S, R>; 4] = [[simd.splat_f32s(0.0); R]; 4];
    let (fours, rest) = words.as_chunks::<4>();
    let (eights, factors_rest) = factors.as_chunks::<8>();
    for (words, factors) in fours.iter().zip(eights) {
        for (part, sums) in parts.iter_mut().enumerate() {
            add_word::<S, R>(simd, sums, &words[part], [factors[2 * part], factors[2 * part + 1]]);
        }
    }
    for (words, factors) in rest.iter().zip(factors_rest.as_chunks::<2>().0) {
        add_word::<S, R>(simd, &mut parts[0], words, *factors);
    }
    let [mut sums, second, third, fourth] = parts;
    for at in 0..R {
        let low = simd.add_f32s(sums[at], second[at]);
        sums[at] = simd.add_f32s(low, simd.add_f32s(third[at], fourth[at]));
    }
    sums
}

/// Multiplies 16 words' low halves by the first factor and their high halves by the second, and
/// adds the products.
#[inline(always)]
fn add_word<S: Registers, const R: usize>(
    simd: S,
    sums: &mut Sums<S, R>,
    words: &Words,
    factors: [f32; 2],
) {
    let (words, _) = S::as_simd_u32s(words);
    let [even, odd] = factors;
    let (even, odd) = (simd.splat_f32s(even), simd.splat_f32s(odd));
    for at in 0..R {
        sums[at] = add_pairs(simd, sums[at], words[at], even, odd);
    }
}

/// Replaces the first `positions` scores by e^(score - largest) and the rest of the last block by
/// 0; returns the sum.
#[inline(always)]
fn softmax_unscaled<S: Registers, const R: usize>(
    simd: S,
    positions: usize,
    scores: &mut [[f32; LANES]],
) -> f32 {
    let flat = scores.as_flattened_mut();
    flat[positions..].fill(f32::MIN);
    let largest = flat.iter().fold(f32::NEG_INFINITY, |largest, &score| largest.max(score));
    let shift = simd.splat_f32s(largest);
    let mut sums: Sums<S, R> = [simd.splat_f32s(0.0); R];
    for block in &mut *scores {
        let mut values = load::<S, R>(block);
        for (value, sum) in values.iter_mut().zip(&mut sums) {
            // x - x is 0, or NaN if x is NaN or infinite. The maximum hides such an x, and the sum
            // must not.
            let checked = simd.sub_f32s(*value, *value);
            *value = exp_nonpositive(simd, simd.sub_f32s(*value, shift));
            *sum = simd.add_f32s(*sum, simd.add_f32s(*value, checked));
        }
        store::<S, R>(block, values);
    }
    scores.as_flattened_mut()[positions..].fill(0.0);
    let mut lanes = [0.0; LANES];
    store::<S, R>(&mut lanes, sums);
    lanes.iter().sum()
}

/// `out = scale * sum of weights[p] * V[p]`. The weights are padded with zeros to an even number.
#[inline(always)]
fn mix<S: Registers, const R: usize>(
    simd: S,
    cache: &HeadCache,
    weights: &[f32],
    scale: f32,
    out: &mut [f32],
) {
    for (column, out) in cache.values.chunks_exact(cache.pairs).zip(out.chunks_mut(LANES)) {
        let pairs = cache.pairs.min(weights.len() / 2);
        let mut lanes = [0.0; LANES];
        store::<S, R>(&mut lanes, dot::<S, R>(simd, &column[..pairs], &weights[..2 * pairs]));
        for (out, lane) in out.iter_mut().zip(lanes) {
            *out = lane * scale;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::simd::{Simd, widen};

    /// Attention in f64 over the rounded cache.
    fn exact(keys: &[Vec<f32>], values: &[Vec<f32>], q: &[f32]) -> Vec<f64> {
        let rounded = |x: f32| f64::from(widen(narrow(x)));
        let score = |key: &Vec<f32>| -> f64 {
            key.iter().zip(q).map(|(&k, &q)| rounded(k) * f64::from(q)).sum()
        };
        let scores: Vec<f64> = keys.iter().map(score).collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
        let total: f64 = weights.iter().sum();
        (0..q.len())
            .map(|dim| {
                let terms = weights.iter().zip(values).map(|(w, v)| w * rounded(v[dim]));
                terms.sum::<f64>() / total
            })
            .collect()
    }

    #[test]
    fn agrees_with_f64_at_every_length_and_level() {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        for head_dim in [2, 6, 16, 30, 128] {
            let mut cache = HeadCache::new(70, head_dim);
            let (mut keys, mut values) = (Vec::new(), Vec::new());
            for position in 0..70 {
                let key: Vec<f32> = (0..head_dim).map(|_| 3.0 * next()).collect();
                let value: Vec<f32> = (0..head_dim).map(|_| next()).collect();
                cache.store(position, &key, &value);
                keys.push(key);
                values.push(value);
                let q: Vec<f32> = (0..2 * head_dim).map(|_| next()).collect();
                let mut fused: Option<Vec<f32>> = None;
                for level in Simd::available() {
                    let mut out = vec![f32::NAN; 2 * head_dim];
                    let scores = &mut [f32::NAN; 80];
                    let positions = position + 1;
                    level.run(Attend { cache: &cache, positions, q: &q, scores, out: &mut out });
                    for (q, out) in q.chunks(head_dim).zip(out.chunks(head_dim)) {
                        for (exact, &got) in exact(&keys, &values, q).iter().zip(out) {
                            let error = (exact - f64::from(got)).abs();
                            // Scores reach some 40, whose f32 has an ulp of 4e-6: that is the
                            // relative error of a weight.
                            assert!(
                                error < 1e-5,
                                "{} {head_dim} {position}: {error}",
                                level.name()
                            );
                        }
                    }
                    if level != Simd::Scalar {
                        assert_eq!(*fused.get_or_insert_with(|| out.clone()), out);
                    }
                }
            }
        }
    }
}
