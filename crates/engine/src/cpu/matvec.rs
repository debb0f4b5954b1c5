//! The streaming matrix-vector product (GEMV): packed tiles times an activation.

use super::formats::{self, GROUPS, Group, Lanes, Level};
use super::simd::{Kernel, LANES, Sums, store};
use monolith_abi::formats::TILE_ROWS;
use monolith_abi::{ProductPath, WeightFormat};

/// An activation in the order in which 16 lanes hold the weights of a lane group.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    /// For each fragment, and for each weight of a lane in turn, the values of the 16 lanes'
    /// columns.
    values: Vec<[f32; LANES]>,
    cols: usize,
    format: WeightFormat,
}

impl Spread {
    /// Room for an activation of up to `cols` values, for any format.
    pub(crate) fn with_capacity(cols: usize) -> Spread {
        let padded =
            |format: &WeightFormat| format.geometry(ProductPath::MmaSync).padded_cols(cols);
        let widest = WeightFormat::ALL.iter().map(padded).max().unwrap_or(cols);
        // A value for each of the two rows of a lane group.
        let values = vec![[0.0; LANES]; 2 * widest / LANES];
        Spread { values, cols: 0, format: WeightFormat::Bf16 }
    }

    /// Spreads `x`, padded with zeros to whole fragments, for weights of this format.
    pub(crate) fn set(&mut self, x: &[f32], format: WeightFormat) {
        (self.cols, self.format) = (x.len(), format);
        formats::spread(format, x, self);
    }

    /// Fills fragments of `COLS` columns; a lane's weight is of column `columns[weight][lane]`.
    pub(crate) fn fill<const WEIGHTS: usize, const COLS: usize>(
        &mut self,
        x: &[f32],
        columns: &[[u8; LANES]; WEIGHTS],
    ) {
        let (fragments, _) = self.values.as_chunks_mut::<WEIGHTS>();
        for (spread, x) in fragments.iter_mut().zip(x.chunks(COLS)) {
            let mut padded = [0.0; COLS];
            padded[..x.len()].copy_from_slice(x);
            for (values, columns) in spread.iter_mut().zip(columns) {
                for (value, column) in values.iter_mut().zip(columns) {
                    *value = padded[usize::from(*column)];
                }
            }
        }
    }

    /// The columns of each fragment of `cols` columns.
    pub(crate) fn fragments<const WEIGHTS: usize>(
        &self,
        cols: usize,
    ) -> &[[[f32; LANES]; WEIGHTS]] {
        &self.values.as_chunks::<WEIGHTS>().0[..self.cols.div_ceil(cols)]
    }
}

/// `out[tile][row] = tiles[tile][row] . x`
pub(crate) struct MatVec<'a> {
    /// Whole tiles, one after the other.
    pub(crate) tiles: &'a [u8],
    /// The activation, as wide as a tile.
    pub(crate) x: &'a Spread,
    /// One entry per tile.
    pub(crate) out: &'a mut [[f32; TILE_ROWS]],
}

impl Kernel for MatVec<'_> {
    #[inline(always)]
    fn run<S: Level, const R: usize>(self, simd: S) {
        formats::multiply::<S, R>(self.x.format, simd, self);
    }
}

/// All rows of one tile. Each pass sums as many groups and registers of lanes as the level's
/// register file holds.
#[inline(always)]
pub(crate) fn rows<S: Level, L, const R: usize, const WEIGHTS: usize, const BYTES: usize>(
    simd: S,
    tile: &[[u8; BYTES]],
    x: &[[[f32; LANES]; WEIGHTS]],
    out: &mut [f32; TILE_ROWS],
) where
    L: Lanes<WEIGHTS>,
{
    let mut sums = [[simd.splat_f32s(0.0); R]; GROUPS];
    match R {
        1 => pass::<S, L, R, 8, 1, WEIGHTS, BYTES>(simd, tile, x, [0, 0], &mut sums),
        2 if L::SUMS >= 8 => {
            for at in 0..2 {
                pass::<S, L, R, 8, 1, WEIGHTS, BYTES>(simd, tile, x, [0, at], &mut sums);
            }
        }
        2 => {
            for part in 0..4 {
                let first = [4 * (part / 2), part % 2];
                pass::<S, L, R, 4, 1, WEIGHTS, BYTES>(simd, tile, x, first, &mut sums);
            }
        }
        _ => {
            for first in [0, 4] {
                pass::<S, L, R, 4, R, WEIGHTS, BYTES>(simd, tile, x, [first, 0], &mut sums);
            }
        }
    }
    for (group, sums) in sums.into_iter().enumerate() {
        let mut lanes = [0.0; LANES];
        store::<S, R>(&mut lanes, sums);
        let mut rows = [0.0; 2];
        for lanes in lanes.as_chunks::<4>().0 {
            let [upper, lower] = L::rows(*lanes);
            rows = [rows[0] + upper, rows[1] + lower];
        }
        [out[group], out[group + GROUPS]] = rows;
    }
}

/// Sums `N` groups and `M` registers of their lanes, beginning with the group `first` and the
/// register `register`.
#[inline(always)]
fn pass<
    S: Level,
    L: Lanes<WEIGHTS>,
    const R: usize,
    const N: usize,
    const M: usize,
    const WEIGHTS: usize,
    const BYTES: usize,
