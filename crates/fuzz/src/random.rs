//! Pseudo-random numbers from a seed.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};

/// The generator of one input.
pub struct Random(ChaCha8Rng);

impl Random {
    /// The generator for this seed, parser and input number.
    pub fn of(seed: u64, parser: &str, number: u64) -> Random {
        let text = format!("{seed} {parser}");
        let mut key = [0; 32];
        key.copy_from_slice(&Sha256::digest(text));
        let mut random = ChaCha8Rng::from_seed(key);
        random.set_stream(number);
        Random(random)
    }

    /// Any 64-bit number.
    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `limit`; `limit` must not be 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// True with this probability.
    pub fn one_in(&mut self, chance: usize) -> bool {
        self.below(chance) == 0
    }

    /// One of the elements.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}
