//! Reads the traces that the tests export with the viewers' own code: Perfetto's protobufs, and
//! speedscope's importer.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::node::Node;
use crate::repo::Repo;
use crate::{command, install, page};

/// Perfetto's protobufs for Python, and the package that they need.
const WHEELS: [&str; 2] = ["perfetto==0.59.1", "protobuf==7.36.2"];
/// speedscope, in the page's folder.
const SPEEDSCOPE: &str = "node_modules/speedscope";

/// The folder of the wheels; installs them if they are missing.
pub fn protobufs(repo: &Repo) -> Result<PathBuf> {
    let home = repo.target.join("tools/perfetto");
    install::wheels_once(&WHEELS, &home, "they check the traces for Perfetto")?;
    Ok(home)
}

/// Checks every trace that the tests wrote to target/tmp.
pub fn check(repo: &Repo, protobufs: &Path) -> Result<()> {
    let mut python = Command::new(install::python()?);
    python.current_dir(&repo.root).env("PYTHONPATH", protobufs).arg("tools/check_pftrace.py");
    command::run(python.args(left(repo, &[".pftrace"])?))?;

    let node = Node::ensure(repo)?;
    page::install(repo, &node)?;
    let mut node = node.node(repo);
    node.args([repo.root.join("tools/check_speedscope.mjs"), repo.web().join(SPEEDSCOPE)]);
    command::run(node.args(left(repo, &[".chrome-trace.json", ".speedscope.json"])?))
}

/// The files with these endings that the tests wrote.
fn left(repo: &Repo, endings: &[&str]) -> Result<Vec<PathBuf>> {
    let folder = repo.target.join("tmp");
    let files = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<PathBuf> = files.filter_map(|file| Some(file.ok()?.path())).collect();
    paths.retain(|path| {
        let name = path.to_string_lossy();
        endings.iter().any(|ending| name.ends_with(ending))
    });
    paths.sort();
    if paths.is_empty() {
        bail!("no {} in {}: the tests of crates/xray write them", endings[0], folder.display());
    }
    Ok(paths)
}
