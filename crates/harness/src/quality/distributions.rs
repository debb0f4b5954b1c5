//! Compares two next-token distributions in f64, over all logits, with the same bits on every
//! machine and for every number of threads.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

/// Partial sums in parallel: as many f64 as the widest SIMD register holds.
const LANES: usize = 8;
/// Logits of one block: their exponentials are computed together.
const BLOCK: usize = 64;
/// Logits that one task sums. The tasks' sums are added in order.
const CHUNK: usize = 1 << 13;

/// The comparison of two engines' distributions at one position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Negative log-likelihood of the text's token under the reference, in nats.
    pub nll_reference: f64,
    /// The same under the candidate.
    pub nll_candidate: f64,
    /// KL(reference || candidate) in nats, clamped to 0 if rounding gives less.
    pub kl: f64,
}

/// The logits of one position with the engine's own greedy token.
#[derive(Clone, Copy, Debug)]
pub struct Logits<'a> {
    /// One per vocabulary row.
    pub values: &'a [f32],
    /// The argmax, as the engine reports it.
    pub greedy: u32,
}

impl Logits<'_> {
    fn largest(&self) -> Option<f64> {
        self.values.get(self.greedy as usize).map(|&value| f64::from(value))
    }
}

/// Compares two distributions, and the likelihood that each gives to the token `target`.
///
/// Returns `None` for impossible input: vocabularies that differ, a logit that is not finite, a
/// target outside the vocabulary, or a greedy token whose logit is not the largest.
pub fn compare(reference: Logits, candidate: Logits, target: u32) -> Option<Comparison> {
    let (a, b) = (reference.values, candidate.values);
    let at = target as usize;
    if a.len() != b.len() || at >= a.len() {
        return None;
    }
    let largest = [reference.largest()?, candidate.largest()?];
    let parts: Vec<Sums> = a
        .par_chunks(CHUNK)
        .zip(b.par_chunks(CHUNK))
        .map(|(a, b)| Arch::new().dispatch(Chunk { a, b, largest }))
        .collect();
    let sums = parts.into_iter().fold(Sums::default(), Sums::plus);
    let log_sums = [0, 1].map(|side| largest[side] + sums.exp[side].ln());
    // A NaN or an infinity among the logits makes one of these sums not finite.
    let weighted = sums.weighted / sums.exp[0];
    let finite = [log_sums[0], log_sums[1], weighted].iter().all(|value| value.is_finite());
    (finite && sums.above <= 0.0).then(|| Comparison {
        nll_reference: log_sums[0] - f64::from(a[at]),
        nll_candidate: log_sums[1] - f64::from(b[at]),
        kl: (weighted - (log_sums[0] - log_sums[1])).max(0.0),
    })
}

/// Some of the logits of both sides. The summing code is compiled once for each SIMD level, with
/// the same operations on the same lanes, so that every level gives the same bits.
struct Chunk<'a> {
    a: &'a [f32],
    b: &'a [f32],
    largest: [f64; 2],
}

impl WithSimd for Chunk<'_> {
    type Output = Sums;

    /// Must be inlined, like everything that it calls, to be compiled for the SIMD level.
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Sums {
        Sums::of(self.a, self.b, self.largest)
    }
}

/// Sums over some of the logits, each relative to its side's largest.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// Sums of the exponentials: the reference's, the candidate's.
    exp: [f64; 2],
    /// Sum of the reference's exponential times the difference of the logits.
    weighted: f64,
    /// The largest logit, relative to the logit of the reported argmax.
    above: f64,
}

impl Sums {
    #[inline(always)]
    fn of(a: &[f32], b: &[f32], largest: [f64; 2]) -> Sums {
        let mut sums = Sums::default();
        let (whole_a, rest_a) = a.as_chunks::<BLOCK>();
        let (whole_b, rest_b) = b.as_chunks::<BLOCK>();
        for (a, b) in whole_a.iter().zip(whole_b) {
            sums = sums.plus(Sums::of_block(a, b, largest, BLOCK));
        }
        if !rest_a.is_empty() {
            let mut padded = [[0.0; BLOCK]; 2];
            padded[0][..rest_a.len()].copy_from_slice(rest_a);
            padded[1][..rest_b.len()].copy_from_slice(rest_b);
            sums = sums.plus(Sums::of_block(&padded[0], &padded[1], largest, rest_a.len()));
        }
        sums
    }

