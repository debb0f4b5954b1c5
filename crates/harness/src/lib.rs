//! Gates, benchmark, run records and reports: they say whether an engine is right, how fast it is,
//! and where it was measured.
//!
//! ```text
//! prompts -> ids.json -> tools/reference.py -> reference.json + reference.safetensors
//!                                                   |
//! pack, engine ---------------------------------> gate -> gate-<variant>.json
//!                                                   |
//! pack, engine, environment -------------------> bench -> rows.jsonl -> report
//!
//! text, prompts, two packs and engines --------> quality -> quality-<variant>.json -> report
//! ```
//!
//! A speed is printed only for a build, weights and variant whose gate passed in the same
//! measuring run: [`gate::refusals`] recomputes that from the gate record's numbers and hashes.
//!
//! A module imports only modules above it in this list (`tests/harness/modules.rs` checks it):
//!
//! - `files`: reading and writing records; `markdown`: text that may stand in a table
//! - `identity`: hashes; `subject`: what is measured, ours or foreign
//! - `environment`, `prompts`, `reference`, `predict`: what a measurement is given
//! - `adapters`: one form for every engine in a comparison
//! - `gate`, `bench`, `quality`, `pace`, `soak`: the measurements, and their records
//! - `runs`: the folders that keep records
//! - `report`: tables from records, and a run folder's README

pub mod adapters;
pub mod bench;
pub mod environment;
mod files;
pub mod gate;
pub mod identity;
mod markdown;
pub mod pace;
pub mod predict;
pub mod prompts;
pub mod quality;
pub mod reference;
pub mod report;
pub mod runs;
pub mod soak;
pub mod subject;

use monolith_engine::{Engine, EngineError};
use monolith_pack::Pack;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The error of an engine's loader.
pub type LoadError = Box<dyn std::error::Error + Send + Sync>;

/// Loads an engine for a pack, with room for this many positions. The gate calls it more than
/// once, and drops each engine before it loads the next.
pub type Loader<'a> = dyn Fn(Arc<Pack>, usize) -> Result<Box<dyn Engine>, LoadError> + 'a;

/// Runs a prompt from position 0, and reports its progress as that of `what`; returns the greedy
/// next token.
pub(crate) fn prefill(
    engine: &mut dyn Engine,
    tokens: &[u32],
    what: &str,
    progress: &mut Progress,
) -> Result<u32, EngineError> {
    let all = tokens.len();
    engine.prefill_with(tokens, &mut |done| {
        progress(&format!("{what}, {done} of {all} tokens"));
        ControlFlow::Continue(())
    })
}

/// Feeds the tokens at positions 0 and up, as [`prefill`] does; there may be none.
pub(crate) fn fill(
    engine: &mut dyn Engine,
    tokens: &[u32],
    what: &str,
    progress: &mut Progress,
) -> Result<(), EngineError> {
    if tokens.is_empty() { Ok(()) } else { prefill(engine, tokens, what, progress).map(drop) }
}

/// Callback for progress messages.
pub type Progress<'a> = dyn FnMut(&str) + 'a;

/// The errors, besides a check that fails.
#[derive(Debug, thiserror::Error)]
pub enum HarnessError {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file's contents are wrong or contradictory.
    #[error("{}: {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The engine could not be loaded.
    #[error("the engine could not be loaded: {0}")]
    Load(LoadError),
    /// A step failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A prompt could not be encoded.
    #[error(transparent)]
    Text(#[from] monolith_text::Error),
    /// There is no passed gate for the measurement.
    #[error("no speed without a passed gate of this run: {}", reasons.join("; "))]
    Ungated {
        /// Everything that is missing or does not match.
        reasons: Vec<String>,
    },
    /// Runs of one test gave different tokens, or too few.
    #[error("{test}: runs did not give the same tokens")]
    Unsteady {
        /// The test.
        test: String,
    },
    /// The quality cannot be measured like this.
    #[error("the quality cannot be measured: {what}")]
    Quality {
        /// What is wrong.
        what: String,
    },
    /// There is nothing to soak.
    #[error("nothing can be soaked: {0}")]
    Soak(String),
    /// There is no prediction.
    #[error(transparent)]
    Predict(#[from] predict::PredictError),
    /// The engine's clock and the host's clock disagree.
    #[error("the engine says that its steps took {engine_s} s, the host's clock {host_s} s")]
    Clock {
        /// Seconds, by the engine's clock.
        engine_s: f64,
        /// Seconds from call to return, by the host's.
        host_s: f64,
    },
}

impl From<monolith_files::Error> for HarnessError {
    fn from(error: monolith_files::Error) -> HarnessError {
        HarnessError::Io { path: error.path, source: error.source }
    }
}

impl HarnessError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> HarnessError + '_ {
        move |source| HarnessError::Io { path: path.to_owned(), source }
    }

    pub(crate) fn file(path: &Path, what: impl std::fmt::Display) -> HarnessError {
        HarnessError::File { path: path.to_owned(), what: what.to_string() }
    }
}

/// The time of day in UTC, to the second, as ISO 8601.
pub(crate) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
