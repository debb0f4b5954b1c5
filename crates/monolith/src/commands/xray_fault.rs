//! `monolith xray fault`: which block waited for which in a step that timed out.

use crate::args::XrayFaultArgs;
use crate::exit::{Code, Exit, OrExit};
use crate::fault_file;
use crate::text_out::show;
use anyhow::Context;
use monolith_xray::fault::{Report, read};

/// Prints the chain of waits, beginning with the cause, and all other waits.
///
/// # Errors
/// Code 2 if the named file does not exist; code 1 for a file of another kind, or if no step has
/// failed so far.
pub fn run(args: &XrayFaultArgs) -> Result<(), Exit> {
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
