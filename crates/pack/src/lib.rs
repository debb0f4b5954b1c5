//! The pack: one file with every weight in the order in which the decoder streams it.
//!
//! ```text
//! preamble   64 bytes: magic, layout version, header length, sha256 of the header
//! header     JSON: model, formats, tile geometry, one entry per section with its sha256
//! payload    the sections, each at a multiple of 4,096 bytes
//! ```
//!
//! A matrix section is a sequence of *tiles* of 16 rows and all columns. A tile is a sequence of
//! *fragments* in the order of `mma.sync.m16n8k16`'s A operand, so that 16 bytes are one lane's
//! registers:
//!
//! | format | fragment | columns padded to | after a tile's fragments |
//! |---|---|---|---|
//! | bf16 | 16 x 16, [`fragment_index`](monolith_abi::formats::bf16::fragment_index) | 16 | |
//! | fp8 | 16 x 32, [`fragment_index`](monolith_abi::formats::fp8::fragment_index) | 32 | 16 f32 scales, one per row |
//!
//! Rows and columns are padded with zeros, and the scales of padding rows are 0. A block's weight
//! stream is a contiguous range of tiles, so the file does not depend on the number of blocks.
//! An FP8 weight is the value of its E4M3 code times the scale of its row. No code is NaN, and no
//! scale of a row is 0, subnormal or negative.

mod checkpoint;
mod format;
mod formats;
mod header;
mod layout;
mod matrix;
mod quantize;
mod read;
mod recipe;
mod report;
mod scales;
mod tiles;
mod unpacked;
mod write;

pub use checkpoint::{checkpoint_bytes, write_checkpoint};
pub use format::{Formats, Geometry};
pub use header::{Header, SectionEntry, Source};
pub use layout::{LayerSection, Section, padded};
pub use matrix::MatrixView;
pub use quantize::Quantization;
pub use read::{Pack, Progress};
pub use recipe::Recipe;
pub use report::KindReport;
pub use scales::ScaleSearch;
pub use unpacked::Unpacked;
pub use write::{pack_to_bytes, pack_to_bytes_as, pack_to_file};

use std::path::PathBuf;

/// An error of a pack. Every message names the file, and the section if there is one.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is not a pack.
    #[error("{}: not a pack: {what}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What was found instead.
        what: String,
    },
    /// The file was written with another layout.
    #[error(
        "{}: layout version {found}, but this build reads {wanted}: {}", path.display(),
        if found < wanted { "pack the model again with `monolith pack`" }
        else { "a newer monolith wrote it" }
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its layout version.
        found: u32,
        /// The version of this build.
        wanted: u32,
    },
    /// The file ends too early.
    #[error("{}: truncated: {what} needs {needed} bytes, the file has {found}", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        what: String,
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that it has.
        found: u64,
    },
    /// Some bytes have changed since they were written.
    #[error("{}: altered: {what}", path.display())]
    Altered {
        /// The file.
        path: PathBuf,
        /// The part that does not match.
        what: String,
    },
    /// The bytes are unchanged, but no engine can compute with them.
    #[error("{}: section {section}, {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The section.
        section: String,
        /// Row, column, and the fault.
        what: String,
    },
    /// A row of the weights cannot be represented in the requested format.
    #[error("tensor {tensor}, row {row}: {what}")]
    Row {
        /// The tensor's published name.
        tensor: String,
        /// The row, from 0.
        row: usize,
        /// The reason.
        what: String,
    },
    /// A tensor is FP8 in the checkpoint, but bf16 was requested, which cannot hold its values.
    #[error(
        "tensor {tensor}: FP8 in the checkpoint, and bf16 does not hold its values: ask for \
             a format in which it stays FP8"
    )]
    NotBf16 {
        /// The tensor's published name.
        tensor: String,
    },
    /// The header is whole but contradicts itself.
    #[error("{}: header: {what}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// The contradiction.
        what: String,
    },
}

impl From<monolith_files::Error> for PackError {
    fn from(error: monolith_files::Error) -> PackError {
        PackError::Io { path: error.path, source: error.source }
    }
}

impl PackError {
    pub(crate) fn io(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> PackError + '_ {
        move |source| PackError::Io { path: path.to_owned(), source }
    }
}
