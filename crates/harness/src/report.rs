//! Tables from run records. Nothing in them is typed, and no table holds two GPUs.

use crate::HarnessError;
use crate::bench::Row;
use crate::gate::{GateRecord, Rule, refusals};
use crate::quality::{Agreement, Kept, QualityRecord, Reading, Verdicts, mismatches, note};
use crate::record::{Index, IndexEntry, RunFolder};
use std::fmt::Write;
use std::path::Path;

/// Why a row's speed is not to be shown; empty if it is.
///
/// An engine of ours needs a gate record in the folder that allows it; another may say that it
/// failed a gate, or say nothing.
pub fn row_refusals(row: &Row, gates: &[GateRecord], run_id: &str) -> Vec<String> {
    let mut reasons = Vec::new();
    if row.run_id != run_id {
        reasons.push("measured in another run".into());
    }
    if row.gate_passed == Some(false) {
        reasons.push("its gate did not pass".into());
    }
    if row.engine != "monolith" {
        return reasons;
    }
    if row.gate_passed != Some(true) {
        reasons.push("no gate is said to have passed".into());
    }
    let subject = row.subject();
    let of = |gate: &GateRecord| {
        let mut reasons = refusals(gate, &subject, &row.prompt_ids_sha256);
        if row.gate_rule != Some(gate.checks.tokens.rule) {
            reasons.push("the gate had another rule".into());
        }
        reasons
    };
    match gates.iter().map(of).min_by_key(Vec::len) {
        None => reasons.push("no gate record".into()),
        Some(least) => reasons.extend(least),
    }
    reasons
}

/// A run's rows by whether their speed may be shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SortedRows {
    /// Rows whose speed may be shown.
    pub shown: Vec<Row>,
    /// The others, with the reason.
    pub hidden: Vec<(Row, String)>,
}

/// Sorts the rows of a run by whether their speed may be shown.
///
/// Of a test that was measured more than once, the last row counts.
///
/// # Errors
/// A folder that cannot be read.
pub fn sorted_rows(folder: &RunFolder) -> Result<SortedRows, HarnessError> {
    let (run_id, gates) = (folder.environment()?.run_id, folder.gates()?);
    let key = |row: &Row| {
        let Row { engine, variant, format, model, test, .. } = row;
        [engine, variant, format, model, test].map(String::clone)
    };
    let mut last: Vec<Row> = Vec::new();
    for row in folder.rows()? {
        match last.iter_mut().find(|earlier| key(earlier) == key(&row)) {
            Some(earlier) => *earlier = row,
            None => last.push(row),
        }
    }
    let mut sorted = SortedRows::default();
    for row in last {
        let reasons = row_refusals(&row, &gates, &run_id);
        if reasons.is_empty() {
            sorted.shown.push(row);
        } else {
            sorted.hidden.push((row, reasons.join("; ")));
        }
    }
    Ok(sorted)
}

/// Every GPU's tables, from the newest run of each that has a speed to show.
///
/// # Errors
/// A results folder that cannot be read.
pub fn render(results: &Path) -> Result<String, HarnessError> {
    let index = Index::read(results)?;
    let mut gpus: Vec<(&str, &str)> = Vec::new();
    for entry in index.runs.iter().rev() {
        let gpu = (entry.kind.as_str(), entry.gpu.as_str());
        if !gpus.contains(&gpu) {
            gpus.push(gpu);
        }
    }
    // GPUs first, then CPUs.
    gpus.sort_by_key(|(kind, _)| *kind != "gpu");
    let mut text = String::new();
    for (kind, gpu) in gpus {
        let own = |entry: &&IndexEntry| entry.kind == kind && entry.gpu == gpu;
        let runs: Vec<&IndexEntry> = index.runs.iter().rev().filter(own).collect();
        text += &gpu_section(results, gpu, &runs)?;
    }
    if text.is_empty() {
        text.push_str("Nothing was measured yet.\n");
    }
    Ok(text)
}

/// The section of one GPU; `runs` has the newest first.
fn gpu_section(results: &Path, gpu: &str, runs: &[&IndexEntry]) -> Result<String, HarnessError> {
    let mut text = format!("### {gpu}\n\n");
    let mut chosen = None;
    for entry in runs {
        let folder = RunFolder::named(results, &entry.folder);
        let sorted = sorted_rows(&folder)?;
        let found = !sorted.shown.is_empty();
        if chosen.is_none() || found {
            chosen = Some((folder, sorted));
            if found {
                break;
            }
        }
    }
    if let Some((folder, sorted)) = chosen {
        let qualities = folder.qualities()?;
        text += &tables(&sorted, &qualities);
        text += &quality_table(&qualities, &folder.environment()?.run_id);
        let link = format!("[results/{0}](results/{0}/)", folder.name);
        let _ = writeln!(text, "Measured in {link}, all in one run.");
        let others = runs.iter().filter(|entry| entry.folder != folder.name);
        let others: Vec<String> =
            others.map(|entry| format!("[{0}](results/{0}/)", entry.folder)).collect();
        if !others.is_empty() {
            let _ = writeln!(text, "Other runs: {}.", others.join(", "));
        }
        text.push('\n');
    }
    Ok(text)
}

