//! Quantizes bf16 rows to E4M3 codes with one scale per row, and measures the error.

use crate::scales::{ScaleSearch, least_squares};
use monolith_model::e4m3;
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
    input_squares: f64,
    error_squares: f64,
    worst_row_error: f64,
    saturated: u64,
    zeros: u64,
    rows_quantized: u64,
    rows_taken_over: u64,
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

    /// Squared error of all rows that were quantized.
    #[cfg(test)]
    pub(crate) fn error_squares(&self) -> f64 {
        self.error_squares
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

/// Why a row cannot be represented in FP8.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub(crate) enum RowFault {
    #[error("column {col} is {value}")]
    NotFinite { col: usize, value: f32 },
    #[error("all of its values are 0, so that it has no scale")]
    Zeros,
    #[error("its largest value is {largest:e}, too small for a scale that every GPU multiplies by")]
    TooSmall { largest: f32 },
}

/// Quantizes a row of little-endian bf16 values: fills `codes` and returns the row's scale, which
/// `search` chooses.
///
/// The result equals rounding the exact quotient. f64 suffices: a quotient of 8 by 24 bits either
/// is a tie, which has 5 bits, or is further from it than 2^-30 of its size.
pub(crate) fn quantize_row(
    row: &[u8],
    codes: &mut [u8],
    search: ScaleSearch,
) -> Result<(f32, Sums), RowFault> {
    let (weights, _) = row.as_chunks::<2>();
    let largest = weights.iter().map(|&pair| u16::from_le_bytes(pair) & 0x7fff).max().unwrap_or(0);
    let largest = f32::from_bits(u32::from(largest) << 16);
    if !largest.is_finite() {
        return Err(not_finite(weights));
    }
    let scale = largest / e4m3::MAX;
    if largest == 0.0 {
        return Err(RowFault::Zeros);
    }
    // A subnormal scale has fewer bits, and a kernel may flush it to 0.
    if !scale.is_normal() {
        return Err(RowFault::TooSmall { largest });
    }
    let scale = match search {
        ScaleSearch::Amax => scale,
        ScaleSearch::Mse => least_squares(weights, scale),
    };
    let mut sums = Sums { rows_quantized: 1, ..Sums::default() };
    let by = f64::from(scale);
    for (&pair, code) in weights.iter().zip(codes) {
        let weight = f64::from(widen(pair));
        let quotient = weight / by;
        *code = e4m3::encode(quotient);
        let error = f64::from(e4m3::value(*code)) * by - weight;
        sums.input_squares += weight * weight;
        sums.error_squares += error * error;
        sums.saturated += u64::from(quotient.abs() > SATURATED_FROM);
        sums.zeros += u64::from(*code & 0x7f == 0 && weight != 0.0);
    }
    sums.worst_row_error = (sums.error_squares / sums.input_squares).sqrt();
    Ok((scale, sums))
}

/// Half a step above the largest code's value: a larger value would be rounded further up.
const SATURATED_FROM: f64 = 464.0;

pub(crate) fn widen(pair: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(pair)) << 16)
}

fn not_finite(weights: &[[u8; 2]]) -> RowFault {
    let mut values = weights.iter().map(|&pair| widen(pair)).enumerate();
    let found = values.find(|(_, value)| !value.is_finite());
    let (col, value) = found.unwrap_or((0, f32::NAN));
    RowFault::NotFinite { col, value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    fn quantized(row: &[f32]) -> Result<(Vec<u8>, f32, Sums), RowFault> {
        let bytes: Vec<u8> = row.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect();
        let mut codes = vec![0; row.len()];
        quantize_row(&bytes, &mut codes, ScaleSearch::Amax)
            .map(|(scale, sums)| (codes, scale, sums))
    }

    /// The code nearest to `weight / scale`, ties to even, by comparing integers: every value here
    /// is an integer times a power of two that i128 holds.
    fn exact_code(weight: f32, scale: f32) -> u8 {
        let integer = |x: f32, power: i32| (f64::from(x) * 2f64.powi(power)) as i128;
        // Distances to code * scale, in units of 2^-60.
        let distance = |code: u8| {
            let product = integer(e4m3::value(code), 9) * integer(scale, 51);
            (product - integer(weight, 60)).abs()
        };
        let codes = (0..=u8::MAX).filter(|&code| !e4m3::is_nan(code));
        let signed = codes.filter(|code| (code & 0x80 != 0) == weight.is_sign_negative());
        signed.min_by_key(|&code| (distance(code), code & 1)).unwrap()
    }

    #[test]
    fn every_bf16_mantissa_is_rounded_as_exact_arithmetic_does() {
        // Scales with many bits and with few, and weights over the whole range of codes.
        for largest in [448.0, 1.0, 0.7, 0.1, 0.03, 3.9] {
            let largest = bf16::from_f32(largest).to_f32();
            let mut row = vec![largest];
            for exponent in -20..9 {
                for mantissa in 128..256 {
                    let x = mantissa as f32 * 2f32.powi(exponent - 7);
                    row.extend([x, -x].into_iter().filter(|x| x.abs() <= largest));
                }
            }
            let (codes, scale, sums) = quantized(&row).unwrap();
            assert_eq!((codes[0], sums.saturated), (0x7e, 0));
            for (&weight, &code) in row.iter().zip(&codes) {
                assert_eq!(code, exact_code(weight, scale), "{weight} by {scale}");
            }
        }
    }

    #[test]
    fn ties_go_to_even() {
        // The scale is 1: 448 is there. 17 lies between 16 and 18, 19 between 18 and 20.
        let (codes, scale, sums) =
            quantized(&[448.0, 17.0, 19.0, -17.0, 432.0, 3.0 / 1024.0]).unwrap();
        assert_eq!(scale, 1.0);
        let values: Vec<f32> = codes.iter().map(|&code| e4m3::value(code)).collect();
        assert_eq!(values, [448.0, 16.0, 20.0, -16.0, 448.0, 4.0 / 1024.0]);
        assert_eq!((sums.zeros, sums.saturated), (0, 0));
    }

    #[test]
    fn losses_are_counted() {
        let (codes, _, sums) = quantized(&[448.0, 1.0 / 1024.0, -1.0 / 2048.0, 0.0, 17.0]).unwrap();
        assert_eq!(codes[1..4], [0x00, 0x80, 0x00], "half of the smallest step is a tie");
        let report = sums.finish();
        assert_eq!((report.zeros, report.saturated, report.rows_taken_over), (2, 0, 0));
        let expected = (1.0f64 / (448.0 * 448.0 + 17.0 * 17.0)).sqrt();
        assert!((f64::from(report.relative_error) - expected).abs() < 1e-6, "{report:?}");
        assert_eq!(report.relative_error, report.worst_row_error);
        assert!(report.is_possible(1, 5) && !report.is_possible(1, 1));
    }

    #[test]
    fn what_has_no_form_says_why() {
        let fault = |row: &[f32]| quantized(row).unwrap_err();
        assert_eq!(fault(&[0.0, -0.0]), RowFault::Zeros);
        assert_eq!(
            fault(&[1.0, f32::NEG_INFINITY]),
            RowFault::NotFinite { col: 1, value: f32::NEG_INFINITY }
        );
        assert!(matches!(fault(&[1.0, 2.0, f32::NAN]), RowFault::NotFinite { col: 2, .. }));
        assert!(matches!(fault(&[1e-38]), RowFault::TooSmall { .. }));
        quantized(&[1e-35]).unwrap();
        quantized(&[f32::MAX / 2.0]).unwrap();
    }
}
