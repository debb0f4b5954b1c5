//! Checkpoint to pack.

use crate::format::{Formats, tile_bytes};
use crate::header::{Header, Source, hex};
use crate::layout::{Section, padded};
use crate::quantize::{RowFault, Sums, quantize_row};
use crate::{PackError, Quantization};
use monolith_abi::WeightFormat;
use monolith_abi::pack::{
    FRAGMENT_BYTES_BF16, FRAGMENT_BYTES_FP8, FRAGMENT_COLS, FRAGMENT_COLS_FP8, LAYOUT_VERSION,
    MAGIC, PREAMBLE_BYTES, SCALE_BYTES_FP8, SECTION_ALIGN, TILE_ROWS, fragment_index,
    fragment_index_fp8,
};
use monolith_model::{Fp8View, StoredView, Tensor, Weights, e4m3};
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

/// Room for a header's sha256 strings before they are known: their length is fixed.
const SHA256_HEX: usize = 64;

/// [`pack_to_file_as`] in the formats in which the weights are stored: bf16, but for FP8
/// checkpoints.
///
/// # Errors
/// See [`pack_to_file_as`].
pub fn pack_to_file(
    weights: &dyn Weights,
    source: Source,
    path: &Path,
    progress: impl FnMut(u64, u64) -> std::io::Result<()>,
) -> Result<Header, PackError> {
    pack_to_file_as(weights, source, Formats::as_stored(weights), path, progress)
}

/// Writes the pack of `weights` to `path`, whole or not at all; `progress` hears the bytes done
/// and the bytes in all after each section, and ends the writing by an error of its own.
///
/// # Errors
/// [`PackError::Io`] where the folder cannot be written to, or with the error of `progress`;
/// [`PackError::Row`] for a row that the format cannot hold, [`PackError::NotBf16`] for a tensor
/// stored in FP8 that is to be bf16.
pub fn pack_to_file_as(
    weights: &dyn Weights,
    source: Source,
    formats: Formats,
    path: &Path,
    progress: impl FnMut(u64, u64) -> std::io::Result<()>,
) -> Result<Header, PackError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    // A pack is no secret: whoever the umask lets may read it.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.prefix(".pack-").tempfile_in(folder).map_err(PackError::io(folder))?;
    let header = pack_to(weights, source, formats, (file.as_file_mut(), path), progress)?;
    file.as_file().sync_all().map_err(PackError::io(path))?;
    file.persist(path)
        .map_err(|error| PackError::Io { path: path.to_owned(), source: error.error })?;
    Ok(header)
}

/// The pack of bf16 `weights`, in memory: for small models.
///
/// # Panics
/// For weights that are stored in FP8: [`pack_to_bytes_as`] takes them.
pub fn pack_to_bytes(weights: &dyn Weights, source: Source) -> Vec<u8> {
    pack_to_bytes_as(weights, source, Formats::BF16).expect("bf16 weights are written as they are")
}

/// The pack of `weights`, in memory: for small models.
///
/// # Errors
/// Those of [`pack_to_file_as`] that are about the weights.
pub fn pack_to_bytes_as(
    weights: &dyn Weights,
    source: Source,
    formats: Formats,
) -> Result<Vec<u8>, PackError> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    pack_to(weights, source, formats, (&mut bytes, Path::new("memory")), |_, _| Ok(()))?;
    Ok(bytes.into_inner())
}

fn pack_to(
    weights: &dyn Weights,
    source: Source,
    formats: Formats,
    (out, path): (&mut (impl Write + Seek), &Path),
    mut progress: impl FnMut(u64, u64) -> std::io::Result<()>,
) -> Result<Header, PackError> {
    let config = weights.config();
    let mut header = Header::of(config, source, formats);
    let room = header_room(&header);
    let payload = padded(PREAMBLE_BYTES + room, SECTION_ALIGN) as u64;
    let total = header.payload_bytes();
    let mut done = 0;
    for (section, entry) in Section::all(config).into_iter().zip(&mut header.sections) {
        let (bytes, quantization) = section_bytes(weights, section, formats.of(section))?;
        out.seek(SeekFrom::Start(payload + entry.offset)).map_err(PackError::io(path))?;
        out.write_all(&bytes).map_err(PackError::io(path))?;
        entry.sha256 = hex(&Sha256::digest(&bytes));
        entry.quantization = quantization;
        done += entry.bytes;
        progress(done, total).map_err(PackError::io(path))?;
    }
    write_front(&header, room, out).map_err(PackError::io(path))?;
    Ok(header)
}

