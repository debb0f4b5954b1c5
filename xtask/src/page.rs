//! The web page: its packages and its npm scripts.

use anyhow::{Context, Result, bail};

use crate::node::Node;
use crate::repo::{Repo, read};
use crate::{command, say};

/// Installs the packages of web/package-lock.json, unless they are installed already.
pub fn install(repo: &Repo, node: &Node) -> Result<()> {
    let lock = read(&repo.web().join("package-lock.json"))?;
    let modules = repo.web().join("node_modules");
    // The lock file as it was when `npm ci` last succeeded.
    let stamp = modules.join(".installed-lock.json");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == lock) {
        say::line("the page's packages are installed already");
        return Ok(());
    }
    say::installing(
        "the page's npm packages into web/node_modules",
        "they differ from web/package-lock.json",
    );
    let mut npm = node.npm(repo);
    // The browser test uses the system's Chromium.
    npm.env("PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD", "1");
    command::run(npm.args(["ci", "--no-audit", "--no-fund"]))?;
    std::fs::write(&stamp, lock).with_context(|| format!("could not write {}", stamp.display()))
}

/// Builds the page into web/dist.
pub fn build(repo: &Repo, node: &Node) -> Result<()> {
    command::run(node.npm(repo).args(["run", "build"]))?;
    if !repo.web().join("dist/index.html").is_file() {
        bail!("`npm run build` wrote no web/dist/index.html");
    }
    Ok(())
}
