//! Converts rows of a checkpoint's tensors to tiles of a pack.

use crate::PackError;
use crate::format::tile_bytes;
use crate::layout::Section;
use crate::quantize::{RowFault, Sums, quantize_row};
use crate::scales::ScaleSearch;
use monolith_abi::WeightFormat;
use monolith_abi::pack::{
    FRAGMENT_BYTES_BF16, FRAGMENT_BYTES_FP8, FRAGMENT_COLS, FRAGMENT_COLS_FP8, SCALE_BYTES_FP8,
    TILE_ROWS, fragment_index, fragment_index_fp8,
};
use monolith_model::{Fp8View, StoredView, Tensor, Weights, e4m3};
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
        tile_bytes(self.format, self.section.shape(self.weights.config()).1)
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
            match self.format {
                WeightFormat::Bf16 => put_bf16(self.weights, from, row, out)?,
                WeightFormat::Fp8 => {
                    sums.add(put_fp8(self.weights, from, row, (&mut *out, self.search))?);
                }
            }
        }
        Ok(sums)
    }
}

/// Puts a tensor's row into a row of a bf16 tile.
fn put_bf16(
    weights: &dyn Weights,
    (tensor, from): (Tensor, usize),
    row: usize,
    tile: &mut [u8],
) -> Result<(), PackError> {
    let Some(bytes) = weights.stored(tensor).row_bf16(from) else {
        return Err(PackError::NotBf16 { tensor: tensor.name() });
    };
    scatter_bf16(&bytes, row, tile);
    Ok(())
}

/// Spreads one row over the fragments of its tile, two columns (4 bytes) at a time.
fn scatter_bf16(row_bytes: &[u8], row: usize, tile: &mut [u8]) {
    let fragments = tile.chunks_exact_mut(FRAGMENT_BYTES_BF16);
    for (fragment, columns) in fragments.zip(row_bytes.chunks(2 * FRAGMENT_COLS)) {
        for (pair, bytes) in columns.chunks(4).enumerate() {
            let at = 2 * fragment_index(row, 2 * pair);
            fragment[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }
}

/// Puts a tensor's row into a row of an FP8 tile: quantized, or unchanged if the checkpoint stores
/// it in FP8.
fn put_fp8(
    weights: &dyn Weights,
    (tensor, from): (Tensor, usize),
    row: usize,
    (tile, search): (&mut [u8], ScaleSearch),
) -> Result<Sums, PackError> {
    let fault = |what: String| PackError::Row { tensor: tensor.name(), row: from, what };
    let stored = weights.stored(tensor);
    let quantized;
    let (codes, scale, sums) = match (&stored, stored.row_bf16(from)) {
        (StoredView::Fp8(view), _) => {
            check_taken_over(view, from).map_err(fault)?;
            (view.row_codes(from), view.scale(from), Sums::TAKEN_OVER)
        }
        (_, bytes) => {
            let mut codes = vec![0; stored.cols()];
            let bytes = bytes.unwrap_or_default();
            let (scale, sums) = quantize_row(&bytes, &mut codes, search)
                .map_err(|error: RowFault| fault(error.to_string()))?;
            quantized = codes;
            (&quantized[..], scale, sums)
        }
    };
    let (fragments, scales) = tile.split_at_mut(tile.len() - SCALE_BYTES_FP8);
    for (fragment, codes) in
        fragments.chunks_exact_mut(FRAGMENT_BYTES_FP8).zip(codes.chunks(FRAGMENT_COLS_FP8))
    {
        for (col, &code) in codes.iter().enumerate() {
            fragment[fragment_index_fp8(row, col)] = code;
        }
    }
    scales[4 * row..4 * row + 4].copy_from_slice(&scale.to_le_bytes());
    Ok(sums)
}

/// Checks that a kernel can multiply by a checkpoint's own codes and scale.
fn check_taken_over(view: &Fp8View, row: usize) -> Result<(), String> {
    let scale = view.scale(row);
    if !(scale.is_normal() && scale > 0.0) {
        return Err(format!("its scale is {scale:e}; expected a positive number"));
    }
    match view.row_codes(row).iter().position(|&code| e4m3::is_nan(code)) {
        Some(col) => Err(format!("column {col} is NaN")),
        None => Ok(()),
    }
}
