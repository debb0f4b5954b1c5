//! Reads a pack.

use crate::header::Header;
use crate::layout::{Place, Section, padded};
use crate::matrix::MatrixView;
use crate::{PackError, Source, formats};
use memmap2::Mmap;
use monolith_abi::pack::{MAGIC, PREAMBLE_BYTES, SECTION_ALIGN};
use monolith_files::{FileKind, hex};
use monolith_model::{Config, Tensor, json};
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Callback for the bytes done and the total; its error ends the work.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) -> std::io::Result<()> + Sync);

/// Bytes that are hashed between two calls of the progress: some milliseconds of work.
const HASHED_AT_ONCE: usize = 4 << 20;

/// An open pack: every byte checked against the header's sha256.
#[derive(Debug)]
pub struct Pack {
    bytes: Bytes,
    header: Header,
    config: Config,
    /// Byte range of each section in the file, in order of [`Section::all`].
    places: Vec<Range<usize>>,
}

#[derive(Debug)]
enum Bytes {
    Map(Mmap),
    Memory(Vec<u8>),
}

impl Bytes {
    fn all(&self) -> &[u8] {
        match self {
            Bytes::Map(map) => map,
            Bytes::Memory(bytes) => bytes,
        }
    }
}

impl Pack {
    /// Memory-maps the pack at `path` and checks all of it.
    ///
    /// # Errors
    /// A file that is missing, not a pack, of another layout version, truncated or altered, or
    /// whose header contradicts itself.
    pub fn open(path: &Path) -> Result<Pack, PackError> {
        Pack::open_watched(path, &|_, _| Ok(()))
    }

    /// Like [`Pack::open`]. Several threads call `progress` with the checked bytes and the total,
    /// not always in order. Its error ends the checking.
    ///
    /// # Errors
    /// Those of [`Pack::open`], and [`PackError::Io`] with the error of `progress`.
    pub fn open_watched(path: &Path, progress: Progress) -> Result<Pack, PackError> {
        let file = File::open(path).map_err(PackError::io(path))?;
        // SAFETY: the map is read-only and private to this process; packs are replaced by
        // renaming a whole new file over them, never written in place.
        let map = unsafe { Mmap::map(&file) }.map_err(PackError::io(path))?;
        Pack::check(Bytes::Map(map), path, progress)
    }

    /// Opens a pack in memory; messages call it `name`.
    ///
    /// # Errors
    /// Those of [`Pack::open`].
    pub fn from_bytes(bytes: Vec<u8>, name: &str) -> Result<Pack, PackError> {
        Pack::check(Bytes::Memory(bytes), Path::new(name), &|_, _| Ok(()))
    }

    fn check(bytes: Bytes, path: &Path, progress: Progress) -> Result<Pack, PackError> {
        let all = bytes.all();
        let (header, payload) = read_front(all, path)?;
        let config = header.check(path)?;
        let needed = payload as u64 + header.payload_bytes();
        if (all.len() as u64) < needed {
            let (what, found) = ("the payload".into(), all.len() as u64);
            return Err(PackError::Truncated { path: path.to_owned(), what, needed, found });
        }
        let places: Vec<Range<usize>> = header
            .sections
            .iter()
            .map(|entry| {
                let begin = payload + entry.offset as usize;
                begin..begin + entry.bytes as usize
            })
            .collect();
        let (done, total) = (AtomicU64::new(0), header.section_bytes());
        let proceed = |bytes: usize| {
            let done = done.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
            progress(done, total).map_err(PackError::io(path))
        };
        let sections = Section::all(&config);
        (header.sections.par_iter().zip(&places)).zip(&sections).try_for_each(
            |((entry, place), &section)| {
                let bytes = &all[place.clone()];
                let mut hash = Sha256::new();
                for part in bytes.chunks(HASHED_AT_ONCE) {
                    hash.update(part);
                    proceed(part.len())?;
                }
                if hex(&hash.finalize()) != entry.sha256 {
                    let what = format!("section {} does not match its sha256", entry.name);
                    return Err(PackError::Altered { path: path.to_owned(), what });
                }
                if section.is_vector() {
                    return Ok(());
                }
                let format = formats::of(header.formats.of(section));
                format.check(section, &config, bytes).map_err(|what| {
                    let section = entry.name.clone();
                    PackError::Content { path: path.to_owned(), section, what }
                })
            },
        )?;
        Ok(Pack { bytes, header, config, places })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The model's configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Where the weights came from.
    pub fn source(&self) -> &Source {
        &self.header.source
    }

    /// Returns all sections in one piece, for a GPU, including the gaps between sections.
    pub fn payload(&self) -> &[u8] {
        let (first, last) = (&self.places[0], &self.places[self.places.len() - 1]);
        &self.bytes.all()[first.start..last.end]
    }

    /// A section's first byte, from the start of the payload.
    pub fn offset(&self, section: Section) -> u64 {
        self.header.sections[section.index(&self.config)].offset
    }

    fn section_bytes(&self, section: Section) -> &[u8] {
        &self.bytes.all()[self.places[section.index(&self.config)].clone()]
    }

    /// A matrix section. The embedding of a tied model is its LM head.
    ///
    /// # Panics
    /// For a vector section, and for a layer that the model does not have.
    pub fn matrix(&self, section: Section) -> MatrixView<'_> {
        assert!(!section.is_vector(), "{} is not a matrix", section.name());
        let section = match section {
            Section::Embedding if self.config.tied => Section::LmHead,
            other => other,
        };
        let (rows, cols) = section.shape(&self.config);
        let format = self.header.formats.of(section);
        MatrixView { rows, cols, format, bytes: self.section_bytes(section) }
    }

