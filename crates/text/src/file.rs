//! Reading a model folder's small files, with errors that name the file.

use std::io::ErrorKind;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::Error;

/// The file's text, or `None` where there is no such file.
pub(crate) fn read_optional(path: &Path) -> Result<Option<String>, Error> {
    let text = match std::fs::read(path) {
        Ok(bytes) => String::from_utf8(bytes).map_err(|error| Error::Corrupt {
            path: path.to_owned(),
            reason: format!("not UTF-8 text: {error}"),
        })?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::Unreadable { path: path.to_owned(), source }),
    };
    // What a clone without git-lfs leaves in place of a large file.
    if text.starts_with("version https://git-lfs") {
        return Err(Error::Corrupt {
            path: path.to_owned(),
            reason: "a Git LFS pointer, not the file it stands for".to_owned(),
        });
    }
    Ok(Some(text))
}

/// The file's JSON, or `None` where there is no such file.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Error> {
    let Some(text) = read_optional(path)? else { return Ok(None) };
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|error| Error::Corrupt { path: path.to_owned(), reason: error.to_string() })
}
