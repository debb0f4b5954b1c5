//! The kinds of files that commands write, so that no command replaces a file of another kind.

use crate::file_out::check_writable;
use anyhow::Context;
use std::io::Read;
use std::path::Path;

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
