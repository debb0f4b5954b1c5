//! What the tasks print. A closed pipe is not an error: the task goes on.

use std::fmt::Display;
use std::io::Write;

/// One line on standard output.
pub fn line(text: impl Display) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}

/// A heading, set off from the output of the commands before it.
pub fn heading(text: impl Display) {
    line(format_args!("\n== {text}"));
}

/// Says what is being installed, and why.
pub fn installing(what: impl Display, why: impl Display) {
    line(format_args!("installing {what}, because {why}"));
}

/// The error with its causes, on standard error.
pub fn error(error: &anyhow::Error) {
    let _ = writeln!(std::io::stderr().lock(), "error: {error:#}");
}
