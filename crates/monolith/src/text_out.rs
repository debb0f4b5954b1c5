//! Text for the user: whole lines to stderr, data to stdout.

use crate::progress;
use anyhow::Context;
use monolith_text::printable;
use std::io::{IsTerminal, Write};

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
