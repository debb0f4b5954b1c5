//! Quality: what a weight format costs. A candidate is compared with a reference, the same model
//! in bf16. Both run over the same tokens, which gives the perplexity of a text, the KL divergence
//! of the next-token distributions and the agreement of greedy tokens.
//!
//! A record holds two verdicts ([`Reading`]). The gate is the verdict as the specification words
//! it: each engine decodes by itself. No flag and no control loosens it. The controls
//! ([`OwnControl`], [`Control`]) stand beside the figures and say how far bf16 and f32 agree.
//!
//! As with a gate, nothing relies on a record's claims: [`record_refusals`] recomputes the
//! verdicts from the numbers, [`Kept`] the numbers from the tokens, and [`refusals`] compares the
//! record's hashes with the engine in question.

mod checks;
mod control;
mod distributions;
mod kept;
mod known;
mod run;
mod state;
mod text;
mod tokens;
mod verdict;
mod windows;

pub use checks::{Agreement, Divergence, Numbers, Perplexity, PromptScore, WindowScore};
pub use control::{Control, ControlFile, OwnControl, Wanted};
pub use distributions::{Comparison, Logits, compare};
pub use kept::Kept;
pub use known::note;
pub use run::{Job, Outcome, Pair, positions, run};
pub use text::TextIds;
pub use tokens::{PromptTokens, Tokens};
pub use verdict::{Reading, Thresholds, Verdict, Verdicts};
pub use windows::{Window, chosen_before, fits, is_chosen, window_count, windows};

use crate::files::{read_file, write_whole};
use crate::gate::plain_name;
use crate::identity::{sha256_hex, short};
use crate::subject::Ours;
use crate::{HarnessError, now};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Version of the record's layout. Version 1 had one verdict, kept no tokens and is still read.
pub const SCHEMA_VERSION: u32 = 2;
/// Largest count of tokens that a record may hold.
pub const COUNT_MAX: usize = 1 << 32;
/// Most greedy tokens per prompt that a record may hold.
pub const NEW_MAX: usize = 1 << 20;
/// Largest rise of the perplexity, as a share of the reference's.
pub const PERPLEXITY_RISE_MAX: f64 = 0.02;
/// A format whose perplexity rises by more than this is shown as experimental.
pub const EXPERIMENTAL_RISE: f64 = 0.10;
/// Least share of greedy tokens that agree.
pub const AGREEMENT_MIN: f64 = 0.90;
/// Prompts that a record must cover.
pub const PROMPTS: usize = 100;
/// Greedy tokens per prompt that a record must cover.
pub const NEW_TOKENS: usize = 64;
/// Positions at which a record must compare the distributions.
pub const KL_POSITIONS: usize = 10_000;
/// Tokens that a record must score.
pub const SCORED_MIN: usize = 10_000;

/// The options of a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QualityOptions {
    /// Tokens of a window.
    pub context: usize,
    /// Tokens from the beginning of one window to the beginning of the next.
    pub stride: usize,
    /// Positions at which the distributions are compared; all of them if the text has fewer.
    pub kl_positions: usize,
    /// Greedy tokens per prompt. End-of-text tokens do not end it.
    pub new: usize,
}

impl Default for QualityOptions {
    fn default() -> QualityOptions {
        QualityOptions { context: 1024, stride: 512, kl_positions: KL_POSITIONS, new: NEW_TOKENS }
    }
}

/// What was measured, and on what. It must be the same in all parts of a measurement, and for a
/// record and the engine that it is used for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// Name of the model in the candidate's pack.
    pub model: String,
    /// The engine with the bf16 weights.
    pub reference: Ours,
    /// Name of the reference's weight formats: of its layers and head.
    pub reference_formats: String,
    /// The engine that is compared with the reference.
    pub candidate: Ours,
    /// Name of the candidate's weight formats.
    pub candidate_formats: String,
    /// The text.
    pub text: TextId,
    /// The prompts.
    pub prompts: PromptsId,
    /// How it is measured.
    pub options: QualityOptions,
    /// Hash of the reference's weights' values (version 1: only if there is a control).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensors_sha256: Option<String>,
    /// sha256 of the control's file, if there is one: its f32 tokens are fed to the reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_sha256: Option<String>,
}

/// The scored text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextId {
    /// Name of its file.
    pub name: String,
    /// sha256 of the file.
    pub sha256: String,
    /// The rule by which the token ids were made.
    pub rule: String,
    /// Tokens of the whole text.
    pub tokens_whole: usize,
    /// The first tokens, which are used.
    pub tokens: usize,
    /// sha256 of the used ids.
    pub ids_sha256: String,
}

/// The continued prompts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptsId {
    /// sha256 of the prompt set's file.
    pub set_sha256: String,
    /// The rule by which the token ids were made.
    pub rule: String,
    /// sha256 of the ids.
    pub ids_sha256: String,
}

