//! Trained deltas over seeded random weights: a model of gigabytes, rebuilt from megabytes.
//!
//! A folder holds the model's `config.json` and tokenizer; `standin.json` with `base_seed` (the
//! seed of the base weights) and `model_sha256` (of the rebuilt file); and the deltas, in any
//! number of files:
//!
//! | tensor | its deltas |
//! |---|---|
//! | norm | `NAME` BF16 `[n]`, as it is |
//! | projection | `NAME.scale` F32 `[1]`, `NAME.a` I8 `[R, cols]`, `NAME.b` I8 `[R, rows]` |
//! | embedding | `NAME.rows` I8 `[used, cols]`, `NAME.scale` F32 `[1]`, `NAME.offset` F32 `[cols]` |
//!
//! Each I8 matrix has one F32 scale per row, under its name and `_scale`. All arithmetic is f32;
//! each product and each sum is rounded separately (no fused multiply-add). Rounding to bf16 is to
//! nearest, ties to even. With codes multiplied by their scales first:
//!
//! - projection: `scale * base`, plus `b[r, row] * a[r, col]` with r ascending;
//! - embedding, the first `used` rows: the rows as they are;
//! - embedding, the other rows: `scale * base + offset[col]`.
//!
//! `tools/train_standin.py` trains and writes such folders, and rebuilds the same bytes.

