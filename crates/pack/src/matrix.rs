//! A matrix section of an open pack.

use crate::{format, formats};
use monolith_abi::WeightFormat;
use monolith_abi::formats::{Scales, TILE_ROWS, TileGeometry};
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
        self.geometry().padded_cols(self.cols)
    }

    /// Bytes of one tile: its fragments, then its rows' scales if the format has any.
    pub fn tile_bytes(&self) -> usize {
        self.geometry().tile_bytes(self.cols)
    }

    /// Bytes of one tile's fragments, without the scales after them.
    pub fn tile_fragment_bytes(&self) -> usize {
        self.tile_bytes() - self.geometry().behind_bytes()
    }

    /// A range of tiles: contiguous, in streaming order.
    pub fn tile_range(&self, tiles: Range<usize>) -> &'a [u8] {
        &self.bytes[tiles.start * self.tile_bytes()..tiles.end * self.tile_bytes()]
    }

    /// The scales of one tile's rows: 0 for padding rows of a format with a scale a row, 1 for
    /// another format.
    pub fn scales(&self, tile: usize) -> [f32; TILE_ROWS] {
        if self.geometry().scales != Scales::RowBehindTile {
            return [1.0; TILE_ROWS];
        }
        let bytes = &self.tile_range(tile..tile + 1)[self.tile_fragment_bytes()..];
        let scales = bytes.as_chunks::<4>().0;
        std::array::from_fn(|row| f32::from_le_bytes(scales[row]))
    }

    /// The scale of one stored row; 1 for a format without a scale a row.
    pub fn scale(&self, row: usize) -> f32 {
        self.scales(row / TILE_ROWS)[row % TILE_ROWS]
    }

    /// Returns the values of one stored row: bf16 exactly; for FP8 the product of code and scale,
    /// rounded to f32.
    pub fn row_f32(&self, row: usize) -> Vec<f32> {
        let mut values = vec![0.0; self.cols];
        self.read_row(row, &mut values);
        values
    }

    /// Like [`MatrixView::row_f32`], into an array as wide as the matrix; allocates nothing.
    pub fn read_row(&self, row: usize, out: &mut [f32]) {
        formats::of(self.format).read_row(self, row, out);
    }

    /// The tile of a stored row.
    pub(crate) fn tile_of(&self, row: usize) -> &'a [u8] {
        self.tile_range(row / TILE_ROWS..row / TILE_ROWS + 1)
    }

    fn geometry(&self) -> &'static TileGeometry {
        format::geometry(self.format)
    }
}