impl Measured {
    /// Names what differs; empty if nothing does.
    pub fn differences(&self, other: &Measured) -> Vec<&'static str> {
        let kernels =
            |own: &Measured| (own.reference.kernels.clone(), own.candidate.kernels.clone());
        let weights = |own: &Measured| {
            (own.reference.weights_sha256.clone(), own.candidate.weights_sha256.clone())
        };
        let pairs = [
            (weights(self) == weights(other), "weights"),
            (self.candidate.build == other.candidate.build, "build"),
            (kernels(self) == kernels(other), "kernels"),
            (self.text == other.text, "text"),
            (self.prompts == other.prompts, "prompts"),
            (self.options == other.options, "options"),
            (self.control_sha256 == other.control_sha256, "control"),
        ];
        let mut found: Vec<_> = pairs.iter().filter(|(same, _)| !same).map(|(_, n)| *n).collect();
        if found.is_empty() && self != other {
            found.push("engine or run");
        }
        found
    }
}

/// The record of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QualityRecord {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Whether the gate as written passed; [`record_refusals`] recomputes it. (In version 1 the
    /// control chose the comparison; nothing reads that any more.)
    pub quality_passed: bool,
    /// Both verdicts; [`QualityRecord::verdicts`] recomputes them. Missing in version 1.
    #[serde(default, rename = "verdicts", skip_serializing_if = "Option::is_none")]
    pub claimed: Option<Verdicts>,
    /// In version 1 only: what did not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<Vec<String>>,
    /// When the measurement ended, UTC.
    pub date: String,
    /// What was measured.
    pub measured: Measured,
    /// The limits.
    pub thresholds: Thresholds,
    /// The results.
    pub numbers: Numbers,
    /// sha256 of the file with the greedy tokens. Missing in version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_sha256: Option<String>,
    /// The reference against f32, if there is a control.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_control: Option<OwnControl>,
    /// transformers' bf16 against its f32.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Control>,
    /// sha256 of all of the above. It detects an edit by hand, but not a forgery.
    pub seal: String,
}

impl QualityRecord {
    /// The record of finished measurements, without a control.
    pub fn new(measured: Measured, tokens_sha256: String, numbers: Numbers) -> QualityRecord {
        let record = QualityRecord {
            schema_version: SCHEMA_VERSION,
            quality_passed: false,
            claimed: None,
            failures: None,
            date: now(),
            measured,
            thresholds: Thresholds::gate(),
            numbers,
            tokens_sha256: Some(tokens_sha256),
            own_control: None,
            control: None,
            seal: String::new(),
        };
        record.judged()
    }

    /// The record with both controls.
    #[must_use]
    pub fn with_controls(mut self, own: OwnControl, control: Control) -> QualityRecord {
        (self.own_control, self.control) = (Some(own), Some(control));
        self.judged()
    }

    /// The record with its verdicts and its seal.
    #[must_use]
    pub fn judged(mut self) -> QualityRecord {
        let verdicts = self.verdicts();
        self.quality_passed = verdicts.as_written.passed;
        self.claimed = Some(verdicts);
        self.sealed()
    }

    /// Returns both verdicts, computed from the numbers. Contradictory numbers pass neither.
    pub fn verdicts(&self) -> Verdicts {
        let by = |reading| {
            let contradictions = contradictions(self);
            let shortfalls = shortfalls(self, reading);
            Verdict::of(contradictions.into_iter().chain(shortfalls).collect())
        };
        Verdicts {
            as_written: by(Reading::AsWritten),
            after_the_same_text: by(Reading::AfterTheSameText),
        }
    }

    /// The record with its seal.
    #[must_use]
    pub fn sealed(mut self) -> QualityRecord {
        self.seal = String::new();
        self.seal = sha256_hex(serde_json::to_string(&self).expect("a record is JSON").as_bytes());
        self
    }

    /// Returns whether the candidate is shown as experimental.
    pub fn is_experimental(&self) -> bool {
        self.numbers.perplexity.rise > EXPERIMENTAL_RISE
    }

    /// Returns the record's file name in a run's folder: the candidate's name, and a hash of the
    /// reference, the text, the prompts and the options. A later record that would have the same
    /// name is numbered: `..._02.json`.
    pub fn file_name(&self) -> String {
        format!("{}.json", self.file_stem())
    }

    fn file_stem(&self) -> String {
        let against = (&self.measured.reference, &self.measured.text, &self.measured.prompts);
        let all = (against, &self.measured.options, &self.thresholds);
        let all = serde_json::to_string(&all).expect("plain data is JSON");
        format!("{}-{}", stem(&self.measured.candidate), &short(&all)[..8])
    }

