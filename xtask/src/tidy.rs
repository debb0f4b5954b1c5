//! Checks of the repository's structure: one rule a file.

mod cuda;
mod files;
mod floors;
mod imports;
pub mod runs;
mod rust;
mod text;

use anyhow::{Result, bail};
use std::fmt;

use crate::repo::Repo;
use crate::{generate, say};

/// A finding: what to change, and how.
#[derive(Debug, PartialEq)]
pub struct Finding {
    /// Path from the root.
    pub path: String,
    /// Counted from 1; 0 for the file as a whole.
    pub line: usize,
    /// What is wrong, and what to do.
    pub what: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: path.into(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// Checks everything; prints every finding and fails if there is one.
pub fn run(repo: &Repo) -> Result<()> {
    let tracked = repo.tracked()?;
    let findings = findings(repo, &tracked)?;
    for finding in &findings {
        say::line(finding);
    }
    match findings.len() {
        0 => say::line(format_args!("tidy: {} files, nothing to change", tracked.len())),
        count => bail!("tidy: {count} findings"),
    }
    Ok(())
}

fn findings(repo: &Repo, tracked: &[String]) -> Result<Vec<Finding>> {
    let stale = generate::stale(&repo.root);
    let stale =
        stale.into_iter().map(|path| Finding::new(path, 0, "stale: run `cargo xtask generate`"));
    let mut found: Vec<Finding> = stale.collect();
    // A missing file reads as a document without a table, which is a finding.
    let table = std::fs::read_to_string(repo.root.join(floors::TABLE)).unwrap_or_default();
    found.extend(floors::check(&table, &repo.metadata));
    found.extend(files::missing(&repo.root));
    found.extend(runs::check(&repo.root, tracked));
    let mut cuda = cuda::Sources::new();
    for path in tracked {
        let at = repo.root.join(path);
        found.extend(files::too_large(path, at.metadata()?.len()));
        // A file that is not text has no lines to check.
        let Ok(text) = std::fs::read_to_string(&at) else { continue };
        found.extend(text::check(path, &text));
        if path.ends_with(".rs") {
            found.extend(rust::check(path, &text));
        }
        if imports::applies_to(path) {
            found.extend(imports::check(path, &text));
        }
        if cuda::applies_to(path) {
            cuda.insert(path.clone(), text);
        }
    }
    found.extend(cuda::check(&cuda));
    Ok(found)
}
