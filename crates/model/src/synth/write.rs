//! Writing a synthetic checkpoint: every thread fills and writes chunks of its own.

use super::{Deltas, Values};
use crate::{Config, ModelError, Tensor};
use rayon::prelude::*;
use serde::Serializer;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{Error, ErrorKind, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// About as many elements as one task makes and writes at once: 4 MiB, large enough for the disk
/// and small enough to stay in cache until it is written.
const CHUNK_ELEMENTS: usize = 1 << 21;

const WEIGHTS: &str = "model.safetensors";

/// Is told the bytes written so far, and ends the writing with an error.
pub type Progress<'a> = &'a (dyn Fn(u64) -> std::io::Result<()> + Sync);

/// Writes the model of this configuration and seed as a checkpoint folder: `config.json`,
/// `generation_config.json` and `model.safetensors`. There is no tokenizer: tokens mean nothing.
///
/// The folder appears whole or not at all (a process that is killed leaves a hidden folder, ending
/// in `.partial`, beside it). `progress` is told the bytes of weights written so
/// far, of [`file_bytes`], by several threads and not always in order.
///
/// # Errors
/// A folder that exists and is not empty, or what the system says of the disk.
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
    /// Writes the rebuilt model as a checkpoint folder, with the tokenizer and what else lies
    /// beside the deltas. The folder appears as that of [`write()`] does, and `progress` is told
    /// the same; once all is written, it is asked while the file is read again to be checked.
    ///
    /// # Errors
    /// Those of [`write()`], a value that is not finite (its tensor is named), or a file that is
    /// not the one that `standin.json` promises.
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

/// Makes a folder of these files and of what `write_weights`, told the folder, puts there.
fn write_folder(
    dir: &Path,
    companions: &[(&str, Vec<u8>)],
    write_weights: impl FnOnce(&Path) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    let occupied = std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some());
    if occupied || dir.is_file() {
        return Err(ModelError::io(dir)(Error::new(ErrorKind::AlreadyExists, "not empty")));
    }
    let partial = Partial::beside(dir)?;
    for (name, content) in companions {
        write_whole(&partial.0.join(name), content)?;
    }
    write_weights(&partial.0)?;
    std::fs::rename(&partial.0, dir).map_err(ModelError::io(dir))?;
    let parent = parent(dir);
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(ModelError::io(parent))
}

/// The sha256 of a file in hexadecimal; `proceed` is asked between its parts.
fn sha256(path: &Path, proceed: impl Fn() -> std::io::Result<()>) -> std::io::Result<String> {
    let (mut file, mut hasher) = (File::open(path)?, Sha256::new());
    let mut buffer = vec![0; 2 * CHUNK_ELEMENTS];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect());
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

fn parent(dir: &Path) -> &Path {
    dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A folder on its way to its final name; removed where it does not get there.
struct Partial(PathBuf);

impl Partial {
    fn beside(dir: &Path) -> Result<Partial, ModelError> {
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        let partial = parent(dir).join(format!(".{name}.{}.partial", std::process::id()));
        std::fs::create_dir_all(&partial).map_err(ModelError::io(&partial))?;
        Ok(Partial(partial))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Gone already where it was renamed; and there is nobody to tell.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn write_whole(path: &Path, text: &[u8]) -> Result<(), ModelError> {
    let write = |file: File| file.write_all_at(text, 0).and_then(|()| file.sync_all());
    File::create(path).and_then(write).map_err(ModelError::io(path))
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
    file.sync_all().map_err(ModelError::io(path))
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

/// What a safetensors header says under one name.
#[derive(serde::Serialize)]
#[serde(untagged)]
enum Entry {
    /// Of the file: transformers asks which framework's layout the tensors have.
    File { format: &'static str },
    /// Of a tensor.
    Tensor { dtype: &'static str, shape: Vec<usize>, data_offsets: [u64; 2] },
}

/// Length and text of a safetensors header for every tensor, in order, padded to 8 bytes.
fn header(config: &Config) -> Vec<u8> {
    let mut begin = 0;
    let tensors = Tensor::all(config).into_iter().map(|tensor| {
        let (rows, cols) = tensor.shape(config);
        let shape = if tensor.is_norm() { vec![cols] } else { vec![rows, cols] };
        let data_offsets = [begin, begin + bytes(config, tensor)];
        begin = data_offsets[1];
        (tensor.name(), Entry::Tensor { dtype: "BF16", shape, data_offsets })
    });
    let entries = [("__metadata__".to_owned(), Entry::File { format: "pt" })].into_iter();
    let entries = entries.chain(tensors);
    let mut text = Vec::new();
    serde_json::Serializer::new(&mut text)
        .collect_map(entries)
        .expect("writing names and numbers to memory cannot fail");
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut header = (text.len() as u64).to_le_bytes().to_vec();
    header.extend(text);
    header
}
