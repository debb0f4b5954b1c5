use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::cache::Cache;
use crate::client::{Client, Subject};
use crate::name::check_file_name;
use crate::{Error, Progress, RepoId, Revision, Settings, download, remote};

const WEIGHTS: &str = "model.safetensors";
const WEIGHTS_INDEX: &str = "model.safetensors.index.json";

/// The files to pull.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Files {
    /// The files for running a model, in the top folder: `config.json`, `generation_config.json`,
    /// `tokenizer*`, `special_tokens_map.json`, `chat_template.jinja`, `*.safetensors` and
    /// `*.safetensors.index.json`. It is an error if there is no `config.json`, no `tokenizer.json`
    /// or no weights.
    #[default]
    Model,
    /// Only these, each by its path in the repository. It is an error if one is missing.
    Named(Vec<String>),
}

/// What to pull.
#[derive(Debug, Clone)]
pub struct PullRequest {
    /// The repository.
    pub repo: RepoId,
    /// The branch, tag or commit.
    pub revision: Revision,
    /// The files.
    pub files: Files,
}

/// Files of one commit, in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The folder that holds them.
    pub dir: PathBuf,
    /// The commit they are from.
    pub commit: String,
    /// The files' paths in the folder, sorted. Online, all requested files; offline, with
    /// [`Files::Model`], those of them that are in the cache.
    pub files: Vec<String>,
    /// How many of them this call downloaded.
    pub downloaded: usize,
}

/// Makes sure that the files are in the cache, and returns their folder.
///
/// It does not download cached files again; a commit whose [`Files::Named`] are all cached needs no
/// connection. A branch is looked up each time, and its entry in the cache changes only when all
/// its files are there. With [`Settings::offline`] it makes no connection: all files must be in the
/// cache.
///
/// # Errors
/// See [`Error`]; the variant tells apart bad names, refusals, missing files, an offline cache
/// without the files, a failing network, wrong contents and a failing disk.
pub fn pull(
    request: &PullRequest,
    settings: &Settings,
    progress: &mut dyn Progress,
) -> Result<Snapshot, Error> {
    if let Files::Named(names) = &request.files {
        names.iter().try_for_each(|name| check_file_name(name))?;
    }
    let cache = Cache::new(&settings.cache_dir, &request.repo);
    if settings.offline {
        return cached(request, &cache);
    }
    let cannot_have_changed =
        request.revision.is_commit() && matches!(request.files, Files::Named(_));
    match cannot_have_changed.then(|| cached(request, &cache)) {
        Some(Ok(snapshot)) => Ok(snapshot),
        _ => online(request, settings, &cache, progress),
    }
}

fn cached(request: &PullRequest, cache: &Cache) -> Result<Snapshot, Error> {
    let commit = cache.commit_of(&request.revision)?;
    let commit = commit.as_deref().unwrap_or_default();
    let has = |file: &str| !commit.is_empty() && cache.has(commit, file);
    let dir = cache.snapshot_dir(commit);
    let (missing, files) = match &request.files {
        Files::Model => (
            first_missing(has, Some(&dir)),
            cache.files(commit).into_iter().filter(|name| is_model_file(name)).collect(),
        ),
        Files::Named(names) => {
            (names.iter().find(|name| !has(name)).cloned(), sorted(names.clone()))
        }
    };
    if let Some(file) = missing {
        check_file_name(&file)?;
        return Err(Error::NotCached {
            repo: request.repo.to_string(),
            revision: request.revision.to_string(),
            file,
            cache: cache.root().to_owned(),
        });
    }
    Ok(Snapshot { dir, commit: commit.to_owned(), files, downloaded: 0 })
}

