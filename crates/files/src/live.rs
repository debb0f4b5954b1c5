//! The temporaries that this process has at the moment, for a program that has to end at once.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

static LIVE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn live() -> MutexGuard<'static, Vec<PathBuf>> {
    LIVE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A temporary on the list, until this is dropped.
#[derive(Debug)]
pub(crate) struct Live(PathBuf);

impl Live {
    pub(crate) fn of(path: &Path) -> Live {
        live().push(path.to_owned());
        Live(path.to_owned())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let mut live = live();
        if let Some(at) = live.iter().position(|path| *path == self.0) {
            live.swap_remove(at);
        }
    }
}

/// Removes every file and folder that this process has begun and not committed. For a program that
/// ends without its destructors, such as one that Ctrl-C ends while a thread is busy. The next
/// process recognizes what cannot be removed as stale.
pub fn remove_unfinished() {
    for path in live().iter() {
        let _ = match path.is_dir() {
            true => std::fs::remove_dir_all(path),
            false => std::fs::remove_file(path),
        };
    }
}

#[cfg(test)]
mod tests {
    use crate::{WholeFile, WholeFolder};
    use std::io::Write;

    /// In a process of its own: it removes what other tests have begun.
    #[test]
    fn what_is_unfinished_is_removed_and_what_is_committed_stays() {
        const CHILD: &str = "MONOLITH_REMOVES_UNFINISHED";
        let name = "live::tests::what_is_unfinished_is_removed_and_what_is_committed_stays";
        if std::env::var_os(CHILD).is_none() {
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            let status = child.args([name, "--exact"]).env(CHILD, "1").status().unwrap();
            assert!(status.success());
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        crate::write_whole(&folder.path().join("kept"), b"a").unwrap();
        let mut file = WholeFile::create(&folder.path().join("file")).unwrap();
        file.write_all(b"half").unwrap();
        let whole = WholeFolder::create(&folder.path().join("folder")).unwrap();
        std::fs::write(whole.temporary_path().join("inside"), b"b").unwrap();
        super::remove_unfinished();
        let names: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["kept"]);
    }
}
