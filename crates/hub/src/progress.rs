use std::time::Duration;

use crate::Error;

/// Receives the progress of a pull. Every method does nothing by default; `()` reports nothing.
pub trait Progress {
    /// The files and bytes to download; none of them are in the cache.
    fn planned(&mut self, files: usize, bytes: u64) {
        let _ = (files, bytes);
    }

    /// `done` of `total` bytes of `file` are on disk. Starts above zero where a download
    /// resumes, and falls back where the server could not resume it.
    fn advanced(&mut self, file: &str, done: u64, total: u64) {
        let _ = (file, done, total);
    }

    /// Another process is downloading `file`; this one waits for it.
    fn waiting(&mut self, file: &str) {
        let _ = file;
    }

    /// A request failed with `error` and will be made again after `pause`.
    fn retrying(&mut self, error: &Error, pause: Duration) {
        let _ = (error, pause);
    }
}

impl Progress for () {}
