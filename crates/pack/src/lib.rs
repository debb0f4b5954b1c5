//! The pack: one file with every weight in the order in which the decoder streams it.
//!
//! ```text
//! preamble   64 bytes: magic, layout version, header length, sha256 of the header
//! header     JSON: model, formats, tile geometry, one entry a section with its sha256
//! payload    the sections, each at a multiple of 4,096 bytes
//! ```
//!
//! A matrix section is a sequence of *tiles* of 16 rows and all columns; a tile is a sequence of
//! *fragments* of 16 x 16 in the order of `mma.sync.m16n8k16`'s A operand, so that 16 bytes are
//! one lane's four registers ([`monolith_abi::pack::fragment_index`]). Rows and columns are
//! padded with zeros to 16. A block's weight stream is a contiguous range of tiles, so the file
//! does not depend on the number of blocks.

mod header;
mod layout;
mod read;
mod write;

pub use header::{Header, SectionEntry, Source};
pub use layout::{LayerSection, Section, padded};
pub use read::{MatrixView, Pack};
pub use write::{pack_to_bytes, pack_to_file};

use std::path::PathBuf;

/// What can be wrong with a pack. Every message names the file, and the section where there is
/// one.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is something else.
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
        /// Bytes that there are.
        found: u64,
    },
    /// Some bytes are not those that were written.
    #[error("{}: altered: {what}", path.display())]
    Altered {
        /// The file.
        path: PathBuf,
        /// What does not match.
        what: String,
    },
    /// The header is whole but says something that cannot be.
    #[error("{}: header: {what}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

impl PackError {
    pub(crate) fn io(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> PackError + '_ {
        move |source| PackError::Io { path: path.to_owned(), source }
    }
}
