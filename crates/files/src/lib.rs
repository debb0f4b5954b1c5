//! Files that appear whole or not at all, lines that are appended whole, the recognition of files
//! by their first bytes, and hexadecimal.
//!
//! [`WholeFile`] and [`WholeFolder`] write beside the target and rename. Only this crate uses the
//! names of their temporaries, and the writer holds a file lock on them. The system releases the
//! lock when the writer ends in any way, so the next write to the same folder recognises and
//! removes the temporaries of a killed process.

#![forbid(unsafe_code)]

mod kind;
mod lines;
mod live;
mod temporary;
mod whole;

pub use kind::FileKind;
pub use lines::{Appended, append_lines};
pub use live::remove_unfinished;
pub use temporary::remove_stale;
pub use whole::{WholeFile, WholeFolder, rename, sync_watched, write_whole};

use std::io;
use std::path::{Path, PathBuf};

/// A file operation that failed.
#[derive(Debug, thiserror::Error)]
#[error("{} could not be written: {source}", path.display())]
pub struct Error {
    /// The requested file or folder (not the temporary beside it).
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

impl Error {
    fn of(path: &Path) -> impl Fn(io::Error) -> Error + '_ {
        move |source| Error { path: path.to_owned(), source }
    }
}

/// Returns the bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Returns the folder that holds a path; `.` for a bare name.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_has_two_digits_a_byte() {
        let all: Vec<u8> = (0..=255).collect();
        let expected: String = all.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex(&all), expected);
        assert_eq!(hex(&[]), "");
    }

    #[test]
    fn a_bare_name_is_in_the_current_folder() {
        assert_eq!(folder_of(Path::new("a")), Path::new("."));
        assert_eq!(folder_of(Path::new("a/b")), Path::new("a"));
        assert_eq!(folder_of(Path::new("/b")), Path::new("/"));
    }
}
