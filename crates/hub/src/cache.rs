//! The cache on disk, in the layout of the hub's own tools:
//!
//! ```text
//! <cache>/models--<organisation>--<name>/blobs/<checksum>           contents
//!                                        blobs/<checksum>.incomplete
//!                                        snapshots/<commit>/<file>  links to blobs
//!                                        refs/<branch or tag>       a commit
//! <cache>/.locks/models--<organisation>--<name>/<checksum>.lock
//! ```

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::checksum::Checksum;
use crate::name::is_commit;
use crate::{Error, RepoId, Revision};

/// One repository's part of the cache.
pub(crate) struct Cache {
    root: PathBuf,
    repo_folder: String,
}

impl Cache {
    pub fn new(root: &Path, repo: &RepoId) -> Self {
        Self { root: root.to_owned(), repo_folder: repo.folder() }
    }

    fn repo_dir(&self) -> PathBuf {
        self.root.join(&self.repo_folder)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn snapshot_dir(&self, commit: &str) -> PathBuf {
        self.repo_dir().join("snapshots").join(commit)
    }

    /// Returns whether the file exists; a link to a missing blob does not count.
    pub fn has(&self, commit: &str, file: &str) -> bool {
        self.snapshot_dir(commit).join(file).is_file()
    }

    /// Names of the files at the top of a snapshot.
    pub fn files(&self, commit: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.snapshot_dir(commit)) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| self.has(commit, name))
            .collect();
        names.sort_unstable();
        names
    }

    pub fn blob(&self, checksum: &Checksum) -> PathBuf {
        self.repo_dir().join("blobs").join(checksum.as_str())
    }

    /// Where a blob grows until it is whole.
    pub fn partial(&self, checksum: &Checksum) -> PathBuf {
        self.repo_dir().join("blobs").join(format!("{}.incomplete", checksum.as_str()))
    }

    /// Makes this process the only one that downloads the blob, until the file is dropped. The
    /// Python tools take the same lock. Calls `wait` before waiting for another process.
    pub fn lock(&self, checksum: &Checksum, wait: impl FnOnce()) -> Result<File, Error> {
        let folder = self.root.join(".locks").join(&self.repo_folder);
        create_dir(&folder)?;
        let path = folder.join(format!("{}.lock", checksum.as_str()));
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(disk(&path))?;
        let locked = match file.try_lock() {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => {
                wait();
                file.lock()
            }
            Err(TryLockError::Error(error)) => Err(error),
        };
        match locked {
            // Some network file systems have no locks. Two downloads at once are then possible, but
            // only wasteful, since every blob is checked before it gets its name.
            Err(error) if error.kind() != ErrorKind::Unsupported => Err(disk(&path)(error)),
            _ => Ok(file),
        }
    }

    /// Gives a blob its name in a snapshot.
    pub fn link(&self, commit: &str, file: &str, checksum: &Checksum) -> Result<(), Error> {
        let path = self.snapshot_dir(commit).join(file);
        create_dir(parent(&path))?;
        let up = "../".repeat(2 + file.matches('/').count());
        let target = format!("{up}blobs/{}", checksum.as_str());
        replace(&path, |aside| symlink(&target, aside, &self.blob(checksum)))
    }

    /// Returns the commit that a branch or tag pointed to when last pulled; a commit is itself.
    pub fn commit_of(&self, revision: &Revision) -> Result<Option<String>, Error> {
        if revision.is_commit() {
            return Ok(Some(revision.as_str().to_owned()));
        }
        let path = self.repo_dir().join("refs").join(revision.as_str());
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| is_commit(text))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(disk(&path)(error)),
        }
    }

    /// Remembers where a branch or tag points.
    pub fn set_commit(&self, revision: &Revision, commit: &str) -> Result<(), Error> {
        if revision.is_commit() {
            return Ok(());
        }
        let path = self.repo_dir().join("refs").join(revision.as_str());
        create_dir(parent(&path))?;
        let written = monolith_files::write_whole(&path, commit.as_bytes());
        written.map_err(|error| disk(&path)(error.source))
    }
}

/// Makes the link `path` by a rename, so that the name is never missing.
fn replace(path: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), Error> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let aside = path.with_file_name(format!(".{}-{count}.tmp", std::process::id()));
    // A file left by a killed process with the same id would prevent making the link.
    let _ = fs::remove_file(&aside);
    make(&aside).and_then(|()| fs::rename(&aside, path)).map_err(disk(path))
}

#[cfg(unix)]
fn symlink(target: &str, link: &Path, _: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

/// On other systems links need privileges; like the hub's tools, this falls back to a copy.
#[cfg(not(unix))]
fn symlink(_: &str, link: &Path, blob: &Path) -> io::Result<()> {
    fs::copy(blob, link).map(drop)
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

pub(crate) fn create_dir(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(disk(path))
}

/// Adds the path to an error of the file system.
pub(crate) fn disk(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Disk { path, source }
}
