//! `results/index.json`: the list of runs.

use super::RunFolder;
use crate::HarnessError;
use crate::environment::Environment;
use crate::files::{is_plain, read_file, write_json};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The file's name.
const INDEX: &str = "index.json";
/// Hashes of the files of every sealed run, one per line, as `sha256sum` writes them.
const MANIFEST: &str = "MANIFEST";

/// `results/index.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// Every run, the newest last.
    pub runs: Vec<IndexEntry>,
}

/// One run in the index. All but the folder's name is copied from the run's `environment.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexEntry {
    /// Name of the folder.
    pub folder: String,
    /// Name of the GPU (or of the CPU, for one).
    pub gpu: String,
    /// Day on which the run began.
    pub date: String,
    /// `gpu` or `cpu`.
    pub kind: String,
}

impl Index {
    /// Reads `index.json` in a results folder; a missing one is empty.
    ///
    /// # Errors
    /// A file that is not an index, or a folder name that would escape the results folder.
    pub fn read(results: &Path) -> Result<Index, HarnessError> {
        let path = results.join(INDEX);
        let Some(text) = read_file(&path)? else { return Ok(Index::default()) };
        let index: Index =
            serde_json::from_slice(&text).map_err(|error| HarnessError::file(&path, error))?;
        match index.runs.iter().find(|entry| !is_folder_name(&entry.folder)) {
            Some(entry) => {
                let what = format!(
                    "folder {:?} is not a plain name: letters, digits and - _ . only",
                    entry.folder
                );
                Err(HarnessError::file(&path, what))
            }
            None => Ok(index),
        }
    }

    /// Describes the folders of runs that the index does not list.
    ///
    /// # Errors
    /// A results folder that cannot be listed; a missing one has no folders.
    pub fn unlisted(&self, results: &Path) -> Result<Vec<String>, HarnessError> {
        let entries = match std::fs::read_dir(results) {
            Ok(entries) => entries.flatten(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(HarnessError::io(results)(error)),
        };
        let runs = entries.filter(|entry| entry.path().join("environment.json").is_file());
        let names = runs.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> =
            names.filter(|name| self.runs.iter().all(|run| run.folder != *name)).collect();
        names.sort();
        Ok(names.iter().map(|name| format!("index.json does not list {name}")).collect())
    }

    pub(super) fn write(&self, results: &Path) -> Result<(), HarnessError> {
        write_json(&results.join(INDEX), self)
    }
}

impl IndexEntry {
    /// Returns the entry of a new run.
    pub(super) fn of(folder: &str, environment: &Environment) -> IndexEntry {
        IndexEntry {
            folder: folder.into(),
            gpu: environment.gpu.clone(),
            date: environment.day().into(),
            kind: environment.kind.clone(),
        }
    }

    /// Opens the folder and its environment, which the entry must not contradict.
    ///
    /// # Errors
    /// A folder or environment that is missing or of another kind, or a contradiction: the message
    /// names both files.
    pub fn open(&self, results: &Path) -> Result<(RunFolder, Environment), HarnessError> {
        let folder = RunFolder::named(results, &self.folder);
        let environment = folder.environment()?;
        let pairs = [
            ("gpu", &self.gpu, environment.gpu.as_str()),
            ("kind", &self.kind, environment.kind.as_str()),
            ("date", &self.date, environment.day()),
        ];
        let contradiction = pairs.into_iter().find(|(_, own, other)| own.as_str() != *other);
        if let Some((what, own, other)) = contradiction {
            let index = results.join(INDEX);
            let what = format!(
                "{what} is {other:?}, and {own:?} in {}: correct the one that is wrong",
                index.display()
            );
            return Err(HarnessError::file(&folder.path.join("environment.json"), what));
        }
        Ok((folder, environment))
    }
}

/// Returns whether a name is plain, so that it cannot escape its folder.
fn is_folder_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && is_plain(name)
}

/// Returns whether a run is sealed, so that nothing may be added to it.
pub(super) fn is_sealed(results: &Path, folder: &str) -> Result<bool, HarnessError> {
    let path = results.join(MANIFEST);
    let Some(bytes) = read_file(&path)? else { return Ok(false) };
    let text = String::from_utf8_lossy(&bytes);
    let names = text.lines().filter_map(|line| line.split_once("  ")).map(|(_, name)| name);
    Ok(names.filter_map(|name| name.split_once('/')).any(|(run, _)| run == folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> (tempfile::TempDir, Result<Index, HarnessError>) {
        let results = tempfile::tempdir().unwrap();
        std::fs::write(results.path().join(INDEX), text).unwrap();
        let index = Index::read(results.path());
        (results, index)
    }

    #[test]
    fn a_folder_outside_is_refused_by_name() {
        for name in ["..", ".", "", "../x", "/etc", "a/b", "a\\u001b[31m", "a|b", ".hidden", "é"] {
            let text = format!(
                r#"{{"runs": [{{"folder": "{name}", "gpu": "g", "date": "d", "kind": "gpu"}}]}}"#
            );
            let error = written(&text).1.unwrap_err().to_string();
            assert!(error.contains("index.json") && error.contains("plain name"), "{error}");
            assert!(!error.chars().any(char::is_control), "{error:?}");
        }
    }

    #[test]
    fn what_is_no_index_is_an_error() {
        for text in ["", "[]", "{\"runs\": 1}", "{\"runs\": [{}]}"] {
            let error = written(text).1.unwrap_err().to_string();
            assert!(error.contains("index.json"), "{error}");
        }
    }

    #[test]
    fn sealed_runs_are_those_of_the_manifest() {
        let results = tempfile::tempdir().unwrap();
        assert!(!is_sealed(results.path(), "run-01").unwrap());
        let line = format!("{}  run-01/rows.jsonl\n", "0".repeat(64));
        std::fs::write(results.path().join(MANIFEST), line).unwrap();
        assert!(is_sealed(results.path(), "run-01").unwrap());
        assert!(!is_sealed(results.path(), "run-0").unwrap());
        assert!(!is_sealed(results.path(), "rows.jsonl").unwrap());
    }
}
