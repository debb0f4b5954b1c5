//! Chooses the scale of a row by its squared error.

use super::quantize::widen;
use monolith_model::e4m3;

/// Scales to try, evenly (in their logarithm) over the octave above `amax / 448`.
///
/// E4M3 has the same steps in every binade, so an octave has every alignment of the steps with the
/// weights. Scales above `amax / 448` clip nothing and lose only the smallest binade of codes.
/// Scales below it clip the largest weights, and were never the best on the tiny model. On its
/// matrices 16 candidates reduce the relative error by 6% to 9%, 64 candidates by 7% to 11%.
const CANDIDATES: usize = 64;

/// Returns the scale with the least squared error, summed in f64 in a fixed order. Of candidates
/// with the same error the first wins.
pub(crate) fn least_squares(weights: &[[u8; 2]], amax_scale: f32) -> f32 {
    // The error of a weight does not depend on its sign.
    let sizes: Vec<f64> = weights.iter().map(|&pair| f64::from(widen(pair)).abs()).collect();
    let mut best = (f64::INFINITY, amax_scale);
    for scale in candidates(amax_scale) {
        let error = squared_error(&sizes, scale, best.0);
        if error < best.0 {
            best = (error, scale);
        }
    }
    best.1
}

/// The scales to try, from `amax / 448` itself upwards.
///
/// It uses only operations that IEEE 754 rounds correctly, so that the grid is the same on every
/// machine.
fn candidates(amax_scale: f32) -> impl Iterator<Item = f32> {
    let largest = f64::from(amax_scale) * f64::from(e4m3::MAX);
    let step = octave_root();
    let sizes = std::iter::successors(Some(1.0), move |size| Some(size * step)).take(CANDIDATES);
    let scales = sizes.map(move |size| (f64::from(amax_scale) * size) as f32);
    // For weights near the largest bf16 value, some scales would give an infinite weight.
    scales.filter(move |&scale| {
        let top = e4m3::value(e4m3::encode(largest / f64::from(scale))) * scale;
        scale.is_normal() && top.is_finite()
    })
}

/// The factor between two candidates: 2 to the power of `1 / CANDIDATES`, computed only by square
/// roots. A library's power function may round differently on other machines.
fn octave_root() -> f64 {
    (0..CANDIDATES.ilog2()).fold(2f64, |root, _| root.sqrt())
}

/// Number of partial sums of a squared error: column `i` goes to sum `i % LANES`. The number
/// affects the result through the order of summation; several sums let the compiler vectorize.
const LANES: usize = 8;

/// Weights between two checks of the limit; a multiple of [`LANES`].
const CHUNK: usize = 256;

/// Returns the squared error of a row of magnitudes with this scale. If the error reaches `limit`,
/// it stops early and returns some number that is not below `limit`.
fn squared_error(sizes: &[f64], scale: f32, limit: f64) -> f64 {
    let by = f64::from(scale);
    let mut sums = [0.0; LANES];
    for chunk in sizes.chunks(CHUNK) {
        let (whole, rest) = chunk.as_chunks::<LANES>();
        let rest: [f64; LANES] = std::array::from_fn(|at| rest.get(at).copied().unwrap_or(0.0));
        for sizes in whole.iter().chain([&rest]) {
            for (sum, size) in sums.iter_mut().zip(sizes) {
                let error = e4m3::round(size / by) * by - size;
                *sum += error * error;
            }
        }
        if sums.iter().sum::<f64>() >= limit {
            break;
        }
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::super::quantize::quantize_row;
    use super::*;
    use crate::quantize::Sums;
    use crate::scales::ScaleSearch;
    use half::bf16;
    use proptest::prelude::*;

    fn bytes(row: &[f32]) -> Vec<u8> {
        row.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect()
    }

    fn quantized(row: &[f32], search: ScaleSearch) -> (f32, Vec<u8>, Sums) {
        let mut codes = vec![0; row.len()];
        let (scale, sums) = quantize_row(&bytes(row), &mut codes, search).unwrap();
        (scale, codes, sums)
    }

    /// The error of a row of codes, apart from the quantizer's own sums.
    fn error_of(row: &[f32], (scale, codes): (f32, &[u8])) -> f64 {
        let error = |(&x, &code): (&f32, &u8)| {
            f64::from(e4m3::value(code)) * f64::from(scale) - f64::from(bf16::from_f32(x).to_f32())
        };
        row.iter().zip(codes).map(error).map(|error| error * error).sum()
    }

    #[test]
    fn the_grid_is_an_octave_with_the_default_first() {
        let grid: Vec<f32> = candidates(1.0).collect();
        assert_eq!((grid.len(), grid[0], CANDIDATES.count_ones()), (CANDIDATES, 1.0, 1));
        for (at, scale) in grid.into_iter().enumerate() {
            let wanted = 2f64.powf(at as f64 / CANDIDATES as f64);
            assert!((f64::from(scale) / wanted - 1.0).abs() < 1e-7, "{at}");
        }
    }

    #[test]
    fn what_amax_rounds_and_another_scale_holds_is_exact() {
        // 1.75 is 448 times a power of two: with it as the largest weight, every weight of up to
        // four bits is exact. With 1.5 none of these is.
        let exact = [1.75, 0.5, -0.25, 1.125];
        assert_eq!(quantized(&exact, ScaleSearch::Mse).2.error_squares, 0.0);
        let row = [1.5, 0.5, -0.25, 1.125, 0.75, -0.625];
        let (_, _, amax) = quantized(&row, ScaleSearch::Amax);
        let (_, _, mse) = quantized(&row, ScaleSearch::Mse);
        assert!(mse.error_squares < amax.error_squares);
    }

    #[test]
    fn a_row_at_either_end_of_the_range_still_has_a_finite_form() {
        for row in [[f32::MAX / 1.01, 1.0, 3e38], [1e-35, 3e-36, 2e-36]] {
            let (scale, codes, _) = quantized(&row, ScaleSearch::Mse);
            assert!(scale.is_normal());
            assert!(codes.iter().all(|&code| (e4m3::value(code) * scale).is_finite()), "{scale}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn no_candidate_is_better(
            row in proptest::collection::vec(-3f32..3.0, 1..200),
            power in -20..20i32,
        ) {
            let row: Vec<f32> = row.into_iter().map(|x| x * 2f32.powi(power)).collect();
            prop_assume!(row.iter().any(|&x| bf16::from_f32(x).to_f32() != 0.0));
            let (amax_scale, ..) = quantized(&row, ScaleSearch::Amax);
            let (scale, codes, sums) = quantized(&row, ScaleSearch::Mse);
            let found = error_of(&row, (scale, &codes));
            prop_assert_eq!(found, sums.error_squares);
            prop_assert!(candidates(amax_scale).any(|candidate| candidate == scale));
            for other in candidates(amax_scale) {
                let round = |&x: &f32| {
                    e4m3::encode(f64::from(bf16::from_f32(x).to_f32()) / f64::from(other))
                };
                let codes: Vec<u8> = row.iter().map(round).collect();
                // The order of summation differs.
                prop_assert!(found <= error_of(&row, (other, &codes)) * (1.0 + 1e-12));
            }
        }
    }
}
