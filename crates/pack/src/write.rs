//! Checkpoint to pack.

use crate::PackError;
use crate::header::{Header, Source, hex};
use crate::layout::{Section, padded};
use monolith_abi::pack::{
    FRAGMENT_BYTES_BF16, FRAGMENT_COLS, LAYOUT_VERSION, MAGIC, PREAMBLE_BYTES, SECTION_ALIGN,
    TILE_ROWS, fragment_index,
};
use monolith_model::Weights;
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

/// Room for a header's sha256 strings before they are known: their length is fixed.
const SHA256_HEX: usize = 64;

/// Writes the pack of `weights` to `path`, whole or not at all; `progress` hears the bytes done
/// and the bytes in all after each section, and ends the writing by an error of its own.
///
/// # Errors
/// [`PackError::Io`] where the folder cannot be written to, or with the error of `progress`.
pub fn pack_to_file(
    weights: &dyn Weights,
    source: Source,
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
    let header =
        pack_to(weights, source, file.as_file_mut(), progress).map_err(PackError::io(path))?;
    file.as_file().sync_all().map_err(PackError::io(path))?;
    file.persist(path)
        .map_err(|error| PackError::Io { path: path.to_owned(), source: error.error })?;
    Ok(header)
}

/// The pack of `weights`, in memory: for small models.
///
/// # Panics
/// Never in practice: writing to memory does not fail.
pub fn pack_to_bytes(weights: &dyn Weights, source: Source) -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    pack_to(weights, source, &mut bytes, |_, _| Ok(())).expect("memory can be written to");
    bytes.into_inner()
}

fn pack_to(
    weights: &dyn Weights,
    source: Source,
    out: &mut (impl Write + Seek),
    mut progress: impl FnMut(u64, u64) -> std::io::Result<()>,
) -> std::io::Result<Header> {
    let config = weights.config();
    let mut header = Header::of(config, source);
    for entry in &mut header.sections {
        entry.sha256 = "0".repeat(SHA256_HEX);
    }
    let payload = padded(PREAMBLE_BYTES + header_text(&header).len(), SECTION_ALIGN) as u64;
    let total = header.payload_bytes();
    let mut done = 0;
    for (section, entry) in Section::all(config).into_iter().zip(&mut header.sections) {
        let bytes = section_bytes(weights, section);
        out.seek(SeekFrom::Start(payload + entry.offset))?;
        out.write_all(&bytes)?;
        entry.sha256 = hex(&Sha256::digest(&bytes));
        done += entry.bytes;
        progress(done, total)?;
    }
    out.seek(SeekFrom::Start(0))?;
    write_front(&header, out)?;
    Ok(header)
}

/// Preamble and header.
fn write_front(header: &Header, out: &mut impl Write) -> std::io::Result<()> {
    let text = header_text(header);
    let mut preamble = [0u8; PREAMBLE_BYTES];
    preamble[0..8].copy_from_slice(&MAGIC);
    preamble[8..12].copy_from_slice(&LAYOUT_VERSION.to_le_bytes());
    preamble[16..24].copy_from_slice(&(text.len() as u64).to_le_bytes());
    preamble[32..64].copy_from_slice(&Sha256::digest(&text));
    out.write_all(&preamble)?;
    out.write_all(&text)
}

fn header_text(header: &Header) -> Vec<u8> {
    serde_json::to_vec_pretty(header).expect("a header is plain data")
}

/// One section's bytes, made in parallel tile by tile.
fn section_bytes(weights: &dyn Weights, section: Section) -> Vec<u8> {
    let config = weights.config();
    if section.is_vector() {
        let tensors = section.vector_tensors();
        return tensors.iter().flat_map(|&tensor| weights.view(tensor).bytes()).copied().collect();
    }
    let mut bytes = vec![0u8; section.bytes_bf16(config) as usize];
    let cols = section.shape(config).1;
    let tile_bytes = padded(cols, FRAGMENT_COLS) / FRAGMENT_COLS * FRAGMENT_BYTES_BF16;
    bytes.par_chunks_mut(tile_bytes).enumerate().for_each(|(tile, out)| {
        for row in 0..TILE_ROWS {
            if let Some((tensor, from)) = section.source_row(config, tile * TILE_ROWS + row) {
                scatter_row(weights.view(tensor).row_bytes(from), row, out);
            }
        }
    });
    bytes
}

/// Spreads one row over the fragments of its tile, two columns (4 bytes) at a time.
fn scatter_row(row_bytes: &[u8], row: usize, tile: &mut [u8]) {
    let fragments = tile.chunks_exact_mut(FRAGMENT_BYTES_BF16);
    for (fragment, columns) in fragments.zip(row_bytes.chunks(2 * FRAGMENT_COLS)) {
        for (pair, bytes) in columns.chunks(4).enumerate() {
            let at = 2 * fragment_index(row, 2 * pair);
            fragment[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }
}
