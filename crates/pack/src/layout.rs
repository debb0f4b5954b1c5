//! The sections of a pack, their order, and the place of each tensor's rows in them.

use crate::format;
use monolith_abi::formats::TILE_ROWS;
use monolith_abi::{MatrixKind, WeightFormat};
use monolith_model::{Config, LayerTensor, Tensor};

/// Rows of gate (and of up) in one tile of the `gate_up` matrix: gate row `i` and up row `i` are
/// eight rows apart, so that one lane of the matrix instruction holds both.
const PAIR_ROWS: usize = TILE_ROWS / 2;

/// A section of one layer, in order of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LayerSection {
    /// Vector: input norm, post-attention norm, q norm, k norm, one after the other.
    Norms,
    /// Matrix: q, k and v projections, one after the other.
    Qkv,
    /// Matrix: output projection.
    OProj,
    /// Matrix: gate and up projections, eight rows of each in turn.
    GateUp,
    /// Matrix: down projection.
    Down,
}

impl LayerSection {
    /// Every section of a layer, in order of use.
    pub const ALL: [LayerSection; 5] = [
        LayerSection::Norms,
        LayerSection::Qkv,
        LayerSection::OProj,
        LayerSection::GateUp,
        LayerSection::Down,
    ];

    fn name(self) -> &'static str {
        match self {
            LayerSection::Norms => "norms",
            LayerSection::Qkv => "qkv",
            LayerSection::OProj => "o_proj",
            LayerSection::GateUp => "gate_up",
            LayerSection::Down => "down",
        }
    }
}

/// A section of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// Matrix: the embedding, if it is not the LM head.
    Embedding,
    /// A section of the layer with this index.
    Layer(usize, LayerSection),
    /// Vector: the norm before the LM head.
    FinalNorm,
    /// Matrix: the LM head (and the embedding, if tied).
    LmHead,
}

impl Section {
    /// Every section of a model, in order of use.
    pub fn all(config: &Config) -> Vec<Section> {
        let mut all = Vec::new();
        if !config.tied {
            all.push(Section::Embedding);
        }
        for layer in 0..config.layers {
            all.extend(LayerSection::ALL.map(|section| Section::Layer(layer, section)));
        }
        all.extend([Section::FinalNorm, Section::LmHead]);
        all
    }

    /// The section's index in [`Section::all`]. It is computed, so that a step can call this.
    pub(crate) fn index(self, config: &Config) -> usize {
        let layers_from = usize::from(!config.tied);
        let layers_to = layers_from + config.layers * LayerSection::ALL.len();
        match self {
            Section::Embedding => 0,
            Section::Layer(layer, section) => {
                layers_from + layer * LayerSection::ALL.len() + section as usize
            }
            Section::FinalNorm => layers_to,
            Section::LmHead => layers_to + 1,
        }
    }

    /// The name in the header and in messages.
    pub fn name(self) -> String {
        match self {
            Section::Embedding => "embedding".into(),
            Section::Layer(layer, section) => format!("layers.{layer}.{}", section.name()),
            Section::FinalNorm => "final_norm".into(),
            Section::LmHead => "lm_head".into(),
        }
    }

    /// Returns whether the section is a plain vector (norm weights) instead of tiles.
    pub fn is_vector(self) -> bool {
        self.kind().is_none()
    }

    /// The kind of matrix, which decides its format; `None` for a vector.
    pub fn kind(self) -> Option<MatrixKind> {
        match self {
            Section::Embedding | Section::LmHead => Some(MatrixKind::Head),
            Section::FinalNorm | Section::Layer(_, LayerSection::Norms) => None,
            Section::Layer(_, LayerSection::Qkv) => Some(MatrixKind::Qkv),
            Section::Layer(_, LayerSection::OProj) => Some(MatrixKind::OProj),
            Section::Layer(_, LayerSection::GateUp) => Some(MatrixKind::GateUp),
            Section::Layer(_, LayerSection::Down) => Some(MatrixKind::Down),
        }
    }

    /// Rows and columns as stored, before padding; a vector has one row.
    pub fn shape(self, config: &Config) -> (usize, usize) {
        let hidden = config.hidden;
        match self {
            Section::Embedding | Section::LmHead => (config.vocab, hidden),
            Section::FinalNorm => (1, hidden),
            Section::Layer(_, section) => match section {
                LayerSection::Norms => (1, 2 * hidden + 2 * config.head_dim),
                LayerSection::Qkv => (config.q_dim() + 2 * config.kv_dim(), hidden),
                LayerSection::OProj => (hidden, config.q_dim()),
                LayerSection::GateUp => {
                    (2 * PAIR_ROWS * config.intermediate.div_ceil(PAIR_ROWS), hidden)
                }
                LayerSection::Down => (hidden, config.intermediate),
            },
        }
    }

    /// Bytes of the section, padding and scales included. A vector is bf16 whatever `format` says.
    pub fn bytes(self, config: &Config, format: WeightFormat) -> u64 {
        let (rows, cols) = self.shape(config);
        if self.is_vector() {
            return 2 * cols as u64;
        }
        rows.div_ceil(TILE_ROWS) as u64 * format::geometry(format).tile_bytes(cols) as u64
    }

