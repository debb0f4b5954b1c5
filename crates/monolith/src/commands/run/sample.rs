//! Chooses the next token from the logits.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The sampling options. A temperature of 0 is greedy: it takes the engine's own argmax.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits; above 0.
    pub temperature: f32,
    /// Keep only the likeliest tokens that together have this probability.
    pub top_p: f32,
    /// Keep only this many of the likeliest tokens; 0 keeps all.
    pub top_k: usize,
    /// Seed of the draws: the same seed gives the same text on every machine.
    pub seed: u64,
}

/// Draws tokens.
pub struct Sampler {
    sampling: Sampling,
    random: ChaCha8Rng,
    /// Pairs of (logit, later weight; token), the likeliest first.
    candidates: Vec<(f64, u32)>,
}

impl Sampler {
    /// Returns a sampler at the start of its random sequence.
    pub fn new(sampling: Sampling) -> Sampler {
        let random = ChaCha8Rng::seed_from_u64(sampling.seed);
        Sampler { sampling, random, candidates: Vec::new() }
    }

    /// Draws a token.
    pub fn draw(&mut self, logits: &[f32]) -> u32 {
        let logits = logits.iter().map(|&logit| f64::from(logit)).zip(0u32..);
        self.candidates.clear();
        self.candidates.extend(logits);
        // Equal logits are ordered by id, so that the order is the same on every machine.
        self.candidates.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        if self.sampling.top_k > 0 {
            self.candidates.truncate(self.sampling.top_k);
        }
        let total = self.weigh();
        let kept = self.keep(total);
        // 53 random bits are a uniform f64 in [0, 1).
        let mut left = (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64 * kept;
        for &(weight, token) in &self.candidates {
            left -= weight;
            if left < 0.0 {
                return token;
            }
        }
        self.candidates.last().map_or(0, |&(_, token)| token)
    }

    /// Turns logits into weights; returns their sum.
    fn weigh(&mut self) -> f64 {
        let temperature = f64::from(self.sampling.temperature);
        let largest = self.candidates.first().map_or(0.0, |&(logit, _)| logit);
        self.candidates.iter_mut().fold(0.0, |total, candidate| {
            candidate.0 = ((candidate.0 - largest) / temperature).exp();
            total + candidate.0
        })
    }

    /// Cuts off the unlikely tokens; returns the weights' sum of the kept ones.
    fn keep(&mut self, total: f64) -> f64 {
        let wanted = f64::from(self.sampling.top_p) * total;
        let mut kept = 0.0;
        for at in 0..self.candidates.len() {
            kept += self.candidates[at].0;
            if kept >= wanted {
                self.candidates.truncate(at + 1);
                break;
            }
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(sampling: Sampling, logits: &[f32], count: usize) -> Vec<u32> {
        let mut sampler = Sampler::new(sampling);
        (0..count).map(|_| sampler.draw(logits)).collect()
    }

    const ALL: Sampling = Sampling { temperature: 1.0, top_p: 1.0, top_k: 0, seed: 1 };

    #[test]
    fn frequencies_follow_the_softmax() {
        let logits = [0.0, 1.0, 2.0, f32::NEG_INFINITY];
        let drawn = draws(ALL, &logits, 20_000);
        let total: f64 = [0.0f64, 1.0, 2.0].iter().map(|logit| logit.exp()).sum();
        for (token, logit) in [0.0f64, 1.0, 2.0].iter().enumerate() {
            let share = drawn.iter().filter(|&&t| t == token as u32).count() as f64 / 20_000.0;
            assert!((share - logit.exp() / total).abs() < 0.02, "{token}: {share}");
        }
        assert!(!drawn.contains(&3));
    }

    #[test]
    fn top_k_and_top_p_cut_the_tail() {
        let logits = [3.0, 3.0, 2.0, 1.0, 0.0];
        let kept = |sampling| {
            let mut seen = draws(sampling, &logits, 3_000);
            seen.sort_unstable();
            seen.dedup();
            seen
        };
        assert_eq!(kept(Sampling { top_k: 1, ..ALL }), [0]);
        assert_eq!(kept(Sampling { top_k: 3, ..ALL }), [0, 1, 2]);
        // The two likeliest have 0.39 each.
        assert_eq!(kept(Sampling { top_p: 0.3, ..ALL }), [0]);
        assert_eq!(kept(Sampling { top_p: 0.7, ..ALL }), [0, 1]);
        assert_eq!(kept(ALL), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_seed_is_a_sequence() {
        let logits: Vec<f32> = (0..50).map(|at| (at % 7) as f32).collect();
        assert_eq!(draws(ALL, &logits, 40), draws(ALL, &logits, 40));
        assert_ne!(draws(ALL, &logits, 40), draws(Sampling { seed: 2, ..ALL }, &logits, 40));
    }

    #[test]
    fn a_low_temperature_is_nearly_greedy() {
        let drawn = draws(Sampling { temperature: 0.01, ..ALL }, &[0.0, 1.0, 0.5], 500);
        assert!(drawn.iter().all(|&token| token == 1));
    }
}
