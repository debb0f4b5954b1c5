//! A checkpoint on disk: `config.json` and one or several safetensors files, memory-mapped, with
//! every tensor's name, type and shape checked before anything is computed.

use crate::{Bf16View, Config, Fp8View, ModelError, ScaleType, StoredView, Tensor, Weights};
use memmap2::Mmap;
use safetensors::tensor::{Dtype, Metadata, SafeTensors, TensorInfo};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

mod quantized;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// An open checkpoint folder.
#[derive(Debug)]
pub struct Checkpoint {
    dir: PathBuf,
    config: Config,
    shards: Vec<Shard>,
    places: HashMap<Tensor, Stored>,
}

/// A file, and bytes of it.
type Place = (usize, Range<usize>);

/// Where a tensor's values lie.
#[derive(Debug)]
struct Stored {
    values: Place,
    /// Of an FP8 tensor.
    scales: Option<(Place, ScaleType)>,
}

#[derive(Debug)]
struct Shard {
    path: PathBuf,
    map: Mmap,
    data_offset: usize,
    metadata: Metadata,
}

impl Checkpoint {
    /// Opens `dir`, which holds `config.json` and `model.safetensors`, or an index and its shards.
    ///
    /// # Errors
    /// A missing or damaged file, an unsupported model, or a tensor that is missing, unexpected,
    /// or of the wrong shape or type (named).
    pub fn open(dir: &Path) -> Result<Checkpoint, ModelError> {
        Checkpoint::open_with(dir, Config::read(&dir.join("config.json"))?, false)
    }

    fn open_with(dir: &Path, config: Config, quantized: bool) -> Result<Checkpoint, ModelError> {
        let (shards, listed_in) = open_shards(dir)?;
        let places = place_tensors(&config, &shards, &listed_in, quantized)?;
        Ok(Checkpoint { dir: dir.to_owned(), config, shards, places })
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The safetensors files, in order.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.shards.iter().map(|shard| shard.path.as_path())
    }
}

impl Weights for Checkpoint {
    fn config(&self) -> &Config {
        &self.config
    }

    fn stored(&self, tensor: Tensor) -> StoredView<'_> {
        let tensor = tensor.stored(&self.config);
        let (rows, cols) = tensor.shape(&self.config);
        let bytes = |(shard, range): &Place| &self.shards[*shard].map[range.clone()];
        let Stored { values, scales } = &self.places[&tensor];
        match scales {
            None => StoredView::Bf16(Bf16View::new(rows, cols, bytes(values))),
            Some((scales, scale_type)) => StoredView::Fp8(Fp8View::new(
                [rows, cols],
                bytes(values),
                bytes(scales),
                *scale_type,
            )),
        }
    }
}

/// Opens the files; with them comes, for a sharded checkpoint, which file the index lists for
/// each tensor.
fn open_shards(dir: &Path) -> Result<(Vec<Shard>, BTreeMap<String, String>), ModelError> {
    let index = dir.join(INDEX);
    if dir.join(SINGLE).exists() || !index.exists() {
        return Ok((vec![Shard::open(dir.join(SINGLE))?], BTreeMap::new()));
    }
    let text = std::fs::read(&index).map_err(ModelError::io(&index))?;
    let listed_in = parse_index(&text, &index)?;
    let names: BTreeSet<&String> = listed_in.values().collect();
    let shards =
        names.into_iter().map(|name| Shard::open(dir.join(name))).collect::<Result<_, _>>()?;
    Ok((shards, listed_in))
}

