//! The files of a checkpoint, and the index that maps tensors to files.

use super::{INDEX, SINGLE, layouts};
use crate::{ModelError, json, safetensors_file, small_file};
use memmap2::Mmap;
use monolith_files::FileKind;
use safetensors::tensor::{Metadata, TensorInfo};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A mapped safetensors file.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) path: PathBuf,
    pub(super) map: Mmap,
    data_offset: usize,
    metadata: Metadata,
}

/// Opens the files; for a sharded checkpoint, also returns the file that the index lists for each
/// tensor.
pub(super) fn open_all(dir: &Path) -> Result<(Vec<Shard>, BTreeMap<String, String>), ModelError> {
    let (single, index) = (dir.join(SINGLE), dir.join(INDEX));
    if single.exists() || !index.exists() {
        return match Shard::open(single) {
            Ok(shard) => Ok((vec![shard], BTreeMap::new())),
            Err(error) => Err(layouts::instead_of_weights(dir).unwrap_or(error)),
        };
    }
    let listed_in = parse_index(&small_file::read(&index)?, &index)?;
    let names: BTreeSet<&String> = listed_in.values().collect();
    let shards: Vec<Shard> =
        names.into_iter().map(|name| Shard::open(dir.join(name))).collect::<Result<_, _>>()?;
    check_once(&shards)?;
    Ok((shards, listed_in))
}

/// Refuses a tensor that is in two files: programs differ in which one they read.
fn check_once(shards: &[Shard]) -> Result<(), ModelError> {
    let mut seen: BTreeMap<String, &Shard> = BTreeMap::new();
    for shard in shards {
        for name in shard.names() {
            if let Some(first) = seen.insert(name.clone(), shard) {
                let file = first.path.file_name().unwrap_or_default().display();
                return Err(shard.tensor_error(&name, format!("{file} holds it, too")));
            }
        }
    }
    Ok(())
}

/// Reads the `weight_map` of an index: tensor name to file name.
///
/// # Errors
/// Text that is not an index, a tensor that is listed twice, or a file name that would escape the
/// folder.
pub fn parse_index(text: &[u8], path: &Path) -> Result<BTreeMap<String, String>, ModelError> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let damaged = |what: String| ModelError::Safetensors { path: path.to_owned(), what };
    if let Some(kind) = FileKind::of(text).filter(|kind| *kind != FileKind::Json) {
        return Err(damaged(format!("not a safetensors index, but {kind}")));
    }
    let index: Index =
        json::parse(text).map_err(|error| damaged(format!("not a safetensors index: {error}")))?;
    if index.weight_map.is_empty() {
        return Err(damaged("weight_map lists no tensor".into()));
    }
    for name in index.weight_map.values() {
        // An untrusted folder must not make us read files outside it.
        let plain = Path::new(name).file_name().is_some_and(|file| file == name.as_str());
        if !plain || name.contains('\\') || name.contains(char::is_control) {
            return Err(damaged(format!(
                "weight_map names {name:?}, which is not a plain file name"
            )));
        }
    }
    Ok(index.weight_map)
}

impl Shard {
    fn open(path: PathBuf) -> Result<Shard, ModelError> {
        let file = File::open(&path).map_err(ModelError::io(&path))?;
        // SAFETY: the map is read-only and private to this process; a checkpoint is not written
        // to while it is open (truncating the file would end the process by SIGBUS).
        let map = unsafe { Mmap::map(&file) }.map_err(ModelError::io(&path))?;
        let (data_offset, metadata) = safetensors_file::read_header(&map, &path)?;
        Ok(Shard { path, map, data_offset, metadata })
    }

    /// Whether the file holds a tensor of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.info(name).is_some()
    }

    /// Returns the header's entry for a tensor.
    pub(super) fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.metadata.info(name)
    }

    /// The names of all tensors.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.metadata.offset_keys().into_iter()
    }

    pub(super) fn tensor_error(&self, name: &str, what: String) -> ModelError {
        ModelError::Tensor { path: self.path.clone(), name: name.into(), what }
    }

    /// Returns the bytes of a tensor: the library has checked that they are within the file.
    pub(super) fn bytes_of(&self, info: &TensorInfo) -> Range<usize> {
        let (begin, end) = info.data_offsets;
        self.data_offset + begin..self.data_offset + end
    }
}
