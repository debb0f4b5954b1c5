//! Files that commands write, whole or not at all.

use anyhow::Context;
use monolith_files::{WholeFile, write_whole};
use std::path::Path;

/// Checks that a file can be written there, before the work that makes its contents.
///
/// # Errors
/// A folder or device has this name, or the parent folder is not writable. (A superuser could
/// replace a device by a file, but never means to.)
pub fn check_writable(path: &Path) -> anyhow::Result<()> {
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        anyhow::bail!("{} cannot be written: it is not a regular file", path.display());
    }
    // Makes a temporary file like the one that writing will need, and removes it at once.
    cannot(path, WholeFile::create(path).map(drop))
}

/// Writes a file whole or not at all.
///
/// # Errors
/// The folder is not writable, or the disk is full; the message names the file.
pub fn write_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    cannot(path, write_whole(path, bytes))
}

fn cannot(path: &Path, result: Result<(), monolith_files::Error>) -> anyhow::Result<()> {
    let result = result.map_err(|error| error.source);
    result.with_context(|| format!("{} cannot be written", path.display()))
}
