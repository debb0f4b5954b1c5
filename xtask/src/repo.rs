//! The checkout we work in.

use anyhow::{Context, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{command, install};

/// The checkout: its folders and what cargo says about it.
pub struct Repo {
    /// The repository's root.
    pub root: PathBuf,
    /// Where cargo builds.
    pub target: PathBuf,
    /// `cargo metadata --no-deps`.
    pub metadata: Value,
}

impl Repo {
    /// The workspace that cargo runs us in.
    pub fn find() -> Result<Repo> {
        let mut cargo = Command::new(cargo_program());
        cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]);
        let metadata = serde_json::from_str(&command::output(&mut cargo)?)
            .context("`cargo metadata` did not print JSON")?;
        Ok(Repo {
            root: folder(&metadata, "workspace_root")?,
            target: folder(&metadata, "target_directory")?,
            metadata,
        })
    }

    /// Cargo, to be run in the root.
    pub fn cargo(&self) -> Command {
        let mut cargo = Command::new(cargo_program());
        cargo.current_dir(&self.root);
        cargo
    }

    /// The web page's folder.
    pub fn web(&self) -> PathBuf {
        self.root.join("web")
    }

    /// The files that git tracks and that exist, as paths from the root.
    pub fn tracked(&self) -> Result<Vec<String>> {
        let mut git = Command::new(install::git()?);
        // In a container, the user often does not own the checkout.
        git.args(["-c", "safe.directory=*", "ls-files", "-z"]).current_dir(&self.root);
        let listed = command::output(&mut git).context("tidy needs a git checkout")?;
        let paths = listed.split('\0').filter(|path| !path.is_empty()).map(String::from);
        Ok(paths.filter(|path| self.root.join(path).is_file()).collect())
    }
}

/// The cargo that runs us, so that a toolchain override (`cargo +nightly`) is kept.
fn cargo_program() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
}

fn folder(metadata: &Value, key: &str) -> Result<PathBuf> {
    let path = metadata[key].as_str();
    path.map(PathBuf::from).with_context(|| format!("`cargo metadata` has no {key}"))
}

/// The path of the first of these programs that is on PATH.
pub fn program_on_path(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    names.iter().find_map(|name| folders.iter().map(|at| at.join(name)).find(|at| at.is_file()))
}

/// The text of a file; the error names the file.
pub fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("could not read {}", path.display()))
}
