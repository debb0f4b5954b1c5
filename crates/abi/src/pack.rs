//! Constants of the pack file, shared by its writer and its readers. The layout of a matrix in it
//! is a fact of the matrix's format: see [`crate::formats`].

/// First eight bytes of every pack.
pub const MAGIC: [u8; 8] = *b"MONOPACK";
/// Version of the layout that this build writes and reads.
pub const LAYOUT_VERSION: u32 = 2;
/// Magic, version, header length, header sha256: see [`PREAMBLE_BYTES`].
pub const PREAMBLE_BYTES: usize = 64;
/// The payload and every section in it begin at a multiple of this (a page).
pub const SECTION_ALIGN: usize = 4096;
