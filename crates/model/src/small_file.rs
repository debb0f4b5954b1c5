//! Reading the small files of a model folder.

use crate::ModelError;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// No `config.json` and no index is nearly as large; an untrusted file must not exhaust memory.
const BYTES_MAX: u64 = 256 << 20;

/// Reads the whole file.
///
/// # Errors
/// The system's error, or a file that is too large for its name.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, ModelError> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(ModelError::io(path))?;
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(ModelError::io(path))?;
    if bytes.len() as u64 > BYTES_MAX {
        let what = format!("more than {BYTES_MAX} bytes: it is not what its name says");
        return Err(ModelError::Config { path: path.to_owned(), what });
    }
    Ok(bytes)
}
