//! Constants of the pack file, shared by its writer, its readers and the kernels.

/// First eight bytes of every pack.
pub const MAGIC: [u8; 8] = *b"MONOPACK";
/// Version of the layout that this build writes and reads.
pub const LAYOUT_VERSION: u32 = 2;
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

/// Columns of an FP8 fragment: two `m16n8k16` steps along K, so that a lane's part is 16 bytes.
pub const FRAGMENT_COLS_FP8: usize = 32;
/// Bytes of an FP8 fragment: 32 lanes of 16 bytes.
pub const FRAGMENT_BYTES_FP8: usize = TILE_ROWS * FRAGMENT_COLS_FP8;
/// Bytes of the scales behind an FP8 tile's fragments: one f32 a row, in order of the rows.
pub const SCALE_BYTES_FP8: usize = TILE_ROWS * 4;

/// Position, in bytes, of (row, col) inside an FP8 fragment.
///
/// A lane's 16 bytes are four words: of each `m16n8k16` step in turn, row `g` and row `g + 8`. The
/// bytes of a word are the columns `2 t`, `2 t + 8`, `2 t + 1` and `2 t + 9` of that step: the even
/// bytes and the odd bytes of a word are each a register of the A operand, once widened.
pub const fn fragment_index_fp8(row: usize, col: usize) -> usize {
    let (step, within) = (col / 16, col % 16);
    let lane = 4 * (row % 8) + (within % 8) / 2;
    let word = 2 * step + row / 8;
    lane * 16 + word * 4 + 2 * (within % 2) + within / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragment_index_fp8_is_a_permutation() {
        let mut seen = [false; FRAGMENT_BYTES_FP8];
        for row in 0..TILE_ROWS {
            for col in 0..FRAGMENT_COLS_FP8 {
                assert!(!std::mem::replace(&mut seen[fragment_index_fp8(row, col)], true));
            }
        }
        assert!(seen.iter().all(|&hit| hit));
    }

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
