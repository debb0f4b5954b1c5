//! The one streaming product: packed tiles times an activation.

use super::simd::{Kernel, LANES, Registers, Sums, add_pairs, load, store};
use monolith_abi::pack::{FRAGMENT_BYTES_BF16, FRAGMENT_COLS, TILE_ROWS};

/// Lane groups of a fragment: group `g` holds rows `g` and `g + 8`.
const GROUPS: usize = TILE_ROWS / 2;

/// 16 words of two bf16: what one lane group of a fragment holds.
type Group = [u8; 4 * LANES];

/// An activation, spread out to lie as the weights of a lane group lie: 16 words a group, each
/// an even and an odd column of one row.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    /// For each fragment, its even columns and its odd columns.
    values: Vec<[[f32; LANES]; 2]>,
    cols: usize,
}

impl Spread {
    /// Room for an activation of up to `cols` values.
    pub(crate) fn with_capacity(cols: usize) -> Spread {
        Spread { values: vec![[[0.0; LANES]; 2]; cols.div_ceil(FRAGMENT_COLS)], cols: 0 }
    }

    /// Takes over `x`, padded with zeros to whole fragments.
    pub(crate) fn set(&mut self, x: &[f32]) {
        self.cols = x.len();
        for (spread, columns) in self.values.iter_mut().zip(x.chunks(FRAGMENT_COLS)) {
            let mut padded = [0.0; FRAGMENT_COLS];
            padded[..columns.len()].copy_from_slice(columns);
            let [even, odd] = spread;
            for (word, (even, odd)) in even.iter_mut().zip(odd).enumerate() {
                // Word 4 t + r of a group holds columns 2 t + 8 (r / 2) and the next one.
                let col = 2 * (word / 4) + 8 * (word % 4 / 2);
                (*even, *odd) = (padded[col], padded[col + 1]);
            }
        }
    }

    fn fragments(&self) -> &[[[f32; LANES]; 2]] {
        &self.values[..self.cols.div_ceil(FRAGMENT_COLS)]
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
        let x = self.x.fragments();
        let (fragments, _) = self.tiles.as_chunks::<FRAGMENT_BYTES_BF16>();
        for (tile, out) in fragments.chunks_exact(x.len()).zip(self.out) {
            if R == 1 {
                pass::<S, R, 8>(simd, tile, x, 0, out);
            } else {
                // The sums of 8 groups are more than 16 registers of 8 lanes: two passes.
                pass::<S, R, 4>(simd, tile, x, 0, out);
                pass::<S, R, 4>(simd, tile, x, 4, out);
            }
        }
    }
}

/// Groups `first..first + N` of one tile.
#[inline(always)]
fn pass<S: Registers, const R: usize, const N: usize>(
    simd: S,
    tile: &[[u8; FRAGMENT_BYTES_BF16]],
    x: &[[[f32; LANES]; 2]],
    first: usize,
    out: &mut [f32; TILE_ROWS],
) {
    let mut sums: [Sums<S, R>; N] = [[simd.splat_f32s(0.0); R]; N];
    for (fragment, [even, odd]) in tile.iter().zip(x) {
        let (groups, _) = fragment.as_chunks::<{ size_of::<Group>() }>();
        let (even, odd) = (load::<S, R>(even), load::<S, R>(odd));
        for (sums, group) in sums.iter_mut().zip(&groups[first..first + N]) {
            add_pairs(simd, sums, &words(group), even, odd);
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
    use crate::cpu::simd::Simd;
    use monolith_abi::pack::fragment_index;
    use proptest::prelude::*;

    /// Row-major bf16 bits to tiles.
    fn tiles_of(rows: usize, cols: usize, bits: &[u16]) -> Vec<u8> {
        let per_tile = cols.div_ceil(FRAGMENT_COLS);
        let mut tiles = vec![0u8; rows.div_ceil(TILE_ROWS) * per_tile * FRAGMENT_BYTES_BF16];
        for row in 0..rows {
            for col in 0..cols {
                let fragment = row / TILE_ROWS * per_tile + col / FRAGMENT_COLS;
                let at = fragment * FRAGMENT_BYTES_BF16
                    + 2 * fragment_index(row % TILE_ROWS, col % FRAGMENT_COLS);
                tiles[at..at + 2].copy_from_slice(&bits[row * cols + col].to_le_bytes());
            }
        }
        tiles
    }

    proptest! {
        #[test]
        fn every_level_agrees_with_f64(
            rows in 1..70usize,
            cols in 1..150usize,
            seed in any::<u64>(),
        ) {
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
            };
            let bits: Vec<u16> =
                (0..rows * cols).map(|_| crate::cpu::simd::narrow(next())).collect();
            let x: Vec<f32> = (0..cols).map(|_| next()).collect();
            let tiles = tiles_of(rows, cols, &bits);
            let mut spread = Spread::with_capacity(200);
            spread.set(&x);
            let mut fused: Option<Vec<[f32; TILE_ROWS]>> = None;
            for level in Simd::available() {
                let mut out = vec![[f32::NAN; TILE_ROWS]; rows.div_ceil(TILE_ROWS)];
                level.run(MatVec { tiles: &tiles, x: &spread, out: &mut out });
                for row in 0..rows {
                    let terms = (0..cols).map(|col| {
                        let weight = crate::cpu::simd::widen(bits[row * cols + col]);
                        f64::from(weight) * f64::from(x[col])
                    });
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
