//! Transformers' tokens and logits: the files that `tools/reference.py` writes.

use crate::HarnessError;
use crate::identity::{ids_sha256, sha256_hex};
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A summary of the logits' absolute errors against f32.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorStats {
    /// Number of errors.
    pub count: u64,
    /// The largest.
    pub max: f64,
    /// 99.9th percentile: the smallest that is not below 99.9% of them.
    pub p999: f64,
    /// Root of the mean square.
    pub rms: f64,
}

impl ErrorStats {
    /// Summarizes absolute errors.
    ///
    /// # Panics
    /// If there are no errors.
    pub fn of(mut errors: Vec<f32>) -> ErrorStats {
        assert!(!errors.is_empty(), "no errors to sum up");
        let count = errors.len();
        let max = errors.iter().copied().max_by(f32::total_cmp).unwrap_or(f32::NAN);
        let squares: f64 = errors.iter().map(|&error| f64::from(error).powi(2)).sum();
        let rank = ((count as f64 * 0.999).ceil() as usize).clamp(1, count);
        let (_, p999, _) = errors.select_nth_unstable_by(rank - 1, f32::total_cmp);
        ErrorStats {
            count: count as u64,
            max: f64::from(max),
            p999: f64::from(*p999),
            rms: (squares / count as f64).sqrt(),
        }
    }

    /// Says which of this summary's root mean square and percentile are worse than `other`'s. The
    /// maximum of millions of values is recorded, but decides nothing.
    pub fn worse_than(&self, other: &ErrorStats) -> Option<String> {
        let pairs = [("rms", self.rms, other.rms), ("99.9th percentile", self.p999, other.p999)];
        // `!(a <= b)`: NaN is worse than any number.
        let is_worse = |&(_, own, others): &(_, f64, f64)| {
            !matches!(
                own.partial_cmp(&others),
                Some(std::cmp::Ordering::Less | std::cmp::Ordering::Equal)
            )
        };
        let (name, own, others) = pairs.into_iter().find(is_worse)?;
        Some(format!("{name} {own} is above {others}"))
    }
}

/// The fields of `reference.json` that are read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Version of the two files' layout.
    pub schema_version: u32,
    /// `transformers`.
    pub engine: String,
    /// `bf16`.
    pub format: String,
    /// Attention implementation.
    pub attention: String,
    /// torch's version.
    pub torch: String,
    /// transformers' version.
    pub transformers: String,
    /// The device that it ran on.
    pub device: String,
    /// Hash of the weights' values ([`crate::identity::tensors_sha256`]).
    pub tensors_sha256: String,
    /// Hash of `prompts`.
    pub prompt_ids_sha256: String,
    /// Hash of `reference.safetensors`.
    pub logits_sha256: String,
    /// Size of the vocabulary.
    pub vocab: usize,
    /// Greedy tokens per prompt.
    pub new: usize,
    /// Length of the long sequence.
    pub context: usize,
    /// Top-2 margin below which a divergence is allowed: `error.p999`.
    pub tolerance: f64,
    /// transformers' own errors, bf16 against f32, over every logit of every compared position.
    pub error: ErrorStats,
    /// Compared positions whose margin is below the tolerance.
    pub near_ties: u64,
    /// The prompts' ids.
    pub prompts: Vec<Vec<u32>>,
    /// The greedy tokens, one list per prompt.
    pub tokens: Vec<Vec<u32>>,
}

impl Summary {
    /// Reads `reference.json` and checks that it is consistent; `path` is for errors.
    pub(crate) fn parse(text: &[u8], path: &Path) -> Result<Summary, HarnessError> {
        let summary: Summary =
            serde_json::from_slice(text).map_err(|error| HarnessError::file(path, error))?;
        check(&summary).map_err(|what| HarnessError::file(path, what))?;
        Ok(summary)
    }

    /// Returns what computed the reference, with versions.
    pub fn engine_name(&self) -> String {
        let Summary { engine, transformers, torch, format, attention, device, .. } = self;
        format!("{engine} {transformers}, torch {torch}, {format}, {attention} attention, {device}")
    }
}

/// Returns whether a top-2 margin is below the tolerance; NaN is not.
pub(crate) fn is_near_tie(margin: f64, tolerance: f64) -> bool {
    margin < tolerance
}

/// Positions at which the reference's f32 token differs from its bf16 token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnDivergences {
    /// Positions compared.
    pub positions: usize,
    /// Positions at which the tokens differ.
    pub all: usize,
    /// Of these, the positions at which the top-2 margin of bf16 is not below the tolerance.
    pub beyond_tolerance: usize,
}

/// The end of a sequence that fills the context.
#[derive(Clone, Debug)]
pub struct Long {
    /// The sequence.
    pub tokens: Vec<u32>,
    /// The compared positions: the sequence's last ones.
    pub positions: Vec<usize>,
    /// Top-2 margin of the bf16 logits there.
    pub margin: Vec<f32>,
    /// transformers' greedy token there.
    pub bf16_argmax: Vec<u32>,
    /// Logits in f32, one row per position.
    pub rows_f32: Vec<f32>,
    /// Logits in bf16.
    pub rows_bf16: Vec<f32>,
}

