//! FP8 in a pack: rows are quantized to E4M3 codes with one scale, or taken over with theirs.

mod quantize;
mod search;

use super::{Format, StoredBytes};
use crate::layout::Section;
use crate::matrix::MatrixView;
use crate::quantize::Sums;
use crate::scales::ScaleSearch;
use crate::{PackError, format};
use monolith_abi::WeightFormat;
use monolith_abi::formats::TILE_ROWS;
use monolith_abi::formats::fp8::{FRAGMENT_BYTES, FRAGMENT_COLS, SCALE_BYTES, fragment_index};
use monolith_model::{Config, Fp8View, ScaleType, StoredView, Tensor, Weights, e4m3};
use quantize::quantize_row;

/// E4M3 codes, and an f32 scale a row behind each tile's fragments.
pub(super) struct Fp8;

impl Format for Fp8 {
    fn put_row(
        &self,
        weights: &dyn Weights,
        (tensor, from): (Tensor, usize),
        (row, tile): (usize, &mut [u8]),
        search: ScaleSearch,
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
                    .map_err(|error| fault(error.to_string()))?;
                quantized = codes;
                (&quantized[..], scale, sums)
            }
        };
        scatter(codes, scale, row, tile);
        Ok(sums)
    }

    /// No NaN code, a positive scale for each row, and zeros for the rows that only fill the last
    /// tile.
    fn check(&self, section: Section, config: &Config, bytes: &[u8]) -> Result<(), String> {
        let cols = section.shape(config).1;
        let tile_bytes = format::geometry(WeightFormat::Fp8).tile_bytes(cols);
        for (tile, bytes) in bytes.chunks_exact(tile_bytes).enumerate() {
            let (codes, scales) = bytes.split_at(tile_bytes - SCALE_BYTES);
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
                    Some(_) => is_scale(scale),
                    None => scale.to_bits() == 0,
                };
                if !good {
                    return Err(format!("row {row}: its scale is {scale:e}"));
                }
            }
        }
        Ok(())
    }

    fn read_row(&self, matrix: &MatrixView, row: usize, out: &mut [f32]) {
        let scale = matrix.scale(row);
        for (value, code) in out.iter_mut().zip(row_codes(matrix, row)) {
            *value = e4m3::value(code) * scale;
        }
    }

    fn unpack(&self, matrix: &MatrixView, rows: &mut dyn Iterator<Item = usize>) -> StoredBytes {
        let (mut values, mut scales) = (Vec::new(), Vec::new());
        for row in rows {
            values.extend(row_codes(matrix, row));
            scales.extend(matrix.scale(row).to_le_bytes());
        }
        StoredBytes { values, scales }
    }

    fn view<'a>(&self, shape: [usize; 2], bytes: &'a StoredBytes) -> StoredView<'a> {
        StoredView::Fp8(Fp8View::new(shape, &bytes.values, &bytes.scales, ScaleType::F32))
    }
}

/// Spreads a row's codes over the fragments of its tile, and puts its scale behind them.
fn scatter(codes: &[u8], scale: f32, row: usize, tile: &mut [u8]) {
    let (fragments, scales) = tile.split_at_mut(tile.len() - SCALE_BYTES);
    let fragments = fragments.chunks_exact_mut(FRAGMENT_BYTES);
    for (fragment, codes) in fragments.zip(codes.chunks(FRAGMENT_COLS)) {
        for (col, &code) in codes.iter().enumerate() {
            fragment[fragment_index(row, col)] = code;
        }
    }
    scales[4 * row..4 * row + 4].copy_from_slice(&scale.to_le_bytes());
}

/// The codes of one stored row.
fn row_codes<'a>(matrix: &MatrixView<'a>, row: usize) -> impl Iterator<Item = u8> + use<'a> {
    let (tile, row) = (matrix.tile_of(row), row % TILE_ROWS);
    let code = move |col| {
        tile[col / FRAGMENT_COLS * FRAGMENT_BYTES + fragment_index(row, col % FRAGMENT_COLS)]
    };
    (0..matrix.cols).map(code)
}

/// Returns whether a kernel can multiply by a scale: a subnormal one has fewer bits, and a kernel
/// may flush it to 0.
fn is_scale(scale: f32) -> bool {
    scale.is_normal() && scale > 0.0
}

/// Checks that a kernel can multiply by a checkpoint's own codes and scale.
fn check_taken_over(view: &Fp8View, row: usize) -> Result<(), String> {
    let scale = view.scale(row);
    if !is_scale(scale) {
        return Err(format!("its scale is {scale:e}; expected a positive number"));
    }
    match view.row_codes(row).iter().position(|&code| e4m3::is_nan(code)) {
        Some(col) => Err(format!("column {col} is NaN")),
        None => Ok(()),
    }
}

/// Returns row and column of the first NaN code, in order of rows.
fn place_of_nan(codes: &[u8]) -> (usize, usize) {
    let per_fragment = FRAGMENT_COLS;
    let cols = codes.len() / FRAGMENT_BYTES * per_fragment;
    let places = (0..TILE_ROWS).flat_map(|row| (0..cols).map(move |col| (row, col)));
    let is_nan = |&(row, col): &(usize, usize)| {
        let fragment = col / per_fragment * FRAGMENT_BYTES;
        e4m3::is_nan(codes[fragment + fragment_index(row, col % per_fragment)])
    };
    places.into_iter().find(is_nan).unwrap_or_default()
}
