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

    /// The last step's logits. `None`: the contender does not give them.
    fn logits(&self) -> Option<Vec<f32>> {
        None
    }
}
