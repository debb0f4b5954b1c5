//! What every HTTP client of ours needs, whichever service it calls: an address and what it may be
//! shown as, a token that nothing prints, and retries.
//!
//! ```
//! use monolith_http::{Failure, Retry};
//! use std::time::Duration;
//!
//! let retry = Retry { pause_min: Duration::from_millis(1), ..Retry::default() };
//! let mut answers = vec![Ok("there"), Err("busy")];
//! let told = |error: &&str, pause: Duration| assert_eq!((*error, pause.as_millis()), ("busy", 1));
//! let answer = retry.run(told, || {
//!     let answer = answers.pop().expect("an answer");
//!     answer.map_err(|error| Failure::Transient { error, wait: None })
//! });
//! assert_eq!(answer, Ok("there"));
//! ```

mod address;
mod retry;
mod token;

pub use address::{
    BadEndpoint, Endpoint, Origin, origin, percent_encoded, redirect_target, server, shown,
};
pub use retry::{Attempts, Failure, Retry, asked_pause};
pub use token::Token;
