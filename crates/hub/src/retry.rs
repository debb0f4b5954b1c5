use std::time::Duration;

use crate::Error;

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

/// A failed request, and whether to repeat it.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The request would fail again.
    Final(Error),
    /// The request may succeed later. `wait` is the pause that the server requested.
    Transient { error: Error, wait: Option<Duration> },
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

/// Counts failures in a row and spaces them out.
pub(crate) struct Attempts {
    retry: Retry,
    failed: u32,
}

impl Attempts {
    pub fn new(retry: Retry) -> Self {
        Self { retry, failed: 0 }
    }

    /// Forgets earlier failures: there was progress since.
    pub fn reset(&mut self) {
        self.failed = 0;
    }

    /// Returns how long to pause before the next try, or the final error.
    pub fn pause_after(&mut self, failure: Failure) -> Result<(Duration, Error), Error> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn transient(wait: Option<u64>) -> Failure {
        Failure::Transient {
            error: Error::RateLimited { retry_after: None },
            wait: wait.map(Duration::from_secs),
        }
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
        let error = Error::RateLimited { retry_after: None };
        assert!(Attempts::new(Retry::default()).pause_after(error.into()).is_err());
    }
}
