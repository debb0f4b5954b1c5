//! The quantization error of a matrix, whatever its format.

use serde::{Deserialize, Serialize};

/// The quantization error of a matrix, over the rows quantized here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantization {
    /// Frobenius norm of the difference, divided by that of the input.
    pub relative_error: f32,
    /// The same for the row with the largest error.
    pub worst_row_error: f32,
    /// Weights so far beyond the largest code's value that they were clipped, not rounded.
    pub saturated: u64,
    /// Nonzero weights that became 0.
    pub zeros: u64,
    /// Rows that were quantized here.
    pub rows_quantized: u64,
    /// Rows whose codes and scales were copied from the checkpoint.
    pub rows_taken_over: u64,
}

impl Quantization {
    /// Returns whether the numbers are possible for a matrix of this many rows and columns.
    pub(crate) fn is_possible(&self, rows: usize, cols: usize) -> bool {
        let share = |error: f32| error.is_finite() && error >= 0.0;
        let Some(weights) = (rows as u64).checked_mul(cols as u64) else { return false };
        share(self.relative_error)
            && share(self.worst_row_error)
            && self.saturated <= weights
            && self.zeros <= weights
            && self.rows_quantized.saturating_add(self.rows_taken_over) <= rows as u64
    }
}

/// Sums from which a [`Quantization`] is made. They are added in order of the rows, so that the
/// same weights give the same bits for any number of threads.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) input_squares: f64,
    pub(crate) error_squares: f64,
    pub(crate) worst_row_error: f64,
    pub(crate) saturated: u64,
    pub(crate) zeros: u64,
    pub(crate) rows_quantized: u64,
    pub(crate) rows_taken_over: u64,
}

impl Sums {
    /// The sums of a row whose codes were copied.
    pub(crate) const TAKEN_OVER: Sums = Sums {
        input_squares: 0.0,
        error_squares: 0.0,
        worst_row_error: 0.0,
        saturated: 0,
        zeros: 0,
        rows_quantized: 0,
        rows_taken_over: 1,
    };

    pub(crate) fn add(&mut self, other: Sums) {
        self.input_squares += other.input_squares;
        self.error_squares += other.error_squares;
        self.worst_row_error = self.worst_row_error.max(other.worst_row_error);
        self.saturated += other.saturated;
        self.zeros += other.zeros;
        self.rows_quantized += other.rows_quantized;
        self.rows_taken_over += other.rows_taken_over;
    }

    pub(crate) fn finish(self) -> Quantization {
        let share = if self.input_squares > 0.0 {
            (self.error_squares / self.input_squares).sqrt()
        } else {
            0.0
        };
        Quantization {
            relative_error: share as f32,
            worst_row_error: self.worst_row_error as f32,
            saturated: self.saturated,
            zeros: self.zeros,
            rows_quantized: self.rows_quantized,
            rows_taken_over: self.rows_taken_over,
        }
    }
}
