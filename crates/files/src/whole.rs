//! Files and folders that appear whole or not at all.

use crate::live::Live;
use crate::temporary::{PREFIX, RANDOM, SUFFIX, hold, remove_stale};
use crate::{Error, folder_of};
use std::fs::File;
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use tempfile::{Builder, NamedTempFile};

/// Writes a file whole or not at all, and does not return before it is on the disk.
///
/// # Errors
/// A folder that cannot be written to, or a full disk. An earlier file of this name then stays
/// unchanged.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut file = WholeFile::create(path)?;
    file.write_all(bytes).map_err(Error::of(path))?;
    file.commit()
}

/// A temporary file that [`WholeFile::commit`] renames to its target; dropping it first removes it.
///
/// Writes are not buffered.
#[derive(Debug)]
pub struct WholeFile {
    path: PathBuf,
    temporary: NamedTempFile,
    live: Live,
}

impl WholeFile {
    /// Begins a file. Its permissions are read and write for all, minus the umask.
    ///
    /// # Errors
    /// A folder that is missing or cannot be written to.
    pub fn create(path: &Path) -> Result<WholeFile, Error> {
        let folder = folder_of(path);
        remove_stale(folder);
        let create = || {
            loop {
                let temporary = temporary_in(folder, new_file)?;
                let live = Live::of(temporary.path());
                if hold(temporary.as_file(), temporary.path())? {
                    return Ok((temporary, live));
                }
            }
        };
        let (temporary, live) = create().map_err(Error::of(path))?;
        Ok(WholeFile { path: path.to_owned(), temporary, live })
    }

    /// The open file, for callers that write at offsets.
    pub fn file(&self) -> &File {
        self.temporary.as_file()
    }

    /// The path until [`WholeFile::commit`], for callers that pass a path to a library.
    pub fn temporary_path(&self) -> &Path {
        self.temporary.path()
    }

    /// Gives the file its name. File and name are on the disk when this returns. A link of this
    /// name is replaced, not followed.
    ///
    /// # Errors
    /// A full disk, or a folder of this name.
    pub fn commit(self) -> Result<(), Error> {
        let WholeFile { path, temporary, live } = self;
        let commit = || {
            temporary.as_file().sync_all()?;
            temporary.persist(&path).map_err(|error| error.error)?;
            drop(live);
            sync_folder(folder_of(&path))
        };
        commit().map_err(Error::of(&path))
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.temporary.as_file_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.temporary.as_file_mut().flush()
    }
}

impl Seek for WholeFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.temporary.as_file_mut().seek(to)
    }
}

/// A temporary folder that [`WholeFolder::commit`] renames to its target; dropping it first removes
/// it.
#[derive(Debug)]
pub struct WholeFolder {
    path: PathBuf,
    temporary: TemporaryFolder,
    /// The lock, held while the folder is temporary.
    lock: File,
}

impl WholeFolder {
    /// Begins a folder beside its target.
    ///
    /// # Errors
    /// A file or a folder that is not empty has the name, or the parent cannot be written to.
    pub fn create(path: &Path) -> Result<WholeFolder, Error> {
        let occupied = || io::Error::new(ErrorKind::AlreadyExists, "it exists and is not empty");
        let entries = std::fs::read_dir(path).map(|mut entries| entries.next().is_some());
        if entries.unwrap_or_else(|_| path.symlink_metadata().is_ok()) {
            return Err(Error::of(path)(occupied()));
        }
        let parent = folder_of(path);
        remove_stale(parent);
        let create = || {
            loop {
                let temporary = TemporaryFolder::create_in(parent)?;
                let lock = match File::open(&temporary.path) {
                    // Another process removed it before it was locked.
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    opened => opened?,
                };
                if hold(&lock, &temporary.path)? {
                    return Ok((temporary, lock));
                }
            }
        };
        let (temporary, lock) = create().map_err(Error::of(path))?;
        Ok(WholeFolder { path: path.to_owned(), temporary, lock })
    }

    /// The path for files until [`WholeFolder::commit`].
    pub fn temporary_path(&self) -> &Path {
        &self.temporary.path
    }

    /// Gives the folder its name. Its files are on the disk if their writers synced them
    /// ([`write_whole`] does).
    ///
    /// # Errors
    /// The name has been taken meanwhile, or a full disk.
    pub fn commit(self) -> Result<(), Error> {
        let WholeFolder { path, temporary, lock } = self;
        let commit = || {
            sync_folder(&temporary.path)?;
            std::fs::rename(&temporary.path, &path)?;
            sync_folder(folder_of(&path))
        };
        let committed = commit().map_err(Error::of(&path));
        // Removed, unless it has its name now, before anybody may take it for stale.
        drop(temporary);
        drop(lock);
        committed
    }
}

/// Syncs a file to the disk, and meanwhile calls `proceed`, whose error ends the wait at once: a
/// gigabyte may take a slow disk seconds.
///
/// # Errors
/// A full disk, or the error of `proceed`.
pub fn sync_watched(file: &File, mut proceed: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    const ASK_EVERY: Duration = Duration::from_millis(20);
    let synced = file.try_clone()?;
    let (done, wait) = mpsc::channel();
    // Nobody joins the thread: it is harmless, and ends by itself.
    std::thread::spawn(move || done.send(synced.sync_all()));
    loop {
        match wait.recv_timeout(ASK_EVERY) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) => proceed()?,
            Err(RecvTimeoutError::Disconnected) => return file.sync_all(),
        }
    }
}

/// Renames a file within a file system. The new name is on the disk when this returns; so are the
/// bytes if their writer synced them.
///
/// # Errors
/// The system's error, with the new name.
pub fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    let renamed = std::fs::rename(from, to).and_then(|()| sync_folder(folder_of(to)));
    renamed.map_err(Error::of(to))
}

