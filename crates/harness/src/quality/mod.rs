//! Quality: what a weight format costs. A candidate is compared with a reference, the same model
//! in bf16, both stepped over the same tokens: perplexity of a text, KL divergence of the
//! next-token distributions, agreement of greedy tokens.
//!
//! The gate's comparison of greedy tokens is the strictest that the reference itself passes, in
//! bf16 against f32 ([`Control`]): nobody chooses it.
//!
//! As of a gate, nothing rests on a record's `quality_passed`: [`record_refusals`] recomputes it
//! from the numbers, and [`refusals`] compares the record's hashes with what it is to speak of.

mod checks;
mod control;
mod distributions;
mod run;
mod state;
mod text;
mod windows;

pub use checks::{
    Agreement, AgreementRule, Divergence, Numbers, Perplexity, PromptScore, Thresholds, WindowScore,
};
pub use control::{Control, Wanted};
pub use distributions::{Comparison, Logits, compare};
pub use run::{Job, Pair, positions, run};
pub use text::TextIds;
pub use windows::{Window, fits, is_chosen, windows};

use crate::identity::{Subject, sha256_hex, short};
use crate::{HarnessError, now};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Version of the record's layout.
pub const SCHEMA_VERSION: u32 = 1;
/// Largest rise of the perplexity, as a share of the reference's.
pub const PERPLEXITY_RISE_MAX: f64 = 0.02;
/// A format whose perplexity rises by more than this is shown as experimental.
pub const EXPERIMENTAL_RISE: f64 = 0.10;
/// Least share of greedy tokens that agree.
pub const AGREEMENT_MIN: f64 = 0.90;
/// Prompts that a record must cover.
pub const PROMPTS: usize = 100;
/// Greedy tokens a prompt that a record must cover.
pub const NEW_TOKENS: usize = 64;
/// Positions at which a record must compare the distributions.
pub const KL_POSITIONS: usize = 10_000;
/// Tokens that a record must score.
pub const SCORED_MIN: usize = 10_000;

/// How the quality is measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QualityOptions {
    /// Tokens of a window.
    pub context: usize,
    /// Tokens from one window's begin to the next one's.
    pub stride: usize,
    /// Positions at which the distributions are compared; all, if there are no more.
    pub kl_positions: usize,
    /// Greedy tokens a prompt. Nothing ends the text early.
    pub new: usize,
}

impl Default for QualityOptions {
    fn default() -> QualityOptions {
        QualityOptions { context: 1024, stride: 512, kl_positions: KL_POSITIONS, new: NEW_TOKENS }
    }
}

/// What a record is of: nothing here may differ between the parts of a measurement, nor between a
/// record and what it is taken to speak of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// What the candidate's pack calls its model.
    pub model: String,
    /// The engine that is compared with.
    pub reference: Subject,
    /// Name of its weight formats: those of the layers and the head.
    pub reference_formats: String,
    /// The engine that is compared.
    pub candidate: Subject,
    /// Name of its weight formats.
    pub candidate_formats: String,
    /// The text.
    pub text: TextId,
    /// The prompts.
    pub prompts: PromptsId,
    /// How it is measured.
    pub options: QualityOptions,
    /// Hash of the reference's weights' values, where a control is to be of the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensors_sha256: Option<String>,
}

/// Which text is scored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextId {
    /// Name of its file.
    pub name: String,
    /// sha256 of the file.
    pub sha256: String,
    /// How the token ids were made.
    pub rule: String,
    /// Tokens of the whole text.
    pub tokens_whole: usize,
    /// Those, from the first on, that are used.
    pub tokens: usize,
    /// sha256 of the used ids.
    pub ids_sha256: String,
}

/// Which prompts are continued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptsId {
    /// sha256 of the prompt set's file.
    pub set_sha256: String,
    /// How the token ids were made.
    pub rule: String,
    /// sha256 of the ids.
    pub ids_sha256: String,
}

impl Measured {
    /// What differs, in words; empty if nothing does.
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
        ];
        let mut found: Vec<_> = pairs.iter().filter(|(same, _)| !same).map(|(_, n)| *n).collect();
        if found.is_empty() && self != other {
            found.push("engine or run");
        }
        found
    }
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QualityRecord {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Whether every threshold holds; [`record_refusals`] does not take its word.
    pub quality_passed: bool,
    /// What does not hold, in words.
    pub failures: Vec<String>,
    /// When the measurement ended, UTC.
    pub date: String,
    /// What it is of.
    pub measured: Measured,
    /// What must hold.
    pub thresholds: Thresholds,
    /// What was measured.
    pub numbers: Numbers,
    /// What settled which comparison of greedy tokens is the gated one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Control>,
    /// sha256 of all of the above: no proof against malice, but an edit by hand does not match.
    pub seal: String,
}

