//! The gate: whether an engine computes what the model defines, position by position.
//!
//! A record holds the numbers of every check, and nothing relies on its `passed`: [`refusals`]
//! recomputes each check from its numbers, and compares the record's hashes with the subject of
//! the measurement.

mod checks;
mod planted;
mod run;

pub use checks::{
    Checks, ContextCheck, DecodeCheck, DeterminismCheck, Divergence, LogitsCheck, RowsCheck, Rule,
    TokensCheck, VocabularyCheck, WeightsCheck,
};
pub use planted::{planted_next, planted_pack, planted_weights};
pub use run::{GateOptions, run};

use crate::files::{is_plain, read_file, write_whole};
use crate::identity::{sha256_hex, short};
use crate::reference::{ErrorStats, OwnDivergences, Reference, Summary};
use crate::subject::Ours;
use crate::{HarnessError, now};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Version of the record's layout.
pub const SCHEMA_VERSION: u32 = 2;
/// Oldest version that is still read. It does not state the machine code or the commit.
pub const SCHEMA_VERSION_OLDEST: u32 = 1;
/// Prompts that a gate must cover.
pub const PROMPTS: usize = 20;
/// Greedy tokens per prompt that a gate must cover.
pub const NEW_TOKENS: usize = 256;
/// Whole rows of logits that a full reference holds: one of every 16 tokens. A smaller reference
/// holds fewer, and the tables say how many.
pub const ROWS: usize = PROMPTS * NEW_TOKENS / 16;
/// Largest share of positions at which a near tie may excuse a divergence.
pub const EXEMPT_SHARE_MAX: f64 = 0.02;
/// Runs that must agree bit by bit.
pub const RUNS: usize = 3;

/// The reference of a gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReferenceId {
    /// Hash of `reference.json`, which holds the hash of the logits.
    pub sha256: String,
    /// What computed it, with versions.
    pub engine: String,
    /// Hash of the weights' values that it read.
    pub tensors_sha256: String,
    /// Top-2 margin below which a divergence is allowed: `error.p999`.
    pub tolerance: f64,
    /// Its own errors against f32.
    pub error: ErrorStats,
    /// Where its own f32 token differs, which settles the rule. (Not in older records.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<OwnDivergences>,
}

/// The result of a gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateRecord {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Whether every check passed; [`refusals`] does not rely on it.
    pub passed: bool,
    /// What did not pass, in words.
    pub failures: Vec<String>,
    /// When the gate ended, UTC.
    pub date: String,
    /// The checked engine, build and weights.
    pub subject: Ours,
    /// Hash of the prompts' ids.
    pub prompt_ids_sha256: String,
    /// The reference.
    pub reference: ReferenceId,
    /// Every check with its numbers.
    pub checks: Checks,
    /// sha256 of all of the above. It detects an edit by hand, but not a forgery.
    pub seal: String,
}

impl GateRecord {
    /// Returns the record of finished checks.
    pub fn new(subject: Ours, reference: &Reference, checks: Checks) -> GateRecord {
        let summary = &reference.summary;
        let reference = ReferenceId {
            sha256: reference.sha256.clone(),
            engine: summary.engine_name(),
            tensors_sha256: summary.tensors_sha256.clone(),
            tolerance: summary.tolerance,
            error: summary.error.clone(),
            own: Some(reference.own_divergences()),
        };
        let failures = checks.failures(&reference);
        let record = GateRecord {
            schema_version: SCHEMA_VERSION,
            passed: failures.is_empty(),
            failures,
            date: now(),
            subject,
            prompt_ids_sha256: summary.prompt_ids_sha256.clone(),
            reference,
            checks,
            seal: String::new(),
        };
        record.sealed()
    }

    /// The record with its seal.
    #[must_use]
    pub fn sealed(mut self) -> GateRecord {
        self.seal = String::new();
        self.seal = sha256_hex(serde_json::to_string(&self).expect("a record is JSON").as_bytes());
        self
    }

    /// The record's file name in a run's folder.
    pub fn file_name(&self) -> String {
        file_name(&self.subject)
    }

    /// Writes the record into a run's folder; returns its path.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, HarnessError> {
        let path = folder.join(self.file_name());
        let text = serde_json::to_string_pretty(self).expect("a record is JSON") + "\n";
        write_whole(&path, &text)?;
        Ok(path)
    }

    /// Reads a record.
    ///
    /// # Errors
    /// A file that is missing or is no record.
    pub fn read(path: &Path) -> Result<GateRecord, HarnessError> {
        let missing = || HarnessError::io(path)(std::io::ErrorKind::NotFound.into());
        let text = read_file(path)?.ok_or_else(missing)?;
        serde_json::from_slice(&text).map_err(|error| HarnessError::file(path, error))
    }
}

