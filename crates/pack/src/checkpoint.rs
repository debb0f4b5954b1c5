//! Pack to checkpoint: what the pack's weights are worth, for programs that read no pack.

use crate::{Pack, PackError};
use monolith_model::Tensor;
use safetensors::{Dtype, View};
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

/// Writes `config.json` and `model.safetensors` into a new folder, whole or not at all: bf16
/// tensors as they were, others as the f32 values that their codes and scales stand for.
///
/// # Errors
/// A folder that exists, or what the system says of the disk.
pub fn write_checkpoint(pack: &Pack, dir: &Path) -> Result<(), PackError> {
    let exists = || std::io::Error::new(std::io::ErrorKind::AlreadyExists, "it exists");
    if dir.exists() {
        return Err(PackError::io(dir)(exists()));
    }
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let partial = tempfile::Builder::new().prefix(".unpack-").tempdir_in(parent);
    let partial = partial.map_err(PackError::io(parent))?;
    let config = partial.path().join("config.json");
    std::fs::write(&config, pack.config().to_json()).map_err(PackError::io(&config))?;
    let weights = partial.path().join("model.safetensors");
    // transformers asks which framework's layout the tensors have.
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let tensors = Tensor::all(pack.config()).into_iter().map(|tensor| {
        let values = Values { pack, tensor, shape: shape(pack, tensor) };
        (tensor.name(), values)
    });
    safetensors::serialize_to_file(tensors, Some(metadata), &weights)
        .map_err(|error| PackError::io(&weights)(std::io::Error::other(error)))?;
    std::fs::rename(partial.path(), dir).map_err(PackError::io(dir))?;
    // It has another name now, and nothing is left to remove.
    let _ = partial.keep();
    Ok(())
}

fn shape(pack: &Pack, tensor: Tensor) -> Vec<usize> {
    let (rows, cols) = tensor.shape(pack.config());
    if tensor.is_norm() { vec![cols] } else { vec![rows, cols] }
}

/// A tensor's values, made when they are asked for: a whole model in f32 need not fit the memory.
struct Values<'a> {
    pack: &'a Pack,
    tensor: Tensor,
    shape: Vec<usize>,
}

impl View for Values<'_> {
    fn dtype(&self) -> Dtype {
        if self.pack.is_bf16(self.tensor) { Dtype::BF16 } else { Dtype::F32 }
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Owned(self.pack.value_bytes(self.tensor))
    }

    fn data_len(&self) -> usize {
        let size = if self.pack.is_bf16(self.tensor) { 2 } else { 4 };
        size * self.shape.iter().product::<usize>()
    }
}
