//! A tensor as it is stored: bf16, a wider type, or E4M3 codes with one scale per row.

use crate::{Bf16View, e4m3};
use half::{bf16, f16};
use monolith_abi::WeightFormat;
use rayon::prelude::*;
use std::borrow::Cow;
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

/// A row-major E4M3 matrix in memory with one scale per row: an element is its code's value times
/// its row's scale.
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

/// The type of a tensor that has more bits than bf16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WideType {
    /// Four bytes.
    F32,
    /// Two bytes; more mantissa than bf16, but less range.
    F16,
}

impl WideType {
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
                Some(Cow::Owned(view.row(row).flat_map(bf16::to_le_bytes).collect()))
            }
            StoredView::Fp8(_) => None,
        }
    }

    /// Returns whether two tensors of the same shape give the same bits when read.
    pub fn is_same(&self, other: &StoredView) -> bool {
        let shape = |view: &StoredView| (view.rows(), view.cols());
        let same_row = |row: usize| match (self, other) {
            (StoredView::Fp8(one), StoredView::Fp8(two)) => {
                one.scale(row) == two.scale(row) && one.row_codes(row) == two.row_codes(row)
            }
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
                rows.flat_map(|row| view.row(row)).map(bf16::to_f32).collect()
            }
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
