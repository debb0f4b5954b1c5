//! Keeps the fault record of the last step that timed out, for `monolith xray fault`.

use crate::cache;
use crate::exit::Exit;
use crate::file_out::write_file;
use crate::text_out::say;
use monolith_abi::fault::FaultDump;
use monolith_xray::fault;
use std::path::PathBuf;

const NAME: &str = "last-fault.json";

/// Returns the path of the fault file.
///
/// # Errors
/// There is no cache folder.
pub fn path() -> Result<PathBuf, Exit> {
    Ok(cache::dir()?.join(NAME))
}

/// Writes a fault file and prints how to read it. A failure to write it is printed too, but is no
/// second error.
pub fn keep(dump: &FaultDump) {
    let kept = path().and_then(|path| {
        write_file(&path, &fault::write(dump))?;
        Ok(path)
    });
    match kept {
        Ok(path) => say(&format!(
            "monolith: which block waited for which is in {}: `monolith xray fault` shows it",
            path.display()
        )),
        Err(exit) => say(&format!("monolith: the fault could not be written: {exit}")),
    }
}