/// Bytes that the header's text is given before its sha256 and quantization are known: the text
/// with the longest that they can be.
fn header_room(header: &Header) -> usize {
    let mut longest = header.clone();
    // serde_json writes at most 9 digits of an f32, and 8 characters around them.
    let error_room = 20;
    let mut reserved = 0;
    for entry in &mut longest.sections {
        entry.sha256 = "0".repeat(SHA256_HEX);
        if entry.format != WeightFormat::Bf16.name() {
            let weights = entry.rows as u64 * entry.cols as u64;
            entry.quantization = Some(Quantization {
                saturated: weights,
                zeros: weights,
                rows_quantized: entry.rows as u64,
                rows_taken_over: entry.rows as u64,
                ..Quantization::default()
            });
            reserved += 2 * error_room;
        }
    }
    header_text(&longest).len() + reserved
}

/// Preamble and header. The text fills its room with spaces, which JSON allows behind it.
fn write_front(header: &Header, room: usize, out: &mut (impl Write + Seek)) -> std::io::Result<()> {
    let mut text = header_text(header);
    assert!(text.len() <= room, "a header's text is never longer than header_room says");
    text.resize(room, b' ');
    let mut preamble = [0u8; PREAMBLE_BYTES];
    preamble[0..8].copy_from_slice(&MAGIC);
    preamble[8..12].copy_from_slice(&LAYOUT_VERSION.to_le_bytes());
    preamble[16..24].copy_from_slice(&(text.len() as u64).to_le_bytes());
    preamble[32..64].copy_from_slice(&Sha256::digest(&text));
    out.seek(SeekFrom::Start(0))?;
    out.write_all(&preamble)?;
    out.write_all(&text)
}

fn header_text(header: &Header) -> Vec<u8> {
    serde_json::to_vec_pretty(header).expect("a header is plain data")
}

/// One section's bytes, made in parallel tile by tile, and what quantizing them lost.
fn section_bytes(
    weights: &dyn Weights,
    section: Section,
    format: WeightFormat,
) -> Result<(Vec<u8>, Option<Quantization>), PackError> {
    let config = weights.config();
    if section.is_vector() {
        let tensors = section.vector_tensors();
        let views = tensors.iter().flat_map(|&tensor| weights.view(tensor).bytes());
        return Ok((views.copied().collect(), None));
    }
    let mut bytes = vec![0u8; section.bytes(config, format) as usize];
    let tiles = bytes.par_chunks_mut(tile_bytes(format, section.shape(config).1)).enumerate();
    let done: Vec<Result<Sums, PackError>> = tiles
        .map(|(tile, out)| {
            let mut sums = Sums::default();
            for row in 0..TILE_ROWS {
                let Some((tensor, from)) = section.source_row(config, tile * TILE_ROWS + row)
                else {
                    continue;
                };
                match format {
                    WeightFormat::Bf16 => put_bf16(weights, (tensor, from), row, out)?,
                    WeightFormat::Fp8 => sums.add(put_fp8(weights, (tensor, from), row, out)?),
                }
            }
            Ok(sums)
        })
        .collect();
    // In order: the first fault is the one that is told, whichever thread came upon one first.
    let mut sums = Sums::default();
    for tile in done {
        sums.add(tile?);
    }
    Ok((bytes, (format != WeightFormat::Bf16).then(|| sums.finish())))
}

/// Puts a tensor's row into a row of a bf16 tile.
fn put_bf16(
    weights: &dyn Weights,
    (tensor, from): (Tensor, usize),
    row: usize,
    tile: &mut [u8],
) -> Result<(), PackError> {
    let StoredView::Bf16(view) = weights.stored(tensor) else {
        return Err(PackError::NotBf16 { tensor: tensor.name() });
    };
    scatter_bf16(view.row_bytes(from), row, tile);
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

/// Puts a tensor's row into a row of an FP8 tile: quantized, or as it is where it has a scale of
/// its own already.
fn put_fp8(
    weights: &dyn Weights,
    (tensor, from): (Tensor, usize),
    row: usize,
    tile: &mut [u8],
) -> Result<Sums, PackError> {
    let fault = |what: String| PackError::Row { tensor: tensor.name(), row: from, what };
    let quantized;
    let (codes, scale, sums) = match weights.stored(tensor) {
        StoredView::Bf16(view) => {
            let mut codes = vec![0; view.cols];
            let (scale, sums) = quantize_row(view.row_bytes(from), &mut codes)
                .map_err(|error: RowFault| fault(error.to_string()))?;
            quantized = codes;
            (&quantized[..], scale, sums)
        }
        StoredView::Fp8(view) => {
            check_taken_over(&view, from).map_err(fault)?;
            (view.row_codes(from), view.scale(from), Sums::TAKEN_OVER)
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

/// What a checkpoint's own codes and scale must be for a kernel to multiply by them.
fn check_taken_over(view: &Fp8View, row: usize) -> Result<(), String> {
    let scale = view.scale(row);
    if !(scale.is_normal() && scale > 0.0) {
        return Err(format!("its scale is {scale:e}: a positive number is wanted"));
    }
    match view.row_codes(row).iter().position(|&code| e4m3::is_nan(code)) {
        Some(col) => Err(format!("column {col} is no number")),
        None => Ok(()),
    }
}