/// Reads the `weight_map` of an index: tensor name to file name.
///
/// # Errors
/// Text that is no index, or a file name that would lead out of the folder.
pub fn parse_index(text: &[u8], path: &Path) -> Result<BTreeMap<String, String>, ModelError> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let damaged = |what: String| ModelError::Safetensors { path: path.to_owned(), what };
    let index: Index = serde_json::from_slice(text)
        .map_err(|error| damaged(format!("not a safetensors index: {error}")))?;
    if index.weight_map.is_empty() {
        return Err(damaged("weight_map lists no tensor".into()));
    }
    for name in index.weight_map.values() {
        // A folder that a stranger made must not make us read files elsewhere.
        let plain = Path::new(name).file_name().is_some_and(|file| file == name.as_str());
        if !plain || name.contains('\\') {
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
        // to while it is open (a file truncated underneath us would end the process by SIGBUS).
        let map = unsafe { Mmap::map(&file) }.map_err(ModelError::io(&path))?;
        let (header_len, metadata) = SafeTensors::read_metadata(&map).map_err(|error| {
            ModelError::Safetensors { path: path.clone(), what: error.to_string() }
        })?;
        let data_offset = 8 + header_len;
        Ok(Shard { path, map, data_offset, metadata })
    }

    fn tensor_error(&self, name: &str, what: String) -> ModelError {
        ModelError::Tensor { path: self.path.clone(), name: name.into(), what }
    }

    /// Checks one tensor's type and shape and gives its bytes' place in the file.
    fn place(
        &self,
        tensor: Tensor,
        config: &Config,
        dtype: Dtype,
    ) -> Result<Range<usize>, ModelError> {
        let name = tensor.name();
        let Some(info) = self.metadata.info(&name) else {
            return Err(self.tensor_error(&name, "missing".into()));
        };
        let (rows, cols) = tensor.shape(config);
        let wanted = if tensor.is_norm() { vec![cols] } else { vec![rows, cols] };
        if info.dtype != dtype {
            let what = format!("dtype {:?} ({dtype:?} is wanted)", info.dtype);
            return Err(self.tensor_error(&name, what));
        }
        if info.shape != wanted {
            let what = format!("shape {:?} (config.json asks for {wanted:?})", info.shape);
            return Err(self.tensor_error(&name, what));
        }
        Ok(self.bytes_of(info))
    }

    fn bytes_of(&self, info: &TensorInfo) -> Range<usize> {
        let (begin, end) = info.data_offsets;
        self.data_offset + begin..self.data_offset + end
    }
}

fn place_tensors(
    config: &Config,
    shards: &[Shard],
    listed_in: &BTreeMap<String, String>,
    quantized: bool,
) -> Result<HashMap<Tensor, Stored>, ModelError> {
    let mut places = HashMap::new();
    let mut known = BTreeSet::new();
    for tensor in Tensor::all(config) {
        let name = tensor.name();
        let shard = shard_of(&name, shards, listed_in)?;
        let at = &shards[shard];
        let stored = if quantized && quantized::is_fp8(at, tensor)? {
            let scale_name = quantized::scale_name(&name);
            let scale_shard = shard_of(&scale_name, shards, listed_in)?;
            let values = (shard, at.place(tensor, config, Dtype::F8_E4M3)?);
            let scales = quantized::place_scales(shards, scale_shard, tensor, config)?;
            known.insert(scale_name);
            Stored { values, scales: Some(scales) }
        } else {
            Stored { values: (shard, at.place(tensor, config, Dtype::BF16)?), scales: None }
        };
        places.insert(tensor, stored);
        known.insert(name);
    }
    let head = Tensor::LmHead.name();
    for shard in shards {
        for name in shard.metadata.offset_keys() {
            let of_tied_head = [&head, &quantized::scale_name(&head)].contains(&&name);
            let ignored = name.ends_with("rotary_emb.inv_freq")
                || (config.tied && of_tied_head)
                || (quantized && quantized::is_for_activations(&name));
            if !ignored && !known.contains(&name) {
                let what = "not part of the model that config.json describes".into();
                return Err(shard.tensor_error(&name, what));
            }
        }
    }
    Ok(places)
}

fn shard_of(
    name: &str,
    shards: &[Shard],
    listed_in: &BTreeMap<String, String>,
) -> Result<usize, ModelError> {
    if listed_in.is_empty() {
        return Ok(0);
    }
    let first = &shards[0];
    let Some(file) = listed_in.get(name) else {
        let what = "missing from the index".into();
        return Err(ModelError::Tensor {
            path: first.path.with_file_name(INDEX),
            name: name.into(),
            what,
        });
    };
    let at = shards.iter().position(|shard| shard.path.ends_with(file));
    Ok(at.expect("every file that the index names was opened"))
}

#[cfg(test)]
mod tests;
