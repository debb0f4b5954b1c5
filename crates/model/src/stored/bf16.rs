//! bf16 tensors, and tensors of wider types that are read as bf16.

use half::{bf16, f16};
use rayon::prelude::*;
use safetensors::tensor::Dtype;
use std::ops::Range;

/// The types in a safetensors file.
pub(crate) const DTYPES: [Dtype; 3] = [Dtype::BF16, Dtype::F32, Dtype::F16];

/// A row-major bf16 matrix in memory. The bytes need not be aligned.
#[derive(Clone, Copy, Debug)]
pub struct Bf16View<'a> {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub cols: usize,
    bytes: &'a [u8],
}

impl<'a> Bf16View<'a> {
    /// A view of `rows * cols` little-endian bf16 values.
    ///
    /// # Panics
    /// If `bytes` has another length: callers check lengths against the shape first.
    pub fn new(rows: usize, cols: usize, bytes: &'a [u8]) -> Bf16View<'a> {
        assert_eq!(bytes.len(), rows * cols * 2, "a bf16 view's bytes match its shape");
        Bf16View { rows, cols, bytes }
    }

    /// The raw bytes, row after row.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The raw bytes of one row.
    pub fn row_bytes(&self, row: usize) -> &'a [u8] {
        &self.bytes[row * self.cols * 2..(row + 1) * self.cols * 2]
    }

    /// One element.
    pub fn at(&self, row: usize, col: usize) -> bf16 {
        let at = (row * self.cols + col) * 2;
        bf16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// One row as f32 (exact).
    pub fn row_f32(&self, row: usize) -> Vec<f32> {
        self.rows_f32(row..row + 1)
    }

    /// Some rows as f32 (exact), row after row.
    pub fn rows_f32(&self, rows: Range<usize>) -> Vec<f32> {
        let bytes = &self.bytes[rows.start * self.cols * 2..rows.end * self.cols * 2];
        bytes
            .as_chunks::<2>()
            .0
            .iter()
            .map(|&pair| f32::from_bits(u32::from(u16::from_le_bytes(pair)) << 16))
            .collect()
    }
}

/// The type of a tensor that has more bits than bf16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WideType {
    /// Four bytes.
    F32,
    /// Two bytes; more mantissa than bf16, but less range.
    F16,
}

impl WideType {
    /// The wide type of a safetensors type, if it is one.
    pub(crate) fn of(dtype: Dtype) -> Option<WideType> {
        match dtype {
            Dtype::F32 => Some(WideType::F32),
            Dtype::F16 => Some(WideType::F16),
            _ => None,
        }
    }

    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            WideType::F32 => 4,
            WideType::F16 => 2,
        }
    }

    /// The name in safetensors.
    pub fn name(self) -> &'static str {
        match self {
            WideType::F32 => "F32",
            WideType::F16 => "F16",
        }
    }
}

/// A row-major matrix of F32 or F16 values in memory, which is read as bf16: reading a row rounds
/// its values to nearest, ties to even. The bytes need not be aligned.
#[derive(Clone, Copy, Debug)]
pub struct WideView<'a> {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub cols: usize,
    bytes: &'a [u8],
    wide_type: WideType,
}

impl<'a> WideView<'a> {
    /// A view of `rows * cols` little-endian values.
    ///
    /// # Panics
    /// If the length does not match: callers check lengths against the shape first.
    pub fn new([rows, cols]: [usize; 2], bytes: &'a [u8], wide_type: WideType) -> WideView<'a> {
        assert_eq!(bytes.len(), rows * cols * wide_type.bytes(), "a view's bytes match its shape");
        WideView { rows, cols, bytes, wide_type }
    }

    /// The values of one row, rounded.
    pub fn row(&self, row: usize) -> impl Iterator<Item = bf16> + use<'a> {
        let (size, wide_type) = (self.wide_type.bytes(), self.wide_type);
        let bytes = &self.bytes[row * self.cols * size..(row + 1) * self.cols * size];
        bytes.chunks_exact(size).map(move |bytes| match (wide_type, bytes) {
            (WideType::F32, &[a, b, c, d]) => bf16::from_f32(f32::from_le_bytes([a, b, c, d])),
            (_, bytes) => bf16::from_f32(f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()),
        })
    }

    /// Returns the first element, by row and column, that bf16 cannot hold: NaN, infinite, or
    /// infinite after rounding.
    pub fn first_not_finite(&self) -> Option<(usize, usize)> {
        let in_row = |row| self.row(row).position(|value| !value.is_finite());
        let rows = (0..self.rows).into_par_iter();
        rows.filter_map(|row| in_row(row).map(|col| (row, col))).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoredView;

    #[test]
    fn wide_values_are_rounded_to_nearest_even() {
        // Half of bf16's last bit at 1 is 2^-8.
        let tie = 1.0 + 2f32.powi(-8);
        let cases = [
            (tie, 1.0),
            (tie + 2f32.powi(-7), 1.0 + 2f32.powi(-6)),
            (f32::from_bits(tie.to_bits() + 1), 1.0 + 2f32.powi(-7)),
            (f32::from_bits(tie.to_bits() - 1), 1.0),
            (-tie, -1.0),
            (0.0, 0.0),
            (1e-40, bf16::from_f32(1e-40).to_f32()),
        ];
        let bytes: Vec<u8> = cases.iter().flat_map(|(given, _)| given.to_le_bytes()).collect();
        let view = WideView::new([1, cases.len()], &bytes, WideType::F32);
        let wanted: Vec<f32> = cases.iter().map(|(_, wanted)| *wanted).collect();
        let stored = StoredView::Wide(view);
        assert_eq!(stored.row_f32(0), wanted);
        let bf16s = stored.row_bf16(0).unwrap();
        assert_eq!(Bf16View::new(1, cases.len(), &bf16s).row_f32(0), wanted);
        assert_eq!(view.first_not_finite(), None);

        // Every finite F16 has a bf16 beside it.
        let bytes: Vec<u8> = (0..=u16::MAX)
            .filter(|&bits| f16::from_bits(bits).is_finite())
            .flat_map(u16::to_le_bytes)
            .collect();
        let view = WideView::new([1, bytes.len() / 2], &bytes, WideType::F16);
        assert_eq!(view.first_not_finite(), None);
        for (pair, value) in bytes.as_chunks::<2>().0.iter().zip(view.row(0)) {
            let given = f16::from_le_bytes(*pair).to_f32();
            let (below, above) = (value.to_bits().wrapping_sub(1), value.to_bits() + 1);
            for other in [below, above].map(|bits| bf16::from_bits(bits).to_f32()) {
                let distance = (value.to_f32() - given).abs();
                let further = (other - given).abs() >= distance || other.is_nan();
                assert!(further, "{given}");
            }
        }
    }

    #[test]
    fn what_bf16_does_not_hold_is_found_by_row_and_column() {
        let largest = bf16::MAX.to_f32();
        let over = f32::from_bits(largest.to_bits() + 0x8000);
        let below = f32::from_bits(over.to_bits() - 1);
        for (bad, found) in [
            (over, Some((1, 1))),
            (below, None),
            (f32::MAX, Some((1, 1))),
            (f32::NAN, Some((1, 1))),
            (f32::NEG_INFINITY, Some((1, 1))),
        ] {
            let bytes: Vec<u8> =
                [1.0, 2.0, 3.0, bad, bad, bad].into_iter().flat_map(f32::to_le_bytes).collect();
            let view = WideView::new([3, 2], &bytes, WideType::F32);
            assert_eq!(view.first_not_finite(), found, "{bad}");
        }
    }
}