fn online(
    request: &PullRequest,
    settings: &Settings,
    cache: &Cache,
    progress: &mut dyn Progress,
) -> Result<Snapshot, Error> {
    let client = Client::new(settings)?;
    let listing = remote::listing(&client, &request.repo, &request.revision, progress)?;
    let commit = listing.commit;
    let files = selected(request, listing.files)?;

    let mut missing = Vec::new();
    for file in files.iter().filter(|file| !cache.has(&commit, file)) {
        missing.push(remote::metadata(&client, &request.repo, &commit, file, progress)?);
    }
    // Small files first, so that the files of a broken pull show which model it is.
    missing.sort_by_key(|file| file.size_bytes);

    let to_download: Vec<_> =
        missing.iter().filter(|file| !cache.blob(&file.checksum).is_file()).collect();
    progress.planned(to_download.len(), to_download.iter().map(|file| file.size_bytes).sum());
    let downloaded = to_download.len();
    for file in &missing {
        let subject = Subject { repo: &request.repo, revision: &commit, file: Some(&file.name) };
        download::blob(&client, cache, file, subject, progress)?;
        cache.link(&commit, &file.name, &file.checksum)?;
    }

    let dir = cache.snapshot_dir(&commit);
    if request.files == Files::Model {
        let has = |file: &str| cache.has(&commit, file);
        refuse_missing(request, first_missing(has, Some(&dir)))?;
    }
    cache.set_commit(&request.revision, &commit)?;
    Ok(Snapshot { dir, commit, files, downloaded })
}

/// Returns the requested files of a repository.
fn selected(request: &PullRequest, available: Vec<String>) -> Result<Vec<String>, Error> {
    let has = |file: &str| available.iter().any(|name| name == file);
    match &request.files {
        Files::Model => {
            refuse_missing(request, first_missing(has, None))?;
            Ok(sorted(available.into_iter().filter(|name| is_model_file(name)).collect()))
        }
        Files::Named(names) => {
            refuse_missing(request, names.iter().find(|name| !has(name)).cloned())?;
            Ok(sorted(names.clone()))
        }
    }
}

fn refuse_missing(request: &PullRequest, missing: Option<String>) -> Result<(), Error> {
    let Some(file) = missing else { return Ok(()) };
    check_file_name(&file)?;
    let (repo, revision) = (request.repo.to_string(), request.revision.to_string());
    Err(Error::FileNotFound { repo, revision, file })
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    names.dedup();
    names
}

/// Those of [`Files::Model`] that are neither the tokenizer nor weights.
const OTHER_MODEL_FILES: [&str; 4] =
    ["config.json", "generation_config.json", "chat_template.jinja", "special_tokens_map.json"];

/// Returns whether a file is one of [`Files::Model`]. Such a name is also a safe file name.
fn is_model_file(name: &str) -> bool {
    let wanted = OTHER_MODEL_FILES.contains(&name)
        || name.starts_with("tokenizer")
        || name.ends_with(".safetensors")
        || name.ends_with(".safetensors.index.json");
    wanted && !name.contains('/') && check_file_name(name).is_ok()
}

/// Returns the first required file that is missing. If the weights are sharded, the index in `dir`
/// lists the shards.
fn first_missing(has: impl Fn(&str) -> bool, dir: Option<&Path>) -> Option<String> {
    if let Some(name) = ["config.json", "tokenizer.json"].into_iter().find(|name| !has(name)) {
        return Some(name.to_owned());
    }
    if has(WEIGHTS) {
        return None;
    }
    if !has(WEIGHTS_INDEX) {
        return Some(WEIGHTS.to_owned());
    }
    weight_parts(&dir?.join(WEIGHTS_INDEX))
        .into_iter()
        .find(|part| check_file_name(part).is_err() || !has(part))
}

#[derive(Deserialize)]
struct WeightIndex {
    weight_map: BTreeMap<String, String>,
}

/// Returns the files that an index names; none if it is unreadable (the model's loader reports it).
fn weight_parts(index: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(index).unwrap_or_default();
    let index = serde_json::from_str(&text);
    sorted(index.map_or(Vec::new(), |index: WeightIndex| index.weight_map.into_values().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_files() {
        for name in [
            "config.json",
            "generation_config.json",
            "tokenizer.json",
            "tokenizer_config.json",
            "chat_template.jinja",
            "special_tokens_map.json",
            "model.safetensors",
            "model-00001-of-00002.safetensors",
            "model.safetensors.index.json",
        ] {
            assert!(is_model_file(name), "{name}");
        }
        for name in [
            "README.md",
            "pytorch_model.bin",
            "onnx/config.json",
            "../../x.safetensors",
            "tokenizer/../../../x",
            "sub/model.safetensors",
            "tokenizer\\..\\x",
            "merges.txt",
        ] {
            assert!(!is_model_file(name), "{name}");
        }
    }
}
