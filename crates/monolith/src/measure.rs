//! What the measuring commands share: the measured engine and the run.

use crate::engine::{self, Options};
use crate::exit::{Code, Exit};
use crate::file_out::check_writable;
use crate::options::EngineArgs;
use crate::text_out::say;
use anyhow::Context;
use comfy_table::{Table, presets::NOTHING};
use monolith_engine::{EngineError, cpu};
use monolith_harness::HarnessError;
use monolith_harness::environment::{Environment, Probe, Target};
use monolith_harness::predict::PredictError;
use monolith_harness::runs::{Index, RunFolder};
use std::io::ErrorKind;
use std::path::Path;

/// One engine on one processor.
pub struct Setup {
    /// How the engine is loaded.
    pub options: Options,
    /// For samples of the processor's state.
    pub probe: Probe,
    /// The machine and the run.
    pub environment: Environment,
}

impl Setup {
    /// Chooses the engine and describes its processor.
    ///
    /// # Errors
    /// Those of [`engine::options`].
    pub fn new(args: &EngineArgs) -> Result<Setup, Exit> {
        let options = engine::options(args)?.only_first();
        let (target, device) = match options.gpu() {
            Some(gpu) => (Target::Gpu(nvml_index()), gpu.name.clone()),
            None => (Target::Cpu, cpu::device_name()),
        };
        let probe = Probe::new(target);
        let environment = probe.environment(&device);
        if options.gpu().is_some() {
            warn(&environment);
        }
        Ok(Setup { options, probe, environment })
    }

    /// Returns the folder of this run, if an earlier command made it.
    ///
    /// # Errors
    /// A results folder that cannot be read.
    pub fn run_folder(&self, results: &Path) -> Result<Option<RunFolder>, Exit> {
        let index = Index::read(results).map_err(exit_of)?;
        let folders = index.runs.iter().rev().map(|entry| RunFolder::named(results, &entry.folder));
        let run_id = &self.environment.run_id;
        let is_own = |folder: &RunFolder| {
            folder.environment().is_ok_and(|environment| environment.run_id == *run_id)
        };
        Ok(folders.into_iter().find(is_own))
    }
}

/// Renders a record's checks or measures as a table: name, verdict, numbers. A failure begins with
/// the name of its check.
pub fn verdicts(
    what: &str,
    rows: impl IntoIterator<Item = (&'static str, String)>,
    failures: &[String],
) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header([what, "result", "numbers"]);
    for (name, numbers) in rows {
        let own = format!("{name}: ");
        let failed = failures.iter().any(|failure| failure.starts_with(&own));
        table.add_row([name, if failed { "FAILED" } else { "passed" }, &numbers]);
    }
    let lines = table.to_string();
    lines.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// NVML numbers all GPUs, but CUDA only those in `CUDA_VISIBLE_DEVICES`.
fn nvml_index() -> u32 {
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    visible.split(',').next().and_then(|first| first.trim().parse().ok()).unwrap_or(0)
}

fn warn(environment: &Environment) {
    match (&environment.nvml, &environment.nvml_absent) {
        (Some(gpu), _) if gpu.name != environment.gpu => say(&format!(
            "monolith: the telemetry is of another GPU ({}, not {}): set CUDA_VISIBLE_DEVICES to \
             the number of the GPU",
            gpu.name, environment.gpu
        )),
        (None, Some(reason)) => say(&format!("monolith: no telemetry: {reason}")),
        _ => {}
    }
}

/// Makes the results folder and checks, before the measurement, that it is writable.
///
/// # Errors
/// The folder cannot be made or written to.
pub fn prepare(results: &Path) -> Result<(), Exit> {
    std::fs::create_dir_all(results)
        .with_context(|| format!("{} cannot be made", results.display()))?;
    Ok(check_writable(&results.join("index.json"))?)
}

/// Returns the command as it was typed.
pub fn command() -> String {
    let words = std::env::args_os().skip(1).map(|word| quoted(&word.to_string_lossy()));
    std::iter::once("monolith".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Returns this program's version, for a run's record.
pub fn version() -> String {
    format!("monolith {}", env!("CARGO_PKG_VERSION"))
}

/// Returns the error of reading a file that an option names; a missing one is wrong usage.
pub fn input_exit(error: HarnessError) -> Exit {
    match &error {
        HarnessError::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
            Exit::new(Code::Usage, error)
        }
        _ => exit_of(error),
    }
}

/// Returns an error of the harness with its exit code.
pub fn exit_of(error: HarnessError) -> Exit {
    match error {
        HarnessError::Ungated { .. } => Exit::new(Code::Gate, error),
        HarnessError::Engine(error) => engine::exit_of(error),
        HarnessError::Predict(PredictError::UnknownGpu { .. } | PredictError::Kernel(_)) => {
            Exit::new(Code::Usage, error)
        }
        HarnessError::Predict(PredictError::File { ref path, .. }) if !path.exists() => {
            Exit::new(Code::Usage, error)
        }
        HarnessError::Load(error) => match error.downcast::<EngineError>() {
            Ok(error) => engine::exit_of(*error),
            Err(error) => Exit::message(Code::Failure, error),
        },
        _ => Exit::new(Code::Failure, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engines_error_has_its_code_through_the_harness_too() {
        let interrupted = || EngineError::Interrupted { done: 3, all: 9 };
        for error in [HarnessError::Engine(interrupted()), HarnessError::Load(interrupted().into())]
        {
            let exit = exit_of(error);
            assert_eq!(exit.code(), Code::Interrupted);
            assert_eq!(exit.to_string(), "interrupted after 3 of the prompt's 9 tokens");
        }
        let unsteady = HarnessError::Unsteady { test: "tg8".into() };
        assert_eq!(exit_of(unsteady).code(), Code::Failure);
    }

    #[test]
    fn words_are_quoted_as_a_shell_wants_them() {
        assert_eq!(quoted("a/b-c.json"), "a/b-c.json");
        assert_eq!(quoted("two words"), "'two words'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
