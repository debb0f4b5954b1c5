//! Checks of a section's bytes beyond their sha256, since a kernel multiplies any bytes.

use crate::format::fragment_cols;
use crate::layout::Section;
use monolith_abi::WeightFormat;
use monolith_abi::pack::{FRAGMENT_BYTES_FP8, SCALE_BYTES_FP8, TILE_ROWS, fragment_index_fp8};
use monolith_model::{Config, e4m3};

/// Checks an FP8 section: no NaN code, a positive scale for each row, and zeros for the rows that
/// only fill the last tile.
///
/// # Errors
/// Describes the fault, with row and column as stored.
pub(crate) fn check_fp8(section: Section, config: &Config, bytes: &[u8]) -> Result<(), String> {
    let cols = section.shape(config).1;
    let tile_bytes = crate::format::tile_bytes(WeightFormat::Fp8, cols);
    for (tile, bytes) in bytes.chunks_exact(tile_bytes).enumerate() {
        let (codes, scales) = bytes.split_at(tile_bytes - SCALE_BYTES_FP8);
        // Not `any`: without an early exit the loop runs at memory speed.
        let hits = codes.iter().fold(0u8, |hits, &code| hits | u8::from(e4m3::is_nan(code)));
        if hits != 0 {
            let (row, col) = place_of_nan(codes);
            let row = tile * TILE_ROWS + row;
            return Err(format!("row {row}, column {col}: a NaN code"));
        }
        for (row, scale) in scales.as_chunks::<4>().0.iter().enumerate() {
            let (row, scale) = (tile * TILE_ROWS + row, f32::from_le_bytes(*scale));
            let good = match section.source_row(config, row) {
                Some(_) => scale.is_normal() && scale > 0.0,
                None => scale.to_bits() == 0,
            };
            if !good {
                return Err(format!("row {row}: its scale is {scale:e}"));
            }
        }
    }
    Ok(())
}

/// Returns row and column of the first NaN code, in order of rows.
fn place_of_nan(codes: &[u8]) -> (usize, usize) {
    let per_fragment = fragment_cols(WeightFormat::Fp8);
    let cols = codes.len() / FRAGMENT_BYTES_FP8 * per_fragment;
    let places = (0..TILE_ROWS).flat_map(|row| (0..cols).map(move |col| (row, col)));
    let is_nan = |&(row, col): &(usize, usize)| {
        let fragment = col / per_fragment * FRAGMENT_BYTES_FP8;
        e4m3::is_nan(codes[fragment + fragment_index_fp8(row, col % per_fragment)])
    };
    places.into_iter().find(is_nan).unwrap_or_default()
}
