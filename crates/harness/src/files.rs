//! A record's files: read up to a limit, written whole. Files of JSON lines, whose last line an
//! interrupted write may have torn. Names that cannot leave their folder.

use crate::HarnessError;
use monolith_files::{Appended, append_lines};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::Read;
use std::path::Path;

/// Largest file that is read as JSON. The largest records have some megabytes.
const BYTES_MAX: u64 = 64 << 20;

/// The lines of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lines<T> {
    /// The values of the whole lines.
    pub items: Vec<T>,
    /// A message that the last line is incomplete and was not counted.
    pub torn: Option<String>,
}

/// Reads every line; a missing file has none.
///
/// A last line without a newline counts if it is whole. If not, an interrupted write left it: it is
/// reported and does not count.
///
/// # Errors
/// Any other line that cannot be parsed, by its number.
pub(crate) fn read_lines<T: DeserializeOwned>(path: &Path) -> Result<Lines<T>, HarnessError> {
    let mut lines = Lines { items: Vec::new(), torn: None };
    let Some(bytes) = read_file(path)? else { return Ok(lines) };
    for (index, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
        let number = index + 1;
        match serde_json::from_slice(line) {
            Ok(item) => lines.items.push(item),
            Err(_) if !line.ends_with(b"\n") => {
                let what = format!("line {number}, the last one, is incomplete and was ignored");
                lines.torn = Some(format!("{}: {what}", path.display()));
            }
            Err(error) => {
                return Err(HarnessError::file(path, format!("line {number}: {}", place(&error))));
            }
        }
    }
    Ok(lines)
}

/// Appends lines that are JSON. Reports a torn last line that was removed.
pub(crate) fn append(path: &Path, text: &str) -> Result<Option<String>, HarnessError> {
    let is_whole = |line: &[u8]| serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok();
    let torn = |torn: Vec<u8>| {
        format!(
            "{}: the last line was incomplete ({} bytes, left by an interrupted write) and was \
             removed",
            path.display(),
            torn.len()
        )
    };
    Ok(match append_lines(path, text, is_whole)? {
        Appended::Clean | Appended::Completed => None,
        Appended::Removed(line) => Some(torn(line)),
    })
}

/// Reads a JSON value.
///
/// # Errors
/// A file that is missing, too large or not JSON of this type.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, HarnessError> {
    let missing = || HarnessError::io(path)(std::io::ErrorKind::NotFound.into());
    let bytes = read_file(path)?.ok_or_else(missing)?;
    serde_json::from_slice(&bytes).map_err(|error| HarnessError::file(path, error))
}

/// Reads a whole file; `None` if it is missing.
pub(crate) fn read_file(path: &Path) -> Result<Option<Vec<u8>>, HarnessError> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(HarnessError::io(path)(error)),
    };
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(HarnessError::io(path))?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(HarnessError::file(path, format!("over {BYTES_MAX} bytes: not a record")));
    }
    Ok(Some(bytes))
}

/// Writes a JSON value, indented.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), HarnessError> {
    let text = serde_json::to_string_pretty(value).expect("plain data is JSON") + "\n";
    write_whole(path, &text)
}

/// Writes a file whole or not at all.
pub(crate) fn write_whole(path: &Path, text: &str) -> Result<(), HarnessError> {
    Ok(monolith_files::write_whole(path, text.as_bytes())?)
}

/// Returns whether a name has only characters that mean nothing in a path. It may still be `..`.
pub(crate) fn is_plain(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// Formats the error without serde's line number, which is always 1: each line is parsed alone.
fn place(error: &serde_json::Error) -> String {
    let (text, column) = (error.to_string(), error.column());
    let what = text.split(" at line ").next().unwrap_or(&text);
    format!("{what} at column {column}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(path: &Path) -> Lines<Vec<u32>> {
        read_lines(path).unwrap()
    }

    #[test]
    fn a_line_torn_anywhere_is_reported_and_swallows_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.jsonl");
        let line = "[1,22,333]\n";
        for end in 1..line.len() {
            std::fs::write(&path, format!("[7]\n{}", &line[..end])).unwrap();
            let before = values(&path);
            let is_whole = end == line.len() - 1;
            assert_eq!(before.items.len(), if is_whole { 2 } else { 1 });
            match &before.torn {
                Some(torn) => {
                    assert!(!is_whole && torn.contains("rows.jsonl: line 2"), "{torn}");
                }
                None => assert!(is_whole),
            }
            let removed = append(&path, "[8]\n").unwrap();
            assert_eq!(removed.is_some(), !is_whole);
            assert!(removed.is_none_or(|what| what.contains("rows.jsonl")));
            let after = values(&path);
            assert_eq!(after.torn, None);
            assert_eq!(after.items[..before.items.len()], before.items);
            assert_eq!(after.items[before.items.len()..], [[8]]);
        }
    }

    #[test]
    fn a_wrong_line_before_the_last_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.jsonl");
        for wrong in ["[1", "", "{}", "[-1]", "\u{1b}[31m"] {
            std::fs::write(&path, format!("[7]\n{wrong}\n[8]\n")).unwrap();
            let error = read_lines::<Vec<u32>>(&path).unwrap_err().to_string();
            assert!(error.contains("rows.jsonl: line 2: "), "{error}");
        }
        std::fs::write(&path, b"[7]\n[\xff]\n").unwrap();
        assert!(read_lines::<Vec<u32>>(&path).is_err());
    }

    #[test]
    fn a_missing_file_has_no_lines() {
        let folder = tempfile::tempdir().unwrap();
        let lines = values(&folder.path().join("rows.jsonl"));
        assert_eq!(lines, Lines { items: Vec::new(), torn: None });
    }

    #[test]
    fn a_file_beyond_all_measure_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.jsonl");
        std::fs::File::create(&path).unwrap().set_len(BYTES_MAX + 1).unwrap();
        assert!(read_lines::<Vec<u32>>(&path).unwrap_err().to_string().contains("rows.jsonl"));
        assert!(read_json::<Vec<u32>>(&path).is_err());
    }
}
