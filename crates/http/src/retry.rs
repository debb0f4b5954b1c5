//! Repeating a failed request, with pauses that grow.

use std::time::Duration;

/// How often a failed request is repeated, and the pauses in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Requests in a row that may fail, the first included.
    pub attempts_max: u32,
    /// Pause after the first failure; it doubles with each further one.
    pub pause_min: Duration,
    /// Longest pause. If a server requests a longer one, the request fails, and the error says how
    /// long.
    pub pause_max: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts_max: 5,
            pause_min: Duration::from_millis(500),
            pause_max: Duration::from_secs(60),
        }
    }
}

impl Retry {
    /// Repeats `request` until it succeeds or fails permanently. `told` gets the error and the
    /// pause before each further try.
    ///
    /// # Errors
    /// The last failure's error.
    pub fn run<T, E>(
        self,
        mut told: impl FnMut(&E, Duration),
        mut request: impl FnMut() -> Result<T, Failure<E>>,
    ) -> Result<T, E> {
        let mut attempts = Attempts::new(self);
        loop {
            match request() {
                Ok(value) => return Ok(value),
                Err(failure) => attempts.pause(failure, &mut told)?,
            }
        }
    }
}

/// A failed request, and whether to repeat it.
#[derive(Debug)]
pub enum Failure<E> {
    /// The request would fail again.
    Final(E),
    /// The request may succeed later.
    Transient {
        /// What happened.
        error: E,
        /// The pause that the server requested.
        wait: Option<Duration>,
    },
}

impl<E> From<E> for Failure<E> {
    fn from(error: E) -> Self {
        Self::Final(error)
    }
}

/// Counts failures in a row and spaces them out.
#[derive(Debug)]
pub struct Attempts {
    retry: Retry,
    failed: u32,
}

impl Attempts {
    /// Returns the count before the first request.
    #[must_use]
    pub fn new(retry: Retry) -> Self {
        Self { retry, failed: 0 }
    }

    /// Forgets earlier failures: there was progress since.
    pub fn reset(&mut self) {
        self.failed = 0;
    }

    /// Waits before another attempt. `told` gets the error and the pause before the wait.
    ///
    /// # Errors
    /// The failure's error, if there is no further attempt.
    pub fn pause<E>(
        &mut self,
        failure: Failure<E>,
        told: impl FnOnce(&E, Duration),
    ) -> Result<(), E> {
        let (pause, error) = self.pause_after(failure)?;
        told(&error, pause);
        std::thread::sleep(pause);
        Ok(())
    }

    /// Returns how long to pause before the next try, or the final error.
    fn pause_after<E>(&mut self, failure: Failure<E>) -> Result<(Duration, E), E> {
        let (error, wait) = match failure {
            Failure::Final(error) => return Err(error),
            Failure::Transient { error, wait } => (error, wait),
        };
        let doubled = self.retry.pause_min.saturating_mul(1 << self.failed.min(16));
        self.failed += 1;
        let too_long = wait.is_some_and(|wait| wait > self.retry.pause_max);
        if self.failed >= self.retry.attempts_max || too_long {
            return Err(error);
        }
        Ok((wait.unwrap_or(doubled.min(self.retry.pause_max)), error))
    }
}

/// Returns the pause that a server requests, in `Retry-After` (seconds) or, as the Hugging Face hub
/// does, in the `t` of `RateLimit`. A date in `Retry-After` is ignored. `header` looks up a header
/// by its name in lower case.
#[must_use]
pub fn asked_pause<'h>(header: impl Fn(&str) -> Option<&'h str>) -> Option<Duration> {
    let after = || header("retry-after")?.trim().parse().ok();
    let reset = || {
        let fields = header("ratelimit")?.split(';');
        fields.filter_map(|field| field.trim().strip_prefix("t=")?.parse().ok()).next()
    };
    after().or_else(reset).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transient(wait: Option<u64>) -> Failure<&'static str> {
        Failure::Transient { error: "busy", wait: wait.map(Duration::from_secs) }
    }

    fn pauses_ms(retry: Retry, wait: Option<u64>) -> Vec<u128> {
        let mut attempts = Attempts::new(retry);
        std::iter::from_fn(|| attempts.pause_after(transient(wait)).ok())
            .map(|(pause, _)| pause.as_millis())
            .collect()
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_end() {
        let retry =
            Retry { attempts_max: 6, pause_max: Duration::from_secs(3), ..Retry::default() };
        assert_eq!(pauses_ms(retry, None), [500, 1000, 2000, 3000, 3000]);
        assert_eq!(pauses_ms(Retry { attempts_max: 1, ..retry }, None), []);
    }

    #[test]
    fn pauses_that_the_server_asks_for_are_kept_up_to_a_limit() {
        let retry = Retry { attempts_max: 3, ..Retry::default() };
        assert_eq!(pauses_ms(retry, Some(7)), [7000, 7000]);
        assert_eq!(pauses_ms(retry, Some(61)), []);
    }

    #[test]
    fn final_failures_are_not_retried() {
        assert!(Attempts::new(Retry::default()).pause_after("denied".into()).is_err());
    }

    #[test]
    fn pauses_are_read_from_either_header() {
        let pause = |name: &'static str, value: &'static str| {
            asked_pause(|asked| (asked == name).then_some(value)).map(|pause| pause.as_secs())
        };
        assert_eq!(pause("retry-after", " 7"), Some(7));
        assert_eq!(pause("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT"), None);
        assert_eq!(pause("ratelimit", "\"api\";r=0;t=55"), Some(55));
        assert_eq!(pause("ratelimit", "nonsense"), None);
    }
}