/// Both files.
#[derive(Clone, Debug)]
pub struct Reference {
    /// `reference.json`.
    pub summary: Summary,
    /// Its hash.
    pub sha256: String,
    /// Top-2 margin of the bf16 logits, one list per prompt.
    pub margin: Vec<Vec<f32>>,
    /// Greedy token of the f32 logits, all prompts one after another.
    pub f32_argmax: Vec<u32>,
    /// Prompt and step of each whole row of logits.
    pub rows_index: Vec<(usize, usize)>,
    /// Whole rows in f32.
    pub rows_f32: Vec<f32>,
    /// The same rows in bf16.
    pub rows_bf16: Vec<f32>,
    /// The long sequence.
    pub long: Long,
}

/// Version of the layout that this build reads.
const SCHEMA_VERSION: u32 = 1;

impl Reference {
    /// Reads both files from a folder and checks them against each other.
    ///
    /// # Errors
    /// A file that is missing, of another version, altered, or of the wrong shape.
    pub fn open(dir: &Path) -> Result<Reference, HarnessError> {
        let path = dir.join("reference.json");
        let text = std::fs::read(&path).map_err(HarnessError::io(&path))?;
        let summary = Summary::parse(&text, &path)?;
        let columns = Columns::read(dir.join("reference.safetensors"), &summary)?;
        let (prompts, vocab) = (summary.prompts.len(), summary.vocab);
        let margin = columns.floats("margin", &[prompts, summary.new])?;
        let index = columns.whole("rows_index")?;
        let rows_index: Vec<(usize, usize)> =
            index.as_chunks::<2>().0.iter().map(|&[p, s]| (p as usize, s as usize)).collect();
        let positions: Vec<usize> =
            columns.whole("long_positions")?.into_iter().map(|at| at as usize).collect();
        let (rows, longs) = (rows_index.len(), positions.len());
        let follow = positions.iter().rev().zip((0..summary.context).rev());
        let at_end = follow.clone().all(|(&at, end)| at == end) && longs > 0;
        if rows == 0 || !at_end || rows_index.iter().any(|&(p, s)| p >= prompts || s >= summary.new)
        {
            return Err(columns.wrong("rows_index or long_positions is out of range"));
        }
        let long = Long {
            tokens: columns.whole("long_tokens")?,
            margin: columns.floats("long_margin", &[longs])?,
            bf16_argmax: columns.whole("long_bf16_argmax")?,
            rows_f32: columns.floats("long_rows_f32", &[longs, vocab])?,
            rows_bf16: columns.floats("long_rows_bf16", &[longs, vocab])?,
            positions,
        };
        let f32_argmax = columns.whole("f32_argmax")?;
        if f32_argmax.len() != margin.len() {
            return Err(columns.wrong("f32_argmax is not as long as margin"));
        }
        if long.tokens.len() != summary.context || long.bf16_argmax.len() != longs {
            return Err(columns.wrong("the long sequence is not as long as the context"));
        }
        Ok(Reference {
            sha256: sha256_hex(&text),
            f32_argmax,
            margin: margin.chunks(summary.new).map(<[f32]>::to_vec).collect(),
            rows_f32: columns.floats("rows_f32", &[rows, vocab])?,
            rows_bf16: columns.floats("rows_bf16", &[rows, vocab])?,
            rows_index,
            long,
            summary,
        })
    }

    /// Counts the positions at which the f32 token differs from the bf16 token.
    pub fn own_divergences(&self) -> OwnDivergences {
        let margins = self.margin.iter().flatten();
        let tokens = self.summary.tokens.iter().flatten().zip(&self.f32_argmax).zip(margins);
        let differing = tokens.filter(|((said, f32), _)| said != f32).map(|(_, margin)| *margin);
        let differing: Vec<f32> = differing.collect();
        let is_beyond = |margin: &&f32| !is_near_tie(f64::from(**margin), self.summary.tolerance);
        OwnDivergences {
            positions: self.f32_argmax.len(),
            all: differing.len(),
            beyond_tolerance: differing.iter().filter(is_beyond).count(),
        }
    }

    /// The place of a whole row of logits.
    pub fn row_of(&self, prompt: usize, step: usize) -> Option<usize> {
        self.rows_index.iter().position(|&place| place == (prompt, step))
    }

    /// A whole row of f32 logits.
    pub fn row_f32(&self, row: usize) -> &[f32] {
        &self.rows_f32[row * self.summary.vocab..(row + 1) * self.summary.vocab]
    }
}

