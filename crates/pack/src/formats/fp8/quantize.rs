//! Quantizes a bf16 row to E4M3 codes with one scale, and measures the error.

use super::search::least_squares;
use crate::quantize::Sums;
use crate::scales::ScaleSearch;
use monolith_model::e4m3;

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
