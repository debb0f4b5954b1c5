//! Reads a model folder's small files, with errors that name the file.

use std::io::{ErrorKind, Read};
use std::path::Path;

use monolith_files::FileKind;
use serde::de::DeserializeOwned;

use crate::Error;

/// Size limit of a tokenizer: Qwen3's is 11 MB, the largest known one 35 MB.
const JSON_BYTES_MAX: u64 = 256 << 20;
/// Size limit of a chat template: Qwen3's is 4 KB, the largest known one 60 KB.
const TEMPLATE_BYTES_MAX: u64 = 1 << 20;

/// Recognises, by its first bytes, a file of another kind than JSON; otherwise `None`.
///
/// A clone without git-lfs leaves a pointer in place of a large file, a proxy or a login page
/// leaves HTML, and some repositories hold other formats under a familiar name.
pub(crate) fn not_json(bytes: &[u8]) -> Option<FileKind> {
    FileKind::of(bytes).filter(|kind| *kind != FileKind::Json)
}

/// Recognises, by its first bytes, a file of another kind than a template; otherwise `None`. A
/// template may be empty, and may begin with a brace or as an XML document.
fn not_a_template(bytes: &[u8]) -> Option<FileKind> {
    let may_be = [FileKind::Empty, FileKind::Json, FileKind::Xml];
    FileKind::of(bytes).filter(|kind| !may_be.contains(kind))
}

/// Reads the file's text, or returns `None` if there is no such file. `other` recognises a file
/// that is not `wanted`.
fn read_optional(
    path: &Path,
    most: u64,
    wanted: &str,
    other: fn(&[u8]) -> Option<FileKind>,
) -> Result<Option<String>, Error> {
    let unreadable = |source| Error::Unreadable { path: path.to_owned(), source };
    let corrupt = |reason| Error::Corrupt { path: path.to_owned(), reason };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(unreadable(source)),
    };
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if let Some(kind) = other(&bytes) {
        return Err(corrupt(format!("not {wanted}, but {kind}")));
    }
    if bytes.len() as u64 > most {
        return Err(corrupt(format!("more than {} MiB, which no such file has", most >> 20)));
    }
    String::from_utf8(bytes).map(Some).map_err(|error| corrupt(format!("not UTF-8 text: {error}")))
}

/// Reads the text of a JSON file, or returns `None` if there is no such file.
pub(crate) fn read_json_text(path: &Path) -> Result<Option<String>, Error> {
    read_optional(path, JSON_BYTES_MAX, "JSON text", not_json)
}

/// Reads a chat template's text, or returns `None` if there is no such file.
pub(crate) fn read_template(path: &Path) -> Result<Option<String>, Error> {
    read_optional(path, TEMPLATE_BYTES_MAX, "a chat template", not_a_template)
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
    fn other_files_are_told_for_what_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            [read_json_text(&path), read_template(&path)]
                .map(|read| read.map_err(|error| error.to_string()))
        };
        for (bytes, what) in [
            (&b"version https://git-lfs.github.com/spec/v1\n"[..], "a Git LFS pointer"),
            (b"\n <!DOCTYPE html><html>", "an HTML page"),
            (b"GGUF\x03\0\0\0", "a GGUF file"),
            (b"PK\x03\x04\x14\0", "a ZIP archive"),
        ] {
            let [json, template] = read(bytes).map(Result::unwrap_err);
            assert!(json.contains(&format!("file: not JSON text, but {what}")), "{json}");
            assert!(template.contains(&format!("not a chat template, but {what}")), "{template}");
        }
        for (bytes, is_json) in [
            ("", false),
            (" \n", false),
            ("<?xml version=\"1.0\"?>{{ x }}", false),
            ("{% set x = 1 %}", true),
            ("{}", true),
            ("version 2", true),
        ] {
            let [json, template] = read(bytes.as_bytes());
            assert_eq!(json.is_ok(), is_json, "{bytes}");
            assert_eq!(template.unwrap().unwrap(), bytes);
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
