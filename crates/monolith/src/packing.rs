//! Gets a model's pack: an existing file, or one made from the model folder.

use crate::args::{FormatArgs, PackArgs};
use crate::exit::{Code, Exit};
use crate::progress::Progress;
use crate::source::{Model, Place, cache_dir};
use crate::text_out::say;
use crate::{interrupt, room};
use monolith_model::{Checkpoint, Weights};
use monolith_pack::{Formats, Header, Pack, Recipe, ScaleSearch};
use monolith_text::StopTokens;
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// Models up to this size are packed in memory each time, which takes about a second.
const PACK_IN_MEMORY_BYTES: u64 = 64 << 20;

/// The format and scales that the command line asks for; the defaults come from the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AskedPack {
    /// The format of every matrix.
    pub formats: Option<Formats>,
    /// How scales are chosen.
    pub scale_search: Option<ScaleSearch>,
}

impl AskedPack {
    /// These formats.
    pub fn of(formats: Formats) -> AskedPack {
        AskedPack { formats: Some(formats), scale_search: None }
    }

    /// Returns the recipe of such a pack for a checkpoint.
    ///
    /// # Errors
    /// Code 2 for a scale search in a format without scales.
    fn recipe(self, model: &Model, checkpoint: &Checkpoint) -> Result<Recipe, Exit> {
        let formats = self.formats.unwrap_or_else(|| Formats::as_stored(checkpoint));
        let search = self.scale_search.unwrap_or_default();
        if search != ScaleSearch::Amax && !formats.has_scales() {
            let what = format!(
                "--scale-search {}: weights in {} have no scales; add --format fp8",
                search.name(),
                formats.name()
            );
            return Err(Exit::message(Code::Usage, what));
        }
        Ok(Recipe::new(model.source(), formats).scale_search(search))
    }

    /// Checks that an existing pack has the requested formats and scales.
    ///
    /// # Errors
    /// Code 2 for a pack of other formats or scales.
    fn check(self, header: &Header, path: &Path) -> Result<(), Exit> {
        let name = path.display();
        if let Some(formats) = self.formats.filter(|formats| *formats != header.formats) {
            let what = format!(
                "--format {}: {name} is {}; name the model's folder, or omit --format",
                formats.name(),
                header.formats.name()
            );
            return Err(Exit::message(Code::Usage, what));
        }
        if let Some(search) = self.scale_search.filter(|search| *search != header.scale_search) {
            let what = format!(
                "--scale-search {}: the scales of {name} were chosen by {}; name the model's \
                 folder, or omit --scale-search",
                search.name(),
                header.scale_search.name()
            );
            return Err(Exit::message(Code::Usage, what));
        }
        Ok(())
    }
}

impl From<&FormatArgs> for AskedPack {
    fn from(args: &FormatArgs) -> AskedPack {
        AskedPack { formats: args.format, scale_search: args.scale_search }
    }
}

impl Model {
    /// Opens the pack, or makes it from the folder (and keeps a large one in the user's cache).
    ///
    /// # Errors
    /// A damaged model or pack; code 2 for a pack with other formats or scales; weights that the
    /// formats cannot hold; a cache that is not writable.
    pub fn pack(&self, asked: AskedPack) -> Result<Arc<Pack>, Exit> {
        let progress = Progress::bytes(format!("reading {}", self.name));
        let open = |path: &Path| {
            Pack::open_watched(path, &|done, total| {
                progress.at(done, total);
                Ok(())
            })
        };
        if let Place::Pack(path) = &self.place {
            let pack = open(path)?;
            asked.check(pack.header(), path)?;
            return Ok(Arc::new(pack));
        }
        let checkpoint = self.checkpoint_as_stored()?;
        let recipe = asked.recipe(self, &checkpoint)?;
        let bytes: u64 =
            checkpoint.files().filter_map(|file| file.metadata().ok()).map(|m| m.len()).sum();
        if bytes <= PACK_IN_MEMORY_BYTES {
            let pack = recipe.to_bytes(&checkpoint)?;
            return Ok(Arc::new(Pack::from_bytes(pack, &self.name)?));
        }
        let path = cache_dir()?.join(format!("{}.pack", fingerprint(&checkpoint, &recipe)?));
        if let Ok(pack) = open(&path) {
            return Ok(Arc::new(pack));
        }
        let (name, format) = (&self.name, recipe.formats.name());
        say(&format!("packing {name} as {format} into {} (once)", path.display()));
        write(&recipe, &checkpoint, &path)?;
        Ok(Arc::new(open(&path)?))
    }

    /// Returns the token ids that end a generation. A folder has them in its files. For a pack, a
    /// `generation_config.json` beside it comes first, then the ids that its header recorded. An
    /// older pack without recorded ids takes them from a `config.json` beside it, or from the
    /// configuration in its header.
    ///
    /// # Errors
    /// A damaged file.
    pub fn stop_tokens(&self, pack: &Pack) -> Result<StopTokens, Exit> {
        let beside = StopTokens::load(&self.dir)?;
        let generation = OsStr::new("generation_config.json");
        let is_final = match &self.place {
            Place::Folder { .. } => true,
            Place::Pack(_) => beside.source().is_some_and(|path| path.ends_with(generation)),
        };
        Ok(match &pack.header().end_ids {
            _ if is_final => beside,
            Some(ids) => ids.iter().copied().collect(),
            None if beside.source().is_some() => beside,
            None => pack.config().eos_ids.iter().copied().collect(),
        })
    }
}

/// Packs a model's folder into the file that the command line names.
///
/// # Errors
/// A missing or damaged model, or an error of [`write()`].
pub fn to_file(model: &Model, args: &PackArgs) -> Result<Header, Exit> {
    let checkpoint = model.checkpoint_as_stored()?;
    let end = StopTokens::load(&model.dir)?;
    let recipe = AskedPack::from(&args.format).recipe(model, &checkpoint)?;
    let recipe = recipe.end_ids(end.ids().iter().copied());
    write(&recipe, &checkpoint, &args.out)
}

/// Writes a pack with a progress bar.
///
/// # Errors
/// A folder that cannot be written to, or weights that the formats cannot hold; code 130 for
/// Ctrl-C, after which no file is left.
fn write(recipe: &Recipe, weights: &dyn Weights, path: &Path) -> Result<Header, Exit> {
    room::check(path, recipe.payload_bytes(weights.config()))?;
    let _guard = interrupt::guard();
    let progress = Progress::bytes("packing");
    let written = recipe.write(weights, path, |done, total| {
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

/// Hashes the recipe, the checkpoint's configuration, and the names, sizes and times of its files.
/// This detects a change without reading the weights.
fn fingerprint(checkpoint: &Checkpoint, recipe: &Recipe) -> anyhow::Result<String> {
    let mut hash = Sha256::new();
    hash.update(monolith_abi::pack::LAYOUT_VERSION.to_le_bytes());
    hash.update(recipe.formats.name().as_bytes());
    hash.update(recipe.scale_search.name());
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
