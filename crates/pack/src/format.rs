//! The format of each matrix, as a pack's header and the command line name it.

use crate::layout::Section;
use monolith_abi::formats::{FormatMap, Scales, TileGeometry};
use monolith_abi::{MatrixKind, ProductPath, WeightFormat};
use monolith_model::{Tensor, Weights};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The instructions for which this layout version orders a tile's elements.
const PRODUCT_PATH: ProductPath = ProductPath::MmaSync;

/// The layout of a tile in a pack.
pub(crate) fn geometry(format: WeightFormat) -> &'static TileGeometry {
    format.geometry(PRODUCT_PATH)
}

/// The format of every matrix, by its kind. Vectors (norm weights) are always bf16.
///
/// The command line names maps with one format for the layers' matrices and one for LM head and
/// embedding. Other maps are mixed: a pack may hold one, but no kernel runs it yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "FormatNames", try_from = "FormatNames")]
pub struct Formats(FormatMap);

impl Formats {
    /// Everything in bf16.
    pub const BF16: Formats = Formats::new(WeightFormat::Bf16, WeightFormat::Bf16);
    /// Everything in FP8.
    pub const FP8: Formats = Formats::new(WeightFormat::Fp8, WeightFormat::Fp8);
    /// The layers in FP8, LM head and embedding in bf16.
    pub const FP8_HEAD_BF16: Formats = Formats::new(WeightFormat::Fp8, WeightFormat::Bf16);
    /// The formats that have a name on the command line.
    pub const NAMED: [Formats; 3] = [Formats::BF16, Formats::FP8, Formats::FP8_HEAD_BF16];
    /// Their names, in the same order.
    pub const NAMES: [&'static str; 3] = ["bf16", "fp8", "fp8-head-bf16"];

    /// One format for all matrices of the layers, and one for LM head and embedding.
    pub const fn new(layers: WeightFormat, head: WeightFormat) -> Formats {
        Formats(FormatMap::new(layers, head))
    }

    /// The same formats, but another one for this kind of matrix.
    #[must_use]
    pub const fn with(self, kind: MatrixKind, format: WeightFormat) -> Formats {
        Formats(self.0.with(kind, format))
    }

    /// The format of each kind of matrix.
    pub const fn map(self) -> FormatMap {
        self.0
    }

    /// The name on the command line and in tables; of a mixed map, each kind with its format.
    pub fn name(self) -> Cow<'static, str> {
        let Some(layers) = self.0.layers() else {
            let format =
                |kind: &MatrixKind| format!("-{}-{}", kind.name(), self.0.of(*kind).name());
            let formats: String = MatrixKind::ALL.iter().map(format).collect();
            return format!("{MIXED}{formats}").into();
        };
        let (layers, head) = (layers.name(), self.0.head().name());
        if layers == head { layers.into() } else { format!("{layers}-head-{head}").into() }
    }

    /// The formats with this name on the command line.
    pub fn from_name(name: &str) -> Option<Formats> {
        Formats::NAMED.into_iter().find(|formats| formats.name() == name)
    }

    /// Returns FP8 if any tensor is stored in FP8, so that no value has to be converted, and bf16
    /// for every other checkpoint.
    pub fn as_stored(weights: &dyn Weights) -> Formats {
        let (mut layers, mut head) = (WeightFormat::Bf16, WeightFormat::Bf16);
        for tensor in Tensor::all(weights.config()) {
            let format = weights.stored(tensor).format();
            if format.has_scales() {
                match tensor {
                    Tensor::Layer(..) => layers = format,
                    _ => head = format,
                }
            }
        }
        Formats::new(layers, head)
    }

    /// The format of a section.
    pub fn of(self, section: Section) -> WeightFormat {
        section.kind().map_or(WeightFormat::Bf16, |kind| self.0.of(kind))
    }

    /// Returns whether any matrix has scales, so that a scale search applies.
    pub fn has_scales(self) -> bool {
        MatrixKind::ALL.iter().any(|&kind| self.0.of(kind).has_scales())
    }
}

/// Stands for the format of the layers where their matrices have different formats.
const MIXED: &str = "mixed";

/// The map as it is written. The layers' matrices are named one by one only if they differ.
#[derive(Serialize, Deserialize)]
struct FormatNames {
    layers: String,
    head: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    qkv: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    o_proj: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gate_up: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    down: Option<String>,
}

impl From<Formats> for FormatNames {
    fn from(Formats(map): Formats) -> FormatNames {
        let layers = map.layers();
        let own = |kind| layers.is_none().then(|| map.of(kind).name().to_owned());
        FormatNames {
            layers: layers.map_or(MIXED, WeightFormat::name).into(),
            head: map.head().name().into(),
            qkv: own(MatrixKind::Qkv),
            o_proj: own(MatrixKind::OProj),
            gate_up: own(MatrixKind::GateUp),
            down: own(MatrixKind::Down),
        }
    }
}

