//! Seed inputs: small files of the repository, and small files made here.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file of the repository.
pub fn file(name: &str) -> Result<Vec<u8>> {
    let path = root().join(name);
    std::fs::read(&path).with_context(|| path.display().to_string())
}

/// The files of a folder whose names begin with `begin` and end with `end`, sorted.
pub fn files(folder: &str, begin: &str, end: &str) -> Result<Vec<Vec<u8>>> {
    let path = root().join(folder);
    let entries = path.read_dir().with_context(|| path.display().to_string())?;
    let mut paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(begin) && name.ends_with(end)
    });
    paths.sort();
    anyhow::ensure!(!paths.is_empty(), "{folder} has no {begin}*{end}");
    paths.iter().map(|path| Ok(std::fs::read(path)?)).collect()
}

/// The run whose records are seed inputs.
pub const RUN: &str = "results/2026-11-30-h200-01";

/// A JSON document with long lists cut: the first elements stand for the rest.
pub fn shortened(text: &[u8], most: usize) -> Result<Vec<u8>> {
    fn cut(value: &mut serde_json::Value, most: usize) {
        match value {
            serde_json::Value::Array(list) => {
                list.truncate(most);
                list.iter_mut().for_each(|value| cut(value, most));
            }
            serde_json::Value::Object(map) => map.values_mut().for_each(|value| cut(value, most)),
            _ => {}
        }
    }
    let mut value = serde_json::from_slice(text)?;
    cut(&mut value, most);
    Ok(serde_json::to_vec(&value)?)
}
