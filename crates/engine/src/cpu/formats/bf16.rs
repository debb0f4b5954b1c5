//! bf16: a word holds two weights, each of which is the upper half of an f32.

use super::{GROUPS, Group, Lanes, Level};
use crate::cpu::matvec::{MatVec, rows};
use crate::cpu::simd::{LANES, add_pairs};
use monolith_abi::formats::bf16::{FRAGMENT_BYTES, FRAGMENT_COLS, fragment_index};

/// Weights of a lane group in one lane: the two of a word.
pub(crate) const PAIR: usize = 2;

/// The column, in its fragment, of each weight of each lane: from the order of the pack's elements.
pub(super) const COLUMNS: [[u8; LANES]; PAIR] = {
    let mut columns = [[0; LANES]; PAIR];
    let mut col = 0;
    while col < FRAGMENT_COLS {
        let (upper, lower) = (fragment_index(0, col), fragment_index(GROUPS, col));
        columns[upper % PAIR][upper / PAIR] = col as u8;
        columns[lower % PAIR][lower / PAIR] = col as u8;
        col += 1;
    }
    columns
};

/// A lane is a word.
struct Bf16Lanes;

impl Lanes<PAIR> for Bf16Lanes {
    const SUMS: usize = 8;

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

/// Multiplies tiles.
#[inline(always)]
pub(super) fn product<S: Level, const R: usize>(simd: S, product: MatVec<'_>) {
    let x = product.x.fragments::<PAIR>(FRAGMENT_COLS);
    let (fragments, _) = product.tiles.as_chunks::<FRAGMENT_BYTES>();
    for (tile, out) in fragments.chunks_exact(x.len()).zip(product.out) {
        rows::<S, Bf16Lanes, R, PAIR, FRAGMENT_BYTES>(simd, tile, x, out);
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
    use monolith_abi::formats::TILE_ROWS;

    #[test]
    fn a_lanes_columns_and_rows_are_those_of_the_pack() {
        for row in 0..TILE_ROWS {
            for (weight, columns) in COLUMNS.iter().enumerate() {
                // Even lanes hold the upper row.
                let lanes = (0..LANES).filter(|lane| lane % 2 == row / GROUPS);
                for lane in lanes {
                    let at = fragment_index(row, usize::from(columns[lane]));
                    let wanted = row % GROUPS * PAIR * LANES + PAIR * lane + weight;
                    assert_eq!(at, wanted, "row {row}, lane {lane}, weight {weight}");
                }
            }
        }
    }
}
