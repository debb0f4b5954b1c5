//! Rotary position embedding: a table of angles, and the rotation.

use monolith_model::Config;

/// Cosine and sine of every angle, for every position of the context.
#[derive(Debug)]
pub(crate) struct RopeTable {
    /// `[position][pair]`: (cos, sin)
    angles: Vec<(f32, f32)>,
    pairs: usize,
}

impl RopeTable {
    /// The table of a model for `context` positions, computed in f64 and rounded once.
    pub(crate) fn new(config: &Config, context: usize) -> RopeTable {
        let pairs = config.head_dim / 2;
        let frequencies: Vec<f64> = (0..pairs)
            .map(|pair| config.rope_theta.powf(-(2.0 * pair as f64) / config.head_dim as f64))
            .collect();
        let angles = (0..context)
            .flat_map(|position| {
                frequencies.iter().map(move |frequency| {
                    let (sin, cos) = (position as f64 * frequency).sin_cos();
                    (cos as f32, sin as f32)
                })
            })
            .collect();
        RopeTable { angles, pairs }
    }

    /// (cos, sin), position after position.
    pub(crate) fn angles(&self) -> &[(f32, f32)] {
        &self.angles
    }

    /// Rotates a head: element `i` of the first half with element `i` of the second.
    pub(crate) fn rotate(&self, head: &mut [f32], position: usize) {
        let angles = &self.angles[position * self.pairs..(position + 1) * self.pairs];
        let (first, second) = head.split_at_mut(self.pairs);
        for ((a, b), &(cos, sin)) in first.iter_mut().zip(second).zip(angles) {
            (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
        }
    }
}