>(
    simd: S,
    tile: &[[u8; BYTES]],
    x: &[[[f32; LANES]; WEIGHTS]],
    [first, register]: [usize; 2],
    out: &mut [Sums<S, R>; GROUPS],
) {
    let mut sums = [[simd.splat_f32s(0.0); M]; N];
    for (fragment, columns) in tile.iter().zip(x) {
        let (groups, _) = fragment.as_chunks::<{ size_of::<Group>() }>();
        let mut x = [[simd.splat_f32s(0.0); M]; WEIGHTS];
        for (x, columns) in x.iter_mut().zip(columns) {
            x.copy_from_slice(&S::as_simd_f32s(columns).0[register..register + M]);
        }
        for (sums, group) in sums.iter_mut().zip(&groups[first..first + N]) {
            L::add(simd, sums, group, register, &x);
        }
    }
    for (out, sums) in out[first..].iter_mut().zip(sums) {
        out[register..register + M].copy_from_slice(&sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::simd::{Simd, narrow, widen};
    use monolith_abi::formats::{bf16, fp8};
    use proptest::prelude::*;

    /// A matrix in tiles, and its values.
    struct Matrix {
        tiles: Vec<u8>,
        values: Vec<f64>,
    }

    impl Matrix {
        fn bf16(rows: usize, cols: usize, mut next: impl FnMut() -> f32) -> Matrix {
            let per_tile = cols.div_ceil(bf16::FRAGMENT_COLS);
            let mut tiles = vec![0u8; rows.div_ceil(TILE_ROWS) * per_tile * bf16::FRAGMENT_BYTES];
            let mut values = Vec::new();
            for (row, col) in (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col))) {
                let bits = narrow(next());
                let fragment = row / TILE_ROWS * per_tile + col / bf16::FRAGMENT_COLS;
                let at = fragment * bf16::FRAGMENT_BYTES
                    + 2 * bf16::fragment_index(row % TILE_ROWS, col % bf16::FRAGMENT_COLS);
                tiles[at..at + 2].copy_from_slice(&bits.to_le_bytes());
                values.push(widen(bits).into());
            }
            Matrix { tiles, values }
        }

        fn fp8(rows: usize, cols: usize, mut next: impl FnMut() -> f32) -> Matrix {
            let codes = cols.div_ceil(fp8::FRAGMENT_COLS) * fp8::FRAGMENT_BYTES;
            let tile_bytes = codes + fp8::SCALE_BYTES;
            let mut tiles = vec![0u8; rows.div_ceil(TILE_ROWS) * tile_bytes];
            let mut values = Vec::new();
            for row in 0..rows {
                let (tile, within) = (row / TILE_ROWS * tile_bytes, row % TILE_ROWS);
                let scale = next().abs() + 0.01;
                let at = tile + codes + 4 * within;
                tiles[at..at + 4].copy_from_slice(&scale.to_le_bytes());
                for col in 0..cols {
                    // Every code but the two NaNs.
                    let code = (next().to_bits() >> 7) as u8;
                    let code = if code & 0x7f == 0x7f { code & 0x80 } else { code };
                    let at = col / fp8::FRAGMENT_COLS * fp8::FRAGMENT_BYTES
                        + fp8::fragment_index(within, col % fp8::FRAGMENT_COLS);
                    tiles[tile + at] = code;
                    let value = float8::F8E4M3::from_bits(code).to_f64();
                    values.push(value * f64::from(scale));
                }
            }
            Matrix { tiles, values }
        }
    }

    proptest! {
        #[test]
        fn every_level_agrees_with_f64(
            rows in 1..70usize,
            cols in 1..150usize,
            is_fp8 in any::<bool>(),
            seed in any::<u64>(),
        ) {
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
            };
            let x: Vec<f32> = (0..cols).map(|_| next()).collect();
            let (matrix, format) = if is_fp8 {
                (Matrix::fp8(rows, cols, next), WeightFormat::Fp8)
            } else {
                (Matrix::bf16(rows, cols, next), WeightFormat::Bf16)
            };
            let mut spread = Spread::with_capacity(200);
            spread.set(&x, format);
            let mut fused: Option<Vec<[f32; TILE_ROWS]>> = None;
            for level in Simd::available() {
                let mut out = vec![[f32::NAN; TILE_ROWS]; rows.div_ceil(TILE_ROWS)];
                level.run(MatVec { tiles: &matrix.tiles, x: &spread, out: &mut out });
                for row in 0..rows {
                    let weights = &matrix.values[row * cols..(row + 1) * cols];
                    let terms = weights.iter().zip(&x).map(|(w, x)| w * f64::from(*x));
                    let (exact, size) =
                        terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
                    let got = f64::from(out[row / TILE_ROWS][row % TILE_ROWS]);
                    prop_assert!((got - exact).abs() <= 1e-6 * size + 1e-30, "{level:?} row {row}");
                }
                if level != Simd::Scalar {
                    let first = fused.get_or_insert_with(|| out.clone());
                    prop_assert_eq!(first, &out);
                }
            }
        }
    }
}
