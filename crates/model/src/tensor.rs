//! The tensors of a dense Qwen3 checkpoint: names, shapes, and views of their values.

use crate::{Bf16View, Config, StoredView};

/// A tensor of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LayerTensor {
    /// Weight of the norm before attention, `[hidden]`.
    InputNorm,
    /// Query projection, `[q_dim, hidden]`.
    QProj,
    /// Key projection, `[kv_dim, hidden]`.
    KProj,
    /// Value projection, `[kv_dim, hidden]`.
    VProj,
    /// Weight of the norm of each query head, `[head_dim]`.
    QNorm,
    /// Weight of the norm of each key head, `[head_dim]`.
    KNorm,
    /// Output projection, `[hidden, q_dim]`.
    OProj,
    /// Weight of the norm before the MLP, `[hidden]`.
    PostNorm,
    /// Gate projection, `[intermediate, hidden]`.
    GateProj,
    /// Up projection, `[intermediate, hidden]`.
    UpProj,
    /// Down projection, `[hidden, intermediate]`.
    DownProj,
}

impl LayerTensor {
    /// Every tensor of a layer, in order of use.
    pub const ALL: [LayerTensor; 11] = [
        LayerTensor::InputNorm,
        LayerTensor::QProj,
        LayerTensor::KProj,
        LayerTensor::VProj,
        LayerTensor::QNorm,
        LayerTensor::KNorm,
        LayerTensor::OProj,
        LayerTensor::PostNorm,
        LayerTensor::GateProj,
        LayerTensor::UpProj,
        LayerTensor::DownProj,
    ];

    fn suffix(self) -> &'static str {
        match self {
            LayerTensor::InputNorm => "input_layernorm",
            LayerTensor::QProj => "self_attn.q_proj",
            LayerTensor::KProj => "self_attn.k_proj",
            LayerTensor::VProj => "self_attn.v_proj",
            LayerTensor::QNorm => "self_attn.q_norm",
            LayerTensor::KNorm => "self_attn.k_norm",
            LayerTensor::OProj => "self_attn.o_proj",
            LayerTensor::PostNorm => "post_attention_layernorm",
            LayerTensor::GateProj => "mlp.gate_proj",
            LayerTensor::UpProj => "mlp.up_proj",
            LayerTensor::DownProj => "mlp.down_proj",
        }
    }
}

/// One tensor of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tensor {
    /// Token embedding, `[vocab, hidden]`.
    Embedding,
    /// A tensor of the layer with this index.
    Layer(usize, LayerTensor),
    /// Weight of the norm before the LM head, `[hidden]`.
    FinalNorm,
    /// LM head, `[vocab, hidden]`; only a model whose head is not tied to the embedding has one.
    LmHead,
}

impl Tensor {
    /// Every tensor that a checkpoint of this configuration holds, in order of use.
    pub fn all(config: &Config) -> Vec<Tensor> {
        let layers = (0..config.layers)
            .flat_map(|layer| LayerTensor::ALL.map(|tensor| Tensor::Layer(layer, tensor)));
        let mut all = vec![Tensor::Embedding];
        all.extend(layers);
        all.push(Tensor::FinalNorm);
        if !config.tied {
            all.push(Tensor::LmHead);
        }
        all
    }

    /// The tensor that holds the values of this one: a tied model's LM head is its embedding.
    pub fn stored(self, config: &Config) -> Tensor {
        match self {
            Tensor::LmHead if config.tied => Tensor::Embedding,
            other => other,
        }
    }

    /// The published name.
    pub fn name(self) -> String {
        match self {
            Tensor::Embedding => "model.embed_tokens.weight".into(),
            Tensor::Layer(layer, tensor) => {
                format!("model.layers.{layer}.{}.weight", tensor.suffix())
            }
            Tensor::FinalNorm => "model.norm.weight".into(),
            Tensor::LmHead => "lm_head.weight".into(),
        }
    }

    /// Rows and columns; a norm's weight has one row.
    pub fn shape(self, config: &Config) -> (usize, usize) {
        let (hidden, inter) = (config.hidden, config.intermediate);
        match self {
            Tensor::Embedding | Tensor::LmHead => (config.vocab, hidden),
            Tensor::FinalNorm => (1, hidden),
            Tensor::Layer(_, tensor) => match tensor {
                LayerTensor::InputNorm | LayerTensor::PostNorm => (1, hidden),
                LayerTensor::QNorm | LayerTensor::KNorm => (1, config.head_dim),
                LayerTensor::QProj => (config.q_dim(), hidden),
                LayerTensor::KProj | LayerTensor::VProj => (config.kv_dim(), hidden),
                LayerTensor::OProj => (hidden, config.q_dim()),
                LayerTensor::GateProj | LayerTensor::UpProj => (inter, hidden),
                LayerTensor::DownProj => (hidden, inter),
            },
        }
    }

    /// Whether the tensor is a norm's weight (published with one dimension, not two).
    pub fn is_norm(self) -> bool {
        matches!(
            self,
            Tensor::FinalNorm
                | Tensor::Layer(
                    _,
                    LayerTensor::InputNorm
                        | LayerTensor::PostNorm
                        | LayerTensor::QNorm
                        | LayerTensor::KNorm
                )
        )
    }
}

/// A holder of every tensor of a model, each checked against the configuration.
pub trait Weights: Sync {
    /// The model's configuration.
    fn config(&self) -> &Config;

    /// Returns a tensor's values; for [`Tensor::LmHead`] of a tied model, the embedding.
    ///
    /// # Panics
    /// For a tensor that is not stored in bf16; [`Weights::stored`] gives any tensor.
    fn view(&self, tensor: Tensor) -> Bf16View<'_> {
        match self.stored(tensor) {
            StoredView::Bf16(view) => view,
            StoredView::Wide(_) | StoredView::Fp8(_) => {
                panic!("{} is not stored in bf16", tensor.name())
            }
        }
    }

    /// A tensor's values in the format in which they are stored.
    fn stored(&self, tensor: Tensor) -> StoredView<'_>;
}
