//! A dense Qwen3 checkpoint: its configuration, its tensors, and synthetic weights of any shape.

pub mod checkpoint;
pub mod config;
pub mod e4m3;
pub mod memory;
pub mod stored;
pub mod synth;
pub mod tensor;

pub use checkpoint::Checkpoint;
pub use config::Config;
pub use memory::MemoryWeights;
pub use stored::{Fp8View, ScaleType, StoredView};
pub use tensor::{Bf16View, LayerTensor, Tensor, Weights};

use std::path::PathBuf;

/// What can be wrong with a checkpoint. Every message names the file, and the field or tensor.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A file could not be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// `config.json` is not JSON, or a field is missing or of the wrong type.
    #[error("{}: {what}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong, naming the field.
        what: String,
    },
    /// The model is of a kind that this project does not run.
    #[error("{}: not supported: {what}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The field and its value.
        what: String,
    },
    /// A safetensors file or its index is damaged.
    #[error("{}: {what}", path.display())]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A tensor is missing, unexpected, or not of the shape or type that the configuration asks.
    #[error("{}: tensor {name}: {what}", path.display())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// The tensor's name.
        name: String,
        /// What is wrong with it.
        what: String,
    },
}

impl ModelError {
    pub(crate) fn io(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> ModelError + '_ {
        move |source| ModelError::Io { path: path.to_owned(), source }
    }
}
