//! Output: whole lines to stderr, data to stdout, files written whole or not at all.

use crate::progress;
use anyhow::Context;
use monolith_files::{WholeFile, write_whole};
use monolith_text::printable;
use std::io::{IsTerminal, Read, Write};
use std::path::Path;

/// Prints a message to stderr, with control characters escaped: names and reasons come from files
/// and models. A closed stderr is no error.
pub fn say(message: &str) {
    progress::suspended(|| {
        let _ = writeln!(std::io::stderr().lock(), "{}", printable(message));
    });
}

/// Writes data to stdout and flushes it. A pipe or a file gets the bytes as they are; on a terminal
/// control characters are escaped.
///
/// # Errors
/// The reader closed the pipe, or the disk is full.
pub fn put(text: &str) -> anyhow::Result<()> {
    let out = std::io::stdout();
    if out.is_terminal() { show(text) } else { write_out(text) }
}

/// Writes a table or report to stdout, always with control characters escaped.
///
/// # Errors
/// The reader closed the pipe, or the disk is full.
pub fn show(text: &str) -> anyhow::Result<()> {
    write_out(&printable(text))
}

fn write_out(text: &str) -> anyhow::Result<()> {
    progress::suspended(|| {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("standard output")
    })
}

/// The kinds of files that commands write, and how each is told from the user's own files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A pack.
    Pack,
    /// A trace for the page.
    Trace,
    /// A recorded step, before its clocks are aligned.
    Dump,
    /// A trace for Perfetto.
    Perfetto,
    /// A trace for Chrome.
    Chrome,
    /// A trace for speedscope.
    Speedscope,
    /// A trace for a spreadsheet.
    Csv,
    /// A picture of a trace.
    Png,
    /// The prompts' token ids.
    Ids,
    /// The report of the probes.
    Probes,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Pack => "pack",
            Kind::Trace => "trace",
            Kind::Dump => "dump",
            Kind::Perfetto => "Perfetto trace of ours",
            Kind::Chrome => "Chrome trace",
            Kind::Speedscope => "speedscope profile",
            Kind::Csv => "table of spans",
            Kind::Png => "PNG picture",
            Kind::Ids => "list of token ids",
            Kind::Probes => "report of probes",
        }
    }

    /// Returns whether a file's bytes are of this kind.
    fn is_this(self, bytes: &[u8]) -> bool {
        let has = |keys: [&str; 2]| {
            serde_json::from_slice::<serde_json::Value>(bytes)
                .is_ok_and(|value| keys.iter().all(|key| value.get(key).is_some()))
        };
        match self {
            Kind::Pack => bytes.starts_with(&monolith_abi::pack::MAGIC),
            Kind::Trace => monolith_xray::page::read(bytes).is_ok(),
            Kind::Dump => monolith_xray::dump_file::is_dump(bytes),
            Kind::Perfetto => begins_with(bytes, "monolith"),
            Kind::Chrome => begins_with(bytes, "\"traceEvents\""),
            Kind::Speedscope => begins_with(bytes, "speedscope.app/file-format-schema"),
            Kind::Csv => bytes.starts_with(b"block,sm,role,kind,phase,"),
            Kind::Png => bytes.starts_with(b"\x89PNG\r\n\x1a\n"),
            Kind::Ids => has(["ids", "rule"]),
            Kind::Probes => has(["schema_version", "handoff"]),
        }
    }
}

/// Returns whether a text is near the beginning of a file, as the keys of a viewer's format are.
fn begins_with(bytes: &[u8], text: &str) -> bool {
    let begin = &bytes[..bytes.len().min(4096)];
    begin.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Checks that an output may be written there: [`check_writable`], and an existing file must be an
/// earlier output of the same kind. This keeps weights, prompts or tokenizers named by mistake.
///
/// # Errors
/// Those of [`check_writable`], or a file of another kind.
pub fn check_output(path: &Path, kind: Kind) -> anyhow::Result<()> {
    check_writable(path)?;
    let Ok(file) = std::fs::File::open(path) else { return Ok(()) };
    // A pack is recognized by its first bytes; our other outputs are small.
    let most = if kind == Kind::Pack { 64 } else { 64 << 20 };
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).with_context(|| path.display().to_string())?;
    if bytes.is_empty() || kind.is_this(&bytes) {
        return Ok(());
    }
    anyhow::bail!("{} exists and is no {}: it is not replaced", path.display(), kind.name())
}

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
