//! Converts rows of a checkpoint's tensors to tiles of a pack.

use crate::layout::Section;
use crate::quantize::Sums;
use crate::scales::ScaleSearch;
use crate::{PackError, format, formats};
use monolith_abi::WeightFormat;
use monolith_abi::formats::TILE_ROWS;
use monolith_model::Weights;
use rayon::prelude::*;
use std::ops::Range;

/// A matrix section of a pack that is being written.
#[derive(Clone, Copy)]
pub(crate) struct TileSource<'a> {
    pub(crate) weights: &'a dyn Weights,
    pub(crate) section: Section,
    pub(crate) format: WeightFormat,
    pub(crate) search: ScaleSearch,
}

impl TileSource<'_> {
    /// Bytes of one tile.
    pub(crate) fn tile_bytes(&self) -> usize {
        format::geometry(self.format).tile_bytes(self.section.shape(self.weights.config()).1)
    }

    /// Makes the bytes of some tiles in parallel, with the sums of their quantization error.
    ///
    /// # Errors
    /// The first row, in order, that the format cannot hold.
    pub(crate) fn tiles(&self, tiles: Range<usize>) -> Result<(Vec<u8>, Sums), PackError> {
        let mut bytes = vec![0u8; tiles.len() * self.tile_bytes()];
        let chunks = bytes.par_chunks_mut(self.tile_bytes());
        let done: Vec<Result<Sums, PackError>> =
            chunks.zip(tiles).map(|(out, tile)| self.tile(tile, out)).collect();
        // In order, so that the first row's error is reported, not the first thread's.
        let mut sums = Sums::default();
        for tile in done {
            sums.add(tile?);
        }
        Ok((bytes, sums))
    }

    fn tile(&self, tile: usize, out: &mut [u8]) -> Result<Sums, PackError> {
        let config = self.weights.config();
        let mut sums = Sums::default();
        for row in 0..TILE_ROWS {
            let Some(from) = self.section.source_row(config, tile * TILE_ROWS + row) else {
                continue;
            };
            let format = formats::of(self.format);
            sums.add(format.put_row(self.weights, from, (row, &mut *out), self.search)?);
        }
        Ok(sums)
    }
}
