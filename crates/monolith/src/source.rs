//! From what the user calls a model to its weights: a folder, a pack, or a name in the hub's
//! cache.

use crate::exit::{Code, Exit, OrExit};
use crate::interrupt;
use crate::progress::Progress;
use crate::text_out::say;
use anyhow::Context;
use monolith_hub::{Error, Files, PullRequest, RepoId, Revision, Settings};
use monolith_model::{Checkpoint, Config, ModelError, Weights, synth};
use monolith_pack::{Formats, Header, Pack, Source, pack_to_bytes_as, pack_to_file_as};
use monolith_text::{Error as Text, Tokenizer};
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// Models up to this size are packed in memory each time: it takes less than a second.
const PACK_IN_MEMORY_BYTES: u64 = 64 << 20;

/// A model that was found.
pub struct Model {
    /// What the user called it.
    pub name: String,
    /// Where its tokenizer and chat template are.
    pub dir: PathBuf,
    place: Place,
}

enum Place {
    Folder { revision: Option<String> },
    Pack(PathBuf),
}

/// Finds the model, without reading its weights.
///
/// # Errors
/// Code 4 if there is no such model, code 2 for something that is none.
pub fn find(model: &OsStr) -> Result<Model, Exit> {
    let path = Path::new(model);
    let name = path.display().to_string();
    let there = metadata(path)?;
    if there.as_ref().is_some_and(Metadata::is_dir) {
        check_folder(path)?;
        return Ok(Model { name, dir: path.into(), place: Place::Folder { revision: None } });
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
        return Ok(Model { name, dir, place: Place::Pack(path.into()) });
    }
    let (repo, revision) = name.split_once('@').unwrap_or((&name, "main"));
    let (dir, commit) = cached_snapshot(repo, revision)?;
    Ok(Model { name: repo.to_owned(), dir, place: Place::Folder { revision: Some(commit) } })
}

/// The configuration of a named shape, or of a file.
///
/// # Errors
/// Code 2 for what is neither; a file that is no configuration.
pub fn shape(name: &OsStr) -> Result<Config, Exit> {
    match name.to_str().and_then(synth::shape) {
        Some(config) => Ok(config),
        None if Path::new(name).is_file() => Ok(Config::read(Path::new(name))?),
        None => {
            let what = format!(
                "--shape {}: no shape (qwen3-0.6b, tiny) and no file (of config.json's kind)",
                name.display()
            );
            Err(Exit::message(Code::Usage, what))
        }
    }
}

/// Whether this is a file that can be mapped. (To open a FIFO would wait for ever.)
///
/// # Errors
/// Code 4 if there is nothing, code 2 if it is something else.
pub fn check_file(path: &Path) -> Result<(), Exit> {
    let name = path.display();
    match metadata(path)? {
        Some(there) if there.is_file() => Ok(()),
        Some(_) => Err(Exit::message(Code::Usage, format!("{name} is no regular file"))),
        None => {
            let what = format!(
                "\"{name}\": no such file or folder (and a name on the hub is ORGANISATION/NAME)"
            );
            Err(Exit::message(Code::NoModel, what))
        }
    }
}

/// Whether this is a text that can be read.
///
/// # Errors
/// Code 2 if there is nothing, or something else.
pub fn check_text(path: &Path) -> Result<(), Exit> {
    match metadata(path)? {
        Some(there) if there.is_file() => Ok(()),
        _ => Err(Exit::message(Code::Usage, format!("{}: no such text file", path.display()))),
    }
}