    /// Sums over the first `count` of each side. Plain loops of a known length, so that the
    /// compiler vectorizes each.
    #[inline(always)]
    fn of_block(a: &[f32; BLOCK], b: &[f32; BLOCK], largest: [f64; 2], count: usize) -> Sums {
        let mut exp_a = [0.0; BLOCK];
        let mut exp_b = [0.0; BLOCK];
        let mut weighted = [0.0; BLOCK];
        let mut above = [0.0; BLOCK];
        for at in 0..BLOCK {
            let (a, b) = (f64::from(a[at]), f64::from(b[at]));
            let (under_a, under_b) = (a - largest[0], b - largest[1]);
            exp_a[at] = exp(under_a);
            exp_b[at] = exp(under_b);
            weighted[at] = exp_a[at] * (a - b);
            above[at] = if under_a > under_b { under_a } else { under_b };
        }
        for values in [&mut exp_a, &mut exp_b, &mut weighted, &mut above] {
            values[count..].fill(0.0);
        }
        Sums {
            exp: [sum(&exp_a), sum(&exp_b)],
            weighted: sum(&weighted),
            above: above.iter().fold(0.0, |most, &own| if own > most { own } else { most }),
        }
    }

    #[inline(always)]
    fn plus(self, other: Sums) -> Sums {
        Sums {
            exp: [self.exp[0] + other.exp[0], self.exp[1] + other.exp[1]],
            weighted: self.weighted + other.weighted,
            above: self.above.max(other.above),
        }
    }
}

/// The sum, in an order that many lanes can take.
#[inline(always)]
fn sum(values: &[f64; BLOCK]) -> f64 {
    let mut lanes = [0.0; LANES];
    for part in values.as_chunks::<LANES>().0 {
        for lane in 0..LANES {
            lanes[lane] += part[lane];
        }
    }
    lanes.iter().sum()
}

/// Smaller numbers give this number's exponential, 1e-304.
const LEAST: f64 = -700.0;
/// 1.5 * 2^52: adding it rounds to a whole number, which is then in the low bits.
const ROUND: f64 = 6_755_399_441_055_744.0;
/// ln 2 in two parts: products of the first with whole numbers up to 2^11 are exact.
const LN_2: [f64; 2] = [0.693_147_180_369_123_8, 1.908_214_929_270_587_7e-10];
/// 1 / n! from 12 down to 0.
const TERMS: [f64; 13] = [
    1.0 / 479_001_600.0,
    1.0 / 39_916_800.0,
    1.0 / 3_628_800.0,
    1.0 / 362_880.0,
    1.0 / 40_320.0,
    1.0 / 5_040.0,
    1.0 / 720.0,
    1.0 / 120.0,
    1.0 / 24.0,
    1.0 / 6.0,
    0.5,
    1.0,
    1.0,
];

