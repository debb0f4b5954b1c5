//! A tensor as it is stored: bf16, or E4M3 codes with a scale for each row.

use crate::{Bf16View, e4m3};
use half::{bf16, f16};
use std::ops::Range;

/// The type of the scales of an FP8 tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleType {
    /// Four bytes.
    F32,
    /// Two bytes.
    F16,
    /// Two bytes.
    Bf16,
}

impl ScaleType {
    /// Bytes of one scale.
    pub fn bytes(self) -> usize {
        match self {
            ScaleType::F32 => 4,
            ScaleType::F16 | ScaleType::Bf16 => 2,
        }
    }
}

/// A row-major E4M3 matrix with one scale a row, somewhere in memory: an element is its code's
/// value times its row's scale.
#[derive(Clone, Copy, Debug)]
pub struct Fp8View<'a> {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub cols: usize,
    codes: &'a [u8],
    scales: &'a [u8],
    scale_type: ScaleType,
}

impl<'a> Fp8View<'a> {
    /// A view of `rows * cols` codes and `rows` little-endian scales.
    ///
    /// # Panics
    /// If a length does not match: callers check lengths against the shape first.
    pub fn new(
        [rows, cols]: [usize; 2],
        codes: &'a [u8],
        scales: &'a [u8],
        scale_type: ScaleType,
    ) -> Fp8View<'a> {
        assert_eq!(codes.len(), rows * cols, "an fp8 view's codes match its shape");
        assert_eq!(scales.len(), rows * scale_type.bytes(), "an fp8 view has a scale a row");
        Fp8View { rows, cols, codes, scales, scale_type }
    }

    /// The codes of one row.
    pub fn row_codes(&self, row: usize) -> &'a [u8] {
        &self.codes[row * self.cols..(row + 1) * self.cols]
    }

    /// The scale of one row; exact, whatever type it is stored in.
    pub fn scale(&self, row: usize) -> f32 {
        let at = |byte: usize| self.scales[row * self.scale_type.bytes() + byte];
        match self.scale_type {
            ScaleType::F32 => f32::from_le_bytes([at(0), at(1), at(2), at(3)]),
            ScaleType::F16 => f16::from_le_bytes([at(0), at(1)]).to_f32(),
            ScaleType::Bf16 => bf16::from_le_bytes([at(0), at(1)]).to_f32(),
        }
    }
}

/// A tensor as it is stored.
#[derive(Clone, Copy, Debug)]
pub enum StoredView<'a> {
    /// In bf16.
    Bf16(Bf16View<'a>),
    /// In E4M3, with a scale a row.
    Fp8(Fp8View<'a>),
}

impl StoredView<'_> {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        match self {
            StoredView::Bf16(view) => view.rows,
            StoredView::Fp8(view) => view.rows,
        }
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        match self {
            StoredView::Bf16(view) => view.cols,
            StoredView::Fp8(view) => view.cols,
        }
    }

    /// One row as f32: see [`StoredView::rows_f32`].
    pub fn row_f32(&self, row: usize) -> Vec<f32> {
        self.rows_f32(row..row + 1)
    }

    /// Some rows as f32, row after row: of bf16 exactly; of FP8 the product of code and scale, as
    /// f32 rounds it.
    pub fn rows_f32(&self, rows: Range<usize>) -> Vec<f32> {
        match self {
            StoredView::Bf16(view) => view.rows_f32(rows),
            StoredView::Fp8(view) => rows
                .flat_map(|row| {
                    let scale = view.scale(row);
                    view.row_codes(row).iter().map(move |&code| e4m3::value(code) * scale)
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_of_each_type_are_read_exactly() {
        let codes = [0x38, 0xb8, 0x7e, 0x01];
        let bytes = |scales: [f32; 2], scale_type| -> Vec<u8> {
            scales
                .into_iter()
                .flat_map(|scale| match scale_type {
                    ScaleType::F32 => scale.to_le_bytes().to_vec(),
                    ScaleType::F16 => f16::from_f32(scale).to_le_bytes().to_vec(),
                    ScaleType::Bf16 => bf16::from_f32(scale).to_le_bytes().to_vec(),
                })
                .collect()
        };
        for scale_type in [ScaleType::F32, ScaleType::F16, ScaleType::Bf16] {
            let scales = bytes([0.25, 3.0], scale_type);
            let view = Fp8View::new([2, 2], &codes, &scales, scale_type);
            assert_eq!((view.scale(0), view.scale(1)), (0.25, 3.0));
            let stored = StoredView::Fp8(view);
            assert_eq!(stored.rows_f32(0..2), [0.25, -0.25, 1344.0, 3.0 / 512.0]);
            assert_eq!(stored.row_f32(1), [1344.0, 3.0 / 512.0]);
            assert_eq!((stored.rows(), stored.cols()), (2, 2));
        }
    }
}
