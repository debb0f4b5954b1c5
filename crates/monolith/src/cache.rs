//! The user's cache folder: packs that were made once, and the last fault.

use crate::exit::Exit;
use anyhow::Context;
use monolith_model::Checkpoint;
use monolith_pack::Recipe;
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

/// Returns the folder for packs and for the last fault: `MONOLITH_CACHE`, or `monolith` in the
/// user's cache folder.
///
/// # Errors
/// No such folder is known, or it cannot be made.
pub fn dir() -> Result<PathBuf, Exit> {
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

/// Returns the file that keeps the pack of this checkpoint by this recipe.
///
/// # Errors
/// No cache folder; a checkpoint that cannot be read.
pub fn pack_path(checkpoint: &Checkpoint, recipe: &Recipe) -> Result<PathBuf, Exit> {
    Ok(dir()?.join(format!("{}.pack", fingerprint(checkpoint, recipe)?)))
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
