//! Committed runs in `results/` against `results/MANIFEST`, which has the sha256 of every file.
//!
//! A line is as `sha256sum` writes it, with paths from `results/`: `sha256sum -c MANIFEST` there
//! checks the same.

use anyhow::{Context, Result, ensure};
use monolith_files::hex;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::Finding;

/// The folder of the runs.
const RESULTS: &str = "results";
/// The manifest's name in it.
const MANIFEST: &str = "MANIFEST";
/// What makes a folder a run.
const MARK: &str = "environment.json";

/// Every sealed file by its path from `results/`, with its hash.
type Sealed = BTreeMap<String, String>;

pub fn check(root: &Path, tracked: &[String]) -> Vec<Finding> {
    let results = root.join(RESULTS);
    let (sealed, mut found) = sealed(&results);
    found.extend(sealed.iter().filter_map(|(path, sha256)| changed(&results, path, sha256)));
    let runs: BTreeSet<&str> = sealed.keys().filter_map(|path| run_of(path)).collect();
    for run in &runs {
        let mut files = Vec::new();
        // What cannot be listed has vanished, which is said already.
        let _ = walk(&results, run, &mut files);
        for path in files.iter().filter(|path| !sealed.contains_key(*path)) {
            let what = "added to a sealed run: take it out; what is measured anew has a new folder";
            found.push(Finding::new(&shown(path), 0, what));
        }
    }
    let marks = tracked.iter().filter_map(|path| path.strip_prefix("results/"));
    let committed = marks.filter_map(|path| path.strip_suffix(MARK)?.strip_suffix('/'));
    for run in committed.filter(|run| !runs.contains(run)) {
        let what = format!("a run that is not sealed: type `cargo xtask seal {run}`");
        found.push(Finding::new(&shown(run), 0, what));
    }
    found
}

/// The lines that seal a run. Fails for what is no run, or sealed.
pub fn seal(root: &Path, run: &str) -> Result<String> {
    let results = root.join(RESULTS);
    let (sealed, _) = sealed(&results);
    let is_plain = Path::new(run).file_name().is_some_and(|name| name == run);
    ensure!(
        is_plain && results.join(run).join(MARK).is_file(),
        "{run} is no run: results/{run}/{MARK} is missing"
    );
    ensure!(
        !sealed.keys().any(|path| run_of(path) == Some(run)),
        "{run} is sealed already: `cargo xtask tidy` says what was changed since"
    );
    let mut files = Vec::new();
    walk(&results, run, &mut files)?;
    let lines = files.iter().map(|path| {
        ensure!(!path.contains('\n'), "{path:?}: a line end in a name");
        Ok(format!("{}  {path}\n", sha256(&results.join(path))?))
    });
    lines.collect()
}

/// The runs that are not sealed, of those that lie in `results/`.
pub fn unsealed(root: &Path) -> Result<Vec<String>> {
    let results = root.join(RESULTS);
    let (sealed, _) = sealed(&results);
    let entries = std::fs::read_dir(&results).context("could not list results")?;
    let names = entries.flatten().filter(|entry| entry.path().join(MARK).is_file());
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_open = |run: &String| !sealed.keys().any(|path| run_of(path) == Some(run));
    let mut runs: Vec<String> = names.filter(is_open).collect();
    runs.sort();
    Ok(runs)
}

/// Adds lines to the manifest.
pub fn append(root: &Path, lines: &str) -> Result<()> {
    let path = root.join(RESULTS).join(MANIFEST);
    monolith_files::append_lines(&path, lines, |line| {
        parsed(&String::from_utf8_lossy(line)).is_some()
    })?;
    Ok(())
}

/// What the manifest says; a missing one says nothing.
fn sealed(results: &Path) -> (Sealed, Vec<Finding>) {
    let text = std::fs::read_to_string(results.join(MANIFEST)).unwrap_or_default();
    let (mut sealed, mut found) = (Sealed::new(), Vec::new());
    for (index, line) in text.lines().enumerate() {
        let wrong = |what: &str| Finding::new(&shown(MANIFEST), index + 1, what);
        match parsed(line) {
            None => found.push(wrong("no line of `sha256sum`: restore it from the history")),
            Some((sha256, path)) => {
                if sealed.insert(path.into(), sha256.into()).is_some() {
                    found.push(wrong("the file has a line already: take this one out"));
                }
            }
        }
    }
    (sealed, found)
}

/// Hash and path of a line.
fn parsed(line: &str) -> Option<(&str, &str)> {
    let (sha256, path) = line.split_once("  ")?;
    let is_hash = sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parts = path.split('/');
    let is_inside =
        parts.clone().count() > 1 && parts.clone().all(|part| !["", ".", ".."].contains(&part));
    (is_hash && is_inside).then_some((sha256, path))
}

