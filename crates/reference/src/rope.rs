//! Rotary position embedding, half-split: element `i` of a head turns with element
//! `i + head_dim / 2` (transformers' `rotate_half`).

use std::ops::Range;

/// Cosines and sines of a range of positions, f64 arithmetic rounded to f32 once.
pub(crate) struct Angles {
    /// `(cos, sin)`, `half` a position.
    turns: Vec<(f32, f32)>,
    half: usize,
}

impl Angles {
    /// Angles of `positions` for heads of `head_dim` elements and RoPE base `theta`.
    pub(crate) fn new(theta: f64, head_dim: usize, positions: Range<usize>) -> Angles {
        let half = head_dim / 2;
        let frequencies: Vec<f64> =
            (0..half).map(|pair| theta.powf(-(2.0 * pair as f64) / head_dim as f64)).collect();
        let turns = positions
            .flat_map(|position| frequencies.iter().map(move |f| position as f64 * f))
            .map(|angle| (angle.cos() as f32, angle.sin() as f32))
            .collect();
        Angles { turns, half }
    }

    /// Turns one head, at the `row`-th position of the range, in place.
    pub(crate) fn turn(&self, row: usize, head: &mut [f32]) {
        let (low, high) = head.split_at_mut(self.half);
        let turns = &self.turns[row * self.half..(row + 1) * self.half];
        for ((a, b), &(cos, sin)) in low.iter_mut().zip(high).zip(turns) {
            (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
        }
    }
}
