//! System packages and Python wheels, each installed only when it is missing.

use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::repo::program_on_path;
use crate::{command, say};

/// Git, to list the tracked files.
pub fn git() -> Result<PathBuf> {
    debian("git", &["git"], "it lists the tracked files")
}

/// Python, for the tools that make the small model's data.
pub fn python() -> Result<PathBuf> {
    debian("python3", &["python3"], "the programs in tools/ are Python")
}

/// rustfmt and clippy, which a minimal toolchain lacks.
pub fn rust_component(cargo: &mut Command, component: &str) -> Result<()> {
    if command::succeeds(cargo.arg("--version")) {
        return Ok(());
    }
    if program_on_path(&["rustup"]).is_none() {
        bail!(
            "this toolchain lacks {component}: install it with the program that installed the \
             toolchain"
        );
    }
    say::installing(component, "this toolchain lacks it");
    command::run(Command::new("rustup").args(["component", "add", component]))
}

/// Chromium for the browser test: from $CHROMIUM, else from PATH, else Debian's.
pub fn chromium() -> Result<PathBuf> {
    const NAMES: [&str; 4] =
        ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    match std::env::var_os("CHROMIUM") {
        Some(named) => Ok(PathBuf::from(named)),
        None => debian("chromium", &NAMES, "the browser test needs it, and CHROMIUM is not set"),
    }
}

/// The file that lists the wheels in a folder.
const INSTALLED: &str = "wheels.txt";

/// Makes sure that a folder holds these Python wheels and no others; installs them if need be.
pub fn wheels_once(wheels: &[&str], home: &Path, why: &str) -> Result<()> {
    let wanted = wheels.join("\n");
    if fs::read_to_string(home.join(INSTALLED)).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    say::installing(format_args!("{} into {}", wheels.join(", "), home.display()), why);
    self::wheels(wheels, home, why, |home| {
        fs::write(home.join(INSTALLED), &wanted).context("could not record the installed wheels")
    })
}

/// Installs Python wheels into a temporary folder, finishes them there, and renames the folder, so
/// that an interrupted installation cannot pass for a whole one.
pub fn wheels(
    wheels: &[&str],
    home: &Path,
    why: &str,
    finish: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let partial = home.with_extension("partial");
    for old in [home, &partial] {
        if old.exists() {
            fs::remove_dir_all(old)
                .with_context(|| format!("could not remove {}", old.display()))?;
        }
    }
    let python = python_with_pip(why)?;
    let mut target = OsString::from("--target=");
    target.push(&partial);
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"]);
    command::run(pip.arg(target).args(wheels).env("PIP_ROOT_USER_ACTION", "ignore"))?;
    finish(&partial)?;
    fs::rename(&partial, home)
        .with_context(|| format!("could not move {} to {}", partial.display(), home.display()))
}

fn python_with_pip(why: &str) -> Result<PathBuf> {
    let has_pip =
        |python: &Path| command::succeeds(Command::new(python).args(["-m", "pip", "--version"]));
    if let Some(python) = program_on_path(&["python3"]).filter(|python| has_pip(python)) {
        return Ok(python);
    }
    apt("python3-pip", why)?;
    // Debian's own python3, even if PATH has another first.
    let debian = PathBuf::from("/usr/bin/python3");
    if !has_pip(&debian) {
        bail!("python3-pip is installed, but `{} -m pip` does not run", debian.display());
    }
    Ok(debian)
}

/// The first of the programs on PATH; installs the package if there is none.
fn debian(package: &str, programs: &[&str], why: &str) -> Result<PathBuf> {
    if let Some(found) = program_on_path(programs) {
        return Ok(found);
    }
    apt(package, why)?;
    match program_on_path(programs) {
        Some(found) => Ok(found),
        None => bail!("Debian's {package} is installed, but PATH has no {}", programs.join(" or ")),
    }
}

/// Installs a Debian package, or fails with the command that installs it.
pub fn apt(package: &str, why: &str) -> Result<()> {
    if program_on_path(&["apt-get"]).is_none() {
        bail!("{package} is missing ({why}), and so is apt-get: install {package} by hand");
    }
    if command::output(Command::new("id").arg("-u"))?.trim() != "0" {
        bail!(
            "{package} is missing ({why}), and only root can install it: \
             sudo apt-get install {package}"
        );
    }
    say::installing(format_args!("Debian's {package}"), why);
    command::run(apt_get().arg("update"))?;
    command::run(apt_get().args(["install", "--yes", "--no-install-recommends", package]))
}

fn apt_get() -> Command {
    let mut apt = Command::new("apt-get");
    apt.arg("--quiet").env("DEBIAN_FRONTEND", "noninteractive");
    apt
}
