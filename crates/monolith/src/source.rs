//! From what the user calls a model to its weights: a folder, a pack, or a name in the hub's
//! cache.

use crate::args::ModelArgs;
use crate::exit::{Code, Exit, OrExit};
use crate::progress::bytes_bar;
use crate::text_out::say;
use anyhow::Context;
use monolith_hub::{Files, PullRequest, RepoId, Revision, Settings};
use monolith_model::{Checkpoint, Weights};
use monolith_pack::{Pack, Source, pack_to_bytes, pack_to_file};
use sha2::{Digest, Sha256};
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
/// Code 4 if there is no such model.
pub fn find(args: &ModelArgs) -> Result<Model, Exit> {
    let path = Path::new(&args.model);
    let model = |dir: &Path, place| Model { name: args.model.clone(), dir: dir.into(), place };
    if path.is_dir() {
        return Ok(model(path, Place::Folder { revision: None }));
    }
    if path.is_file() {
        let dir = path.parent().unwrap_or(Path::new("."));
        return Ok(model(dir, Place::Pack(path.into())));
    }
    let looks_like_path = path.extension().is_some_and(|end| end == "pack")
        || args.model.starts_with(['.', '/', '~'])
        || args.model.matches('/').count() != 1;
    if looks_like_path {
        return Err(Exit::message(
            Code::NoModel,
            format!("{}: no such file or folder", args.model),
        ));
    }
    let (dir, commit) = cached_snapshot(&args.model)?;
    Ok(model(&dir, Place::Folder { revision: Some(commit) }))
}

/// Looks a name up in the hub's cache; nothing is downloaded.
fn cached_snapshot(name: &str) -> Result<(PathBuf, String), Exit> {
    let (repo, revision) = name.split_once('@').unwrap_or((name, "main"));
    let mut settings =
        Settings::from_env(|name| std::env::var(name).ok()).or_exit(Code::NoModel)?;
    settings.offline = true;
    let request = PullRequest {
        repo: repo.parse::<RepoId>().or_exit(Code::Usage)?,
        revision: revision.parse::<Revision>().or_exit(Code::Usage)?,
        files: Files::Model,
    };
    let snapshot = monolith_hub::pull(&request, &settings, &mut ()).map_err(|error| {
        let cure = format!("{name} is not here: `monolith pull {repo}` downloads it ({error})");
        Exit::message(Code::NoModel, cure)
    })?;
    Ok((snapshot.dir, snapshot.commit))
}

impl Model {
    /// The checkpoint, if the model is a folder.
    ///
    /// # Errors
    /// A pack (which is no checkpoint), or a damaged folder.
    pub fn checkpoint(&self) -> Result<Checkpoint, Exit> {
        match &self.place {
            Place::Folder { .. } => {
                let code = if self.dir.join("config.json").exists() {
                    Code::Failure
                } else {
                    Code::NoModel
                };
                Checkpoint::open(&self.dir).or_exit(code)
            }
            Place::Pack(path) => {
                let what = format!("{} is a pack; a model folder is wanted", path.display());
                Err(Exit::message(Code::Usage, what))
            }
        }
    }

    /// Where the weights come from, for the pack's header.
    pub fn source(&self) -> Source {
        let revision = match &self.place {
            Place::Folder { revision } => revision.clone(),
            Place::Pack(_) => None,
        };
        // A path says where a file lay on one machine, its last part what it is called.
        let name = Path::new(&self.name).file_name().filter(|_| self.dir == Path::new(&self.name));
        let model = name.map_or(self.name.clone(), |name| name.to_string_lossy().into_owned());
        Source { model, revision }
    }

    /// The pack: the file itself, or made from the folder (and kept in the user's cache if it is
    /// large).
    ///
    /// # Errors
    /// A damaged model or pack, or a cache that cannot be written to.
    pub fn pack(&self) -> Result<Arc<Pack>, Exit> {
        if let Place::Pack(path) = &self.place {
            return Ok(Arc::new(Pack::open(path)?));
        }
        let checkpoint = self.checkpoint()?;
        let bytes: u64 =
            checkpoint.files().filter_map(|file| file.metadata().ok()).map(|m| m.len()).sum();
        if bytes <= PACK_IN_MEMORY_BYTES {
            let pack = pack_to_bytes(&checkpoint, self.source());
            return Ok(Arc::new(Pack::from_bytes(pack, &self.name)?));
        }
        let path = cache_dir()?.join(format!("{}.pack", fingerprint(&checkpoint)?));
        if let Ok(pack) = Pack::open(&path) {
            return Ok(Arc::new(pack));
        }
        say(&format!("packing {} into {} (once)", self.name, path.display()));
        write_pack(&checkpoint, self.source(), &path)?;
        Ok(Arc::new(Pack::open(&path)?))
    }
}

/// Writes a pack under a progress bar.
///
/// # Errors
/// A folder that cannot be written to.
pub fn write_pack(weights: &dyn Weights, source: Source, path: &Path) -> Result<(), Exit> {
    let bar = bytes_bar("packing", 0);
    pack_to_file(weights, source, path, |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    Ok(())
}

/// The folder for packs: `MONOLITH_CACHE`, or `monolith` in the user's cache folder.
fn cache_dir() -> Result<PathBuf, Exit> {
    let dir = match std::env::var_os("MONOLITH_CACHE").filter(|dir| !dir.is_empty()) {
        Some(dir) => PathBuf::from(dir),
        None => dirs::cache_dir()
            .context("no folder for packs: set MONOLITH_CACHE, XDG_CACHE_HOME or HOME")?
            .join("monolith"),
    };
    std::fs::create_dir_all(&dir).with_context(|| format!("{}", dir.display()))?;
    Ok(dir)
}

/// Names a checkpoint by its configuration and its files' names, sizes and times: enough to
/// notice a change, at no reading of the weights.
fn fingerprint(checkpoint: &Checkpoint) -> anyhow::Result<String> {
    let mut hash = Sha256::new();
    hash.update(monolith_abi::pack::LAYOUT_VERSION.to_le_bytes());
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
