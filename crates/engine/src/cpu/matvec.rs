//! The one streaming product: packed tiles times an activation.

use super::simd::{Kernel, LANES, Registers, Sums, Words, add_codes, add_pairs, load, store};
use monolith_abi::WeightFormat;
use monolith_abi::pack::{
    FRAGMENT_BYTES_BF16, FRAGMENT_BYTES_FP8, FRAGMENT_COLS, FRAGMENT_COLS_FP8, SCALE_BYTES_FP8,
    TILE_ROWS,
};

/// Lane groups of a fragment: group `g` holds rows `g` and `g + 8`.
const GROUPS: usize = TILE_ROWS / 2;

/// 16 words: what one lane group of a fragment holds.
type Group = [u8; 4 * LANES];

/// An activation, spread out to lie as the weights of a lane group lie: 16 words a group, each of
/// one row.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    /// For each fragment, and each weight of a word in turn, the 16 words' columns.
    values: Vec<[f32; LANES]>,
    cols: usize,
    format: WeightFormat,
}

/// Weights of a word: what one word of a group takes of the activation.
const PAIR: usize = 2;
const QUAD: usize = 4;

impl Spread {
    /// Room for an activation of up to `cols` values.
    pub(crate) fn with_capacity(cols: usize) -> Spread {
        let values = vec![[0.0; LANES]; QUAD * cols.div_ceil(FRAGMENT_COLS_FP8)];
        Spread { values, cols: 0, format: WeightFormat::Bf16 }
    }

    /// Takes over `x`, padded with zeros to whole fragments, for weights of this format.
    pub(crate) fn set(&mut self, x: &[f32], format: WeightFormat) {
        (self.cols, self.format) = (x.len(), format);
        match format {
            WeightFormat::Bf16 => self.spread::<PAIR, FRAGMENT_COLS>(x, |word, weight| {
                // Word 4 t + r of a group holds columns 2 t + 8 (r / 2) and the next one.
                2 * (word / 4) + 8 * (word % 4 / 2) + weight
            }),
            WeightFormat::Fp8 => self.spread::<QUAD, FRAGMENT_COLS_FP8>(x, |word, weight| {
                // Word 4 t + 2 s + r: of step s, columns 2 t, 2 t + 8, 2 t + 1 and 2 t + 9.
                16 * (word % 4 / 2) + 2 * (word / 4) + 8 * (weight % 2) + weight / 2
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
                for (word, value) in values.iter_mut().enumerate() {
                    *value = padded[column(word, weight)];
                }
            }
        }
    }

    /// The columns of each fragment, for fragments of this many weights a word.
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
    /// One entry a tile.
    pub(crate) out: &'a mut [[f32; TILE_ROWS]],
}

impl Kernel for MatVec<'_> {
    #[inline(always)]
    fn run<S: Registers, const R: usize>(self, simd: S) {
        match self.x.format {
            WeightFormat::Bf16 => bf16::<S, R>(simd, self),
            WeightFormat::Fp8 => fp8::<S, R>(simd, self),
        }
    }
}

#[inline(always)]
fn bf16<S: Registers, const R: usize>(simd: S, product: MatVec<'_>) {
    let x = product.x.fragments::<PAIR>(FRAGMENT_COLS);
    let (fragments, _) = product.tiles.as_chunks::<FRAGMENT_BYTES_BF16>();
    let add = |sums: &mut Sums<S, R>, words: &Words, x: &[[S::f32s; R]; PAIR]| {
        add_pairs(simd, sums, words, x[0], x[1]);
    };
    for (tile, out) in fragments.chunks_exact(x.len()).zip(product.out) {
        rows::<S, R, PAIR, FRAGMENT_BYTES_BF16>(simd, tile, x, out, add);
    }
}

#[inline(always)]
fn fp8<S: Registers, const R: usize>(simd: S, product: MatVec<'_>) {
    let x = product.x.fragments::<QUAD>(FRAGMENT_COLS_FP8);
    let add = |sums: &mut Sums<S, R>, words: &Words, x: &[[S::f32s; R]; QUAD]| {
        add_codes(simd, sums, words, x);
    };
    let codes = x.len() * FRAGMENT_BYTES_FP8;
    for (tile, out) in product.tiles.chunks_exact(codes + SCALE_BYTES_FP8).zip(product.out) {
        let (codes, scales) = tile.split_at(codes);
        let (fragments, _) = codes.as_chunks::<FRAGMENT_BYTES_FP8>();
        rows::<S, R, QUAD, FRAGMENT_BYTES_FP8>(simd, fragments, x, out, add);
        for (sum, scale) in out.iter_mut().zip(scales.as_chunks::<4>().0) {
            *sum *= f32::from_le_bytes(*scale);
        }
    }
}

/// All rows of one tile.
#[inline(always)]
fn rows<S: Registers, const R: usize, const WEIGHTS: usize, const BYTES: usize>(
    simd: S,
    tile: &[[u8; BYTES]],
    x: &[[[f32; LANES]; WEIGHTS]],
    out: &mut [f32; TILE_ROWS],
    add: impl Fn(&mut Sums<S, R>, &Words, &[[S::f32s; R]; WEIGHTS]) + Copy,
) {
    if R == 1 {
        pass::<S, R, 8, WEIGHTS, BYTES>(simd, tile, x, 0, out, add);
    } else {
        // The sums of 8 groups are more than 16 registers of 8 lanes: two passes.
        pass::<S, R, 4, WEIGHTS, BYTES>(simd, tile, x, 0, out, add);
        pass::<S, R, 4, WEIGHTS, BYTES>(simd, tile, x, 4, out, add);
    }
}

/// Groups `first..first + N` of one tile.
#[inline(always)]
fn pass<S: Registers, const R: usize, const N: usize, const WEIGHTS: usize, const BYTES: usize>(
    simd: S,
    tile: &[[u8; BYTES]],
    x: &[[[f32; LANES]; WEIGHTS]],
    first: usize,
    out: &mut [f32; TILE_ROWS],
    add: impl Fn(&mut Sums<S, R>, &Words, &[[S::f32s; R]; WEIGHTS]),
) {
    let mut sums: [Sums<S, R>; N] = [[simd.splat_f32s(0.0); R]; N];
    for (fragment, columns) in tile.iter().zip(x) {
        let (groups, _) = fragment.as_chunks::<{ size_of::<Group>() }>();
        let mut x = [[simd.splat_f32s(0.0); R]; WEIGHTS];
        for (x, columns) in x.iter_mut().zip(columns) {
            *x = load::<S, R>(columns);
        }
        for (sums, group) in sums.iter_mut().zip(&groups[first..first + N]) {
            add(sums, &words(group), &x);
        }
    }
    for (group, sums) in sums.into_iter().enumerate() {
        let mut lanes = [0.0; LANES];
        store::<S, R>(&mut lanes, sums);
        let (mut top, mut bottom) = (0.0, 0.0);
        for words in lanes.as_chunks::<4>().0 {
            top += words[0] + words[2];
            bottom += words[1] + words[3];
        }
        out[first + group] = top;
        out[first + group + GROUPS] = bottom;
    }
}

/// The words of a group; on a little-endian machine a plain load.
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
                    // Every code but the two that are no numbers.
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
