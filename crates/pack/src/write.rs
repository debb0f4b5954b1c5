//! Writes a pack from a checkpoint.

use crate::PackError;
use crate::format::Formats;
use crate::header::{Header, SectionEntry, Source};
use crate::layout::{Section, padded};
use crate::quantize::{Quantization, Sums};
use crate::recipe::Recipe;
use crate::tiles::TileSource;
use monolith_abi::WeightFormat;
use monolith_abi::formats::TILE_ROWS;
use monolith_abi::pack::{LAYOUT_VERSION, MAGIC, PREAMBLE_BYTES, SECTION_ALIGN};
use monolith_files::{WholeFile, hex, sync_watched};
use monolith_model::Weights;
use sha2::{Digest, Sha256};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

/// Room for a header's sha256 strings before they are known: their length is fixed.
const SHA256_HEX: usize = 64;

/// Approximate bytes that are made, hashed and written at once: enough work for every thread, but
/// little enough that the progress callback runs several times per second.
const CHUNK_BYTES: usize = 2 << 20;

/// Writes the pack of `weights` in their stored formats: bf16, except for FP8 checkpoints.
///
/// # Errors
/// See [`Recipe::write`].
pub fn pack_to_file(
    weights: &dyn Weights,
    source: Source,
    path: &Path,
    progress: impl FnMut(u64, u64) -> std::io::Result<()>,
) -> Result<Header, PackError> {
    Recipe::new(source, Formats::as_stored(weights)).write(weights, path, progress)
}

/// Makes the pack of bf16 `weights` in memory, for small models.
///
/// # Panics
/// For weights that are stored in FP8: use [`pack_to_bytes_as`].
pub fn pack_to_bytes(weights: &dyn Weights, source: Source) -> Vec<u8> {
    pack_to_bytes_as(weights, source, Formats::BF16).expect("bf16 weights are written as they are")
}

/// Makes the pack of `weights` in these formats in memory, for small models.
///
/// # Errors
/// See [`Recipe::to_bytes`].
pub fn pack_to_bytes_as(
    weights: &dyn Weights,
    source: Source,
    formats: Formats,
) -> Result<Vec<u8>, PackError> {
    Recipe::new(source, formats).to_bytes(weights)
}

impl Recipe {
    /// Writes the pack of `weights` to `path`, whole or not at all: until it is complete and on the
    /// disk it is a temporary file beside `path`. An error removes that file; if this process is
    /// killed, the next write to the folder removes it. `progress` is called with the bytes done
    /// and the total, several times per second; its error ends the writing.
    ///
    /// # Errors
    /// [`PackError::Io`] if the folder cannot be written to, or with the error of `progress`;
    /// [`PackError::Row`] for a row that the format cannot hold, [`PackError::NotBf16`] if bf16 is
    /// requested for a tensor stored in FP8.
    pub fn write(
        &self,
        weights: &dyn Weights,
        path: &Path,
        mut progress: impl FnMut(u64, u64) -> std::io::Result<()>,
    ) -> Result<Header, PackError> {
        let mut file = WholeFile::create(path)?;
        let header = pack_to(weights, self, (&mut file, path), &mut progress)?;
        let total = header.section_bytes();
        sync_watched(file.file(), || progress(total, total)).map_err(PackError::io(path))?;
        file.commit()?;
        Ok(header)
    }

    /// Makes the pack of `weights` in memory, for small models.
    ///
    /// # Errors
    /// Those of [`Recipe::write`] that are about the weights.
    pub fn to_bytes(&self, weights: &dyn Weights) -> Result<Vec<u8>, PackError> {
        let mut bytes = std::io::Cursor::new(Vec::new());
        pack_to(weights, self, (&mut bytes, Path::new("memory")), |_, _| Ok(()))?;
        Ok(bytes.into_inner())
    }
}

fn pack_to(
    weights: &dyn Weights,
    recipe: &Recipe,
    (out, path): (&mut (impl Write + Seek), &Path),
    mut progress: impl FnMut(u64, u64) -> std::io::Result<()>,
) -> Result<Header, PackError> {
    let config = weights.config();
    let mut header = Header::of(config, recipe);
    let room = header_room(&header);
    let payload = padded(PREAMBLE_BYTES + room, SECTION_ALIGN) as u64;
    let total = header.section_bytes();
    let mut done = 0;
    for (section, entry) in Section::all(config).into_iter().zip(&mut header.sections) {
        out.seek(SeekFrom::Start(payload + entry.offset)).map_err(PackError::io(path))?;
        let mut hash = Sha256::new();
        let write = |bytes: &[u8]| -> Result<(), PackError> {
            hash.update(bytes);
            out.write_all(bytes).map_err(PackError::io(path))?;
            done += bytes.len() as u64;
            progress(done, total).map_err(PackError::io(path))
        };
        put_section(weights, recipe, (section, entry), write)?;
        entry.sha256 = hex(&hash.finalize());
    }
    write_front(&header, room, out).map_err(PackError::io(path))?;
    Ok(header)
}

/// Passes a section's bytes to `write`, part by part, and records the quantization error in the
/// section's entry.
fn put_section(
    weights: &dyn Weights,
    recipe: &Recipe,
    (section, entry): (Section, &mut SectionEntry),
    mut write: impl FnMut(&[u8]) -> Result<(), PackError>,
) -> Result<(), PackError> {
    if section.is_vector() {
        let mut bytes = Vec::new();
        for tensor in section.vector_tensors() {
            let row = weights.stored(tensor).row_bf16(0);
            let row = row.ok_or_else(|| PackError::NotBf16 { tensor: tensor.name() })?;
            bytes.extend_from_slice(&row);
        }
        return write(&bytes);
    }
    let (format, search) = (recipe.formats.of(section), recipe.scale_search);
    let source = TileSource { weights, section, format, search };
    let tiles = section.shape(weights.config()).0.div_ceil(TILE_ROWS);
    let at_once = CHUNK_BYTES.div_ceil(source.tile_bytes());
    let mut sums = Sums::default();
    for begin in (0..tiles).step_by(at_once) {
        let (bytes, lost) = source.tiles(begin..tiles.min(begin + at_once))?;
        sums.add(lost);
        write(&bytes)?;
    }
    entry.quantization = format.has_scales().then(|| sums.finish());
    Ok(())
}

/// Bytes reserved for the header's text before the sections' sha256 and quantization errors are
/// known: the length of the text with the longest possible values.
fn header_room(header: &Header) -> usize {
    let mut longest = header.clone();
    // serde_json writes at most 9 digits of an f32, and 8 characters around them.
    let error_room = 20;
    let mut reserved = 0;
    for entry in &mut longest.sections {
        entry.sha256 = "0".repeat(SHA256_HEX);
        if WeightFormat::from_name(&entry.format).is_some_and(WeightFormat::has_scales) {
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

/// Writes preamble and header. Spaces, which JSON allows after the text, fill the header's room.
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
