//! The last step that did not end, kept for `monolith xray fault`.

use crate::exit::Exit;
use crate::source::cache_dir;
use crate::text_out::{say, write_file};
use monolith_abi::fault::FaultDump;
use monolith_xray::fault;
use std::path::PathBuf;

const NAME: &str = "last-fault.json";

/// Where it lies.
///
/// # Errors
/// No folder for it.
pub fn path() -> Result<PathBuf, Exit> {
    Ok(cache_dir()?.join(NAME))
}

/// Keeps a fault, and says how to read it. That it cannot be kept is said, and is no second error.
pub fn keep(dump: &FaultDump) {
    let kept = path().and_then(|path| {
        write_file(&path, &fault::write(dump))?;
        Ok(path)
    });
    match kept {
        Ok(path) => say(&format!(
            "monolith: who waited for whom is in {}: `monolith xray fault` shows it",
            path.display()
        )),
        Err(exit) => say(&format!("monolith: the fault could not be kept: {exit}")),
    }
}
