//! The format of each matrix, and the bytes of a tile in each format.

use crate::layout::{Section, padded};
use monolith_abi::WeightFormat;
use monolith_abi::pack::{
    FRAGMENT_BYTES_BF16, FRAGMENT_BYTES_FP8, FRAGMENT_COLS, FRAGMENT_COLS_FP8, SCALE_BYTES_FP8,
    TILE_ROWS,
};
use monolith_model::{StoredView, Tensor, Weights};
use serde::{Deserialize, Serialize};

/// The format of every matrix: one for the layers, one for the LM head and the embedding. Vectors
/// (norm weights) are always bf16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "FormatNames", try_from = "FormatNames")]
pub struct Formats {
    /// The format of the layers' matrices.
    pub layers: WeightFormat,
    /// The format of the LM head and of the embedding, tied or not.
    pub head: WeightFormat,
}

impl Formats {
    /// Everything in bf16.
    pub const BF16: Formats = Formats { layers: WeightFormat::Bf16, head: WeightFormat::Bf16 };
    /// Everything in FP8.
    pub const FP8: Formats = Formats { layers: WeightFormat::Fp8, head: WeightFormat::Fp8 };
    /// The layers in FP8, LM head and embedding in bf16.
    pub const FP8_HEAD_BF16: Formats =
        Formats { layers: WeightFormat::Fp8, head: WeightFormat::Bf16 };
    /// The formats that have a name on the command line.
    pub const NAMED: [Formats; 3] = [Formats::BF16, Formats::FP8, Formats::FP8_HEAD_BF16];

    /// The name on the command line and in tables.
    pub fn name(self) -> &'static str {
        match (self.layers, self.head) {
            (WeightFormat::Bf16, WeightFormat::Bf16) => "bf16",
            (WeightFormat::Fp8, WeightFormat::Fp8) => "fp8",
            (WeightFormat::Fp8, WeightFormat::Bf16) => "fp8-head-bf16",
            (WeightFormat::Bf16, WeightFormat::Fp8) => "bf16-head-fp8",
        }
    }

    /// The formats with this name on the command line.
    pub fn from_name(name: &str) -> Option<Formats> {
        Formats::NAMED.into_iter().find(|formats| formats.name() == name)
    }

    /// Returns FP8 if any tensor is stored in FP8, so that no value has to be converted, and bf16
    /// for every other checkpoint.
    pub fn as_stored(weights: &dyn Weights) -> Formats {
        let mut formats = Formats::BF16;
        for tensor in Tensor::all(weights.config()) {
            if let StoredView::Fp8(_) = weights.stored(tensor) {
                match tensor {
                    Tensor::Layer(..) => formats.layers = WeightFormat::Fp8,
                    _ => formats.head = WeightFormat::Fp8,
                }
            }
        }
        formats
    }

    /// The format of a section.
    pub fn of(self, section: Section) -> WeightFormat {
        match section {
            _ if section.is_vector() => WeightFormat::Bf16,
            Section::Layer(..) => self.layers,
            Section::Embedding | Section::LmHead | Section::FinalNorm => self.head,
        }
    }
}

/// The map as it is written.
#[derive(Serialize, Deserialize)]
struct FormatNames {
    layers: String,
    head: String,
}

impl From<Formats> for FormatNames {
    fn from(formats: Formats) -> FormatNames {
        let Formats { layers, head } = formats;
        FormatNames { layers: layers.name().into(), head: head.name().into() }
    }
}

impl TryFrom<FormatNames> for Formats {
    type Error = String;

    fn try_from(names: FormatNames) -> Result<Formats, String> {
        let format = |name: &str| {
            WeightFormat::from_name(name).ok_or_else(|| format!("unknown weight format {name:?}"))
        };
        Ok(Formats { layers: format(&names.layers)?, head: format(&names.head)? })
    }
}

/// The layout of a format's elements in a tile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// The format's name.
    pub format: String,
    /// Columns of a fragment.
    pub fragment_cols: usize,
    /// Bytes of a fragment.
    pub fragment_bytes: usize,
    /// Order of the elements in a fragment.
    pub fragment_order: String,
    /// Type and place of the scales, if there are any.
    pub scales: Option<String>,
}

impl Geometry {
    /// The geometry of this format; this version has only one.
    pub fn of(format: WeightFormat) -> Geometry {
        let (fragment_order, scales) = match format {
            WeightFormat::Bf16 => ("mma.m16n8k16.a", None),
            WeightFormat::Fp8 => ("2 x mma.m16n8k16.a, columns 2t 2t+8 2t+1 2t+9", Some(SCALES)),
        };
        Geometry {
            format: format.name().into(),
            fragment_cols: fragment_cols(format),
            fragment_bytes: fragment_bytes(format),
            fragment_order: fragment_order.into(),
            scales: scales.map(str::to_owned),
        }
    }
}

const SCALES: &str = "f32 per row, behind the tile's fragments";

/// Columns of a fragment.
pub(crate) fn fragment_cols(format: WeightFormat) -> usize {
    match format {
        WeightFormat::Bf16 => FRAGMENT_COLS,
        WeightFormat::Fp8 => FRAGMENT_COLS_FP8,
    }
}

/// Bytes of a fragment.
pub(crate) fn fragment_bytes(format: WeightFormat) -> usize {
    match format {
        WeightFormat::Bf16 => FRAGMENT_BYTES_BF16,
        WeightFormat::Fp8 => FRAGMENT_BYTES_FP8,
    }
}

/// Bytes of the scales at the end of a tile; 0 if there are none.
pub(crate) fn scale_bytes(format: WeightFormat) -> usize {
    match format {
        WeightFormat::Bf16 => 0,
        WeightFormat::Fp8 => SCALE_BYTES_FP8,
    }
}

/// Bytes of a tile of a matrix with this many columns: fragments, then scales.
pub(crate) fn tile_bytes(format: WeightFormat, cols: usize) -> usize {
    cols.div_ceil(fragment_cols(format)) * fragment_bytes(format) + scale_bytes(format)
}

/// Bytes of one row's values without padding: the cost of reading a single row.
pub(crate) fn row_bytes(format: WeightFormat, cols: usize) -> u64 {
    let element = fragment_bytes(format) / (fragment_cols(format) * TILE_ROWS);
    (cols * element + scale_bytes(format) / TILE_ROWS) as u64
}

/// Columns, rounded up to whole fragments.
pub(crate) fn padded_cols(format: WeightFormat, cols: usize) -> usize {
    padded(cols, fragment_cols(format))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_formats() {
        for formats in Formats::NAMED {
            assert_eq!(Formats::from_name(formats.name()), Some(formats));
            let text = serde_json::to_string(&formats).unwrap();
            assert_eq!(serde_json::from_str::<Formats>(&text).unwrap(), formats);
        }
        assert_eq!(Formats::from_name("nvfp4"), None);
        let error = serde_json::from_str::<Formats>(r#"{"layers": "fp9", "head": "bf16"}"#);
        assert!(error.unwrap_err().to_string().contains("fp9"));
    }

    #[test]
    fn bytes_of_a_tile() {
        assert_eq!(tile_bytes(WeightFormat::Bf16, 1024), 32_768);
        assert_eq!(tile_bytes(WeightFormat::Bf16, 17), 1024);
        assert_eq!(tile_bytes(WeightFormat::Fp8, 1024), 16_384 + 64);
        assert_eq!(tile_bytes(WeightFormat::Fp8, 33), 1024 + 64);
        assert_eq!(row_bytes(WeightFormat::Bf16, 1024), 2048);
        assert_eq!(row_bytes(WeightFormat::Fp8, 1024), 1028);
    }
}