/// The exponential of numbers up to 0, within 4e-16 of it: 2^k times a polynomial. Above 0 the
/// result is of no use; a NaN stays one.
#[inline(always)]
fn exp(x: f64) -> f64 {
    let x = if x < LEAST { LEAST } else { x };
    let shifted = x * std::f64::consts::LOG2_E + ROUND;
    let whole = shifted - ROUND;
    let rest = x - whole * LN_2[0] - whole * LN_2[1];
    let mut sum = TERMS[0];
    for term in &TERMS[1..] {
        sum = sum * rest + term;
    }
    // Adds the exponent's bias; the shift drops the bits above the low ones.
    sum * f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn argmax(values: &[f32]) -> u32 {
        let best = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        values.iter().position(|&value| value == best).map_or(0, |at| at as u32)
    }

    fn of(values: &[f32]) -> Logits<'_> {
        Logits { values, greedy: argmax(values) }
    }

    /// The same, written as the definitions are.
    fn plain(a: &[f32], b: &[f32], target: usize) -> Comparison {
        let log_probabilities = |values: &[f32]| -> Vec<f64> {
            let largest = f64::from(values[argmax(values) as usize]);
            let sum: f64 = values.iter().map(|&value| (f64::from(value) - largest).exp()).sum();
            values.iter().map(|&value| f64::from(value) - largest - sum.ln()).collect()
        };
        let (p, q) = (log_probabilities(a), log_probabilities(b));
        let kl = p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum();
        Comparison { nll_reference: -p[target], nll_candidate: -q[target], kl }
    }

    #[test]
    fn the_exponential_is_exact() {
        let mut worst: f64 = 0.0;
        for index in 0..70_000 {
            let x = f64::from(index) * -0.01;
            let (own, known) = (exp(x), x.exp());
            worst = worst.max(((own - known) / known).abs());
        }
        assert!(worst < 4e-16 * 2.0, "{worst:e}");
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(-1e300) < 1e-300 && exp(f64::NAN).is_nan());
    }

    #[test]
    fn known_distributions() {
        // Probabilities 1/2, 1/4, 1/4 against 1/4, 1/2, 1/4: KL is ln 2 / 4.
        let ln_2 = std::f32::consts::LN_2;
        let (a, b) = ([ln_2, 0.0, 0.0], [5.0, 5.0 + ln_2, 5.0]);
        let found = compare(of(&a), of(&b), 0).unwrap();
        let ln_2 = std::f64::consts::LN_2;
        assert!((found.nll_reference - ln_2).abs() < 1e-7, "{found:?}");
        assert!((found.nll_candidate - 2.0 * ln_2).abs() < 1e-7, "{found:?}");
        assert!((found.kl - ln_2 / 4.0).abs() < 1e-7, "{found:?}");
        // A uniform distribution over a whole vocabulary, in several chunks and a rest.
        let flat = vec![-3.5; 151_936 + 5];
        let found = compare(of(&flat), of(&flat), 151_940).unwrap();
        assert!((found.nll_reference - 151_941f64.ln()).abs() < 1e-12, "{found:?}");
        assert_eq!(found.kl.to_bits(), 0);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = [0.0, 1.0, 2.0];
        assert!(compare(of(&good), of(&good), 2).is_some());
        assert_eq!(compare(of(&good), of(&good), 3), None);
        assert_eq!(compare(of(&good), of(&good[..2]), 0), None);
        let wrong = Logits { values: &good, greedy: 1 };
        assert_eq!(compare(wrong, of(&good), 0), None);
        assert_eq!(compare(of(&good), wrong, 0), None);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let values = [0.0, bad, 2.0];
            let bad = Logits { values: &values, greedy: 2 };
            assert_eq!(compare(bad, of(&good), 0), None, "{bad:?}");
            assert_eq!(compare(of(&good), bad, 0), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn it_is_what_the_definitions_say(
            pairs in prop::collection::vec((-40f32..40.0, -40f32..40.0), 1..200),
            copies in 1..120usize,
            target in 0..200usize,
        ) {
            let pairs = pairs.repeat(copies);
            let (a, b): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
            let target = target % a.len();
            let found = compare(of(&a), of(&b), target as u32).expect("all is finite");
            let known = plain(&a, &b, target);
            prop_assert!((found.nll_reference - known.nll_reference).abs() < 1e-11);
            prop_assert!((found.nll_candidate - known.nll_candidate).abs() < 1e-11);
            prop_assert!((found.kl - known.kl).abs() < 1e-11, "{} {}", found.kl, known.kl);
            prop_assert!(found.kl >= 0.0);
            let same = compare(of(&a), of(&a), target as u32).expect("all is finite");
            prop_assert_eq!(same.kl.to_bits(), 0);
            prop_assert_eq!(same.nll_reference.to_bits(), same.nll_candidate.to_bits());
        }
    }
}
