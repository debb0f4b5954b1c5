//! A matrix section of an open pack.

use crate::format::{fragment_bytes, fragment_cols, padded_cols, scale_bytes, tile_bytes};
use monolith_abi::WeightFormat;
use monolith_abi::pack::{TILE_ROWS, fragment_index, fragment_index_fp8};
use monolith_model::e4m3;
use std::ops::Range;

/// A matrix section: tiles of 16 rows, one after another.
#[derive(Clone, Copy, Debug)]
pub struct MatrixView<'a> {
    /// Rows before padding.
    pub rows: usize,
    /// Columns before padding.
    pub cols: usize,
    /// Format of its weights.
    pub format: WeightFormat,
    pub(crate) bytes: &'a [u8],
}

impl<'a> MatrixView<'a> {
    /// Number of tiles.
    pub fn tiles(&self) -> usize {
        self.rows.div_ceil(TILE_ROWS)
    }

    /// Columns, rounded up to whole fragments.
    pub fn padded_cols(&self) -> usize {
        padded_cols(self.format, self.cols)
    }

    /// Bytes of one tile: its fragments, then its scales if the format has any.
    pub fn tile_bytes(&self) -> usize {
        tile_bytes(self.format, self.cols)
    }

    /// Bytes of one tile's fragments, without the scales after them.
    pub fn tile_fragment_bytes(&self) -> usize {
        self.tile_bytes() - scale_bytes(self.format)
    }

    /// A range of tiles: contiguous, in streaming order.
    pub fn tile_range(&self, tiles: Range<usize>) -> &'a [u8] {
        &self.bytes[tiles.start * self.tile_bytes()..tiles.end * self.tile_bytes()]
    }

    /// The scales of one tile's rows: 0 for padding rows of a format with scales, 1 for a format
    /// without.
    pub fn scales(&self, tile: usize) -> [f32; TILE_ROWS] {
        let bytes = &self.tile_range(tile..tile + 1)[self.tile_fragment_bytes()..];
        match bytes.as_chunks::<4>().0.as_array::<TILE_ROWS>() {
            Some(scales) => scales.map(f32::from_le_bytes),
            None => [1.0; TILE_ROWS],
        }
    }

    /// The scale of one stored row; 1 for a format without scales.
    pub fn scale(&self, row: usize) -> f32 {
        self.scales(row / TILE_ROWS)[row % TILE_ROWS]
    }

    /// Returns the values of one stored row: bf16 exactly; for FP8 the product of code and scale,
    /// rounded to f32.
    pub fn row_f32(&self, row: usize) -> impl Iterator<Item = f32> + use<'a> {
        let (matrix, tile, scale) = (*self, self.tile_of(row), self.scale(row));
        (0..self.cols).map(move |col| {
            let at = matrix.at(row, col);
            match matrix.format {
                WeightFormat::Bf16 => {
                    let bits = u16::from_le_bytes([tile[at], tile[at + 1]]);
                    f32::from_bits(u32::from(bits) << 16)
                }
                WeightFormat::Fp8 => e4m3::value(tile[at]) * scale,
            }
        })
    }

    /// The values of one stored row of a bf16 matrix, as bf16 bits.
    ///
    /// # Panics
    /// For another format: [`MatrixView::row_f32`] gives any row.
    pub(crate) fn row_bits(&self, row: usize) -> impl Iterator<Item = u16> + use<'a> {
        assert_eq!(self.format, WeightFormat::Bf16, "only a bf16 matrix has bf16 bits");
        let (matrix, tile) = (*self, self.tile_of(row));
        (0..self.cols).map(move |col| {
            let at = matrix.at(row, col);
            u16::from_le_bytes([tile[at], tile[at + 1]])
        })
    }

    /// The codes of one stored row of an FP8 matrix.
    ///
    /// # Panics
    /// For another format.
    pub(crate) fn row_codes(&self, row: usize) -> impl Iterator<Item = u8> + use<'a> {
        assert_eq!(self.format, WeightFormat::Fp8, "only an fp8 matrix has codes");
        let (matrix, tile) = (*self, self.tile_of(row));
        (0..self.cols).map(move |col| tile[matrix.at(row, col)])
    }

    fn tile_of(&self, row: usize) -> &'a [u8] {
        self.tile_range(row / TILE_ROWS..row / TILE_ROWS + 1)
    }

    /// The first byte of an element in its row's tile.
    fn at(&self, row: usize, col: usize) -> usize {
        let cols = fragment_cols(self.format);
        let within = match self.format {
            WeightFormat::Bf16 => 2 * fragment_index(row % TILE_ROWS, col % cols),
            WeightFormat::Fp8 => fragment_index_fp8(row % TILE_ROWS, col % cols),
        };
        col / cols * fragment_bytes(self.format) + within
    }
}