/// A folder that is removed when this is dropped, if it still has its name.
#[derive(Debug)]
struct TemporaryFolder {
    path: PathBuf,
    /// On the list while the folder is temporary.
    _live: Live,
}

impl TemporaryFolder {
    fn create_in(parent: &Path) -> io::Result<TemporaryFolder> {
        let made = temporary_in(parent, |path| std::fs::create_dir(path))?;
        // What tempfile removes is a file.
        let path = made.into_temp_path().keep().map_err(|error| error.error)?;
        let live = Live::of(&path);
        Ok(TemporaryFolder { path, _live: live })
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// A file with the permissions of any new one: tempfile's own are private.
fn new_file(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create_new(true).open(path)
}

/// A temporary that `make` makes, under a name that only this crate gives. An error is the
/// system's own: those of tempfile's other ways show that name, which the caller did not choose.
fn temporary_in<R>(
    folder: &Path,
    make: impl FnMut(&Path) -> io::Result<R>,
) -> io::Result<NamedTempFile<R>> {
    Builder::new().prefix(PREFIX).suffix(SUFFIX).rand_bytes(RANDOM).make_in(folder, make)
}

/// Writes a folder's names to the disk. Some file systems cannot, which is no error.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(not(unix)) {
        return Ok(());
    }
    match File::open(folder)?.sync_all() {
        Err(error) if !matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {
            Err(error)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_appears_when_it_is_committed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        write_whole(&path, b"old").unwrap();
        let mut file = WholeFile::create(&path).unwrap();
        file.write_all(b"new text").unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.write_all(b"NEW").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        file.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"NEW text");
        assert_eq!(names(folder.path()), ["a.json"]);
    }

    #[test]
    fn what_is_not_committed_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = WholeFile::create(&folder.path().join("a")).unwrap();
        file.write_all(b"half").unwrap();
        drop(file);
        let whole = WholeFolder::create(&folder.path().join("b")).unwrap();
        fs::write(whole.temporary_path().join("half"), "x").unwrap();
        drop(whole);
        assert_eq!(names(folder.path()), [""; 0]);
    }

    #[test]
    fn errors_name_the_file_that_was_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing/a.json");
        let error = write_whole(&missing, b"x").unwrap_err();
        assert_eq!(error.path, missing);
        assert!(error.to_string().contains("missing/a.json"), "{error}");
        assert!(error.source.raw_os_error().is_some(), "the system's own");
        let below = WholeFolder::create(&missing).unwrap_err();
        assert_eq!((&below.path, below.to_string()), (&missing, error.to_string()));
        let occupied = folder.path().join("occupied");
        fs::create_dir_all(occupied.join("b")).unwrap();
        let error = write_whole(&occupied, b"x").unwrap_err();
        assert_eq!(error.path, occupied);
        assert_eq!(names(folder.path()), ["occupied"]);
    }

    #[test]
    fn two_writers_of_one_name_do_not_mix() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut first = WholeFile::create(&path).unwrap();
        let mut second = WholeFile::create(&path).unwrap();
        first.write_all(b"first").unwrap();
        second.write_all(b"second").unwrap();
        first.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first");
        second.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
    }

    #[test]
    fn a_rename_replaces_and_names_what_it_could_not() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("a"), folder.path().join("b"));
        fs::write(&from, "new").unwrap();
        fs::write(&to, "old").unwrap();
        rename(&from, &to).unwrap();
        assert_eq!(
            (fs::read(&to).unwrap(), names(folder.path())),
            (b"new".to_vec(), vec!["b".into()])
        );
        assert_eq!(rename(&from, &to).unwrap_err().path, to);
    }

    #[test]
    fn a_folder_appears_when_it_is_committed() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("model");
        let whole = WholeFolder::create(&path).unwrap();
        write_whole(&whole.temporary_path().join("config.json"), b"{}").unwrap();
        assert!(!path.exists());
        // Another writer in the same folder does not take it for stale.
        write_whole(&parent.path().join("other"), b"x").unwrap();
        whole.commit().unwrap();
        assert_eq!(names(&path), ["config.json"]);
        assert_eq!(names(parent.path()), ["model", "other"]);
        let error = WholeFolder::create(&path).unwrap_err();
        assert_eq!(error.source.kind(), ErrorKind::AlreadyExists);
        assert!(WholeFolder::create(&parent.path().join("other")).is_err());
        fs::create_dir(parent.path().join("empty")).unwrap();
        WholeFolder::create(&parent.path().join("empty")).unwrap().commit().unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn permissions_are_those_of_any_new_file() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let mode = |name: &str| {
            fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777
        };
        fs::write(folder.path().join("plain"), "x").unwrap();
        fs::create_dir(folder.path().join("plain folder")).unwrap();
        write_whole(&folder.path().join("ours"), b"x").unwrap();
        WholeFolder::create(&folder.path().join("our folder")).unwrap().commit().unwrap();
        assert_eq!(mode("ours"), mode("plain"));
        assert_eq!(mode("our folder"), mode("plain folder"));
    }

    #[test]
    fn a_watched_sync_ends_with_the_disk_or_with_its_watcher() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = File::create(folder.path().join("a")).unwrap();
        file.write_all(b"text").unwrap();
        sync_watched(&file, || Ok(())).unwrap();
        // A watcher that refuses ends the waiting, unless the disk was faster.
        if let Err(error) = sync_watched(&file, || Err(ErrorKind::Interrupted.into())) {
            assert_eq!(error.kind(), ErrorKind::Interrupted);
        }
    }
}
