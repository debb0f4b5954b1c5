//! Asks git which commit is built: `MONOLITH_COMMIT`, with `-dirty` where what is built was changed
//! since, or is not certain; `unknown` outside a checkout.
//!
//! It is asked again when a commit is made or a source changes, and when the target folder is used
//! for another checkout. Then this crate alone is compiled again: it is above all others, so that a
//! change of theirs compiles it anyway.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// What the program is built from, as paths from the root.
const BUILT_FROM: [&str; 5] = ["crates", "data/prompts", ".cargo", "Cargo.toml", "Cargo.lock"];
/// Git sets these for its hooks, where they may name another checkout.
const HOOK_VARIABLES: [&str; 4] = ["GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"];

fn main() -> io::Result<()> {
    // Read as the script runs: its binary may be one that another checkout has compiled.
    let package = folder("CARGO_MANIFEST_DIR");
    let root = package.join("../..").canonicalize()?;
    // Cargo stores a path inside the package without the package's own path. In another checkout
    // this one then differs from what is stored, and the script runs again, whatever the times of
    // the files.
    println!("cargo::rerun-if-changed={}", package.join("build.rs").display());
    let built_from = BUILT_FROM.map(|name| root.join(name));
    // A file that is missing would run the script at every build.
    for path in built_from.iter().chain(&git_files(&root)).filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let is_certain = is_compiled_here(&root, &built_from)?;
    if !is_certain {
        println!(
            "cargo::warning=the target folder has builds of another checkout, which cargo may take \
             for this one's: run `cargo clean`, or give each checkout a target folder of its own"
        );
    }
    let commit = commit(&root, is_certain).unwrap_or_else(|| "unknown".into());
    println!("cargo::rustc-env=MONOLITH_COMMIT={commit}");
    Ok(())
}

/// A folder that cargo names to the script.
fn folder(variable: &str) -> PathBuf {
    env::var_os(variable).expect("cargo sets it").into()
}

fn commit(root: &Path, is_certain: bool) -> Option<String> {
    // Sources that lie inside another project's checkout are not of its commit.
    if !root.join(".git").exists() {
        return None;
    }
    let commit = git(root, &["rev-parse", "HEAD"])?;
    let mut changed = vec!["status", "--porcelain", "--untracked-files=no", "--"];
    changed.extend(BUILT_FROM);
    let is_clean = git(root, &changed)?.is_empty();
    Some(if is_clean && is_certain { commit } else { format!("{commit}-dirty") })
}

/// The files that change when another commit is checked out or made.
fn git_files(root: &Path) -> Vec<PathBuf> {
    let path = |name: &str| Some(root.join(git(root, &["rev-parse", "--git-path", name])?));
    // Git keeps the branches in `reftable`, where that is there.
    let shared = git(root, &["rev-parse", "--git-common-dir"]).map(|name| root.join(name));
    let mut files = vec![path("HEAD"), path("reftable"), shared.map(|all| all.join("reftable"))];
    // HEAD names a branch, or holds the commit itself.
    if let Some(branch) = git(root, &["symbolic-ref", "--quiet", "HEAD"]) {
        let own = path(&branch);
        // A packed branch has no file of its own: the next commit makes one, in the first of these
        // folders that is there.
        let place = own.iter().flat_map(|own| own.ancestors()).find(|path| path.exists());
        files.push(place.map(Path::to_owned));
        files.extend(own.filter(|own| !own.exists()).map(|_| path("packed-refs")));
    }
    files.into_iter().flatten().collect()
}

/// Returns whether all that is built was compiled from this checkout. Cargo goes by the times of
/// the files: it takes the builds of another checkout in the same target folder for this one's, if
/// they are newer than the sources here. Builds that left this crate out are not known.
fn is_compiled_here(root: &Path, built_from: &[PathBuf]) -> io::Result<bool> {
    // One file for each checkout, as old as its last build.
    let checkouts = folder("OUT_DIR").join("checkouts");
    fs::create_dir_all(&checkouts)?;
    let mut hasher = DefaultHasher::new();
    root.hash(&mut hasher);
    let own = format!("{:016x}", hasher.finish());
    fs::write(checkouts.join(&own), root.as_os_str().as_encoded_bytes())?;
    let mut built_elsewhere = None;
    for entry in fs::read_dir(&checkouts)? {
        let entry = entry?;
        if entry.file_name() != *own {
            built_elsewhere = built_elsewhere.max(Some(entry.metadata()?.modified()?));
        }
    }
    let Some(time) = built_elsewhere else { return Ok(true) };
    for path in built_from.iter().filter(|path| path.exists()) {
        if !is_newer(path, time)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a file, or each file in a folder, was changed after this time.
fn is_newer(path: &Path, time: SystemTime) -> io::Result<bool> {
    if !path.is_dir() {
        return Ok(path.symlink_metadata()?.modified()? > time);
    }
    for entry in fs::read_dir(path)? {
        if !is_newer(&entry?.path(), time)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What git prints; `None` where it is missing or fails.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    // A container often runs as another user than the one that cloned. Looking must not write.
    git.args(["--no-optional-locks", "-c", "safe.directory=*"]).args(arguments).current_dir(root);
    for name in HOOK_VARIABLES {
        git.env_remove(name);
    }
    let output = git.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
}
