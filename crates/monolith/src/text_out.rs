//! Writing: whole lines to stderr, data to stdout, files whole or not at all.

use anyhow::Context;
use std::io::Write;
use std::path::Path;

/// A message for the person at the terminal. That nobody reads it is no error.
pub fn say(message: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{message}");
}

/// Data for whoever reads our output, at once.
///
/// # Errors
/// The reader went away, or the disk is full.
pub fn put(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes a file whole or not at all.
///
/// # Errors
/// A folder that cannot be written to, or a full disk; the message names the file.
pub fn write_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let write = || -> std::io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    };
    write().with_context(|| format!("{} cannot be written", path.display()))
}