    /// Writes the record into a run's folder, beside earlier ones of the same candidate; returns
    /// its path. A record that is already there is not written again.
    ///
    /// # Errors
    /// A file that cannot be read or written.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, HarnessError> {
        let text = serde_json::to_string_pretty(self).expect("a record is JSON") + "\n";
        let mut path = folder.join(self.file_name());
        let mut number = 1;
        while let Some(there) = read_file(&path)? {
            if there == text.as_bytes() {
                return Ok(path);
            }
            number += 1;
            // In order of name, which is the reports', an underscore comes after a full stop.
            path = folder.join(format!("{}_{number:02}.json", self.file_stem()));
        }
        write_whole(&path, &text)?;
        Ok(path)
    }

    /// Reads a record.
    ///
    /// # Errors
    /// A file that is missing, too large or not a record.
    pub fn read(path: &Path) -> Result<QualityRecord, HarnessError> {
        let text = kept::bounded_file(path)?;
        serde_json::from_slice(&text).map_err(|error| HarnessError::file(path, error))
    }
}

/// The beginning of the names of a candidate's files.
fn stem(candidate: &Ours) -> String {
    format!(
        "quality-{}-{}-{}",
        plain_name(&candidate.variant),
        plain_name(&candidate.format),
        short(&candidate.weights_sha256)
    )
}

/// Describes numbers that no measurement can give.
fn contradictions(record: &QualityRecord) -> Vec<String> {
    let QualityRecord { measured, numbers, control, own_control, .. } = record;
    let mut all = Vec::new();
    if !record.thresholds.are_the_gates() {
        all.push("the thresholds are not the gate's".into());
    }
    all.extend(numbers.contradictions(measured.text.tokens, &measured.options));
    if !all.is_empty() {
        // Out-of-bounds numbers are not used in computations.
        return all;
    }
    let prompts = numbers.prompts.len();
    if let Some(control) = control {
        all.extend(control.contradictions(measured, prompts));
    }
    if let Some(own) = own_control {
        all.extend(own.contradictions(measured.options.new, prompts));
    }
    if record.schema_version >= 2 {
        let [kept, own] = [control.is_some(), own_control.is_some()];
        if own != kept || measured.control_sha256.is_some() != kept {
            all.push("control: it has one of the two controls".into());
        }
        if record.tokens_sha256.is_none() {
            all.push("agreement: it names no tokens".into());
        }
    }
    all
}

/// Describes the conditions of the gate that do not hold.
fn shortfalls(record: &QualityRecord, reading: Reading) -> Vec<String> {
    let Measured { reference, candidate, reference_formats, .. } = &record.measured;
    let mut all = Vec::new();
    if reference_formats != "bf16" || reference.format != "bf16" {
        all.push(format!("reference: it is {reference_formats}, not bf16"));
    }
    if reference.run_id != candidate.run_id || reference.build != candidate.build {
        all.push("reference: it is of another run or build than the candidate".into());
    }
    all.extend(record.numbers.shortfalls(reading));
    all
}

/// Returns why to reject the record, or why it does not pass as written; empty if it passes.
pub fn record_refusals(record: &QualityRecord) -> Vec<String> {
    let mut reasons = record.verdicts().as_written.failures;
    reasons.extend(forgery(record));
    reasons
}

/// Returns why to reject the record: it was changed after it was made, or its numbers are
/// impossible.
pub fn forgery(record: &QualityRecord) -> Option<String> {
    let version = record.schema_version;
    if !(1..=SCHEMA_VERSION).contains(&version) {
        return Some(format!("the quality record's version is {version}"));
    }
    if record.clone().sealed().seal != record.seal {
        return Some("the quality record was changed".into());
    }
    if let Some(first) = contradictions(record).into_iter().next() {
        return Some(format!("the quality record contradicts itself: {first}"));
    }
    // Version 1's verdict follows a rule that is gone, so the numbers are judged instead.
    let verdicts = record.verdicts();
    let claims = version == 1
        || (record.quality_passed == verdicts.as_written.passed
            && record.claimed.as_ref() == Some(&verdicts));
    (!claims).then(|| "the quality record does not say what its numbers say".into())
}

/// Returns why the record does not let `candidate` pass; empty if it does.
pub fn refusals(record: &QualityRecord, candidate: &Ours) -> Vec<String> {
    let mut reasons = record_refusals(record);
    reasons.extend(mismatches(&record.measured.candidate, candidate));
    reasons
}

/// Returns the properties in which the record's candidate and the engine in question differ.
pub fn mismatches(measured: &Ours, asked: &Ours) -> Vec<String> {
    let differences = measured.differences(asked).into_iter();
    differences.map(|(what, ..)| format!("the quality record is of another {what}")).collect()
}
