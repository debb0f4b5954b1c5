//! Downloads one blob: download, resume, check, rename.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use monolith_http::{Attempts, shown};
use ureq::Body;
use ureq::http::header::CONTENT_RANGE;
use ureq::http::{Response, StatusCode};

use crate::cache::{Cache, create_dir, disk};
use crate::checksum::Hasher;
use crate::client::{Client, Failure, Subject, broken, header};
use crate::limits::Pace;
use crate::remote::RemoteFile;
use crate::{Error, Progress};

/// Bytes that are read and written at once.
const CHUNK_BYTES: usize = 256 << 10;
/// New bytes after which earlier failures no longer count: a download over a poor connection
/// completes eventually, and one without progress is given up.
const FORGIVING_BYTES: u64 = 4 << 20;

/// Adds `file` to the blobs, whole and checked, if it is missing.
pub(crate) fn blob(
    client: &Client,
    cache: &Cache,
    file: &RemoteFile,
    subject: Subject<'_>,
    progress: &mut dyn Progress,
) -> Result<(), Error> {
    let _lock = cache.lock(&file.checksum, || progress.waiting(&file.name))?;
    let blob = cache.blob(&file.checksum);
    if blob.is_file() {
        return Ok(());
    }
    let mut partial = Partial::open(cache, file)?;
    // A partial file of an earlier process may be damaged, so a wrong checksum causes one restart
    // from zero. If the new download is wrong too, the hub serves a wrong file.
    let mut resumed = partial.len > 0;
    loop {
        receive_all(client, file, subject, &mut partial, progress)?;
        match partial.check(file) {
            Ok(()) => return partial.finish(&blob),
            Err(_) if resumed => {
                resumed = false;
                partial.restart(file)?;
            }
            Err(error) => {
                partial.remove()?;
                return Err(error);
            }
        }
    }
}

/// Requests the rest until the blob is complete.
fn receive_all(
    client: &Client,
    file: &RemoteFile,
    subject: Subject<'_>,
    partial: &mut Partial,
    progress: &mut dyn Progress,
) -> Result<(), Error> {
    let mut attempts = Attempts::new(client.retry);
    let mut furthest = partial.len;
    progress.advanced(&file.name, partial.len, file.size_bytes);
    while partial.len < file.size_bytes {
        let Err(failure) = receive(client, file, subject, partial, progress) else { continue };
        if let Failure::Final(error @ Error::TooLong { .. }) = failure {
            partial.remove()?;
            return Err(error);
        }
        if partial.len >= furthest + FORGIVING_BYTES {
            attempts.reset();
            furthest = partial.len;
        }
        attempts.pause(failure, |error, pause| progress.retrying(error, pause))?;
    }
    Ok(())
}

/// One request, until its end or the file's.
fn receive(
    client: &Client,
    file: &RemoteFile,
    subject: Subject<'_>,
    partial: &mut Partial,
    progress: &mut dyn Progress,
) -> Result<(), Failure> {
    let response = client.get(&file.url, partial.len, subject)?;
    if partial.len > 0 && !continues_at(&response, partial.len) {
        partial.restart(file)?;
    }
    if response.status() == StatusCode::RANGE_NOT_SATISFIABLE {
        return Err(broken(&file.url, &"the download cannot be resumed there"));
    }
    let mut body = response.into_body().into_with_config().limit(u64::MAX).reader();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut pace = Pace::new(client.limits);
    loop {
        let count = body.read(&mut chunk).map_err(|error| partial.broken(file, &error))?;
        if count == 0 {
            break;
        }
        if partial.len + count as u64 > file.size_bytes {
            let (file, size_bytes) = (file.name.clone(), file.size_bytes);
            return Err(Error::TooLong { file, size_bytes }.into());
        }
        partial.append(&chunk[..count])?;
        progress.advanced(&file.name, partial.len, file.size_bytes);
        if partial.len < file.size_bytes {
            pace.arrived(count).map_err(|reason| partial.too_slow(file, &reason))?;
        }
    }
    if partial.len < file.size_bytes {
        return Err(partial.broken(file, &"the connection closed"));
    }
    Ok(())
}

/// Returns whether the answer starts at the requested byte: `Content-Range: bytes <start>-...`.
fn continues_at(response: &Response<Body>, start: u64) -> bool {
    let range = header(response.headers(), CONTENT_RANGE.as_str()).unwrap_or_default();
    let first = range.trim().strip_prefix("bytes ").and_then(|rest| rest.split('-').next());
    response.status() == StatusCode::PARTIAL_CONTENT
        && first.and_then(|first| first.trim().parse().ok()) == Some(start)
}

/// A partial blob, and the hash of its bytes so far.
struct Partial {
    path: PathBuf,
    file: File,
    hasher: Hasher,
    len: u64,
}

impl Partial {
    /// Opens the partial file of an earlier download, or starts a new one.
    fn open(cache: &Cache, remote: &RemoteFile) -> Result<Self, Error> {
        let path = cache.partial(&remote.checksum);
        if let Some(folder) = path.parent() {
            create_dir(folder)?;
        }
        let file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(disk(&path))?;
        let hasher = remote.checksum.hasher(remote.size_bytes);
        let mut partial = Self { path, file, hasher, len: 0 };
        let left = partial.file.metadata().map_err(disk(&partial.path))?.len();
        if left > remote.size_bytes {
            partial.restart(remote)?;
        } else {
            partial.read_existing()?;
        }
        Ok(partial)
    }

    fn read_existing(&mut self) -> Result<(), Error> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let count = self.file.read(&mut chunk).map_err(disk(&self.path))?;
            if count == 0 {
                return Ok(());
            }
            self.hasher.update(&chunk[..count]);
            self.len += count as u64;
        }
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all(bytes).map_err(disk(&self.path))?;
        self.hasher.update(bytes);
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn restart(&mut self, remote: &RemoteFile) -> Result<(), Error> {
        self.file.set_len(0).map_err(disk(&self.path))?;
        self.file.seek(SeekFrom::Start(0)).map_err(disk(&self.path))?;
        self.hasher = remote.checksum.hasher(remote.size_bytes);
        self.len = 0;
        Ok(())
    }

    fn check(&self, remote: &RemoteFile) -> Result<(), Error> {
        let got = self.hasher.clone().finish();
        if got == remote.checksum {
            return Ok(());
        }
        Err(Error::Checksum {
            file: remote.name.clone(),
            expected: remote.checksum.as_str().to_owned(),
            got: got.as_str().to_owned(),
        })
    }

    fn broken(&self, remote: &RemoteFile, reason: &impl ToString) -> Failure {
        let reason = reason.to_string();
        broken(&remote.url, &format!("{reason} at {} of {} bytes", self.len, remote.size_bytes))
    }

    fn too_slow(&self, remote: &RemoteFile, reason: &str) -> Failure {
        let reason = format!("{reason}, at {} of {} bytes", self.len, remote.size_bytes);
        let error = Error::TooSlow { url: shown(&remote.url), reason };
        Failure::Transient { error, wait: None }
    }

    /// Syncs the file to the disk before it gets the name of a whole blob.
    fn finish(self, blob: &Path) -> Result<(), Error> {
        self.file.sync_all().map_err(disk(&self.path))?;
        let named = monolith_files::rename(&self.path, blob);
        named.map_err(|error| disk(blob)(error.source))
    }

    fn remove(&self) -> Result<(), Error> {
        fs::remove_file(&self.path).map_err(disk(&self.path))
    }
}