/// What there is of this name, if anything; an error where the system does not let us look.
fn metadata(path: &Path) -> anyhow::Result<Option<Metadata>> {
    match std::fs::metadata(path) {
        Ok(there) => Ok(Some(there)),
        Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => {
            Ok(None)
        }
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// Whether this is a model's folder.
fn check_folder(dir: &Path) -> Result<(), Exit> {
    let name = dir.display();
    if metadata(&dir.join("config.json"))?.is_none() {
        let what = format!("{name} is no model folder: it has no config.json");
        return Err(Exit::message(Code::NoModel, what));
    }
    for entry in std::fs::read_dir(dir).with_context(|| name.to_string())? {
        let path = entry.with_context(|| name.to_string())?.path();
        let read = path
            .extension()
            .is_some_and(|end| ["json", "safetensors", "jinja"].iter().any(|known| end == *known));
        if read && std::fs::metadata(&path).is_ok_and(|there| !there.is_file()) {
            let what = format!("{} is no regular file", path.display());
            return Err(Exit::message(Code::Failure, what));
        }
    }
    Ok(())
}

/// The hub's settings, from the environment.
///
/// # Errors
/// Code 2 for a variable that makes no sense.
pub fn hub_settings() -> Result<Settings, Exit> {
    Settings::from_env(|name| std::env::var(name).ok()).map_err(|error| {
        let code = match error {
            Error::Invalid { .. } | Error::BadToken { .. } => Code::Usage,
            _ => Code::Failure,
        };
        Exit::new(code, error)
    })
}

/// Looks a name up in the hub's cache; nothing is downloaded.
fn cached_snapshot(repo: &str, revision: &str) -> Result<(PathBuf, String), Exit> {
    let mut settings = hub_settings()?;
    settings.offline = true;
    let request = PullRequest {
        repo: repo.parse::<RepoId>().or_exit(Code::Usage)?,
        revision: revision.parse::<Revision>().or_exit(Code::Usage)?,
        files: Files::Model,
    };
    let snapshot = monolith_hub::pull(&request, &settings, &mut ()).map_err(|error| {
        let Error::NotCached { cache, .. } = error else { return Exit::from(error) };
        let at = if revision == "main" { "" } else { &format!(" --revision {revision}") };
        let what = format!(
            "{repo} is no folder here and not in the cache {}: `monolith pull {repo}{at}` \
             downloads it",
            cache.display()
        );
        Exit::message(Code::NoModel, what)
    })?;
    Ok((snapshot.dir, snapshot.commit))
}

impl Model {
    /// The bf16 checkpoint, if the model is a folder.
    ///
    /// # Errors
    /// A pack (which is no checkpoint), or a damaged folder, or one of another format.
    pub fn checkpoint(&self) -> Result<Checkpoint, Exit> {
        self.open(Checkpoint::open)
    }

    /// The checkpoint in whatever format it is, if the model is a folder.
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
        match &self.place {
            Place::Folder { .. } => open(&self.dir).map_err(|error| {
                let code = match &error {
                    ModelError::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
                        Code::NoModel
                    }
                    _ => Code::Failure,
                };
                Exit::new(code, error)
            }),
            Place::Pack(path) => {
                let what = format!("{} is a pack; a model folder is wanted", path.display());
                Err(Exit::message(Code::Usage, what))
            }
        }
    }

    /// The configuration, without the weights being read.
    ///
    /// # Errors
    /// A damaged model or pack.
    pub fn config(&self) -> Result<Config, Exit> {
        match &self.place {
            Place::Folder { .. } => Ok(Checkpoint::read_config(&self.dir)?),
            Place::Pack(path) => Ok(Pack::open(path)?.config().clone()),
        }
    }

    /// Where the weights come from, for the pack's header.
    pub fn source(&self) -> Source {
        if let Place::Folder { revision: Some(commit) } = &self.place {
            return Source { model: self.name.clone(), revision: Some(commit.clone()) };
        }
        // A path says where a file lay on one machine, its last part what it is called.
        let path = Path::new(&self.name).canonicalize().unwrap_or_default();
        let model = path.file_name().map_or(self.name.clone(), |name| name.display().to_string());
        Source { model, revision: None }
    }

    /// The tokenizer, from the folder of the model or of the pack.
    ///
    /// # Errors
    /// Code 4 for one that is missing, code 1 for one that is damaged.
    pub fn tokenizer(&self) -> Result<Tokenizer, Exit> {
        let tokenizer = Tokenizer::load(&self.dir).map_err(|error| {
            let Text::Missing { path } = &error else { return Exit::from(error) };
            let cure = match &self.place {
                Place::Pack(_) => {
                    "a pack holds the weights only: copy its model's tokenizer.json, \
                     tokenizer_config.json and generation_config.json beside it"
                }
                Place::Folder { revision: Some(_) } => "pull the model again",
                Place::Folder { revision: None } => {
                    "without one the model takes no text; copy that of a model with the same \
                     vocabulary"
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

    /// The pack: the file itself, or made from the folder (and kept in the user's cache if it is
    /// large) in these formats, without any in those in which it is stored.
    ///
    /// # Errors
    /// A damaged model or pack, code 2 for a pack of other formats, weights that the formats do
    /// not hold, or a cache that cannot be written to.
    pub fn pack(&self, formats: Option<Formats>) -> Result<Arc<Pack>, Exit> {
        let _progress = Progress::new(format!("reading {}", self.name));
        if let Place::Pack(path) = &self.place {
            let pack = Pack::open(path)?;
            check_formats(&pack, formats, path)?;
            return Ok(Arc::new(pack));
        }
        let checkpoint = self.checkpoint_as_stored()?;
        let formats = formats.unwrap_or_else(|| Formats::as_stored(&checkpoint));
        let bytes: u64 =
            checkpoint.files().filter_map(|file| file.metadata().ok()).map(|m| m.len()).sum();
        if bytes <= PACK_IN_MEMORY_BYTES {
            let pack = pack_to_bytes_as(&checkpoint, self.source(), formats)?;
            return Ok(Arc::new(Pack::from_bytes(pack, &self.name)?));
        }
        let path = cache_dir()?.join(format!("{}.pack", fingerprint(&checkpoint, formats)?));
        if let Ok(pack) = Pack::open(&path) {
            return Ok(Arc::new(pack));
        }
        let (name, format) = (&self.name, formats.name());
        say(&format!("packing {name} as {format} into {} (once)", path.display()));
        write_pack(&checkpoint, self.source(), formats, &path)?;
        Ok(Arc::new(Pack::open(&path)?))
    }
}

/// Whether a pack is in the formats asked for, if any were.
fn check_formats(pack: &Pack, asked: Option<Formats>, path: &Path) -> Result<(), Exit> {
    let found = pack.header().formats;
    match asked {
        Some(asked) if asked != found => {
            let what = format!(
                "--format {}: {} is {}; name the model's folder, or leave --format out",
                asked.name(),
                path.display(),
                found.name()
            );
            Err(Exit::message(Code::Usage, what))
        }
        _ => Ok(()),
    }
}

/// Writes a pack under a progress bar.
///
/// # Errors
/// A folder that cannot be written to, or weights that the formats do not hold; code 130 for
/// Ctrl-C, which leaves no file.
pub fn write_pack(
    weights: &dyn Weights,
    source: Source,
    formats: Formats,
    path: &Path,
) -> Result<Header, Exit> {
    let _guard = interrupt::guard();
    let progress = Progress::bytes("packing");
    let written = pack_to_file_as(weights, source, formats, path, |done, total| {
        progress.at(done, total);
        interrupt::check()
    });
    drop(progress);
    match written {
        Err(_) if interrupt::raised() => {
            let what = format!("interrupted: {} was not written", path.display());
            Err(Exit::message(Code::Interrupted, what))
        }
        written => Ok(written?),
    }
}

/// The folder for packs, and for the last fault: `MONOLITH_CACHE`, or `monolith` in the user's
/// cache folder.
pub fn cache_dir() -> Result<PathBuf, Exit> {
    let dir = match std::env::var_os("MONOLITH_CACHE").filter(|dir| !dir.is_empty()) {
        Some(dir) => PathBuf::from(dir),
        None => dirs::cache_dir()
            .context("no folder for packs: set MONOLITH_CACHE, XDG_CACHE_HOME or HOME")?
            .join("monolith"),
    };
    std::fs::create_dir_all(&dir).with_context(|| {
        format!("{}: no folder for packs: set MONOLITH_CACHE to another one", dir.display())
    })?;
    Ok(dir)
}

/// Names a pack by its formats and its checkpoint's configuration and files, by name, size and
/// time: enough to notice a change, at no reading of the weights.
fn fingerprint(checkpoint: &Checkpoint, formats: Formats) -> anyhow::Result<String> {
    let mut hash = Sha256::new();
    hash.update(monolith_abi::pack::LAYOUT_VERSION.to_le_bytes());
    hash.update(formats.name());
    hash.update(std::fs::read(checkpoint.dir().join("config.json"))?);
    for file in checkpoint.files() {
        let file = file.canonicalize()?;
        let metadata = file.metadata()?;
        let modified = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        hash.update(file.to_string_lossy().as_bytes());
        hash.update(metadata.len().to_le_bytes());
        hash.update(modified.as_nanos().to_le_bytes());
    }
    Ok(hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect())
}
