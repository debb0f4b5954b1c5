//! The gate's thresholds, and the two verdicts of a record.

use super::{AGREEMENT_MIN, PERPLEXITY_RISE_MAX};
use serde::{Deserialize, Serialize};

/// The readings of the specification's "90% of the first 64 greedy tokens agree". A record holds a
/// verdict for each reading; the gate is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// As the specification words it. Each engine decodes by itself, and a token agrees if both
    /// engines give it at the same place. After the first difference the texts are different, so
    /// one near tie may cost the rest of a prompt.
    AsWritten,
    /// The candidate is teacher-forced: it is fed the reference's tokens, so that both engines
    /// are asked for the next token of the same text at every place.
    AfterTheSameText,
}

impl Reading {
    /// The reading's name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Reading::AsWritten => "as written",
            Reading::AfterTheSameText => "after the same text",
        }
    }
}

/// The gate's limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thresholds {
    /// Largest rise of the perplexity, as a share of the reference's.
    pub perplexity_rise_max: f64,
    /// Smallest share of greedy tokens that agree.
    pub agreement_min: f64,
    /// In version 1 only: the comparison that decided. Nothing reads it any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreement: Option<String>,
}

impl Thresholds {
    /// The gate's own limits.
    pub fn gate() -> Thresholds {
        Thresholds {
            perplexity_rise_max: PERPLEXITY_RISE_MAX,
            agreement_min: AGREEMENT_MIN,
            agreement: None,
        }
    }

    /// Whether the numbers are the gate's.
    pub(super) fn are_the_gates(&self) -> bool {
        Thresholds { agreement: None, ..self.clone() } == Thresholds::gate()
    }
}

/// The verdict on a record by one reading.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Whether every threshold holds.
    pub passed: bool,
    /// The thresholds that do not hold, in words.
    pub failures: Vec<String>,
}

impl Verdict {
    pub(super) fn of(failures: Vec<String>) -> Verdict {
        Verdict { passed: failures.is_empty(), failures }
    }
}

/// Both verdicts of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdicts {
    /// The gate: each engine decodes by itself.
    pub as_written: Verdict,
    /// The other reading: the candidate is fed the reference's tokens.
    pub after_the_same_text: Verdict,
}

impl Verdicts {
    /// The verdict of one reading.
    pub fn by(&self, reading: Reading) -> &Verdict {
        match reading {
            Reading::AsWritten => &self.as_written,
            Reading::AfterTheSameText => &self.after_the_same_text,
        }
    }
}
