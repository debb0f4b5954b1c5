//! The streaming matrix-vector product (GEMV): packed tiles times an activation.

use super::codes::{QUAD, code_of};
use super::simd::{Kernel, LANES, Level, Sums, add_pairs, store};
use monolith_abi::WeightFormat;
use monolith_abi::pack::{
    FRAGMENT_BYTES_BF16, FRAGMENT_BYTES_FP8, FRAGMENT_COLS, FRAGMENT_COLS_FP8, SCALE_BYTES_FP8,
    TILE_ROWS,
};

/// Lane groups of a fragment: group `g` holds rows `g` and `g + 8`.
const GROUPS: usize = TILE_ROWS / 2;

/// 16 words: what one lane group of a fragment holds.
type Group = [u8; 4 * LANES];

/// An activation in the order in which 16 lanes hold the weights of a lane group.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    /// For each fragment, and for each weight of a lane in turn, the values of the 16 lanes'
    /// columns.
    values: Vec<[f32; LANES]>,
    cols: usize,
    format: WeightFormat,
}

/// Weights of a lane group in one lane: in bf16 the two of a word.
const PAIR: usize = 2;

impl Spread {
    /// Room for an activation of up to `cols` values.
    pub(crate) fn with_capacity(cols: usize) -> Spread {
        let values = vec![[0.0; LANES]; QUAD * cols.div_ceil(FRAGMENT_COLS_FP8)];
        Spread { values, cols: 0, format: WeightFormat::Bf16 }
    }

    /// Spreads `x`, padded with zeros to whole fragments, for weights of this format.
    pub(crate) fn set(&mut self, x: &[f32], format: WeightFormat) {
        (self.cols, self.format) = (x.len(), format);
        match format {
            WeightFormat::Bf16 => self.spread::<PAIR, FRAGMENT_COLS>(x, |lane, weight| {
                // Word 4 t + r of a group holds columns 2 t + 8 (r / 2) and the next one.
                2 * (lane / 4) + 8 * (lane % 4 / 2) + weight
            }),
            WeightFormat::Fp8 => self.spread::<QUAD, FRAGMENT_COLS_FP8>(x, |lane, weight| {
                // Byte b of word 4 t + 2 s + r: of step s, column 2 t + 8 (b % 2) + b / 2.
                let code = code_of(lane, weight);
                let (word, byte) = (code / 4, code % 4);
                16 * (word % 4 / 2) + 2 * (word / 4) + 8 * (byte % 2) + byte / 2
            }),
        }
    }

    fn spread<const WEIGHTS: usize, const COLS: usize>(
        &mut self,
        x: &[f32],
        column: impl Fn(usize, usize) -> usize,
    ) {
        let (fragments, _) = self.values.as_chunks_mut::<WEIGHTS>();
        for (spread, columns) in fragments.iter_mut().zip(x.chunks(COLS)) {
            let mut padded = [0.0; COLS];
            padded[..columns.len()].copy_from_slice(columns);
            for (weight, values) in spread.iter_mut().enumerate() {
                for (lane, value) in values.iter_mut().enumerate() {
                    *value = padded[column(lane, weight)];
                }
            }
        }
    }

    /// The columns of each fragment of `cols` columns.
    fn fragments<const WEIGHTS: usize>(&self, cols: usize) -> &[[[f32; LANES]; WEIGHTS]] {
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
        match self.x.format {
            WeightFormat::Bf16 => bf16::<S, R>(simd, self),
            WeightFormat::Fp8 => fp8::<S, R>(simd, self),
        }
    }
}

/// How lanes hold the weights of a lane group.
///
/// This is a trait and not a closure: a closure that the compiler does not inline is compiled
/// without the level's instructions, and then every vector instruction in it is a call.
trait Lanes<const WEIGHTS: usize> {
    /// Multiplies a group's weights by their columns' values and adds the products to the sums of
    /// `M` registers of lanes, beginning with the register `first`.
    fn add<S: Level, const M: usize>(
        simd: S,
        sums: &mut [S::f32s; M],
        group: &Group,
        first: usize,
        x: &[[S::f32s; M]; WEIGHTS],
    );

    /// The sums of the upper and the lower row of four neighbouring lanes.
    fn rows(lanes: [f32; 4]) -> [f32; 2];
}

/// A lane is a word.
struct Bf16Lanes;

impl Lanes<PAIR> for Bf16Lanes {
    #[inline(always)]
    fn add<S: Level, const M: usize>(
        simd: S,
        sums: &mut [S::f32s; M],
        group: &Group,
        first: usize,
        [even, odd]: &[[S::f32s; M]; PAIR],
    ) {
        let words = words(group);
        let words = &S::as_simd_u32s(&words).0[first..first + M];
        for at in 0..M {
            sums[at] = add_pairs(simd, sums[at], words[at], even[at], odd[at]);
        }
    }

    #[inline(always)]
    fn rows(lanes: [f32; 4]) -> [f32; 2] {
        [lanes[0] + lanes[2], lanes[1] + lanes[3]]
    }
}

