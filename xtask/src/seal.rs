//! Seals runs in `results/`: from then on `cargo xtask tidy` refuses any change to their files.

use anyhow::{Result, ensure};

use crate::repo::Repo;
use crate::say;
use crate::tidy::runs;

/// What to seal.
#[derive(clap::Args)]
pub struct Options {
    /// Folders in results/ [default: every run that is not sealed]
    runs: Vec<String>,
}

/// Writes the hash of every file of these runs into `results/MANIFEST`.
pub fn run(repo: &Repo, options: &Options) -> Result<()> {
    let named = !options.runs.is_empty();
    let chosen = if named { options.runs.clone() } else { runs::unsealed(&repo.root)? };
    ensure!(!chosen.is_empty(), "seal: every run in results/ is sealed already");
    // All or none: a mistyped name seals nothing.
    let lines = chosen.iter().map(|run| runs::seal(&repo.root, run)).collect::<Result<String>>()?;
    runs::append(&repo.root, &lines)?;
    let files = lines.lines().count();
    say::line(format_args!(
        "seal: {} ({files} files): commit them with results/MANIFEST",
        chosen.join(", ")
    ));
    Ok(())
}
