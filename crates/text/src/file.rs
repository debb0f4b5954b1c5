//! Reads a model folder's small files, with errors that name the file.

use std::io::{ErrorKind, Read};
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::Error;

/// Size limit of a tokenizer: Qwen3's is 11 MB, the largest known one 35 MB.
const JSON_BYTES_MAX: u64 = 256 << 20;
/// Size limit of a chat template: Qwen3's is 4 KB, the largest known one 60 KB.
const TEMPLATE_BYTES_MAX: u64 = 1 << 20;

/// Recognises, by its first bytes, a file of another kind than its name says; otherwise `None`.
///
/// A clone without git-lfs leaves a pointer in place of a large file, a proxy or a login page
/// leaves HTML, and some repositories hold other formats under a familiar name.
#[must_use]
pub fn mistaken_for(begin: &[u8]) -> Option<&'static str> {
    let text = begin.trim_ascii_start();
    let starts = |name: &str| {
        text.get(..name.len()).is_some_and(|found| found.eq_ignore_ascii_case(name.as_bytes()))
    };
    if begin.starts_with(b"version https://git-lfs") {
        return Some("a Git LFS pointer, not the file it stands for");
    }
    if ["<!doctype html", "<html"].into_iter().any(starts) {
        return Some("an HTML page, not the file that was asked for");
    }
    if begin.starts_with(b"GGUF") {
        return Some("a GGUF file of llama.cpp, not the file that its name promises");
    }
    None
}

/// Reads the file's text, or returns `None` if there is no such file.
fn read_optional(path: &Path, most: u64) -> Result<Option<String>, Error> {
    let unreadable = |source| Error::Unreadable { path: path.to_owned(), source };
    let corrupt = |reason| Error::Corrupt { path: path.to_owned(), reason };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(unreadable(source)),
    };
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if let Some(what) = mistaken_for(&bytes) {
        return Err(corrupt(what.to_owned()));
    }
    if bytes.len() as u64 > most {
        return Err(corrupt(format!("more than {} MiB, which no such file has", most >> 20)));
    }
    String::from_utf8(bytes).map(Some).map_err(|error| corrupt(format!("not UTF-8 text: {error}")))
}

/// Reads the text of a JSON file, or returns `None` if there is no such file.
pub(crate) fn read_json_text(path: &Path) -> Result<Option<String>, Error> {
    read_optional(path, JSON_BYTES_MAX)
}

/// Reads a chat template's text, or returns `None` if there is no such file.
pub(crate) fn read_template(path: &Path) -> Result<Option<String>, Error> {
    read_optional(path, TEMPLATE_BYTES_MAX)
}

/// Checks the size of a template, which may be part of a larger file.
pub(crate) fn check_template_size(bytes: usize, path: &Path) -> Result<(), Error> {
    if bytes as u64 > TEMPLATE_BYTES_MAX {
        let reason = format!(
            "the chat template has {bytes} bytes, at most {TEMPLATE_BYTES_MAX} are allowed"
        );
        return Err(Error::Corrupt { path: path.to_owned(), reason });
    }
    Ok(())
}

/// Reads the file's JSON, or returns `None` if there is no such file.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Error> {
    let Some(text) = read_json_text(path)? else { return Ok(None) };
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|error| Error::Corrupt { path: path.to_owned(), reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_known_by_their_first_bytes() {
        for (begin, what) in [
            (&b"version https://git-lfs.github.com/spec/v1\n"[..], "a Git LFS pointer"),
            (b"\n <!DOCTYPE html><html>", "an HTML page"),
            (b"<html lang=\"en\">", "an HTML page"),
            (b"GGUF\x03\0\0\0", "a GGUF file"),
        ] {
            assert!(mistaken_for(begin).unwrap().starts_with(what));
        }
        for begin in [&b""[..], b"{}", b"<", b"\x10\0\0\0\0\0\0\0{", b"version 2"] {
            assert_eq!(mistaken_for(begin), None);
        }
    }

    #[test]
    fn a_file_without_end_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("chat_template.jinja");
        let size = usize::try_from(TEMPLATE_BYTES_MAX).unwrap();
        std::fs::write(&path, " ".repeat(size)).unwrap();
        assert_eq!(read_template(&path).unwrap().unwrap().len(), size);
        std::fs::write(&path, " ".repeat(size + 1)).unwrap();
        let error = read_template(&path).unwrap_err().to_string();
        assert!(error.ends_with("more than 1 MiB, which no such file has"), "{error}");
    }
}
