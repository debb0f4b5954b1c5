//! `monolith xray`: the analysis of a recorded step, and its files for other viewers.

use crate::exit::{Code, Exit, OrExit};
use anyhow::Context;
use monolith_xray::{Trace, TraceError, dump_file, page, trace_from_dump};
use std::path::Path;

mod analyze;
mod export;
mod fault;
mod record;

/// Show where a recorded step's time went, or export it for a viewer
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// What to do with it.
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  monolith xray record --at 16            writes VARIANT-16.xray, such as bf16-flag-16.xray
  monolith run -p 'Hello' --xray step.xray
  monolith xray analyze step.xray
  monolith xray export step.xray --to perfetto";

commands! {
    Analyze(analyze),
    Export(export),
    Record(record),
    Fault(fault),
}

/// Records, analyzes or exports a step, or shows why a step timed out.
///
/// # Errors
/// Code 2 for a missing file, code 1 for one that is neither a dump nor a trace.
pub fn run(args: &Args) -> Result<(), Exit> {
    args.command.run()
}

/// Reads a recorded step from a dump or a page's trace, told apart by the first bytes.
fn read(path: &Path) -> Result<Trace, Exit> {
    let name = || path.display().to_string();
    let bytes = std::fs::read(path).with_context(name);
    let bytes = match bytes {
        Err(error) if !path.exists() => return Err(Exit::new(Code::Usage, error)),
        other => other?,
    };
    if dump_file::is_dump(&bytes) {
        let dump = dump_file::read(&bytes).with_context(name)?;
        return trace_from_dump(&dump).with_context(name).or_exit(Code::Failure);
    }
    match page::read(&bytes) {
        Err(TraceError::Foreign(_)) => {
            let what = format!(
                "{} is neither a dump (.xray) nor a page's trace (.json.gz): it begins with the \
                 bytes {:02x?}",
                path.display(),
                &bytes[..bytes.len().min(4)]
            );
            Err(Exit::message(Code::Failure, what))
        }
        other => other.with_context(name).or_exit(Code::Failure),
    }
}
