//! The files that are generated from crates/abi.

use anyhow::{Context, Result, bail};
use monolith_abi::generate::{Generated, all};
use std::path::Path;

use crate::repo::Repo;
use crate::say;

/// Writes the files that differ.
pub fn write(repo: &Repo) -> Result<()> {
    for file in all() {
        if is_stale(&repo.root, &file) {
            replace(&repo.root.join(file.path), &file.text)
                .with_context(|| format!("could not write {}", file.path))?;
            say::line(format_args!("{}: written", file.path));
        } else {
            say::line(format_args!("{}: up to date", file.path));
        }
    }
    Ok(())
}

/// Fails if a file is stale.
pub fn check(repo: &Repo) -> Result<()> {
    let stale = stale(&repo.root);
    if !stale.is_empty() {
        bail!("stale: {}; run `cargo xtask generate`", stale.join(", "));
    }
    say::line("generated files: up to date");
    Ok(())
}

/// The paths of the stale files: those that `write` would change.
pub fn stale(root: &Path) -> Vec<&'static str> {
    all().iter().filter(|file| is_stale(root, file)).map(|file| file.path).collect()
}

fn is_stale(root: &Path, file: &Generated) -> bool {
    std::fs::read_to_string(root.join(file.path)).ok().as_deref() != Some(&file.text)
}

/// Writes beside the file and renames, so that nobody reads a partial file.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    std::fs::write(&partial, text)?;
    std::fs::rename(&partial, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_or_missing_file_is_stale_until_it_is_written() {
        let root = tempfile::tempdir().unwrap();
        let repo = Repo {
            root: root.path().into(),
            target: root.path().into(),
            metadata: serde_json::Value::Null,
        };
        let every: Vec<_> = all().iter().map(|file| file.path).collect();
        assert_eq!(stale(root.path()), every);
        assert!(check(&repo).unwrap_err().to_string().contains(every[0]));
        write(&repo).unwrap();
        assert!(check(&repo).is_ok());
        std::fs::write(root.path().join(every[0]), "edited by hand").unwrap();
        assert_eq!(stale(root.path()), [every[0]]);
    }
}
