//! Writing: whole lines to stderr, data to stdout, files whole or not at all.

use crate::progress;
use anyhow::Context;
use monolith_files::{WholeFile, write_whole};
use monolith_text::printable;
use std::io::{IsTerminal, Read, Write};
use std::path::Path;

/// A message for the person at the terminal, control characters written out: names and reasons
/// come from files and models. It is no error if nobody reads the message.
pub fn say(message: &str) {
    progress::suspended(|| {
        let _ = writeln!(std::io::stderr().lock(), "{}", printable(message));
    });
}

/// Data for whoever reads our output, at once. A pipe or a file gets the bytes as they are, a
/// terminal gets control characters written out.
///
/// # Errors
/// The reader went away, or the disk is full.
pub fn put(text: &str) -> anyhow::Result<()> {
    let out = std::io::stdout();
    if out.is_terminal() { show(text) } else { write_out(text) }
}

/// A table or report for people, control characters written out wherever it goes.
///
/// # Errors
/// The reader went away, or the disk is full.
pub fn show(text: &str) -> anyhow::Result<()> {
    write_out(&printable(text))
}

fn write_out(text: &str) -> anyhow::Result<()> {
    progress::suspended(|| {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("standard output")
    })
}

/// What a command writes, and how a file of its kind is told from somebody's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A pack.
    Pack,
    /// A trace, as the page reads it.
    Trace,
    /// A recorded step, before anything is aligned.
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

    /// Whether a file's bytes are of this kind.
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

/// Whether a text is near a file's begin, as the names in a viewer's format are.
fn begins_with(bytes: &[u8], text: &str) -> bool {
    let begin = &bytes[..bytes.len().min(4096)];
    begin.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Whether an output may be written there: [`check_writable`], and what is there, if anything, is
/// an earlier output of the same kind. Weights, a prompt or a tokenizer named by mistake stay.
///
/// # Errors
/// Those of [`check_writable`], or a file of another kind.
pub fn check_output(path: &Path, kind: Kind) -> anyhow::Result<()> {
    check_writable(path)?;
    let Ok(file) = std::fs::File::open(path) else { return Ok(()) };
    // Packs are told by their first bytes; everything else of ours is small.
    let most = if kind == Kind::Pack { 64 } else { 64 << 20 };
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).with_context(|| path.display().to_string())?;
    if bytes.is_empty() || kind.is_this(&bytes) {
        return Ok(());
    }
    anyhow::bail!("{} exists and is no {}: it is not replaced", path.display(), kind.name())
}

/// Whether a file can be written there, found out before the work whose result it is to hold.
///
/// # Errors
/// A folder or device of this name, or a folder that cannot be written to. (To replace a device by
/// a file is in the power of the superuser, and never what was meant.)
pub fn check_writable(path: &Path) -> anyhow::Result<()> {
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        anyhow::bail!("{} cannot be written: it is not a regular file", path.display());
    }
    // A temporary of the kind that the writing will need, gone at once.
    cannot(path, WholeFile::create(path).map(drop))
}

/// Writes a file whole or not at all.
///
/// # Errors
/// A folder that cannot be written to, or a full disk; the message names the file.
pub fn write_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    cannot(path, write_whole(path, bytes))
}

fn cannot(path: &Path, result: Result<(), monolith_files::Error>) -> anyhow::Result<()> {
    let result = result.map_err(|error| error.source);
    result.with_context(|| format!("{} cannot be written", path.display()))
}
