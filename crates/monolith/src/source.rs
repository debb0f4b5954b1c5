//! Finds the model that the user names: a folder, a pack, or a name in the hub's cache.

use crate::exit::{Code, Exit};
use crate::hub::cached_snapshot;
use crate::text_out::say;
use anyhow::Context;
use monolith_model::{Checkpoint, Config, ModelError, synth};
use monolith_pack::{Pack, Source};
use monolith_text::{Error as Text, Tokenizer};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// A model that exists.
pub struct Model {
    /// The name that the user gave.
    pub name: String,
    /// The folder of its tokenizer and chat template.
    pub dir: PathBuf,
    pub(crate) place: Place,
    /// Whether the remarks on the checkpoint were printed.
    said: AtomicBool,
}

/// Where its weights are.
pub(crate) enum Place {
    /// In a folder; one in the hub's cache is the snapshot of this commit.
    Folder { revision: Option<String> },
    /// In a pack.
    Pack(PathBuf),
}

/// Finds the model, without reading its weights.
///
/// # Errors
/// Code 4 if there is no such model, code 2 for something that is not a model.
pub fn find(model: &OsStr) -> Result<Model, Exit> {
    let path = Path::new(model);
    let name = path.display().to_string();
    let there = metadata(path)?;
    if there.as_ref().is_some_and(Metadata::is_dir) {
        check_folder(path)?;
        return Ok(Model::new(name, path.into(), Place::Folder { revision: None }));
    }
    let looks_like_path = path.extension().is_some_and(|end| end == "pack")
        || name.starts_with(['.', '/', '~'])
        || name.matches('/').count() != 1;
    if looks_like_path || there.is_some() {
        check_file(path)?;
        if path.extension().is_some_and(|end| end == "safetensors" || end == "json") {
            let what = format!("{name} is one file of a model: name its folder, or a pack");
            return Err(Exit::message(Code::Usage, what));
        }
        let dir = path.parent().unwrap_or(Path::new(".")).into();
        return Ok(Model::new(name, dir, Place::Pack(path.into())));
    }
    let (repo, revision) = name.split_once('@').unwrap_or((&name, "main"));
    let (dir, commit) = cached_snapshot(repo, revision)?;
    Ok(Model::new(repo.to_owned(), dir, Place::Folder { revision: Some(commit) }))
}

/// Returns the configuration of a named shape, or reads one from a file.
///
/// # Errors
/// Code 2 if the argument is neither; a file that holds no configuration.
pub fn shape(name: &OsStr) -> Result<Config, Exit> {
    match name.to_str().and_then(synth::shape) {
        Some(config) => Ok(config),
        None if Path::new(name).is_file() => Ok(Config::read(Path::new(name))?),
        None => {
            let what = format!(
                "--shape {}: neither a named shape (qwen3-0.6b, tiny) nor a file like config.json",
                name.display()
            );
            Err(Exit::message(Code::Usage, what))
        }
    }
}

/// Checks that the path is a regular file, which can be mapped. (Opening a FIFO would block.)
///
/// # Errors
/// Code 4 if nothing has this path, code 2 if it is no regular file.
pub fn check_file(path: &Path) -> Result<(), Exit> {
    let name = path.display();
    match metadata(path)? {
        Some(there) if there.is_file() => Ok(()),
        Some(_) => Err(Exit::message(Code::Usage, format!("{name} is not a regular file"))),
        None => {
            let what = format!(
                "\"{name}\": no such file or folder (a name on the hub is ORGANISATION/NAME)"
            );
            Err(Exit::message(Code::NoModel, what))
        }
    }
}

/// Checks that the path is a regular file.
///
/// # Errors
/// Code 2 if it is not.
pub fn check_text(path: &Path) -> Result<(), Exit> {
    match metadata(path)? {
        Some(there) if there.is_file() => Ok(()),
        _ => Err(Exit::message(Code::Usage, format!("{}: no such text file", path.display()))),
    }
}

