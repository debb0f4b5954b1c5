//! Asks git which commit is built: `MONOLITH_COMMIT`, with `-dirty` where what is built was changed
//! since; `unknown` outside a checkout.
//!
//! It is asked again when a commit is made or a source changes, and then this crate alone is
//! compiled again: it is above all others, so that a change of theirs compiles it anyway.

use std::path::Path;
use std::process::Command;

/// What the program is built from, as paths from the root.
const BUILT_FROM: [&str; 3] = ["crates", "Cargo.toml", "Cargo.lock"];

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    println!("cargo::rerun-if-changed=build.rs");
    let watched = BUILT_FROM.iter().map(|name| root.join(name));
    // The last is written by every commit and checkout, a branch's own file is not always there.
    let git_files =
        ["HEAD", "logs/HEAD"].map(|name| git(&root, &["rev-parse", "--git-path", name]));
    let git_files = git_files.into_iter().flatten().map(|name| root.join(name));
    for path in watched.chain(git_files).filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let commit = commit(&root).unwrap_or_else(|| "unknown".into());
    println!("cargo::rustc-env=MONOLITH_COMMIT={commit}");
}

fn commit(root: &Path) -> Option<String> {
    // Sources that lie inside another project's checkout are not of its commit.
    if !root.join(".git").exists() {
        return None;
    }
    let commit = git(root, &["rev-parse", "HEAD"])?;
    let mut changed = vec!["status", "--porcelain", "--untracked-files=no", "--"];
    changed.extend(BUILT_FROM);
    let is_dirty = !git(root, &changed)?.is_empty();
    Some(if is_dirty { format!("{commit}-dirty") } else { commit })
}

/// What git prints; `None` where it is missing or fails.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    // A container often runs as another user than the one that cloned. Looking must not write.
    git.args(["--no-optional-locks", "-c", "safe.directory=*"]).args(arguments).current_dir(root);
    let output = git.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
}
