//! The limits for slow connections.

use std::time::{Duration, Instant};

/// When an open connection counts as broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest time without a byte.
    pub silence: Duration,
    /// Window over which the rate of a download is measured.
    pub window: Duration,
    /// Least number of bytes in each window.
    pub window_bytes_min: u64,
}

impl Default for Limits {
    /// 4 KiB/s over half a minute: a gigabyte would take three days.
    fn default() -> Self {
        let (silence, window) = (Duration::from_secs(30), Duration::from_secs(30));
        Self { silence, window, window_bytes_min: 30 * (4 << 10) }
    }
}

/// Measures the rate of one download.
pub(crate) struct Pace {
    limits: Limits,
    since: Instant,
    bytes: u64,
}

impl Pace {
    pub fn new(limits: Limits) -> Self {
        Self { limits, since: Instant::now(), bytes: 0 }
    }

    /// Counts arrived bytes. Returns a message at the end of a window with too few bytes.
    pub fn arrived(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes += bytes as u64;
        let elapsed = self.since.elapsed();
        if elapsed < self.limits.window {
            return Ok(());
        }
        if self.bytes < self.limits.window_bytes_min {
            let (bytes, seconds) = (self.bytes, elapsed.as_secs_f64());
            let (least, window) = (self.limits.window_bytes_min, self.limits.window.as_secs_f64());
            return Err(format!(
                "too slow: {bytes} bytes in {seconds:.1} s, where {least} in {window:.1} s are \
                 the least"
            ));
        }
        *self = Self::new(self.limits);
        Ok(())
    }
}
