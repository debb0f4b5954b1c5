//! Converts a pack to a checkpoint with the same values, for programs that do not read packs.

use crate::{Pack, PackError};
use monolith_files::{WholeFolder, sync_watched, write_whole};
use monolith_model::Tensor;
use monolith_model::safetensors_file::{Entry, header};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Most bytes that are made and written between two calls of the progress.
const WRITTEN_AT_ONCE: usize = 4 << 20;

/// Writes `config.json` and `model.safetensors` into a new folder, whole or not at all: bf16
/// tensors as they were, others as the f32 values that their codes and scales stand for.
/// `progress` is called with the bytes done and the total; its error ends the writing.
///
/// # Errors
/// A folder that exists, an error of the disk, or the error of `progress`.
pub fn write_checkpoint(
    pack: &Pack,
    dir: &Path,
    mut progress: impl FnMut(u64, u64) -> std::io::Result<()>,
) -> Result<(), PackError> {
    if dir.exists() {
        let exists = std::io::Error::new(std::io::ErrorKind::AlreadyExists, "it exists");
        return Err(PackError::io(dir)(exists));
    }
    let folder = WholeFolder::create(dir)?;
    let config = pack.config().to_json();
    write_whole(&folder.temporary_path().join("config.json"), config.as_bytes())?;
    let path = folder.temporary_path().join("model.safetensors");
    write_weights(pack, &path, &mut progress).map_err(PackError::io(dir))?;
    Ok(folder.commit()?)
}

fn write_weights(
    pack: &Pack,
    path: &Path,
    progress: &mut impl FnMut(u64, u64) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let (mut done, total) = (0, checkpoint_bytes(pack));
    let mut file = File::create(path)?;
    file.write_all(&header(tensors(pack).map(|tensor| entry(pack, tensor))))?;
    for tensor in tensors(pack) {
        let (rows, cols) = tensor.shape(pack.config());
        // A whole embedding takes longer than Ctrl-C waits for an answer.
        let at_once = (WRITTEN_AT_ONCE / (4 * cols)).max(1);
        for first in (0..rows).step_by(at_once) {
            let part = pack.value_row_bytes(tensor, first..rows.min(first + at_once));
            file.write_all(&part)?;
            done += part.len() as u64;
            progress(done, total)?;
        }
    }
    sync_watched(&file, || progress(total, total))
}

/// Bytes of the weights that [`write_checkpoint`] writes.
pub fn checkpoint_bytes(pack: &Pack) -> u64 {
    tensors(pack).map(|tensor| entry(pack, tensor).bytes).sum()
}

/// Returns all tensors, f32 first, so that each is aligned to its element size.
fn tensors(pack: &Pack) -> impl Iterator<Item = Tensor> {
    let mut all = Tensor::all(pack.config());
    all.sort_by_key(|tensor| pack.is_bf16(*tensor));
    all.into_iter()
}

fn entry(pack: &Pack, tensor: Tensor) -> Entry {
    let (rows, cols) = tensor.shape(pack.config());
    let shape = if tensor.is_norm() { vec![cols] } else { vec![rows, cols] };
    let (dtype, size) = if pack.is_bf16(tensor) { ("BF16", 2) } else { ("F32", 4) };
    Entry { name: tensor.name(), dtype, shape, bytes: (rows * cols * size) as u64 }
}