/// A word is half of two lanes.
struct Fp8Lanes;

impl Lanes<QUAD> for Fp8Lanes {
    #[inline(always)]
    fn add<S: Level, const M: usize>(
        simd: S,
        sums: &mut [S::f32s; M],
        group: &Group,
        first: usize,
        x: &[[S::f32s; M]; QUAD],
    ) {
        for (at, sum) in sums.iter_mut().enumerate() {
            for (values, x) in simd.widen(group, first + at).into_iter().zip(x) {
                *sum = simd.mul_add_e_f32s(values, x[at], *sum);
            }
        }
    }

    #[inline(always)]
    fn rows(lanes: [f32; 4]) -> [f32; 2] {
        [lanes[0] + lanes[1], lanes[2] + lanes[3]]
    }
}

#[inline(always)]
fn bf16<S: Level, const R: usize>(simd: S, product: MatVec<'_>) {
    let x = product.x.fragments::<PAIR>(FRAGMENT_COLS);
    let (fragments, _) = product.tiles.as_chunks::<FRAGMENT_BYTES_BF16>();
    for (tile, out) in fragments.chunks_exact(x.len()).zip(product.out) {
        rows::<S, Bf16Lanes, R, PAIR, FRAGMENT_BYTES_BF16>(simd, tile, x, out);
    }
}

#[inline(always)]
fn fp8<S: Level, const R: usize>(simd: S, product: MatVec<'_>) {
    let x = product.x.fragments::<QUAD>(FRAGMENT_COLS_FP8);
    let codes = x.len() * FRAGMENT_BYTES_FP8;
    for (tile, out) in product.tiles.chunks_exact(codes + SCALE_BYTES_FP8).zip(product.out) {
        let (codes, scales) = tile.split_at(codes);
        let (fragments, _) = codes.as_chunks::<FRAGMENT_BYTES_FP8>();
        rows::<S, Fp8Lanes, R, QUAD, FRAGMENT_BYTES_FP8>(simd, fragments, x, out);
        for (sum, scale) in out.iter_mut().zip(scales.as_chunks::<4>().0) {
            *sum *= f32::from_le_bytes(*scale);
        }
    }
}

/// All rows of one tile. Each pass sums as many groups and registers of lanes as the level's
/// register file holds.
#[inline(always)]
fn rows<S: Level, L, const R: usize, const WEIGHTS: usize, const BYTES: usize>(
    simd: S,
    tile: &[[u8; BYTES]],
    x: &[[[f32; LANES]; WEIGHTS]],
    out: &mut [f32; TILE_ROWS],
) where
    L: Lanes<WEIGHTS>,
{
    let mut sums = [[simd.splat_f32s(0.0); R]; GROUPS];
    match (R, WEIGHTS) {
        (1, _) => pass::<S, L, R, 8, 1, WEIGHTS, BYTES>(simd, tile, x, [0, 0], &mut sums),
        (2, PAIR) => {
            for at in 0..2 {
                pass::<S, L, R, 8, 1, WEIGHTS, BYTES>(simd, tile, x, [0, at], &mut sums);
            }
        }
        // Widening codes needs registers: with more than four sums the compiler spills some.
        (2, _) => {
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

/// The words of a group. On a little-endian machine this is a plain load.
#[inline(always)]
fn words(group: &Group) -> [u32; LANES] {
    let (words, _) = group.as_chunks::<4>();
    std::array::from_fn(|at| u32::from_le_bytes(words[at]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::simd::{Simd, narrow, widen};
    use monolith_abi::pack::{fragment_index, fragment_index_fp8};
    use proptest::prelude::*;

    /// A matrix in tiles, and its values.
    struct Matrix {
        tiles: Vec<u8>,
        values: Vec<f64>,
    }

    impl Matrix {
        fn bf16(rows: usize, cols: usize, mut next: impl FnMut() -> f32) -> Matrix {
            let per_tile = cols.div_ceil(FRAGMENT_COLS);
            let mut tiles = vec![0u8; rows.div_ceil(TILE_ROWS) * per_tile * FRAGMENT_BYTES_BF16];
            let mut values = Vec::new();
            for (row, col) in (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col))) {
                let bits = narrow(next());
                let fragment = row / TILE_ROWS * per_tile + col / FRAGMENT_COLS;
                let at = fragment * FRAGMENT_BYTES_BF16
                    + 2 * fragment_index(row % TILE_ROWS, col % FRAGMENT_COLS);
                tiles[at..at + 2].copy_from_slice(&bits.to_le_bytes());
                values.push(widen(bits).into());
            }
            Matrix { tiles, values }
        }

        fn fp8(rows: usize, cols: usize, mut next: impl FnMut() -> f32) -> Matrix {
            let codes = cols.div_ceil(FRAGMENT_COLS_FP8) * FRAGMENT_BYTES_FP8;
            let tile_bytes = codes + SCALE_BYTES_FP8;
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
                    let at = col / FRAGMENT_COLS_FP8 * FRAGMENT_BYTES_FP8
                        + fragment_index_fp8(within, col % FRAGMENT_COLS_FP8);
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
