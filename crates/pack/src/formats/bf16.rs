//! bf16 in a pack: rows as the checkpoint has them, in another order.

use super::{Format, StoredBytes};
use crate::PackError;
use crate::layout::Section;
use crate::matrix::MatrixView;
use crate::quantize::Sums;
use crate::scales::ScaleSearch;
use monolith_abi::formats::TILE_ROWS;
use monolith_abi::formats::bf16::{FRAGMENT_BYTES, FRAGMENT_COLS, fragment_index};
use monolith_model::{Bf16View, Config, StoredView, Tensor, Weights};

/// Two bytes an element, without scales.
pub(super) struct Bf16;

impl Format for Bf16 {
    fn put_row(
        &self,
        weights: &dyn Weights,
        (tensor, from): (Tensor, usize),
        (row, tile): (usize, &mut [u8]),
        _: ScaleSearch,
    ) -> Result<Sums, PackError> {
        let Some(bytes) = weights.stored(tensor).row_bf16(from) else {
            return Err(PackError::NotBf16 { tensor: tensor.name() });
        };
        scatter(&bytes, row, tile);
        Ok(Sums::default())
    }

    /// Every two bytes are a value. NaN and infinity are the model's own: an engine reports them
    /// in the step in which they reach a logit.
    fn check(&self, _: Section, _: &Config, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn read_row(&self, matrix: &MatrixView, row: usize, out: &mut [f32]) {
        for (value, pair) in out.iter_mut().zip(row_pairs(matrix, row)) {
            *value = f32::from_bits(u32::from(u16::from_le_bytes(pair)) << 16);
        }
    }

    fn unpack(&self, matrix: &MatrixView, rows: &mut dyn Iterator<Item = usize>) -> StoredBytes {
        let values = rows.flat_map(|row| row_pairs(matrix, row).flatten()).collect();
        StoredBytes { values, scales: Vec::new() }
    }

    fn view<'a>(&self, [rows, cols]: [usize; 2], bytes: &'a StoredBytes) -> StoredView<'a> {
        StoredView::Bf16(Bf16View::new(rows, cols, &bytes.values))
    }
}

/// Spreads one row over the fragments of its tile, two columns (4 bytes) at a time.
fn scatter(row_bytes: &[u8], row: usize, tile: &mut [u8]) {
    let fragments = tile.chunks_exact_mut(FRAGMENT_BYTES);
    for (fragment, columns) in fragments.zip(row_bytes.chunks(2 * FRAGMENT_COLS)) {
        for (pair, bytes) in columns.chunks(4).enumerate() {
            let at = 2 * fragment_index(row, 2 * pair);
            fragment[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }
}

/// The elements of one stored row.
fn row_pairs<'a>(matrix: &MatrixView<'a>, row: usize) -> impl Iterator<Item = [u8; 2]> + use<'a> {
    let (tile, row) = (matrix.tile_of(row), row % TILE_ROWS);
    (0..matrix.cols).map(move |col| {
        let within = 2 * fragment_index(row, col % FRAGMENT_COLS);
        let at = col / FRAGMENT_COLS * FRAGMENT_BYTES + within;
        [tile[at], tile[at + 1]]
    })
}