/// Finds the committed reference of these weights: a folder in `data/golden` of a root or of a
/// folder above it. Reads only the summaries, and skips unreadable ones.
pub fn find_reference<'a>(
    roots: impl Iterator<Item = &'a PathBuf>,
    tensors_sha256: &str,
) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct Weights {
        tensors_sha256: String,
    }
    let is_of_these = |folder: &PathBuf| {
        let text = std::fs::read(folder.join("reference.json")).ok();
        let weights = text.and_then(|text| serde_json::from_slice::<Weights>(&text).ok());
        weights.is_some_and(|weights| weights.tensors_sha256 == tensors_sha256)
    };
    let goldens = roots.flat_map(|root| root.ancestors()).map(|above| above.join("data/golden"));
    let folders = goldens.filter_map(|golden| std::fs::read_dir(golden).ok()).flatten().flatten();
    let mut folders: Vec<PathBuf> = folders.map(|entry| entry.path()).collect();
    folders.sort();
    folders.into_iter().find(is_of_these)
}

/// Checks that `reference.json` is consistent.
fn check(summary: &Summary) -> Result<(), String> {
    let Summary { schema_version, new, vocab, prompts, tokens, .. } = summary;
    if *schema_version != SCHEMA_VERSION {
        return Err(format!("schema version {schema_version}: {SCHEMA_VERSION} is read"));
    }
    if tokens.len() != prompts.len() || tokens.iter().any(|row| row.len() != *new) {
        return Err(format!("tokens are not {} lists of {new}", prompts.len()));
    }
    if prompts.is_empty() || *new == 0 || prompts.iter().any(Vec::is_empty) {
        return Err("there are no prompts, or an empty one".into());
    }
    let beyond = |ids: &Vec<Vec<u32>>| ids.iter().flatten().any(|&id| id as usize >= *vocab);
    if beyond(prompts) || beyond(tokens) {
        return Err(format!("an id is outside the vocabulary of {vocab}"));
    }
    if ids_sha256(prompts) != summary.prompt_ids_sha256 {
        return Err("the prompts do not match their hash".into());
    }
    if summary.tolerance.to_bits() != summary.error.p999.to_bits() {
        return Err("the tolerance is not the 99.9th percentile of the errors".into());
    }
    Ok(())
}

/// The tensors of `reference.safetensors`.
struct Columns {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Columns {
    fn read(path: PathBuf, summary: &Summary) -> Result<Columns, HarnessError> {
        let bytes = std::fs::read(&path).map_err(HarnessError::io(&path))?;
        let columns = Columns { path, bytes };
        if sha256_hex(&columns.bytes) != summary.logits_sha256 {
            return Err(columns.wrong("is not the file that reference.json names by its hash"));
        }
        Ok(columns)
    }

    fn wrong(&self, what: impl std::fmt::Display) -> HarnessError {
        HarnessError::file(&self.path, what)
    }

    /// A tensor of bf16 or f32 values.
    fn floats(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, HarnessError> {
        let file = SafeTensors::deserialize(&self.bytes).map_err(|error| self.wrong(error))?;
        let tensor = file.tensor(name).map_err(|error| self.wrong(error))?;
        if tensor.shape() != shape {
            return Err(self.wrong(format!("{name} is {:?}, not {shape:?}", tensor.shape())));
        }
        match tensor.dtype() {
            Dtype::F32 => Ok(words(tensor.data()).map(f32::from_le_bytes).collect()),
            Dtype::BF16 => {
                let halves = tensor.data().as_chunks::<2>().0.iter();
                Ok(halves.map(|&bytes| half::bf16::from_le_bytes(bytes).to_f32()).collect())
            }
            other => Err(self.wrong(format!("{name} is {other:?}"))),
        }
    }

    /// A tensor of whole numbers.
    fn whole(&self, name: &str) -> Result<Vec<u32>, HarnessError> {
        let file = SafeTensors::deserialize(&self.bytes).map_err(|error| self.wrong(error))?;
        let tensor = file.tensor(name).map_err(|error| self.wrong(error))?;
        if tensor.dtype() != Dtype::I32 {
            return Err(self.wrong(format!("{name} is {:?}, not I32", tensor.dtype())));
        }
        Ok(words(tensor.data()).map(u32::from_le_bytes).collect())
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = [u8; 4]> + '_ {
    bytes.as_chunks::<4>().0.iter().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_summed_up() {
        let stats = ErrorStats::of((1..=1000).rev().map(|n| n as f32).collect());
        assert_eq!((stats.count, stats.max, stats.p999), (1000, 1000.0, 999.0));
        assert!((stats.rms - (1001.0f64 * 2001.0 / 6.0).sqrt()).abs() < 1e-9);
    }

    #[test]
    fn worse_is_named_and_nan_is_worse() {
        let good = ErrorStats::of(vec![1.0, 2.0]);
        assert_eq!(good.worse_than(&good), None);
        let bad = ErrorStats::of(vec![1.0, 2.5]);
        assert!(bad.worse_than(&good).unwrap().starts_with("rms"));
        assert!(ErrorStats::of(vec![1.0, f32::NAN]).worse_than(&good).is_some());
    }
}