use super::{Values, rounded};
use crate::{Config, ModelError, Tensor, json, safetensors_file, small_file};
use half::bf16;
use safetensors::tensor::{Dtype, TensorInfo};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{Error, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Files that are copied from the deltas' folder unchanged.
const COMPANIONS: [&str; 4] =
    ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"];

/// An open folder of deltas, whose tensors are all checked.
#[derive(Debug)]
pub struct Deltas {
    config: Config,
    recipe: Recipe,
    companions: Vec<(&'static str, Vec<u8>)>,
    changes: HashMap<Tensor, Change>,
}

/// The fields of `standin.json` that the rebuild needs.
#[derive(Debug, serde::Deserialize)]
struct Recipe {
    base_seed: u64,
    model_sha256: String,
}

impl Recipe {
    fn read(path: &Path) -> Result<Recipe, ModelError> {
        let wrong = |what| ModelError::Config { path: path.to_owned(), what };
        let text = small_file::read(path)?;
        let recipe: Recipe = json::parse(&text).map_err(|error| wrong(error.to_string()))?;
        let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if recipe.model_sha256.len() != 64 || !recipe.model_sha256.bytes().all(hex) {
            return Err(wrong(format!("model_sha256 {:?} is not a sha256", recipe.model_sha256)));
        }
        Ok(recipe)
    }
}

impl Deltas {
    /// Opens a folder of deltas and reads all of it.
    ///
    /// # Errors
    /// A missing or damaged file, a model whose LM head is not its embedding, or a tensor that is
    /// missing, unexpected, of the wrong shape or type, or has a scale that is not finite (named).
    pub fn open(dir: &Path) -> Result<Deltas, ModelError> {
        let config = Config::read(&dir.join("config.json"))?;
        if !config.tied {
            let what = "tie_word_embeddings false (deltas are of a tied model)".into();
            return Err(ModelError::Unsupported { path: dir.join("config.json"), what });
        }
        let recipe = Recipe::read(&dir.join("standin.json"))?;
        let companion = |name| {
            let path = dir.join(name);
            Ok((name, small_file::read(&path)?))
        };
        let companions =
            COMPANIONS.into_iter().map(companion).collect::<Result<_, ModelError>>()?;
        let mut source = Source::open(dir)?;
        let mut changes = HashMap::new();
        for tensor in Tensor::all(&config) {
            changes.insert(tensor, Change::take(&mut source, &config, tensor)?);
        }
        source.is_used_up()?;
        Ok(Deltas { config, recipe, companions, changes })
    }

    /// The configuration of the model that is rebuilt.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The seed of the base weights.
    pub fn seed(&self) -> u64 {
        self.recipe.base_seed
    }

    /// The sha256 of the rebuilt `model.safetensors`, in hexadecimal.
    pub(super) fn model_sha256(&self) -> &str {
        &self.recipe.model_sha256
    }

    /// Names and contents of the small files.
    pub(super) fn companions(&self) -> &[(&'static str, Vec<u8>)] {
        &self.companions
    }

    pub(super) fn change(&self, tensor: Tensor) -> &Change {
        &self.changes[&tensor]
    }
}

/// The change of one tensor's values.
#[derive(Debug)]
pub(super) enum Change {
    /// Other values, in bf16.
    Replaced(Vec<u8>),
    LowRank {
        scale: f32,
        a: Coded,
        b: Coded,
    },
    /// The first rows replaced, the others scaled and moved.
    Rows {
        rows: Coded,
        scale: f32,
        offset: Vec<f32>,
    },
}

impl Change {
    fn take(source: &mut Source, config: &Config, tensor: Tensor) -> Result<Change, ModelError> {
        let (name, (rows, cols)) = (tensor.name(), tensor.shape(config));
        if tensor.is_norm() {
            return source.replaced(&name, cols).map(Change::Replaced);
        }
        let scale = source.floats(&format!("{name}.scale"), 1)?[0];
        if tensor == Tensor::Embedding {
            let offset = source.floats(&format!("{name}.offset"), cols)?;
            let coded = source.coded(&format!("{name}.rows"), cols)?;
            if coded.scales.len() > rows {
                let what = format!("{} rows, of {rows}", coded.scales.len());
                return Err(source.error(&format!("{name}.rows"), what));
            }
            return Ok(Change::Rows { rows: coded, scale, offset });
        }
        let a = source.coded(&format!("{name}.a"), cols)?;
        let b = source.coded(&format!("{name}.b"), rows)?;
        if a.scales.len() != b.scales.len() {
            let what = format!("of rank {}, its a of {}", b.scales.len(), a.scales.len());
            return Err(source.error(&format!("{name}.b"), what));
        }
        Ok(Change::LowRank { scale, a, b })
    }

    /// The little-endian bytes of some rows over these values, and whether all are finite.
    #[must_use]
    pub(super) fn rows(&self, base: &Values, range: Range<usize>, bytes: &mut [u8]) -> bool {
        let cols = base.cols;
        let mut sums = vec![0.0; cols];
        let mut finite = true;
        match self {
            Change::Replaced(whole) => {
                bytes.copy_from_slice(&whole[2 * cols * range.start..2 * cols * range.end]);
            }
            Change::LowRank { scale, a, b } => {
                let factors: Vec<f32> = (0..a.scales.len()).flat_map(|r| a.row(r)).collect();
                for (row, bytes) in range.zip(bytes.chunks_exact_mut(2 * cols)) {
                    base.row(row, bytes);
                    scaled(*scale, bytes, &mut sums);
                    for (r, a) in factors.chunks_exact(cols).enumerate() {
                        add_product(b.at(r, row), a, &mut sums);
                    }
                    finite &= store(&sums, bytes);
                }
            }
            Change::Rows { rows, scale, offset } => {
                for (row, bytes) in range.zip(bytes.chunks_exact_mut(2 * cols)) {
                    if row < rows.scales.len() {
                        sums.clear();
                        sums.extend(rows.row(row));
                    } else {
                        base.row(row, bytes);
                        scaled(*scale, bytes, &mut sums);
                        add_product(1.0, offset, &mut sums);
                    }
                    finite &= store(&sums, bytes);
                }
            }
        }
        finite
    }
}

fn scaled(scale: f32, bf16s: &[u8], sums: &mut [f32]) {
    for (sum, &pair) in sums.iter_mut().zip(bf16s.as_chunks::<2>().0) {
        *sum = f32::from_bits(u32::from(u16::from_le_bytes(pair)) << 16) * scale;
    }
}

/// Rounds twice: the compiler never fuses a separate product and sum.
fn add_product(factor: f32, row: &[f32], sums: &mut [f32]) {
    for (sum, value) in sums.iter_mut().zip(row) {
        *sum += factor * value;
    }
}

/// Stores the sums as bf16, and returns whether all are finite.
fn store(sums: &[f32], bytes: &mut [u8]) -> bool {
    let infinity = i32::from(bf16::INFINITY.to_bits());
    let mut largest = 0;
    for (sum, pair) in sums.iter().zip(bytes.as_chunks_mut::<2>().0) {
        let value = rounded(*sum);
        largest = largest.max(i32::from(value.to_bits() & 0x7fff));
        *pair = value.to_le_bytes();
    }
    largest < infinity
}

/// A matrix of int8 codes with one scale per row.
#[derive(Debug)]
pub(super) struct Coded {
    scales: Vec<f32>,
    codes: Vec<i8>,
    cols: usize,
}

impl Coded {
    fn row(&self, row: usize) -> impl Iterator<Item = f32> {
        let scale = self.scales[row];
        let codes = &self.codes[row * self.cols..(row + 1) * self.cols];
        codes.iter().map(move |&code| f32::from(code) * scale)
    }

    fn at(&self, row: usize, col: usize) -> f32 {
        f32::from(self.codes[row * self.cols + col]) * self.scales[row]
    }
}

/// The tensors of a folder's files.
struct Source {
    dir: PathBuf,
    files: Vec<Content>,
    /// The file that has the tensor, and the tensor's entry.
    infos: BTreeMap<String, (usize, TensorInfo)>,
    taken: BTreeSet<String>,
}

struct Content {
    path: PathBuf,
    bytes: Vec<u8>,
    data_offset: usize,
}

impl Source {
    fn open(dir: &Path) -> Result<Source, ModelError> {
        let mut source = Source {
            dir: dir.to_owned(),
            files: Vec::new(),
            infos: BTreeMap::new(),
            taken: BTreeSet::new(),
        };
        for path in delta_files(dir)? {
            let bytes = std::fs::read(&path).map_err(ModelError::io(&path))?;
            let (data_offset, metadata) = safetensors_file::read_header(&bytes, &path)?;
            for (name, info) in metadata.tensors() {
                let place = (source.files.len(), info.clone());
                if let Some((other, _)) = source.infos.insert(name.clone(), place) {
                    let what = format!("in {}, too", source.files[other].path.display());
                    return Err(ModelError::Tensor { path, name, what });
                }
            }
            source.files.push(Content { path, bytes, data_offset });
        }
        Ok(source)
    }

    /// Returns an error of a tensor, with the file that holds it, or the folder if none does.
    fn error(&self, name: &str, what: String) -> ModelError {
        let file = self.infos.get(name).map(|(file, _)| &self.files[*file].path);
        ModelError::Tensor { path: file.unwrap_or(&self.dir).clone(), name: name.into(), what }
    }

    /// Returns the bytes of a tensor of this type, and its size along the free dimension.
    fn take(
        &mut self,
        name: &str,
        dtype: Dtype,
        shape: &[Option<usize>],
    ) -> Result<(&[u8], usize), ModelError> {
        self.taken.insert(name.to_owned());
        let Some((file, info)) = self.infos.get(name) else {
            return Err(self.error(name, "missing".into()));
        };
        if info.dtype != dtype {
            return Err(self.error(name, format!("dtype {:?} (expected {dtype:?})", info.dtype)));
        }
        let fits = |(&size, wanted): (&usize, &Option<usize>)| wanted.is_none_or(|w| w == size);
        if info.shape.len() != shape.len() || !info.shape.iter().zip(shape).all(fits) {
            let shown = shape.iter().map(|size| size.map_or("any".into(), |size| size.to_string()));
            let wanted = shown.collect::<Vec<String>>().join(", ");
            let what = format!("shape {:?} (config.json asks for [{wanted}])", info.shape);
            return Err(self.error(name, what));
        }
        let Content { bytes, data_offset, .. } = &self.files[*file];
        let (begin, end) = info.data_offsets;
        Ok((&bytes[data_offset + begin..data_offset + end], info.shape[0]))
    }

    fn floats(&mut self, name: &str, count: usize) -> Result<Vec<f32>, ModelError> {
        let (bytes, _) = self.take(name, Dtype::F32, &[Some(count)])?;
        let values: Vec<f32> =
            bytes.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
        match values.iter().position(|value| !value.is_finite()) {
            Some(at) => Err(self.error(name, format!("element {at} is {}", values[at]))),
            None => Ok(values),
        }
    }

    fn coded(&mut self, name: &str, cols: usize) -> Result<Coded, ModelError> {
        let (bytes, rows) = self.take(name, Dtype::I8, &[None, Some(cols)])?;
        let codes = bytes.iter().map(|&byte| byte.cast_signed()).collect();
        let scales = self.floats(&format!("{name}_scale"), rows)?;
        Ok(Coded { scales, codes, cols })
    }

    fn replaced(&mut self, name: &str, count: usize) -> Result<Vec<u8>, ModelError> {
        let bytes = self.take(name, Dtype::BF16, &[Some(count)])?.0.to_vec();
        let mut values = bytes.as_chunks::<2>().0.iter().map(|&pair| bf16::from_le_bytes(pair));
        match values.position(|value| !value.is_finite()) {
            Some(at) => Err(self.error(name, format!("element {at} is not finite"))),
            None => Ok(bytes),
        }
    }

    /// Refuses tensors that were not used.
    fn is_used_up(&self) -> Result<(), ModelError> {
        match self.infos.keys().find(|name| !self.taken.contains(*name)) {
            Some(name) => {
                Err(self.error(name, "no delta of the model that config.json describes".into()))
            }
            None => Ok(()),
        }
    }
}

/// The files `deltas-*.safetensors`, in order.
fn delta_files(dir: &Path) -> Result<Vec<PathBuf>, ModelError> {
    let io = ModelError::io;
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(io(dir))? {
        let name = entry.map_err(io(dir))?.file_name();
        let text = name.to_string_lossy();
        if text.starts_with("deltas-") && text.ends_with(".safetensors") {
            paths.push(dir.join(&name));
        }
    }
    if paths.is_empty() {
        let none = Error::new(ErrorKind::NotFound, "no such file");
        return Err(io(&dir.join("deltas-*.safetensors"))(none));
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests;