impl QualityRecord {
    /// The record of finished measurements.
    pub fn new(measured: Measured, control: Option<Control>, numbers: Numbers) -> QualityRecord {
        let thresholds = Thresholds::gate(AgreementRule::of(control.as_ref()));
        let mut record = QualityRecord {
            schema_version: SCHEMA_VERSION,
            quality_passed: false,
            failures: Vec::new(),
            date: now(),
            measured,
            thresholds,
            numbers,
            control,
            seal: String::new(),
        };
        record.failures = failures(&record);
        record.quality_passed = record.failures.is_empty();
        record.sealed()
    }

    /// The record with its seal.
    #[must_use]
    pub fn sealed(mut self) -> QualityRecord {
        self.seal = String::new();
        self.seal = sha256_hex(serde_json::to_string(&self).expect("a record is JSON").as_bytes());
        self
    }

    /// Whether the candidate is to be shown as experimental.
    pub fn is_experimental(&self) -> bool {
        self.numbers.perplexity.rise > EXPERIMENTAL_RISE
    }

    /// The record's file name in a run's folder: of the candidate, and of what it was measured
    /// against and on.
    pub fn file_name(&self) -> String {
        let against = (&self.measured.reference, &self.measured.text, &self.measured.prompts);
        let all = (against, &self.measured.options, &self.thresholds);
        let all = serde_json::to_string(&all).expect("plain data is JSON");
        format!("{}-{}.json", stem(&self.measured.candidate), &short(&all)[..8])
    }

    /// Writes the record into a run's folder; gives its path.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, HarnessError> {
        let path = folder.join(self.file_name());
        let text = serde_json::to_string_pretty(self).expect("a record is JSON") + "\n";
        crate::record::write_whole(&path, &text)?;
        Ok(path)
    }

    /// Reads a record.
    ///
    /// # Errors
    /// A file that is missing or is no record.
    pub fn read(path: &Path) -> Result<QualityRecord, HarnessError> {
        let text = std::fs::read(path).map_err(HarnessError::io(path))?;
        serde_json::from_slice(&text).map_err(|error| HarnessError::file(path, error))
    }
}

/// How the names of a candidate's files begin.
fn stem(candidate: &Subject) -> String {
    format!(
        "quality-{}-{}-{}",
        crate::gate::plain_name(&candidate.variant),
        crate::gate::plain_name(&candidate.format),
        short(&candidate.weights_sha256)
    )
}

/// What does not hold, recomputed from the record's numbers.
fn failures(record: &QualityRecord) -> Vec<String> {
    let Measured { reference, candidate, reference_formats, text, options, .. } = &record.measured;
    let mut all = Vec::new();
    if reference_formats != "bf16" || reference.format != "bf16" {
        all.push(format!("reference: it is {reference_formats}, not bf16"));
    }
    if reference.run_id != candidate.run_id || reference.build != candidate.build {
        all.push("reference: it is of another run or build than the candidate".into());
    }
    all.extend(record.numbers.failures(text.tokens, options, &record.thresholds));
    if record.thresholds.agreement != AgreementRule::of(record.control.as_ref()) {
        all.push("agreement: the comparison is not the one that the control settles".into());
    }
    if let Some(control) = &record.control {
        all.extend(control.failures(&record.measured, record.numbers.prompts.len()));
    }
    all
}

/// Why the record is not to be believed, or does not pass; empty if it passes.
pub fn record_refusals(record: &QualityRecord) -> Vec<String> {
    let mut reasons = failures(record);
    if record.schema_version != SCHEMA_VERSION {
        reasons.push(format!("the quality record's version is {}", record.schema_version));
    }
    reasons.extend(forgery(record).map(str::to_owned));
    reasons
}

/// Whether the record was changed after it was made: what it says of itself is not what its
/// numbers say.
pub fn forgery(record: &QualityRecord) -> Option<&'static str> {
    if record.clone().sealed().seal != record.seal {
        return Some("the quality record was changed");
    }
    let holds = failures(record).is_empty();
    if [record.failures.is_empty(), record.quality_passed] != [holds; 2] {
        return Some("the quality record does not say what its numbers say");
    }
    None
}

/// Why the record does not let `candidate` pass; empty if it does.
pub fn refusals(record: &QualityRecord, candidate: &Subject) -> Vec<String> {
    let mut reasons = record_refusals(record);
    reasons.extend(mismatches(&record.measured.candidate, candidate));
    reasons
}

/// In what the record's candidate differs from the engine that it is to speak of.
pub fn mismatches(measured: &Subject, asked: &Subject) -> Vec<String> {
    let blocks = [measured, asked].map(|subject| subject.blocks.to_string());
    let pairs = [
        (measured.engine == asked.engine, "engine"),
        (measured.variant == asked.variant, "variant"),
        (measured.format == asked.format, "format"),
        (measured.gpu == asked.gpu, "GPU"),
        (measured.build == asked.build, "build"),
        (measured.kernels == asked.kernels, "set of kernels"),
        (measured.weights_sha256 == asked.weights_sha256, "weights"),
        (measured.run_id == asked.run_id, "run"),
        (blocks[0] == blocks[1], "number of blocks"),
    ];
    let other = pairs.iter().filter(|(same, _)| !same);
    other.map(|(_, what)| format!("the quality record is of another {what}")).collect()
}
