//! Writing a synthetic checkpoint: each thread fills and writes its own chunks.

use super::{Deltas, Values};
use crate::{Config, ModelError, Tensor, safetensors_file};
use monolith_files::{WholeFolder, folder_of, hex, sync_watched, write_whole};
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{Error, ErrorKind, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Approximate number of elements that one task makes and writes at once: 4 MiB, large enough for
/// the disk and small enough to stay in the cache until written.
const CHUNK_ELEMENTS: usize = 1 << 21;

const WEIGHTS: &str = "model.safetensors";

/// Callback for the bytes written so far; its error ends the writing.
pub type Progress<'a> = &'a (dyn Fn(u64) -> std::io::Result<()> + Sync);

/// Writes the model of this configuration and seed as a checkpoint folder: `config.json`,
/// `generation_config.json` and `model.safetensors`. It writes no tokenizer, since the
/// tokens have no meaning.
///
/// The folder appears whole or not at all. A killed process leaves a temporary folder beside it,
/// which the next write there removes. Several threads call `progress` with the bytes of weights
/// written so far, out of [`file_bytes`], not always in order.
///
/// # Errors
/// A folder that exists and is not empty, or an error of the disk.
pub fn write(config: &Config, seed: u64, dir: &Path, progress: Progress) -> Result<(), ModelError> {
    let generation = serde_json::json!({"do_sample": false, "eos_token_id": config.eos_ids});
    let companions = [
        ("config.json", config.to_json().into_bytes()),
        ("generation_config.json", format!("{generation:#}\n").into_bytes()),
    ];
    write_folder(dir, &companions, |partial| {
        write_tensors(config, seed, None, &partial.join(WEIGHTS), progress)
    })
}

impl Deltas {
    /// Writes the rebuilt model as a checkpoint folder, with the tokenizer and the other small
    /// files of the deltas' folder. The folder appears, and `progress` is called, as by
    /// [`write()`]; it is also called while the written file is read again to check its sha256.
    ///
    /// # Errors
    /// Those of [`write()`], a value that is not finite (the message names its tensor), or a file
    /// whose sha256 is not the one in `standin.json`.
    pub fn write(&self, dir: &Path, progress: Progress) -> Result<(), ModelError> {
        write_folder(dir, self.companions(), |partial| {
            let path = partial.join(WEIGHTS);
            write_tensors(self.config(), self.seed(), Some(self), &path, progress)?;
            let again = || progress(file_bytes(self.config()));
            let found = sha256(&path, again).map_err(ModelError::io(&path))?;
            if found == self.model_sha256() {
                return Ok(());
            }
            let what = format!("sha256 {found}, standin.json says {}", self.model_sha256());
            Err(ModelError::Safetensors { path: dir.join(WEIGHTS), what })
        })
    }
}

/// Makes a folder with these files and the weights, which `write_weights` writes into it.
fn write_folder(
    dir: &Path,
    companions: &[(&str, Vec<u8>)],
    write_weights: impl FnOnce(&Path) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    std::fs::create_dir_all(folder_of(dir)).map_err(ModelError::io(dir))?;
    let folder = WholeFolder::create(dir)?;
    for (name, content) in companions {
        write_whole(&folder.temporary_path().join(name), content)?;
    }
    write_weights(folder.temporary_path())?;
    Ok(folder.commit()?)
}

/// Returns the sha256 of a file in hexadecimal. It calls `proceed` between parts, and an error of
/// `proceed` ends it.
fn sha256(path: &Path, proceed: impl Fn() -> std::io::Result<()>) -> std::io::Result<String> {
    let (mut file, mut hasher) = (File::open(path)?, Sha256::new());
    let mut buffer = vec![0; 2 * CHUNK_ELEMENTS];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(hex(&hasher.finalize()));
        }
        hasher.update(&buffer[..count]);
        proceed()?;
    }
}

/// Size of `model.safetensors` without its header.
pub fn file_bytes(config: &Config) -> u64 {
    Tensor::all(config).into_iter().map(|tensor| bytes(config, tensor)).sum()
}

fn bytes(config: &Config, tensor: Tensor) -> u64 {
    let (rows, cols) = tensor.shape(config);
    (rows * cols * 2) as u64
}

fn write_tensors(
    config: &Config,
    seed: u64,
    deltas: Option<&Deltas>,
    path: &Path,
    progress: Progress,
) -> Result<(), ModelError> {
    let header = header(config);
    let file = File::create(path).map_err(ModelError::io(path))?;
    file.write_all_at(&header, 0).map_err(ModelError::io(path))?;

    let written = AtomicU64::new(0);
    let write_chunk = |chunk: &Chunk| {
        let bytes = chunk.bytes(deltas)?;
        file.write_all_at(&bytes, header.len() as u64 + chunk.offset)?;
        progress(bytes.len() as u64 + written.fetch_add(bytes.len() as u64, Ordering::Relaxed))
    };
    let chunks = chunks(config, seed);
    chunks.par_iter().try_for_each(write_chunk).map_err(ModelError::io(path))?;
    sync_watched(&file, || progress(file_bytes(config))).map_err(ModelError::io(path))
}

/// Some rows of one tensor.
struct Chunk {
    tensor: Tensor,
    values: Values,
    rows: Range<usize>,
    /// Place in the file, after the header.
    offset: u64,
}

impl Chunk {
    fn bytes(&self, deltas: Option<&Deltas>) -> std::io::Result<Vec<u8>> {
        let row_bytes = 2 * self.values.cols;
        let mut bytes = vec![0; self.rows.len() * row_bytes];
        match deltas {
            Some(deltas) => {
                let change = deltas.change(self.tensor);
                if !change.rows(&self.values, self.rows.clone(), &mut bytes) {
                    let what = format!("tensor {}: a value is not finite", self.tensor.name());
                    return Err(Error::new(ErrorKind::InvalidData, what));
                }
            }
            None => {
                for (row, bytes) in self.rows.clone().zip(bytes.chunks_exact_mut(row_bytes)) {
                    self.values.row(row, bytes);
                }
            }
        }
        Ok(bytes)
    }
}

fn chunks(config: &Config, seed: u64) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    let mut offset = 0;
    for tensor in Tensor::all(config) {
        let (rows, cols) = tensor.shape(config);
        let values = Values::new(config, seed, tensor);
        for begin in (0..rows).step_by(CHUNK_ELEMENTS.div_ceil(cols)) {
            let rows = begin..rows.min(begin + CHUNK_ELEMENTS.div_ceil(cols));
            chunks.push(Chunk { tensor, values, rows: rows.clone(), offset });
            offset += (2 * rows.len() * cols) as u64;
        }
    }
    chunks
}

/// A safetensors header for every tensor, in order.
fn header(config: &Config) -> Vec<u8> {
    safetensors_file::header(Tensor::all(config).into_iter().map(|tensor| {
        let (rows, cols) = tensor.shape(config);
        let shape = if tensor.is_norm() { vec![cols] } else { vec![rows, cols] };
        safetensors_file::Entry {
            name: tensor.name(),
            dtype: "BF16",
            shape,
            bytes: bytes(config, tensor),
        }
    }))
}