    /// A norm's weight, which is in a vector section, as f32.
    ///
    /// # Panics
    /// For a tensor that is not a norm's weight.
    pub fn norm(&self, tensor: Tensor) -> Vec<f32> {
        assert!(tensor.is_norm(), "{} is not a norm", tensor.name());
        self.tensor_f32(tensor)
    }

    /// Returns a tensor's values, row-major: as [`MatrixView::row_f32`] gives them.
    pub fn tensor_f32(&self, tensor: Tensor) -> Vec<f32> {
        let (section, place) = Section::of_tensor(&self.config, tensor);
        if let Place::Vector(_) = place {
            let bytes = self.tensor_bytes(tensor);
            let value = |pair: &[u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(*pair)) << 16);
            return bytes.as_chunks::<2>().0.iter().map(value).collect();
        }
        let (matrix, rows) = (self.matrix(section), tensor.shape(&self.config).0);
        (0..rows).flat_map(|row| matrix.row_f32(place.row(row))).collect()
    }

    /// Whether a tensor is bf16 in this pack.
    pub fn is_bf16(&self, tensor: Tensor) -> bool {
        let (section, _) = Section::of_tensor(&self.config, tensor);
        !self.header.formats.of(section).has_scales()
    }

    /// Returns a tensor's values, row-major, as little-endian bytes: bf16 if stored so, else f32.
    pub fn value_bytes(&self, tensor: Tensor) -> Vec<u8> {
        self.value_row_bytes(tensor, 0..tensor.shape(&self.config).0)
    }

    /// Some rows of [`Pack::value_bytes`].
    pub fn value_row_bytes(&self, tensor: Tensor, rows: Range<usize>) -> Vec<u8> {
        let (section, place) = Section::of_tensor(&self.config, tensor);
        if let Place::Vector(_) = place {
            return rows.flat_map(|_| self.tensor_bytes(tensor)).collect();
        }
        let matrix = self.matrix(section);
        let mut rows = rows.map(|row| place.row(row));
        if self.is_bf16(tensor) {
            return formats::of(matrix.format).unpack(&matrix, &mut rows).values;
        }
        rows.flat_map(|row| matrix.row_f32(row)).flat_map(f32::to_le_bytes).collect()
    }

    /// A tensor as it was in the checkpoint: row-major bf16 bytes.
    ///
    /// # Panics
    /// For a tensor that is not bf16 in this pack: [`Pack::tensor_f32`] gives any tensor.
    pub fn tensor_bytes(&self, tensor: Tensor) -> Vec<u8> {
        let (section, place) = Section::of_tensor(&self.config, tensor);
        let (rows, cols) = tensor.shape(&self.config);
        if let Place::Vector(first) = place {
            return self.section_bytes(section)[2 * first..2 * (first + cols)].to_vec();
        }
        assert!(self.is_bf16(tensor), "{} is not bf16 in this pack", tensor.name());
        let matrix = self.matrix(section);
        let mut rows = (0..rows).map(|row| place.row(row));
        formats::of(matrix.format).unpack(&matrix, &mut rows).values
    }
}

/// Reads preamble and header; returns the header and the payload's place.
fn read_front(all: &[u8], path: &Path) -> Result<(Header, usize), PackError> {
    let truncated = |what: &str, needed: u64| PackError::Truncated {
        path: path.to_owned(),
        what: what.into(),
        needed,
        found: all.len() as u64,
    };
    let magic = &all[..all.len().min(MAGIC.len())];
    if magic != &MAGIC[..magic.len()] || magic.is_empty() {
        return Err(PackError::Foreign { path: path.to_owned(), what: foreign(all) });
    }
    if all.len() < PREAMBLE_BYTES {
        return Err(truncated("the preamble", PREAMBLE_BYTES as u64));
    }
    let (preamble, rest) = all.split_at(PREAMBLE_BYTES);
    Header::check_version(u32::from_le_bytes(word(&preamble[8..12])), path)?;
    let length = u64::from_le_bytes(word(&preamble[16..24]));
    if (rest.len() as u64) < length {
        return Err(truncated("the header", length.saturating_add(PREAMBLE_BYTES as u64)));
    }
    let text = &rest[..length as usize];
    let reserved = [&preamble[12..16], &preamble[24..32]].concat();
    if Sha256::digest(text)[..] != preamble[32..64] || reserved.iter().any(|&byte| byte != 0) {
        let what = "the header does not match its sha256".into();
        return Err(PackError::Altered { path: path.to_owned(), what });
    }
    let header = json::parse(text)
        .map_err(|error| PackError::Header { path: path.to_owned(), what: error.to_string() })?;
    Ok((header, padded(PREAMBLE_BYTES + text.len(), SECTION_ALIGN)))
}

/// Returns a fixed-size copy of a slice of that length.
fn word<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("the slice has the word's length")
}

/// Says what kind of file this is, if it is not a pack.
fn foreign(all: &[u8]) -> String {
    match FileKind::of(all) {
        Some(FileKind::Empty) => "the file is empty".into(),
        Some(FileKind::Safetensors) => "it is a safetensors file: pack it first".into(),
        Some(kind) => format!("it is {kind}"),
        None => format!("it begins with the bytes {}", hex(&all[..all.len().min(8)])),
    }
}
