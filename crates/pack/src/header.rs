//! The header: everything that can be known about a pack without touching its payload.

use crate::format::{self, Formats, Geometry};
use crate::layout::Section;
use crate::{PackError, Quantization, Recipe, ScaleSearch};
use monolith_abi::WeightFormat;
use monolith_abi::formats::TILE_ROWS;
use monolith_abi::pack::{LAYOUT_VERSION, SECTION_ALIGN};
use monolith_files::hex;
use monolith_model::Config;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::Path;

/// Where the weights came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The model's name, as the user gave it.
    pub model: String,
    /// The commit of the hub snapshot, if there is one.
    pub revision: Option<String>,
}

/// One section of the payload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SectionEntry {
    /// Its name.
    pub name: String,
    /// Name of its weight format, as in [`Header::formats`]; `bf16` for a vector.
    pub format: String,
    /// Rows before padding.
    pub rows: usize,
    /// Columns before padding.
    pub cols: usize,
    /// First byte, from the start of the payload.
    pub offset: u64,
    /// Length in bytes, padding included.
    pub bytes: u64,
    /// sha256 of those bytes, in hexadecimal.
    pub sha256: String,
    /// The quantization error; none for bf16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantization: Option<Quantization>,
}

/// The header, as it is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The model's configuration, as a `config.json`.
    pub config: serde_json::Value,
    /// sha256 of that configuration's text.
    pub config_sha256: String,
    /// Where the weights came from.
    pub source: Source,
    /// The format of every matrix.
    pub formats: Formats,
    /// How the scales of the rows quantized here were chosen.
    #[serde(default, skip_serializing_if = "ScaleSearch::is_amax")]
    pub scale_search: ScaleSearch,
    /// The token ids that ended a generation of the model when it was packed; absent in packs from
    /// before this was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_ids: Option<Vec<u32>>,
    /// Rows of a tile.
    pub tile_rows: usize,
    /// The layout of elements and scales in a tile, for each format in the pack.
    pub geometry: Vec<Geometry>,
    /// Bytes of weights that one decode step reads: all sections once, but only one row of an
    /// untied embedding.
    pub bytes_per_token: u64,
    /// Bytes that each cached position adds to a step's reads.
    pub kv_bytes_per_position: u64,
    /// The sections, in order of use and of place.
    pub sections: Vec<SectionEntry>,
}

impl SectionEntry {
    /// Returns whether a quantization error is stated exactly where there is one, with possible
    /// numbers.
    fn quantization_is_possible(&self) -> bool {
        let has_scales =
            WeightFormat::from_name(&self.format).is_some_and(WeightFormat::has_scales);
        match &self.quantization {
            None => !has_scales,
            Some(numbers) => has_scales && numbers.is_possible(self.rows, self.cols),
        }
    }
}

/// The geometries that a pack of these formats uses.
fn geometry(formats: Formats) -> Vec<Geometry> {
    let used = |format: &WeightFormat| formats.map().contains(*format);
    WeightFormat::ALL.iter().copied().filter(used).map(Geometry::of).collect()
}

impl Header {
    /// The header of a model's pack, its sections placed but their sha256 still empty.
    pub(crate) fn of(config: &Config, recipe: &Recipe) -> Header {
        let (text, formats) = (config.to_json(), recipe.formats);
        let mut offset = 0;
        let sections = Section::all(config)
            .into_iter()
            .map(|section| {
                let (rows, cols) = section.shape(config);
                let format = formats.of(section);
                let bytes = section.bytes(config, format);
                let entry = SectionEntry {
                    name: section.name(),
                    format: format.name().into(),
                    rows,
                    cols,
                    offset,
                    bytes,
                    sha256: String::new(),
                    quantization: None,
                };
                offset += bytes.next_multiple_of(SECTION_ALIGN as u64);
                entry
            })
            .collect();
        let mut header = Header {
            config: serde_json::from_str(&text).expect("a config's own JSON parses"),
            config_sha256: hex(&Sha256::digest(&text)),
            source: recipe.source.clone(),
            formats,
            // Without scales there was no search.
            scale_search: if formats.has_scales() {
                recipe.scale_search
            } else {
                ScaleSearch::Amax
            },
            end_ids: recipe.end_ids.clone(),
            tile_rows: TILE_ROWS,
            geometry: geometry(formats),
            bytes_per_token: 0,
            kv_bytes_per_position: config.kv_bytes_per_position(),
            sections,
        };
        header.bytes_per_token = header.weight_bytes_per_token();
        header
    }