fn changed(results: &Path, path: &str, expected: &str) -> Option<Finding> {
    let found = match sha256(&results.join(path)) {
        Err(_) => "gone from a sealed run: restore it from the history".into(),
        Ok(found) if found == expected => return None,
        Ok(found) => format!(
            "changed in a sealed run (sha256 {found}, {MANIFEST} has {expected}): restore it from \
             the history; what is measured anew has a new folder"
        ),
    };
    Some(Finding::new(&shown(path), 0, found))
}

fn run_of(path: &str) -> Option<&str> {
    path.split_once('/').map(|(run, _)| run)
}

fn shown(path: &str) -> String {
    format!("{RESULTS}/{path}")
}

fn sha256(path: &Path) -> Result<String> {
    let bytes =
        std::fs::read(path).with_context(|| format!("could not read {}", path.display()))?;
    Ok(hex(&Sha256::digest(&bytes)))
}

/// Every file below a folder, by its path from `results/`, in order.
fn walk(results: &Path, folder: &str, found: &mut Vec<String>) -> Result<()> {
    let at = results.join(folder);
    let entries = std::fs::read_dir(&at).with_context(|| format!("could not list {folder}"))?;
    let mut entries = entries.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            walk(results, &path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A repository with one run, sealed.
    fn sealed_run() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let run = root.path().join("results/run-01");
        fs::create_dir_all(run.join("logs")).unwrap();
        for name in [MARK, "rows.jsonl", "README.md", "logs/a.log"] {
            fs::write(run.join(name), name).unwrap();
        }
        let lines = seal(root.path(), "run-01").unwrap();
        assert_eq!(lines.lines().count(), 4);
        append(root.path(), &lines).unwrap();
        root
    }

    fn tracked(root: &Path) -> Vec<String> {
        let mut files = Vec::new();
        for entry in fs::read_dir(root.join(RESULTS)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let _ = walk(&root.join(RESULTS), &name, &mut files);
        }
        files.iter().map(|path| shown(path)).collect()
    }

    fn findings(root: &Path) -> Vec<String> {
        check(root, &tracked(root)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_sealed_run_that_nobody_touched_passes() {
        let root = sealed_run();
        assert_eq!(findings(root.path()), [""; 0]);
        assert_eq!(unsealed(root.path()).unwrap(), [""; 0]);
    }

    #[test]
    fn every_change_of_a_sealed_run_is_refused() {
        type Change = (&'static str, fn(&Path) -> std::io::Result<()>);
        let changes: [Change; 6] = [
            ("results/run-01/rows.jsonl: changed", |run| fs::write(run.join("rows.jsonl"), "x")),
            ("results/run-01/README.md: changed", |run| fs::write(run.join("README.md"), "")),
            ("results/run-01/logs/a.log: gone", |run| fs::remove_file(run.join("logs/a.log"))),
            ("results/run-01/logs/b.log: added", |run| fs::write(run.join("logs/b.log"), "")),
            ("results/run-01/rows.jsonl: gone", |run| {
                fs::rename(run.join("rows.jsonl"), run.join("other.jsonl"))
            }),
            ("results/run-01/environment.json: gone", |run| fs::remove_dir_all(run)),
        ];
        for (wanted, change) in changes {
            let root = sealed_run();
            change(&root.path().join("results/run-01")).unwrap();
            let found = findings(root.path());
            assert!(found.iter().any(|line| line.starts_with(wanted)), "{wanted}: {found:?}");
        }
    }

    #[test]
    fn a_run_that_is_not_sealed_has_the_command_to_type() {
        let root = sealed_run();
        let run = root.path().join("results/run-02");
        fs::create_dir(&run).unwrap();
        fs::write(run.join(MARK), "{}").unwrap();
        let wanted = "results/run-02: a run that is not sealed: type `cargo xtask seal run-02`";
        assert_eq!(findings(root.path()), [wanted]);
        assert_eq!(unsealed(root.path()).unwrap(), ["run-02"]);
        append(root.path(), &seal(root.path(), "run-02").unwrap()).unwrap();
        assert_eq!(findings(root.path()), [""; 0]);
    }

    #[test]
    fn only_a_run_is_sealed_and_only_once() {
        let root = sealed_run();
        for (run, word) in
            [("run-01", "already"), ("run-03", "no run"), ("../results/run-01", "no run")]
        {
            let error = seal(root.path(), run).unwrap_err().to_string();
            assert!(error.contains(word), "{run}: {error}");
        }
    }

    #[test]
    fn a_damaged_manifest_is_named_by_line() {
        let root = sealed_run();
        let path = root.path().join("results/MANIFEST");
        let whole = fs::read_to_string(&path).unwrap();
        let hash = &whole[..64];
        for line in ["x", "", &format!("{hash}  ../a/b"), &format!("{hash}  a"), &whole[1..]] {
            fs::write(&path, format!("{whole}{line}\n")).unwrap();
            let found = findings(root.path());
            assert!(found[0].starts_with("results/MANIFEST:5: "), "{line}: {found:?}");
        }
    }
}
