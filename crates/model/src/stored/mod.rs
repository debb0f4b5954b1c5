//! A tensor as it is stored: a view for each format, with the layout in which it is published.

pub(crate) mod bf16;
pub(crate) mod fp8;

pub use bf16::{Bf16View, WideType, WideView};
pub use fp8::{Fp8View, ScaleType};

use monolith_abi::WeightFormat;
use rayon::prelude::*;
use std::borrow::Cow;
use std::ops::Range;

/// A tensor as it is stored.
#[derive(Clone, Copy, Debug)]
pub enum StoredView<'a> {
    /// In bf16.
    Bf16(Bf16View<'a>),
    /// In F32 or F16, read as bf16.
    Wide(WideView<'a>),
    /// In E4M3, with one scale per row.
    Fp8(Fp8View<'a>),
}

impl<'a> StoredView<'a> {
    /// The weight format that holds the values without a further loss; F32 and F16 are read as
    /// bf16.
    pub fn format(&self) -> WeightFormat {
        match self {
            StoredView::Bf16(_) | StoredView::Wide(_) => WeightFormat::Bf16,
            StoredView::Fp8(_) => WeightFormat::Fp8,
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        match self {
            StoredView::Bf16(view) => view.rows,
            StoredView::Wide(view) => view.rows,
            StoredView::Fp8(view) => view.rows,
        }
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        match self {
            StoredView::Bf16(view) => view.cols,
            StoredView::Wide(view) => view.cols,
            StoredView::Fp8(view) => view.cols,
        }
    }

    /// One row as f32: see [`StoredView::rows_f32`].
    pub fn row_f32(&self, row: usize) -> Vec<f32> {
        self.rows_f32(row..row + 1)
    }

    /// Returns the little-endian bf16 bytes of one row, as stored or rounded; `None` for FP8, whose
    /// values bf16 cannot hold.
    pub fn row_bf16(&self, row: usize) -> Option<Cow<'a, [u8]>> {
        match self {
            StoredView::Bf16(view) => Some(Cow::Borrowed(view.row_bytes(row))),
            StoredView::Wide(view) => {
                Some(Cow::Owned(view.row(row).flat_map(half::bf16::to_le_bytes).collect()))
            }
            StoredView::Fp8(_) => None,
        }
    }

    /// Returns whether two tensors of the same shape give the same bits when read.
    pub fn is_same(&self, other: &StoredView) -> bool {
        let shape = |view: &StoredView| (view.rows(), view.cols());
        let same_row = |row: usize| match (self, other) {
            (StoredView::Fp8(one), StoredView::Fp8(two)) => one.is_same_row(two, row),
            (one, two) => match (one.row_bf16(row), two.row_bf16(row)) {
                (Some(one), Some(two)) => one == two,
                _ => false,
            },
        };
        shape(self) == shape(other) && (0..self.rows()).into_par_iter().all(same_row)
    }

    /// Returns some rows as f32, row after row: bf16 exactly; F32 and F16 rounded to bf16; for FP8
    /// the product of code and scale, rounded to f32.
    pub fn rows_f32(&self, rows: Range<usize>) -> Vec<f32> {
        match self {
            StoredView::Bf16(view) => view.rows_f32(rows),
            StoredView::Wide(view) => {
                rows.flat_map(|row| view.row(row)).map(half::bf16::to_f32).collect()
            }
            StoredView::Fp8(view) => rows.flat_map(|row| view.row_f32(row)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    #[test]
    fn tensors_are_compared_as_they_are_read() {
        let exact: Vec<u8> = [1f32, -2.0].into_iter().flat_map(f32::to_le_bytes).collect();
        let rounded: Vec<u8> = [1.0009f32, -2.0].into_iter().flat_map(f32::to_le_bytes).collect();
        let stored: Vec<u8> =
            [1f32, -2.0].into_iter().flat_map(|x| bf16::from_f32(x).to_le_bytes()).collect();
        let bf16s = StoredView::Bf16(Bf16View::new(2, 1, &stored));
        let wide = |bytes| StoredView::Wide(WideView::new([2, 1], bytes, WideType::F32));
        assert!(bf16s.is_same(&bf16s) && bf16s.is_same(&wide(&exact)));
        assert!(wide(&rounded).is_same(&bf16s), "rounding hides what bf16 does not hold");
        let turned = StoredView::Bf16(Bf16View::new(1, 2, &stored));
        assert!(!turned.is_same(&bf16s), "another shape");
        let (codes, scales) = ([0x38, 0xc0], [1f32.to_le_bytes(); 2].concat());
        let fp8 = |codes| StoredView::Fp8(Fp8View::new([2, 1], codes, &scales, ScaleType::F32));
        assert!(fp8(&codes).is_same(&fp8(&codes)) && !fp8(&codes).is_same(&bf16s));
        assert!(!fp8(&codes).is_same(&fp8(&[0x38, 0xc1])));
    }
}
