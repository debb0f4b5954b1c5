//! bf16: weights as most checkpoints have them.

use super::{Group, Scales, TILE_ROWS, TileGeometry};

/// There are no scales.
pub const GROUP: Group = Group::None;

/// Bits of an element.
const BITS: usize = 16;
/// Columns of a fragment: one `m16n8k16` step along K.
pub const FRAGMENT_COLS: usize = 16;
/// Bytes of a fragment: 32 lanes of 16 bytes.
pub const FRAGMENT_BYTES: usize = TILE_ROWS * FRAGMENT_COLS * BITS / 8;

/// The layout for `mma.sync`.
pub const MMA_SYNC: TileGeometry = TileGeometry {
    bits: BITS,
    fragment_cols: FRAGMENT_COLS,
    fragment_bytes: FRAGMENT_BYTES,
    order: fragment_index,
    order_name: "mma.m16n8k16.a",
    scales: Scales::None,
};

/// Position, in elements, of (row, col) inside a fragment.
///
/// The order is that of the `mma.sync.m16n8k16` A operand, so that the 16 bytes of a lane are
/// its four registers: lane `4 * (row % 8) + (col % 8) / 2`, register
/// `row / 8 + 2 * (col / 8)`, half `col % 2`.
pub const fn fragment_index(row: usize, col: usize) -> usize {
    let lane = 4 * (row % 8) + (col % 8) / 2;
    let register = row / 8 + 2 * (col / 8);
    lane * 8 + register * 2 + col % 2
}
