//! Attention of one KV head's query heads over its cache.

use super::simd::{Kernel, LANES, exp_nonpositive, fma, narrow, widen};

/// The bf16 keys and values of one KV head in one layer.
///
/// Keys lie in blocks of 16 positions, transposed, so that 16 scores are summed at once without
/// a sum across lanes. Values lie in columns of 16 dimensions, position after position, so that
/// a column's sum reads memory in order.
#[derive(Clone, Debug)]
pub(crate) struct HeadCache {
    head_dim: usize,
    /// Positions that there is room for, rounded up to whole blocks.
    room: usize,
    keys: Vec<u16>,
    values: Vec<u16>,
}

impl HeadCache {
    /// Room for `context` positions.
    pub(crate) fn new(context: usize, head_dim: usize) -> HeadCache {
        let room = context.next_multiple_of(LANES);
        HeadCache {
            head_dim,
            room,
            keys: vec![0; room * head_dim],
            values: vec![0; room * head_dim.next_multiple_of(LANES)],
        }
    }

    /// Stores one position's key and value, rounded to bf16.
    pub(crate) fn store(&mut self, position: usize, key: &[f32], value: &[f32]) {
        let block = position / LANES * LANES * self.head_dim;
        for (dim, &element) in key.iter().enumerate() {
            self.keys[block + dim * LANES + position % LANES] = narrow(element);
        }
        for (column, elements) in value.chunks(LANES).enumerate() {
            let row = (column * self.room + position) * LANES;
            for (stored, &element) in self.values[row..].iter_mut().zip(elements) {
                *stored = narrow(element);
            }
        }
    }
}

/// `out = softmax(q . K) V` for every query head of a KV head.
pub(crate) struct Attend<'a> {
    pub(crate) cache: &'a HeadCache,
    /// Positions to attend to, from 0.
    pub(crate) positions: usize,
    /// Query heads one after the other, already scaled.
    pub(crate) q: &'a [f32],
    /// Room for the scores of one query head, `positions` rounded up to whole lanes.
    pub(crate) scores: &'a mut [f32],
    /// One output a query head, in the order of `q`.
    pub(crate) out: &'a mut [f32],
}

impl Kernel for Attend<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const WIDE: bool>(self) {
        let head_dim = self.cache.head_dim;
        let heads = self.q.chunks_exact(head_dim).zip(self.out.chunks_exact_mut(head_dim));
        for (q, out) in heads {
            score::<FMA>(self.cache, self.positions, q, self.scores);
            let weights = &mut self.scores[..self.positions];
            let total = softmax_unscaled::<FMA>(weights);
            mix::<FMA>(self.cache, weights, 1.0 / total, out);
        }
    }
}

/// `scores[p] = q . K[p]`, 16 positions at a time.
#[inline(always)]
fn score<const FMA: bool>(cache: &HeadCache, positions: usize, q: &[f32], scores: &mut [f32]) {
    let blocks = cache.keys.chunks_exact(LANES * cache.head_dim);
    let (out, _) = scores.as_chunks_mut::<LANES>();
    for (block, out) in blocks.zip(out).take(positions.div_ceil(LANES)) {
        let (rows, _) = block.as_chunks::<LANES>();
        // Four sums, so that a sum need not wait for the one before it.
        let mut sums = [[0.0f32; LANES]; 4];
        for (rows, q) in rows.chunks(4).zip(q.chunks(4)) {
            for ((sum, row), &q) in sums.iter_mut().zip(rows).zip(q) {
                for lane in 0..LANES {
                    sum[lane] = fma::<FMA>(widen(row[lane]), q, sum[lane]);
                }
            }
        }
        for lane in 0..LANES {
            out[lane] = (sums[0][lane] + sums[1][lane]) + (sums[2][lane] + sums[3][lane]);
        }
    }
}

/// Turns scores into e^(score - largest); gives their sum.
#[inline(always)]
fn softmax_unscaled<const FMA: bool>(scores: &mut [f32]) -> f32 {
    let largest = scores.iter().fold(f32::NEG_INFINITY, |largest, &score| largest.max(score));
    let (chunks, rest) = scores.as_chunks_mut::<LANES>();
    let mut sums = [0.0f32; LANES];
    for chunk in chunks {
        for lane in 0..LANES {
            chunk[lane] = exp_nonpositive::<FMA>(chunk[lane] - largest);
            sums[lane] += chunk[lane];
        }
    }
    let mut total: f32 = sums.iter().sum();
    for score in rest {
        *score = exp_nonpositive::<FMA>(*score - largest);
        total += *score;
    }
    total
}

/// `out = scale * sum of weights[p] * V[p]`
#[inline(always)]
fn mix<const FMA: bool>(cache: &HeadCache, weights: &[f32], scale: f32, out: &mut [f32]) {
    let columns = cache.values.chunks_exact(cache.room * LANES);
    for (values, out) in columns.zip(out.chunks_mut(LANES)) {
        // Four sums of every fourth position, for the same reason as in `score`.
        let mut sums = [[0.0f32; LANES]; 4];
        let (rows, _) = values.as_chunks::<LANES>();
        for (rows, weights) in rows.chunks(4).zip(weights.chunks(4)) {
            for ((sum, row), &weight) in sums.iter_mut().zip(rows).zip(weights) {
                for lane in 0..LANES {
                    sum[lane] = fma::<FMA>(weight, widen(row[lane]), sum[lane]);
                }
            }
        }
        for (lane, out) in out.iter_mut().enumerate() {
            *out = ((sums[0][lane] + sums[1][lane]) + (sums[2][lane] + sums[3][lane])) * scale;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::simd::Simd;

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