/// A table of speeds and a list of what has none.
fn tables(sorted: &SortedRows, qualities: &[Kept]) -> String {
    let SortedRows { shown, hidden } = sorted;
    let mut text = String::new();
    if !shown.is_empty() {
        text += &speeds(shown, qualities);
    }
    if !hidden.is_empty() {
        text += "Measured but not shown, for want of a passed gate:\n\n";
        // One line a model and reason: the tests of one are hidden for the same.
        let mut lines: Vec<([&str; 4], &str, Vec<&str>)> = Vec::new();
        for (row, reason) in hidden {
            let key = engine_key(row);
            match lines.iter_mut().find(|line| (line.0, line.1) == (key, reason)) {
                Some(line) => line.2.push(&row.test),
                None => lines.push((key, reason, vec![&row.test])),
            }
        }
        for ([engine, variant, format, model], reason, tests) in lines {
            let tests = tests.join(", ");
            let _ = writeln!(text, "- {engine} {variant} ({format}) on {model}, {tests}: {reason}");
        }
        text.push('\n');
    }
    text
}

/// Engines down, tests across: median and range in tok/s; with the quality where one was measured.
fn speeds(rows: &[Row], qualities: &[Kept]) -> String {
    let with_quality = rows.iter().any(|row| quality_of(row, qualities).is_some());
    let mut tests: Vec<(Option<usize>, &str)> =
        rows.iter().map(|row| (row.position, row.test.as_str())).collect();
    tests.sort_unstable();
    tests.dedup();
    let mut engines: Vec<[&str; 4]> = rows.iter().map(engine_key).collect();
    let mut seen = Vec::new();
    engines.retain(|engine| {
        !seen.contains(engine) && {
            seen.push(*engine);
            true
        }
    });
    let names: Vec<&str> = tests.iter().map(|(_, test)| *test).collect();
    let mut text = format!(
        "tok/s, median (min to max){}\n\n| engine | variant | format | model | {} | bytes/token \
         | of roofline | gate |{}\n|---|---|---|---|{}--:|--:|---|{}\n",
        if rows.iter().any(|row| row.throttled == Some(true)) {
            "; * clocks were held back"
        } else {
            ""
        },
        names.join(" | "),
        if with_quality { " quality |" } else { "" },
        "--:|".repeat(names.len()),
        if with_quality { "---|" } else { "" }
    );
    for engine in engines {
        let own: Vec<&Row> = rows.iter().filter(|row| engine_key(row) == engine).collect();
        let cells = names.iter().map(|test| {
            own.iter().find(|row| row.test == *test).map_or(String::new(), |row| speed(row))
        });
        let first = own.iter().min_by_key(|row| row.position).expect("an engine has rows");
        let gate = match (first.gate_passed, first.gate_rule) {
            (Some(true), Some(Rule::F32Settles)) => "passed, f32 settles",
            (Some(true), _) => "passed",
            _ => "another engine",
        };
        let quality = quality_of(first, qualities).map(quality_cell).unwrap_or_default();
        let quality = if with_quality { format!(" {quality} |") } else { String::new() };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {gate} |{quality}",
            engine.join(" | "),
            cells.collect::<Vec<_>>().join(" | "),
            first.bytes_per_token.map_or(String::new(), |bytes| format!("{:.0} MB", bytes / 1e6)),
            crate::bench::percent(first.roofline_share),
        );
    }
    let mut scopes: Vec<&str> = rows.iter().map(|row| row.scope.as_str()).collect();
    scopes.sort_unstable();
    scopes.dedup();
    let _ = write!(text, "\nScope: {}.\n\n", scopes.join("; "));
    text += &model_notes(rows.iter().filter_map(|row| quality_of(row, qualities)));
    text
}

/// The record of the row's own run that speaks of the row's engine.
fn quality_of<'a>(row: &Row, qualities: &'a [Kept]) -> Option<&'a QualityRecord> {
    let subject = row.subject();
    let own = |kept: &&Kept| {
        kept.doubt.is_none() && mismatches(&kept.record.measured.candidate, &subject).is_empty()
    };
    qualities.iter().rev().find(own).map(|kept| &kept.record)
}

