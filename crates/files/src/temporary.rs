//! Names and locks of temporaries, and the removal of those left by dead processes.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::Path;

pub(crate) const PREFIX: &str = ".monolith-";
pub(crate) const SUFFIX: &str = ".part";
/// Random characters between prefix and suffix.
pub(crate) const RANDOM: usize = 12;

/// Returns whether the name is one of this crate's temporaries.
fn is_temporary(name: &str) -> bool {
    let middle = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX));
    middle.is_some_and(|middle| {
        middle.len() == RANDOM && middle.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// Removes the temporaries in `folder` that no living process holds; returns their number.
///
/// A temporary that cannot be opened, locked or removed stays: it does no harm.
pub fn remove_stale(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let entries =
        entries.flatten().filter(|entry| is_temporary(&entry.file_name().to_string_lossy()));
    entries.filter(|entry| remove_if_stale(&entry.path()).is_ok_and(|removed| removed)).count()
}

fn remove_if_stale(path: &Path) -> io::Result<bool> {
    let kind = fs::symlink_metadata(path)?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        return Ok(false);
    }
    // Some network file systems lock only files that are open for writing; folders never are.
    let held = File::options().read(true).write(kind.is_file()).open(path)?;
    match held.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(false),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // The lock is held until the name is gone, so that a writer about to lock notices.
    let removed = if kind.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    removed.map(|()| true)
}

/// Locks a newly created temporary. Returns false if [`remove_stale`] removed it before the lock
/// was held: the writer then creates another.
pub(crate) fn hold(file: &File, path: &Path) -> io::Result<bool> {
    match file.lock() {
        Ok(()) => {}
        // Without locks, no process can take the file for stale either.
        Err(error) if error.kind() == ErrorKind::Unsupported => {}
        Err(error) => return Err(error),
    }
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_crate_are_temporaries() {
        assert!(is_temporary(".monolith-aB3dE6gH9jK2.part"));
        for other in [
            ".monolith-.part",
            ".monolith-aB3dE6gH9jK.part",
            ".monolith-aB3dE6gH9jK22.part",
            ".monolith-aB3dE6gH9j-2.part",
            "monolith-aB3dE6gH9jK2.part",
            ".monolith-aB3dE6gH9jK2",
            "rows.part",
        ] {
            assert!(!is_temporary(other), "{other}");
        }
    }

    #[test]
    fn only_what_nobody_holds_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (dead, held, other) =
            (at(".monolith-dddddddddddd.part"), at(".monolith-hhhhhhhhhhhh.part"), at("rows.part"));
        let dead_folder = at(".monolith-ffffffffffff.part");
        for path in [&dead, &held, &other] {
            fs::write(path, "x").unwrap();
        }
        fs::create_dir(&dead_folder).unwrap();
        fs::write(dead_folder.join("inside"), "x").unwrap();
        let holder = File::open(&held).unwrap();
        assert!(hold(&holder, &held).unwrap());
        assert_eq!(remove_stale(folder.path()), 2);
        assert!(!dead.exists() && !dead_folder.exists());
        assert!(held.exists() && other.exists());
        drop(holder);
        assert_eq!(remove_stale(folder.path()), 1);
        assert!(!held.exists() && other.exists());
        assert_eq!(remove_stale(&at("no such folder")), 0);
    }

    #[test]
    fn a_temporary_that_was_removed_before_it_was_held_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".monolith-aaaaaaaaaaaa.part");
        let file = File::create_new(&path).unwrap();
        assert_eq!(remove_stale(folder.path()), 1);
        assert!(!hold(&file, &path).unwrap());
    }

    #[cfg(unix)]
    #[test]
    fn links_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) =
            (folder.path().join("target"), folder.path().join(".monolith-llllllllllll.part"));
        fs::write(&target, "x").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert_eq!(remove_stale(folder.path()), 0);
        assert!(target.exists() && fs::symlink_metadata(&link).is_ok());
    }
}
