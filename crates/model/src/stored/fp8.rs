//! FP8 tensors: E4M3 codes with one scale per row, in the layout of compressed-tensors
//! (llm-compressor): `weight` in E4M3 `[rows, cols]`, `weight_scale` `[rows, 1]` or `[rows]`.

use crate::e4m3;
use half::{bf16, f16};
use safetensors::tensor::Dtype;
use serde_json::Value;

/// The type of the codes in a safetensors file.
pub(crate) const DTYPE: Dtype = Dtype::F8_E4M3;
/// The layout's name in `quantization_config`.
pub(crate) const LAYOUT: &str = "float-quantized";

/// The fields that describe the weights in `quantization_config`: E4M3, one scale per row.
pub(crate) fn weights() -> [(&'static str, Value); 3] {
    [
        ("type", Value::from("float")),
        ("num_bits", Value::from(8)),
        ("strategy", Value::from("channel")),
    ]
}

/// The name of a tensor's scales.
pub(crate) fn scale_name(tensor: &str) -> String {
    format!("{tensor}_scale")
}

/// The name of a tensor's scales for blocks, in another layout that is refused.
pub(crate) fn block_scale_name(tensor: &str) -> String {
    format!("{tensor}_scale_inv")
}

/// Returns whether a tensor with this name is ignored: scales for activations, which are never
/// quantized here.
pub(crate) fn is_for_activations(name: &str) -> bool {
    name.ends_with(".input_scale")
}

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
    /// The type of scales with this type in a safetensors file.
    pub(crate) fn of(dtype: Dtype) -> Option<ScaleType> {
        match dtype {
            Dtype::F32 => Some(ScaleType::F32),
            Dtype::F16 => Some(ScaleType::F16),
            Dtype::BF16 => Some(ScaleType::Bf16),
            _ => None,
        }
    }

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

    /// One row as f32: the products of codes and scale, rounded.
    pub(super) fn row_f32(&self, row: usize) -> impl Iterator<Item = f32> + use<'a> {
        let scale = self.scale(row);
        self.row_codes(row).iter().map(move |&code| e4m3::value(code) * scale)
    }

    /// Whether a row has the same scale and codes as another tensor's.
    pub(super) fn is_same_row(&self, other: &Fp8View, row: usize) -> bool {
        self.scale(row) == other.scale(row) && self.row_codes(row) == other.row_codes(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoredView;

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