/// Both verdicts of a format, in a few words: the gate as written first.
fn quality_cell(record: &QualityRecord) -> String {
    let Verdicts { as_written, after_the_same_text } = record.verdicts();
    let agreement = &record.numbers.agreement;
    let share = |reading| format!("{:.1}%", 100.0 * agreement.share(reading));
    let asked = |failures: &[String], begin: &str, asked: &str| {
        let fails = failures.iter().any(|failure| failure.starts_with(begin));
        if fails { format!(" ({asked} asked)") } else { String::new() }
    };
    let holds = |passed: bool| if passed { "" } else { "not " };
    let experimental = if record.is_experimental() { "experimental; " } else { "" };
    format!(
        "{experimental}{}as written: {} of greedy tokens agree{}, {:+.2}% perplexity{}; {}after \
         the same text: {}",
        holds(as_written.passed),
        share(Reading::AsWritten),
        asked(&as_written.failures, "agreement: ", "90%"),
        100.0 * record.numbers.perplexity.rise,
        asked(&as_written.failures, "perplexity: ", "at most +2%"),
        holds(after_the_same_text.passed),
        share(Reading::AfterTheSameText),
    )
}

/// What the cards of these records' models say of such figures, a sentence each.
fn model_notes<'a>(records: impl Iterator<Item = &'a QualityRecord>) -> String {
    let mut said: Vec<String> = Vec::new();
    for record in records {
        let line = note(record).map(|note| format!("{}: {note}.", record.measured.model));
        said.extend(line.filter(|line| !said.contains(line)));
    }
    if said.is_empty() { String::new() } else { said.join(" ") + "\n\n" }
}

/// The quality records of a run: a line each, and what is not believed with the reason. Empty if
/// there are none.
fn quality_table(records: &[Kept], run_id: &str) -> String {
    let doubt = |kept: &Kept| {
        let measured = &kept.record.measured;
        let elsewhere =
            [&measured.reference, &measured.candidate].iter().any(|own| own.run_id != run_id);
        kept.doubt.clone().or(elsewhere.then(|| "measured in another run".into()))
    };
    let (hidden, shown): (Vec<_>, Vec<_>) =
        records.iter().partition(|record| doubt(record).is_some());
    let shown: Vec<&QualityRecord> = shown.into_iter().map(|kept| &kept.record).collect();
    let mut text = String::new();
    if !shown.is_empty() {
        text += QUALITY_HEAD;
    }
    text.extend(shown.iter().map(|record| quality_line(record)));
    if !text.is_empty() {
        text.push('\n');
    }
    text += &model_notes(shown.iter().copied());
    let mut notes: Vec<String> = shown.into_iter().flat_map(quality_notes).collect();
    for kept in hidden {
        let reason = doubt(kept).unwrap_or_default();
        notes.push(format!("- not shown: {}: {reason}\n", quality_name(&kept.record)));
    }
    if !notes.is_empty() {
        text += &(notes.concat() + "\n");
    }
    text
}

const QUALITY_HEAD: &str = "\
Quality against the same model in bf16. KL in nats. Greedy tokens that agree: each engine by
itself, up to the first difference, and teacher-forced. The gate is the verdict as written. The
last pairs are controls, nothing quantized: each by itself, and teacher-forced.

| model | variant | format | perplexity | in bf16 | rise | KL mean | KL 99% | by itself | prefix \
| forced | as written | after the same text | our bf16 and f32 | transformers' bf16 and f32 | text \
| tokens |
|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|---|---|--:|--:|---|--:|
";

fn quality_name(record: &QualityRecord) -> String {
    let measured = &record.measured;
    let variant = &measured.candidate.variant;
    format!("{variant} ({}) on {}", measured.candidate_formats, measured.model)
}

/// Why a record fails, and what is known less well than of others.
fn quality_notes(record: &QualityRecord) -> Vec<String> {
    let name = quality_name(record);
    let Verdicts { as_written, after_the_same_text } = record.verdicts();
    let other = after_the_same_text.failures.iter();
    let other = other.filter(|failure| !as_written.failures.contains(failure));
    let all = as_written.failures.iter().chain(other);
    let mut notes: Vec<String> = all.map(|reason| format!("- {name}: {reason}\n")).collect();
    if record.tokens_sha256.is_none() {
        notes.push(format!("- {name}: the record keeps counts, not the tokens (version 1)\n"));
    }
    notes
}

