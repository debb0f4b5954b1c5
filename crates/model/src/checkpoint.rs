//! A checkpoint on disk: `config.json` and one or several safetensors files, memory-mapped, with
//! every tensor's name, type and shape checked before anything is computed.

use crate::{
    Bf16View, Config, Fp8View, ModelError, StoredView, Tensor, Weights, WideType, WideView,
};
use places::Stored;
use shard::Shard;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

mod layouts;
mod places;
mod quantized;
mod shard;

pub use quantized::parse_config;
pub use shard::parse_index;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// An open checkpoint folder.
#[derive(Debug)]
pub struct Checkpoint {
    dir: PathBuf,
    config: Config,
    shards: Vec<Shard>,
    places: HashMap<Tensor, Stored>,
    remarks: Vec<String>,
}

impl Checkpoint {
    /// Opens `dir`, which holds `config.json` and `model.safetensors`, or an index and its shards.
    ///
    /// A tied model's LM head is its embedding. If the files hold an LM head with other values,
    /// that one is used, as in transformers 5, and [`Checkpoint::config`] says so. Tensors in F32
    /// and F16 are read as bf16. [`Checkpoint::remarks`] reports both.
    ///
    /// # Errors
    /// A missing or damaged file, an unsupported model, or a tensor that is missing, unexpected,
    /// of the wrong shape or type, or with a value that bf16 cannot hold (named).
    pub fn open(dir: &Path) -> Result<Checkpoint, ModelError> {
        Checkpoint::open_with(dir, &Config::read(&dir.join("config.json"))?, false)
    }

    fn open_with(dir: &Path, config: &Config, quantized: bool) -> Result<Checkpoint, ModelError> {
        let (shards, listed_in) = shard::open_all(dir)?;
        let head = Tensor::LmHead.name();
        let own_head = config.tied && shards.iter().any(|shard| shard.has(&head));
        let placed_as = Config { tied: config.tied && !own_head, ..config.clone() };
        let places = places::of_tensors(&placed_as, &shards, &listed_in, quantized);
        let places = places.map_err(|error| layouts::explained(error, &shards))?;
        let remarks = Vec::new();
        let mut checkpoint =
            Checkpoint { dir: dir.to_owned(), config: placed_as, shards, places, remarks };
        checkpoint.check_wide()?;
        if own_head {
            checkpoint.choose_head();
        }
        if dir.join(SINGLE).exists() && dir.join(INDEX).exists() {
            checkpoint.remarks.push(format!("{SINGLE} is read, {INDEX} beside it is not"));
        }
        Ok(checkpoint)
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The safetensors files, in order.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.shards.iter().map(|shard| shard.path.as_path())
    }

    /// Remarks for the user on how this checkpoint is read, one sentence each; usually none.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Keeps the LM head of a nominally tied model if its values differ from the embedding's, and
    /// drops it if it is a copy.
    fn choose_head(&mut self) {
        if self.stored(Tensor::LmHead).is_same(&self.stored(Tensor::Embedding)) {
            self.places.remove(&Tensor::LmHead);
            self.config.tied = true;
            return;
        }
        self.remarks.push(
            "tie_word_embeddings is true, but the checkpoint holds an lm_head.weight that differs \
             from the embedding: that LM head is used, as transformers 5 does (transformers 4 and \
             vLLM use the embedding)"
                .into(),
        );
    }

    /// Checks that bf16 can hold the values of tensors in F32 and F16, and adds the remark that
    /// they are rounded.
    fn check_wide(&mut self) -> Result<(), ModelError> {
        let mut counts: BTreeMap<WideType, usize> = BTreeMap::new();
        for (tensor, stored) in places::in_order(&self.config, &self.places) {
            let Some(wide_type) = stored.wide else { continue };
            let StoredView::Wide(view) = self.stored(tensor) else { continue };
            *counts.entry(wide_type).or_default() += 1;
            if let Some((row, col)) = view.first_not_finite() {
                let what = format!(
                    "row {row}, column {col}: {} is not finite in bf16, in which weights are run",
                    wide_type.name()
                );
                return Err(self.shards[stored.values.0].tensor_error(&tensor.name(), what));
            }
        }
        for (wide_type, count) in counts {
            self.remarks.push(format!(
                "{count} of {} tensors are {}: they are rounded to bf16 (to nearest, ties to even)",
                self.places.len(),
                wide_type.name()
            ));
        }
        Ok(())
    }
}

impl Weights for Checkpoint {
    fn config(&self) -> &Config {
        &self.config
    }

    fn stored(&self, tensor: Tensor) -> StoredView<'_> {
        let tensor = tensor.stored(&self.config);
        let (rows, cols) = tensor.shape(&self.config);
        let Stored { values, wide, scales } = &self.places[&tensor];
        let bytes = |(shard, range): &places::Place| &self.shards[*shard].map[range.clone()];
        let shape = [rows, cols];
        match (wide, scales) {
            (Some(wide), _) => StoredView::Wide(WideView::new(shape, bytes(values), *wide)),
            (None, Some((scales, scale_type))) => {
                StoredView::Fp8(Fp8View::new(shape, bytes(values), bytes(scales), *scale_type))
            }
            (None, None) => StoredView::Bf16(Bf16View::new(rows, cols, bytes(values))),
        }
    }
}

#[cfg(test)]
mod tests;
