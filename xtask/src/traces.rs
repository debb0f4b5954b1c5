//! The Perfetto traces that the tests leave behind, read with Perfetto's own protobufs.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::repo::Repo;
use crate::{command, install};

/// Perfetto's protobufs for Python, and what they need.
const WHEELS: [&str; 2] = ["perfetto==0.59.1", "protobuf==7.36.2"];
/// The folder of the wheels, which are installed if they are missing.
pub fn protobufs(repo: &Repo) -> Result<PathBuf> {
    let home = repo.target.join("tools/perfetto");
    install::wheels_once(&WHEELS, &home, "traces for Perfetto are checked with its own protobufs")?;
    Ok(home)
}

/// Checks every trace that the tests left in target/tmp.
pub fn check(repo: &Repo, protobufs: &Path) -> Result<()> {
    let folder = repo.target.join("tmp");
    let files = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let paths: Vec<PathBuf> = files.filter_map(|file| Some(file.ok()?.path())).collect();
    let is_trace = |path: &&PathBuf| path.extension().is_some_and(|ending| ending == "pftrace");
    let traces: Vec<&PathBuf> = paths.iter().filter(is_trace).collect();
    if traces.is_empty() {
        bail!("no trace in {}: the tests of crates/xray leave some", folder.display());
    }
    let mut python = Command::new(install::python()?);
    python.current_dir(&repo.root).env("PYTHONPATH", protobufs).arg("tools/check_pftrace.py");
    command::run(python.args(traces))
}