fn quality_line(record: &QualityRecord) -> String {
    let measured = &record.measured;
    let (perplexity, kl) = (&record.numbers.perplexity, &record.numbers.kl);
    let agreement = &record.numbers.agreement;
    let percent = |share: f64| format!("{:.1}%", 100.0 * share);
    let pair = |agreement: Option<&Agreement>| match agreement {
        Some(Agreement { greedy, forced, .. }) => {
            format!("{}, {}", percent(*greedy), percent(*forced))
        }
        None => "not measured".into(),
    };
    let Verdicts { as_written, after_the_same_text } = record.verdicts();
    let verdict = |passed: bool| if passed { "passed" } else { "failed" };
    let experimental = if record.is_experimental() { ", experimental" } else { "" };
    let cells = [
        measured.model.clone(),
        measured.candidate.variant.clone(),
        measured.candidate_formats.clone(),
        format!("{:.4}", perplexity.candidate),
        format!("{:.4}", perplexity.reference),
        format!("{:+.2}%", 100.0 * perplexity.rise),
        format!("{:.5}", kl.mean),
        format!("{:.5}", kl.p99),
        percent(agreement.greedy),
        percent(agreement.prefix),
        percent(agreement.forced),
        format!("**{}**{experimental}", verdict(as_written.passed)),
        verdict(after_the_same_text.passed).into(),
        pair(record.own_control.as_ref().map(|own| &own.agreement)),
        pair(record.control.as_ref().map(|control| &control.agreement)),
        measured.text.name.clone(),
        perplexity.scored.to_string(),
    ];
    format!("| {} |\n", cells.join(" | "))
}

fn engine_key(row: &Row) -> [&str; 4] {
    [&row.engine, &row.variant, &row.format, &row.model]
}

fn speed(row: &Row) -> String {
    let number = |value: Option<f64>| match value {
        Some(value) if value >= 100.0 => format!("{value:.0}"),
        Some(value) => format!("{value:.1}"),
        None => "?".into(),
    };
    let star = if row.throttled == Some(true) { "*" } else { "" };
    let (least, most) = (number(row.tok_s_min), number(row.tok_s_max));
    format!("{}{star} ({least} to {most})", number(row.tok_s_median))
}

/// The README of a run's folder.
///
/// # Errors
/// A folder that cannot be read.
pub fn run_readme(folder: &RunFolder) -> Result<String, HarnessError> {
    let environment = folder.environment()?;
    let sorted = sorted_rows(folder)?;
    let mut text = format!("# {}\n\nWritten from the files beside it.\n\n", folder.name);
    let _ = writeln!(text, "- {}: {}", environment.kind, environment.gpu);
    let _ = writeln!(text, "- run: `{}`, begun {}", environment.run_id, environment.date);
    if let Some(gpu) = &environment.nvml {
        let (driver, cuda) = (gpu.driver.as_deref(), gpu.cuda.as_deref());
        let known = |value: Option<&str>| value.unwrap_or("unknown").to_owned();
        let _ = writeln!(text, "- driver {}, CUDA up to {}", known(driver), known(cuda));
    }
    if let Some(reason) = &environment.nvml_absent {
        let _ = writeln!(text, "- no telemetry: {reason}");
    }
    text += "\n## Commands\n\n";
    for command in folder.commands()? {
        let _ = writeln!(text, "- `{}` ({})", command.command, command.versions.join(", "));
    }
    text += "\n## Gates\n\n";
    for gate in folder.gates()? {
        text += &gate_lines(&gate);
    }
    let qualities = folder.qualities()?;
    text += "\n## Speeds\n\n";
    text += &tables(&sorted, &qualities);
    let table = quality_table(&qualities, &environment.run_id);
    if !table.is_empty() {
        text += &format!("## Quality\n\n{table}");
    }
    Ok(text.trim_end().to_owned() + "\n")
}

/// A gate in words.
fn gate_lines(gate: &GateRecord) -> String {
    let (tokens, reference) = (&gate.checks.tokens, &gate.reference);
    let failures = gate.checks.failures(reference);
    let passed = if failures.is_empty() { "passed" } else { "failed" };
    let (variant, format) = (&gate.subject.variant, &gate.subject.format);
    let rule = match tokens.rule {
        Rule::Margin => "",
        Rule::F32Settles => " where f32 settles divergences",
    };
    let mut text = format!("- {variant} ({format}): {passed}{rule}; ");
    let _ = writeln!(
        text,
        "{} of {} tokens as {}; of {} others {} are excused by a top-2 margin below {:.4}, and {} \
         are what the reference says in f32",
        tokens.matches,
        tokens.positions,
        reference.engine,
        tokens.divergences.len(),
        tokens.exempt,
        reference.tolerance,
        tokens.as_f32
    );
    for failure in failures {
        let _ = writeln!(text, "  - {failure}");
    }
    text
}
