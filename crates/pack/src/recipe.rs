//! The choices that are made when a checkpoint is packed.

use crate::format::Formats;
use crate::header::{Header, Source};
use crate::scales::ScaleSearch;
use monolith_model::Config;

/// The recipe of a pack: everything in it that does not follow from the weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Where the weights come from.
    pub source: Source,
    /// The format of every matrix.
    pub formats: Formats,
    /// How the scales of quantized rows are chosen.
    pub scale_search: ScaleSearch,
    /// The token ids that end a generation, if known.
    pub end_ids: Option<Vec<u32>>,
}

impl Recipe {
    /// Returns a recipe with these formats, the default scales, and no end tokens.
    pub fn new(source: Source, formats: Formats) -> Recipe {
        Recipe { source, formats, scale_search: ScaleSearch::default(), end_ids: None }
    }

    /// Returns the recipe with these scales.
    pub fn scale_search(self, scale_search: ScaleSearch) -> Recipe {
        Recipe { scale_search, ..self }
    }

    /// Bytes of the pack of a model, without its header.
    pub fn payload_bytes(&self, config: &Config) -> u64 {
        Header::of(config, self).payload_bytes()
    }

    /// Returns the recipe with these end tokens.
    pub fn end_ids(self, ids: impl IntoIterator<Item = u32>) -> Recipe {
        Recipe { end_ids: Some(ids.into_iter().collect()), ..self }
    }
}