impl TryFrom<FormatNames> for Formats {
    type Error = String;

    fn try_from(names: FormatNames) -> Result<Formats, String> {
        let format = |name: &str| {
            WeightFormat::from_name(name).ok_or_else(|| format!("unknown weight format {name:?}"))
        };
        let head = format(&names.head)?;
        let is_mixed = names.layers == MIXED;
        // The kinds' own formats replace the first argument.
        let layers = if is_mixed { head } else { format(&names.layers)? };
        let mut map = FormatMap::new(layers, head);
        let own = [&names.qkv, &names.o_proj, &names.gate_up, &names.down];
        for (kind, own) in MatrixKind::LAYER.into_iter().zip(own) {
            match own {
                Some(name) if is_mixed => map = map.with(kind, format(name)?),
                None if !is_mixed => {}
                None => {
                    return Err(format!(
                        "the layers' formats are mixed, but {} has none",
                        kind.name()
                    ));
                }
                Some(name) => {
                    let (kind, layers) = (kind.name(), layers.name());
                    return Err(format!(
                        "{kind} is {name:?}, but all layers' matrices are {layers}"
                    ));
                }
            }
        }
        Ok(Formats(map))
    }
}

/// The layout of a format's elements in a tile, as a header states it.
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
    /// The geometry of this format in the packs of this layout version.
    pub fn of(format: WeightFormat) -> Geometry {
        let geometry = geometry(format);
        Geometry {
            format: format.name().into(),
            fragment_cols: geometry.fragment_cols,
            fragment_bytes: geometry.fragment_bytes,
            fragment_order: geometry.order_name.into(),
            scales: scales(geometry.scales),
        }
    }
}

/// The place of scales in words.
fn scales(scales: Scales) -> Option<String> {
    match scales {
        Scales::None => None,
        Scales::RowBehindTile => Some("f32 per row, behind the tile's fragments".into()),
        Scales::InFragment(bytes) => Some(format!("the last {bytes} bytes of each fragment")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The query, key and value projections stay in bf16.
    const MIXED_FORMATS: Formats = Formats::FP8.with(MatrixKind::Qkv, WeightFormat::Bf16);

    #[test]
    fn names_lead_back_to_their_formats() {
        for formats in Formats::NAMED {
            assert_eq!(Formats::from_name(&formats.name()), Some(formats));
            let text = serde_json::to_string(&formats).unwrap();
            assert_eq!(serde_json::from_str::<Formats>(&text).unwrap(), formats);
        }
        assert_eq!(Formats::NAMED.map(Formats::name), Formats::NAMES);
        assert_eq!(Formats::new(WeightFormat::Bf16, WeightFormat::Fp8).name(), "bf16-head-fp8");
        assert_eq!(Formats::from_name("nvfp4"), None);
        let error = serde_json::from_str::<Formats>(r#"{"layers": "fp9", "head": "bf16"}"#);
        assert!(error.unwrap_err().to_string().contains("fp9"));
    }

    #[test]
    fn a_map_with_two_formats_is_written_as_ever() {
        let text = serde_json::to_string(&Formats::FP8_HEAD_BF16).unwrap();
        assert_eq!(text, r#"{"layers":"fp8","head":"bf16"}"#);
    }

    #[test]
    fn a_mixed_map_names_every_kind() {
        let name = "mixed-qkv-bf16-o_proj-fp8-gate_up-fp8-down-fp8-head-fp8";
        assert_eq!(MIXED_FORMATS.name(), name);
        assert_eq!(Formats::from_name(name), None, "the command line has no mixed maps");
        let text = serde_json::to_string(&MIXED_FORMATS).unwrap();
        assert_eq!(
            text,
            concat!(
                r#"{"layers":"mixed","head":"fp8","#,
                r#""qkv":"bf16","o_proj":"fp8","gate_up":"fp8","down":"fp8"}"#
            )
        );
        assert_eq!(serde_json::from_str::<Formats>(&text).unwrap(), MIXED_FORMATS);
    }

    #[test]
    fn a_map_that_contradicts_itself_is_refused() {
        for (text, part) in [
            (r#"{"layers":"mixed","head":"fp8","qkv":"bf16"}"#, "o_proj has none"),
            (r#"{"layers":"fp8","head":"fp8","down":"bf16"}"#, "down is \"bf16\", but all"),
            (r#"{"layers":"mixed","head":"mixed"}"#, "unknown weight format \"mixed\""),
        ] {
            let error = serde_json::from_str::<Formats>(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
