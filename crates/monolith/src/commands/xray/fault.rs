//! `monolith xray fault`: which block waited for which in a step that timed out.

use crate::exit::{Code, Exit, OrExit};
use crate::fault_file;
use crate::text_out::show;
use anyhow::Context;
use monolith_xray::fault::{Report, read};
use std::path::PathBuf;

/// Show which block waited for which in the last step that timed out
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The fault's file [default: the last one, in the cache folder]
    pub file: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:
  monolith xray fault
  monolith xray fault last-fault.json

If a wait on the GPU times out, the step is aborted and a file keeps every wait of every block.";

/// Prints the chain of waits, beginning with the cause, and all other waits.
///
/// # Errors
/// Code 2 if the named file does not exist; code 1 for a file of another kind, or if no step has
/// failed so far.
pub fn run(args: &Args) -> Result<(), Exit> {
    let path = match &args.file {
        Some(path) => path.clone(),
        None => fault_file::path()?,
    };
    if args.file.is_none() && !path.exists() {
        let what = format!("no step has failed so far: there is no {}", path.display());
        return Err(Exit::message(Code::Failure, what));
    }
    let name = || path.display().to_string();
    let bytes = std::fs::read(&path).with_context(name);
    let bytes = if path.exists() { bytes? } else { bytes.or_exit(Code::Usage)? };
    let dump = read(&bytes).with_context(name)?;
    Ok(show(&Report(&dump).to_string())?)
}
