//! A dense Qwen3 checkpoint: its configuration, its tensors, and synthetic weights of any shape.

pub mod checkpoint;
pub mod config;
pub mod e4m3;
pub mod json;
pub mod memory;
pub mod safetensors_file;
mod small_file;
pub mod stored;
pub mod synth;
pub mod tensor;

pub use checkpoint::Checkpoint;
pub use config::Config;
pub use memory::MemoryWeights;
pub use stored::{Bf16View, Fp8View, ScaleType, StoredView, WideType, WideView};
pub use tensor::{LayerTensor, Tensor, Weights};

use std::path::PathBuf;

/// An error of a checkpoint. Every message names the file, and the field or tensor.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A file could not be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// `config.json` is not JSON, or a field is missing or of the wrong type.
    #[error("{}: {what}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The fault, naming the field.
        what: String,
    },
    /// The model is of a kind that this project does not support.
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
    /// A folder without weights in a supported form.
    #[error("{}: {what}", dir.display())]
    NoWeights {
        /// The folder.
        dir: PathBuf,
        /// What it holds instead, and what to do.
        what: String,
    },
    /// A tensor is missing, unexpected, or not of the shape or type that the configuration asks
    /// for.
    #[error("{}: tensor {}: {what}", path.display(), name.escape_debug())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// The tensor's name.
        name: String,
        /// What is wrong with it.
        what: String,
    },
}

impl From<monolith_files::Error> for ModelError {
    fn from(error: monolith_files::Error) -> ModelError {
        ModelError::Io { path: error.path, source: error.source }
    }
}

impl ModelError {
    pub(crate) fn io(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> ModelError + '_ {
        move |source| ModelError::Io { path: path.to_owned(), source }
    }
}
