//! Which matrix has which format.

use super::WeightFormat;

wire_enum! {
    /// A kind of matrix: all matrices of a kind have the same format, in every layer.
    MatrixKind {
        /// Query, key and value projections.
        Qkv = 0, "qkv";
        /// Output projection.
        OProj = 1, "o_proj";
        /// Gate and up projections.
        GateUp = 2, "gate_up";
        /// Down projection.
        Down = 3, "down";
        /// LM head and embedding, tied or not.
        Head = 4, "head";
    }
}

impl MatrixKind {
    /// The kinds that every layer has.
    pub const LAYER: [MatrixKind; 4] =
        [MatrixKind::Qkv, MatrixKind::OProj, MatrixKind::GateUp, MatrixKind::Down];
}

/// The format of each kind of matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FormatMap([WeightFormat; MatrixKind::ALL.len()]);

impl FormatMap {
    /// One format for all matrices of the layers, and one for LM head and embedding.
    pub const fn new(layers: WeightFormat, head: WeightFormat) -> FormatMap {
        let mut formats = [layers; MatrixKind::ALL.len()];
        formats[MatrixKind::Head as usize] = head;
        FormatMap(formats)
    }

    /// The same map, but with another format for this kind.
    #[must_use]
    pub const fn with(mut self, kind: MatrixKind, format: WeightFormat) -> FormatMap {
        self.0[kind as usize] = format;
        self
    }

    /// The format of a kind.
    pub const fn of(self, kind: MatrixKind) -> WeightFormat {
        self.0[kind as usize]
    }

    /// The format of all matrices of the layers, or `None` if they differ.
    pub fn layers(self) -> Option<WeightFormat> {
        let [first, rest @ ..] = MatrixKind::LAYER.map(|kind| self.of(kind));
        rest.iter().all(|&format| format == first).then_some(first)
    }

    /// The format of LM head and embedding.
    pub const fn head(self) -> WeightFormat {
        self.of(MatrixKind::Head)
    }

    /// Whether any kind has this format.
    pub fn contains(self, format: WeightFormat) -> bool {
        self.0.contains(&format)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layers_have_one_format_or_none_that_is_all_theirs() {
        let map = FormatMap::new(WeightFormat::Fp8, WeightFormat::Bf16);
        assert_eq!((map.layers(), map.head()), (Some(WeightFormat::Fp8), WeightFormat::Bf16));
        assert_eq!(map.with(MatrixKind::Head, WeightFormat::Fp8).layers(), map.layers());
        for kind in MatrixKind::LAYER {
            let mixed = map.with(kind, WeightFormat::Bf16);
            assert_eq!((mixed.layers(), mixed.of(kind)), (None, WeightFormat::Bf16));
            assert!(mixed.contains(WeightFormat::Fp8));
        }
    }
}
