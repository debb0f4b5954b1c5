//! What can be measured, whichever engine it is: one file for each engine.

mod monolith;

pub use monolith::Monolith;

use crate::subject::Subject;
use crate::{HarnessError, Progress};

/// What a contender states about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// What it is.
    pub subject: Subject,
    /// Positions that it has room for.
    pub context: usize,
    /// Kernel launches per token. `None`: it launches no kernel, as on a CPU.
    pub launches_per_token: Option<u32>,
    /// Name of the clock that [`Answer::seconds`] is read from.
    pub clock: &'static str,
}

/// A contender's answer to a prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The greedy tokens that were timed. The first one follows the token that the prompt gives;
    /// that token is neither timed nor listed.
    pub tokens: Vec<u32>,
    /// Seconds of all these tokens together.
    pub seconds: f64,
}

/// A contender's answer with the time of every token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedAnswer {
    /// The token that the prompt gives, which is not timed.
    pub first: u32,
    /// The greedy tokens after it.
    pub tokens: Vec<u32>,
    /// When each of them was there, in ns since decoding began.
    pub at_ns: Vec<u64>,
}

/// An engine in a comparison.
pub trait Contender {
    /// Says what is measured.
    ///
    /// # Errors
    /// A file that identifies it and cannot be read.
    fn describe(&self) -> Result<Description, HarnessError>;

    /// Runs a prompt from an empty context, which is not timed and reports its progress as that of
    /// `what`, then times the greedy decoding of `steps` tokens.
    ///
    /// # Errors
    /// A step that fails, or clocks that disagree.
    fn decode(
        &mut self,
        prompt: &[u32],
        steps: usize,
        what: &str,
        progress: &mut Progress,
    ) -> Result<Answer, HarnessError>;

    /// [`Contender::decode`] in a pass of its own, with the time at which each token was there.
    /// `None`: the contender does not say.
    ///
    /// # Errors
    /// Those of [`Contender::decode`].
    fn decode_timed(
        &mut self,
        _prompt: &[u32],
        _steps: usize,
        _what: &str,
        _progress: &mut Progress,
    ) -> Result<Option<TimedAnswer>, HarnessError> {
        Ok(None)
    }

    /// The last step's logits. `None`: the contender does not give them.
    fn logits(&self) -> Option<Vec<f32>> {
        None
    }
}