/// Returns the file name of a record, made of the variant (hashed if its name is not plain) and the
/// weights. A run may gate several models, and each keeps its record.
pub fn file_name(subject: &Ours) -> String {
    let variant = plain_name(&subject.variant);
    format!("gate-{variant}-{}.json", short(&subject.weights_sha256))
}

/// Returns the name if it is plain, otherwise its hash.
pub(crate) fn plain_name(name: &str) -> String {
    if is_plain(name) { name.to_owned() } else { short(name) }
}

/// Returns why the record does not allow a speed of `subject`; empty if it does.
///
/// `prompt_ids_sha256` is the hash of the measured prompts.
pub fn refusals(record: &GateRecord, subject: &Ours, prompt_ids_sha256: &str) -> Vec<String> {
    let mut reasons = record.checks.failures(&record.reference);
    let versions = SCHEMA_VERSION_OLDEST..=SCHEMA_VERSION;
    if !versions.contains(&record.schema_version) {
        reasons.push(format!("the gate record's version is {}", record.schema_version));
    }
    if record.schema_version > SCHEMA_VERSION_OLDEST && record.subject.lacks_machine_code() {
        reasons.push("the gate record does not say which machine code was launched".into());
    }
    if record.clone().sealed().seal != record.seal {
        reasons.push("the gate record was changed".into());
    }
    if !record.passed {
        reasons.push("the gate says that it did not pass".into());
    }
    if !record.failures.is_empty() {
        reasons.push(format!("the gate says: {}", record.failures.join("; ")));
    }
    let mut differences = record.subject.differences(subject);
    if record.prompt_ids_sha256 != prompt_ids_sha256 {
        let prompts = [&record.prompt_ids_sha256, prompt_ids_sha256].map(str::to_owned);
        let [gated, asked] = prompts;
        differences.push(("prompts", gated, asked));
    }
    // Shows as much of a hash as tells two apart.
    let start = |text: &str| match text.len() {
        64 => text.get(..12).unwrap_or(text).to_owned(),
        _ => text.to_owned(),
    };
    reasons.extend(differences.iter().map(|(what, gated, asked)| {
        format!("the gate was of another {what}: {}, not {}", start(gated), start(asked))
    }));
    reasons
}

/// Returns the contradictions between the record and the summary of its reference.
pub fn contradictions(record: &GateRecord, reference: &Summary) -> Vec<String> {
    let (own, tokens) = (&record.reference, &record.checks.tokens);
    let is_expected = |d: &Divergence| {
        reference.tokens.get(d.prompt).and_then(|row| row.get(d.step)) == Some(&d.expected)
    };
    let context = &record.checks.context;
    let claims = [
        (own.tensors_sha256 == reference.tensors_sha256, "weights"),
        (record.prompt_ids_sha256 == reference.prompt_ids_sha256, "prompts"),
        (own.tolerance.to_bits() == reference.tolerance.to_bits(), "tolerance"),
        (own.error == reference.error, "errors in bf16"),
        (own.engine == reference.engine_name(), "versions"),
        (
            (tokens.prompts, tokens.new) == (reference.prompts.len(), reference.new),
            "number of prompts",
        ),
        (tokens.near_ties == reference.near_ties, "near ties"),
        (tokens.divergences.iter().all(is_expected), "tokens"),
        (context.sequence == reference.context, "context"),
        (record.checks.rows.vocab == reference.vocab, "vocabulary"),
    ];
    let wrong = claims.into_iter().filter(|(holds, _)| !holds);
    wrong.map(|(_, what)| format!("the gate's reference has other {what}")).collect()
}

/// [`refusals`] for the record in a run's folder; a missing or unreadable one is a reason too.
pub fn refusals_in(
    folder: &Path,
    subject: &Ours,
    prompt_ids_sha256: &str,
) -> Result<GateRecord, Vec<String>> {
    let path = folder.join(file_name(subject));
    let record = GateRecord::read(&path)
        .map_err(|error| vec![format!("{error}: run `monolith gate` in this run first")])?;
    let reasons = refusals(&record, subject, prompt_ids_sha256);
    if reasons.is_empty() { Ok(record) } else { Err(reasons) }
}