    /// The tensors that a vector section holds, one after the other.
    pub(crate) fn vector_tensors(self) -> Vec<Tensor> {
        match self {
            Section::FinalNorm => vec![Tensor::FinalNorm],
            Section::Layer(layer, LayerSection::Norms) => [
                LayerTensor::InputNorm,
                LayerTensor::PostNorm,
                LayerTensor::QNorm,
                LayerTensor::KNorm,
            ]
            .map(|tensor| Tensor::Layer(layer, tensor))
            .to_vec(),
            _ => Vec::new(),
        }
    }

    /// Returns the tensor's row that is stored in this row of a matrix section; `None` for padding.
    pub(crate) fn source_row(self, config: &Config, row: usize) -> Option<(Tensor, usize)> {
        let (q, kv) = (config.q_dim(), config.kv_dim());
        match self {
            Section::Embedding => (row < config.vocab).then_some((Tensor::Embedding, row)),
            Section::LmHead => (row < config.vocab).then_some((Tensor::LmHead, row)),
            Section::FinalNorm | Section::Layer(_, LayerSection::Norms) => None,
            Section::Layer(layer, section) => {
                let (tensor, row) = match section {
                    LayerSection::Qkv if row < q => (LayerTensor::QProj, row),
                    LayerSection::Qkv if row < q + kv => (LayerTensor::KProj, row - q),
                    LayerSection::Qkv => (LayerTensor::VProj, row - q - kv),
                    LayerSection::OProj => (LayerTensor::OProj, row),
                    LayerSection::Down => (LayerTensor::DownProj, row),
                    LayerSection::GateUp | LayerSection::Norms => gate_up_row(row),
                };
                let tensor = Tensor::Layer(layer, tensor);
                (row < tensor.shape(config).0).then_some((tensor, row))
            }
        }
    }

    /// Returns the section that holds a tensor, and the tensor's place in it.
    pub(crate) fn of_tensor(config: &Config, tensor: Tensor) -> (Section, Place) {
        let (hidden, head) = (config.hidden, config.head_dim);
        let (q, kv) = (config.q_dim(), config.kv_dim());
        match tensor {
            Tensor::Embedding if !config.tied => (Section::Embedding, Place::Rows(0)),
            Tensor::Embedding | Tensor::LmHead => (Section::LmHead, Place::Rows(0)),
            Tensor::FinalNorm => (Section::FinalNorm, Place::Vector(0)),
            Tensor::Layer(layer, tensor) => {
                let (section, place) = match tensor {
                    LayerTensor::InputNorm => (LayerSection::Norms, Place::Vector(0)),
                    LayerTensor::PostNorm => (LayerSection::Norms, Place::Vector(hidden)),
                    LayerTensor::QNorm => (LayerSection::Norms, Place::Vector(2 * hidden)),
                    LayerTensor::KNorm => (LayerSection::Norms, Place::Vector(2 * hidden + head)),
                    LayerTensor::QProj => (LayerSection::Qkv, Place::Rows(0)),
                    LayerTensor::KProj => (LayerSection::Qkv, Place::Rows(q)),
                    LayerTensor::VProj => (LayerSection::Qkv, Place::Rows(q + kv)),
                    LayerTensor::OProj => (LayerSection::OProj, Place::Rows(0)),
                    LayerTensor::GateProj => (LayerSection::GateUp, Place::Interleaved(0)),
                    LayerTensor::UpProj => (LayerSection::GateUp, Place::Interleaved(PAIR_ROWS)),
                    LayerTensor::DownProj => (LayerSection::Down, Place::Rows(0)),
                };
                (Section::Layer(layer, section), place)
            }
        }
    }
}

/// The place of a tensor in its section.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// From this element of a vector on.
    Vector(usize),
    /// From this row of a matrix on.
    Rows(usize),
    /// Eight rows of each tile, from this row of the tile on.
    Interleaved(usize),
}

impl Place {
    /// The stored row of the tensor's row `row`.
    pub(crate) fn row(self, row: usize) -> usize {
        match self {
            Place::Vector(_) => 0,
            Place::Rows(first) => first + row,
            Place::Interleaved(first) => row / PAIR_ROWS * TILE_ROWS + first + row % PAIR_ROWS,
        }
    }
}

fn gate_up_row(row: usize) -> (LayerTensor, usize) {
    let (tile, within) = (row / TILE_ROWS, row % TILE_ROWS);
    let tensor = if within < PAIR_ROWS { LayerTensor::GateProj } else { LayerTensor::UpProj };
    (tensor, tile * PAIR_ROWS + within % PAIR_ROWS)
}

/// `size` rounded up to a multiple of `to`.
pub fn padded(size: usize, to: usize) -> usize {
    size.div_ceil(to) * to
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_the_place() {
        for tied in [true, false] {
            let config = Config { tied, ..Config::qwen3_0_6b() };
            for (at, section) in Section::all(&config).into_iter().enumerate() {
                assert_eq!(section.index(&config), at, "{}", section.name());
            }
        }
    }
}
