//! Constants of the pack file, shared by its writer, its readers and the kernels.

/// First eight bytes of every pack.
pub const MAGIC: [u8; 8] = *b"MONOPACK";
/// Version of the layout that this build writes and reads.
pub const LAYOUT_VERSION: u32 = 1;
/// Magic, version, header length, header sha256: see [`PREAMBLE_BYTES`].
pub const PREAMBLE_BYTES: usize = 64;
/// The payload and every section in it begin at a multiple of this (a page).
pub const SECTION_ALIGN: usize = 4096;

/// Rows of a tile (and of the `m16n8k16` A operand).
pub const TILE_ROWS: usize = 16;
/// Columns of a fragment: one `m16n8k16` step along K.
pub const FRAGMENT_COLS: usize = 16;
/// Bytes of a bf16 fragment: 32 lanes of 16 bytes.
pub const FRAGMENT_BYTES_BF16: usize = TILE_ROWS * FRAGMENT_COLS * 2;

/// Position, in elements, of (row, col) inside a bf16 fragment.
///
/// The order is that of the `mma.sync.m16n8k16` A operand, so that the 16 bytes of a lane are
/// its four registers: lane `4 * (row % 8) + (col % 8) / 2`, register
/// `row / 8 + 2 * (col / 8)`, half `col % 2`.
pub const fn fragment_index(row: usize, col: usize) -> usize {
    let lane = 4 * (row % 8) + (col % 8) / 2;
    let register = row / 8 + 2 * (col / 8);
    lane * 8 + register * 2 + col % 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragment_index_is_a_permutation() {
        let mut seen = [false; TILE_ROWS * FRAGMENT_COLS];
        for row in 0..TILE_ROWS {
            for col in 0..FRAGMENT_COLS {
                assert!(!std::mem::replace(&mut seen[fragment_index(row, col)], true));
            }
        }
        assert!(seen.iter().all(|&hit| hit));
    }
}