/// Returns the metadata of this path if it exists, or an error if the system denies access.
fn metadata(path: &Path) -> anyhow::Result<Option<Metadata>> {
    match std::fs::metadata(path) {
        Ok(there) => Ok(Some(there)),
        Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => {
            Ok(None)
        }
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// Checks that the path is a model's folder.
fn check_folder(dir: &Path) -> Result<(), Exit> {
    let name = dir.display();
    if metadata(&dir.join("config.json"))?.is_none() {
        let what = format!("{name} is not a model folder: it has no config.json");
        return Err(Exit::message(Code::NoModel, what));
    }
    for entry in std::fs::read_dir(dir).with_context(|| name.to_string())? {
        let path = entry.with_context(|| name.to_string())?.path();
        let read = path
            .extension()
            .is_some_and(|end| ["json", "safetensors", "jinja"].iter().any(|known| end == *known));
        if read && std::fs::metadata(&path).is_ok_and(|there| !there.is_file()) {
            let what = format!("{} is not a regular file", path.display());
            return Err(Exit::message(Code::Failure, what));
        }
    }
    Ok(())
}

impl Model {
    fn new(name: String, dir: PathBuf, place: Place) -> Model {
        Model { name, dir, place, said: AtomicBool::new(false) }
    }

    /// Opens a model folder as a checkpoint without FP8 tensors.
    ///
    /// # Errors
    /// A pack (which is no checkpoint), a damaged folder, or one of another format.
    pub fn checkpoint(&self) -> Result<Checkpoint, Exit> {
        self.open(Checkpoint::open)
    }

    /// Opens a model folder as a checkpoint in its stored format.
    ///
    /// # Errors
    /// A pack (which is no checkpoint), or a damaged folder.
    pub fn checkpoint_as_stored(&self) -> Result<Checkpoint, Exit> {
        self.open(Checkpoint::open_quantized)
    }

    fn open(
        &self,
        open: impl FnOnce(&Path) -> Result<Checkpoint, ModelError>,
    ) -> Result<Checkpoint, Exit> {
        if let Place::Pack(path) = &self.place {
            let what = format!("{} is a pack; name a model folder", path.display());
            return Err(Exit::message(Code::Usage, what));
        }
        let checkpoint = open(&self.dir).map_err(|error| {
            let code = match &error {
                ModelError::NoWeights { .. } => Code::NoModel,
                ModelError::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
                    Code::NoModel
                }
                _ => Code::Failure,
            };
            Exit::new(code, error)
        })?;
        // Only once, even if the command opens it several times.
        if !self.said.swap(true, Ordering::Relaxed) {
            for remark in checkpoint.remarks() {
                say(&format!("monolith: {}: {remark}", self.name));
            }
        }
        Ok(checkpoint)
    }

    /// Reads the configuration, but not the weights.
    ///
    /// # Errors
    /// A damaged model or pack.
    pub fn config(&self) -> Result<Config, Exit> {
        match &self.place {
            Place::Folder { .. } => Ok(Checkpoint::read_config(&self.dir)?),
            Place::Pack(path) => Ok(Pack::open(path)?.config().clone()),
        }
    }

    /// Returns where the weights come from, for the pack's header.
    pub fn source(&self) -> Source {
        if let Place::Folder { revision: Some(commit) } = &self.place {
            return Source { model: self.name.clone(), revision: Some(commit.clone()) };
        }
        // A path is valid on one machine only; its last part is the model's name.
        let path = Path::new(&self.name).canonicalize().unwrap_or_default();
        let model = path.file_name().map_or(self.name.clone(), |name| name.display().to_string());
        Source { model, revision: None }
    }

    /// Reads the tokenizer from the folder of the model or of the pack.
    ///
    /// # Errors
    /// Code 4 for a missing tokenizer, code 1 for a damaged one.
    pub fn tokenizer(&self) -> Result<Tokenizer, Exit> {
        let tokenizer = Tokenizer::load(&self.dir).map_err(|error| {
            let Text::Missing { path } = &error else { return Exit::from(error) };
            let cure = match &self.place {
                Place::Pack(_) => {
                    "a pack holds no tokenizer: copy its model's tokenizer.json and \
                     tokenizer_config.json beside it"
                }
                Place::Folder { revision: Some(_) } => "pull the model again",
                Place::Folder { revision: None } => {
                    "text needs one; copy it from a model with the same vocabulary"
                }
            };
            let what = format!("{}: no such file; {cure}", path.display());
            Exit::message(Code::NoModel, what)
        })?;
        for warning in tokenizer.warnings() {
            say(&format!("monolith: {warning}"));
        }
        Ok(tokenizer)
    }
}