    /// Bytes of weights that one step reads.
    fn weight_bytes_per_token(&self) -> u64 {
        let embedding = Section::Embedding.name();
        let read_once = self.sections.iter().filter(|entry| entry.name != embedding);
        let geometry = format::geometry(self.formats.of(Section::Embedding));
        let row = |entry: &SectionEntry| geometry.row_bytes(entry.cols) as u64;
        let embedding_row =
            self.sections.iter().find(|entry| entry.name == embedding).map_or(0, row);
        read_once.map(|entry| entry.bytes).sum::<u64>() + embedding_row
    }

    /// Bytes that one step reads at this position: weights and KV cache.
    pub fn bytes_at(&self, position: usize) -> u64 {
        self.bytes_per_token + self.kv_bytes_per_position * position as u64
    }

    /// Bytes of weights that each kind of section adds to a step, all layers together.
    pub fn bytes_by_kind(&self) -> Vec<(String, u64)> {
        let mut kinds: Vec<(String, u64)> = Vec::new();
        for entry in &self.sections {
            let kind = entry.name.rsplit('.').next().unwrap_or(&entry.name);
            match kinds.iter_mut().find(|(name, _)| name == kind) {
                Some((_, bytes)) => *bytes += entry.bytes,
                None => kinds.push((kind.to_owned(), entry.bytes)),
            }
        }
        kinds
    }

    /// Bytes of all sections, without the gaps between them.
    pub(crate) fn section_bytes(&self) -> u64 {
        self.sections.iter().map(|entry| entry.bytes).sum()
    }

    /// Length of the payload.
    pub fn payload_bytes(&self) -> u64 {
        self.sections.last().map_or(0, |last| last.offset + last.bytes)
    }

    /// Returns the configuration, checked against the rest of the header.
    ///
    /// # Errors
    /// [`PackError::Header`] naming what contradicts the configuration.
    pub(crate) fn check(&self, path: &Path) -> Result<Config, PackError> {
        let wrong = |what: String| PackError::Header { path: path.to_owned(), what };
        let text = self.config.to_string();
        let config = Config::parse(text.as_bytes(), path)
            .map_err(|error| wrong(format!("its model: {error}")))?;
        let recipe = Recipe {
            source: self.source.clone(),
            formats: self.formats,
            scale_search: self.scale_search,
            end_ids: self.end_ids.clone(),
        };
        let mut expected = Header::of(&config, &recipe);
        if self.sections.len() != expected.sections.len() {
            let (found, wanted) = (self.sections.len(), expected.sections.len());
            return Err(wrong(format!("{found} sections, the model has {wanted}")));
        }
        for (found, wanted) in self.sections.iter().zip(&mut expected.sections) {
            wanted.sha256.clone_from(&found.sha256);
            wanted.quantization.clone_from(&found.quantization);
            // Checks the place first, so that rows and columns are those of the model.
            if found != wanted {
                return Err(wrong(format!("section {} is not where the model asks", found.name)));
            }
            if !found.quantization_is_possible() {
                return Err(wrong(format!("section {}: quantization cannot be", found.name)));
            }
        }
        if self.scale_search != expected.scale_search {
            let name = self.scale_search.name();
            return Err(wrong(format!("scale_search {name}, but no matrix has scales")));
        }
        if *self != expected {
            return Err(wrong("geometry or sizes do not follow from the model".into()));
        }
        Ok(config)
    }

    /// Returns whether this build reads packs of this version.
    pub(crate) fn check_version(found: u32, path: &Path) -> Result<(), PackError> {
        if found != LAYOUT_VERSION {
            return Err(PackError::Version {
                path: path.to_owned(),
                found,
                wanted: LAYOUT_VERSION,
            });
        }
        Ok(())
    }
}
