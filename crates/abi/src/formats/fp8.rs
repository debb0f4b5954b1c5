//! FP8: E4M3 codes (four bits of exponent, three of mantissa, no infinities), and an f32 scale a
//! row. The codec is `monolith_model::e4m3`.

use super::{Group, Scales, TILE_ROWS, TileGeometry};

/// All weights of a row share a scale.
pub const GROUP: Group = Group::Row;

/// Bits of an element.
const BITS: usize = 8;
/// Columns of a fragment: two `m16n8k16` steps along K, so that a lane's part is 16 bytes.
pub const FRAGMENT_COLS: usize = 32;
/// Bytes of a fragment: 32 lanes of 16 bytes.
pub const FRAGMENT_BYTES: usize = TILE_ROWS * FRAGMENT_COLS * BITS / 8;
/// Bytes of the scales behind a tile's fragments: one f32 a row, in order of the rows.
pub const SCALE_BYTES: usize = MMA_SYNC.behind_bytes();

/// The layout for `mma.sync`.
pub const MMA_SYNC: TileGeometry = TileGeometry {
    bits: BITS,
    fragment_cols: FRAGMENT_COLS,
    fragment_bytes: FRAGMENT_BYTES,
    order: fragment_index,
    order_name: "2 x mma.m16n8k16.a, columns 2t 2t+8 2t+1 2t+9",
    scales: Scales::RowBehindTile,
};

/// Position, in bytes, of (row, col) inside a fragment.
///
/// A lane's 16 bytes are four words: of each `m16n8k16` step in turn, row `g` and row `g + 8`. The
/// bytes of a word are the columns `2 t`, `2 t + 8`, `2 t + 1` and `2 t + 9` of that step: the even
/// bytes and the odd bytes of a word are each a register of the A operand, once widened.
pub const fn fragment_index(row: usize, col: usize) -> usize {
    let (step, within) = (col / 16, col % 16);
    let lane = 4 * (row % 8) + (within % 8) / 2;
    let word = 2 * step + row / 8;
    lane * 16 + word * 4 + 2 * (within % 2) + within / 8
}
