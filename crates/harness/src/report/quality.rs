//! The quality of weight formats: a table, and a cell of the speeds' table.

use crate::bench::Row;
use crate::markdown::cell;
use crate::quality::{Agreement, Kept, QualityRecord, Reading, Verdicts, mismatches, note};
use crate::subject::Subject;

/// Returns the quality record of the row's own run for the row's engine.
pub(super) fn quality_of<'a>(row: &Row, qualities: &'a [Kept]) -> Option<&'a QualityRecord> {
    let Subject::Ours(subject) = row.subject() else { return None };
    let own = |kept: &&Kept| {
        kept.doubt.is_none() && mismatches(&kept.record.measured.candidate, &subject).is_empty()
    };
    qualities.iter().rev().find(own).map(|kept| &kept.record)
}

/// Renders both verdicts of a format in a few words, the gate as written first.
pub(super) fn quality_cell(record: &QualityRecord) -> String {
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

/// Returns the notes of these models' cards on such figures, one sentence each.
fn model_notes<'a>(records: impl Iterator<Item = &'a QualityRecord>) -> String {
    let mut said: Vec<String> = Vec::new();
    for record in records {
        let line = note(record).map(|note| format!("{}: {note}.", record.measured.model));
        said.extend(line.filter(|line| !said.contains(line)));
    }
    if said.is_empty() { String::new() } else { said.join(" ") + "\n\n" }
}

/// Renders the quality records of a run, one line each, and the rejected records with the reason.
/// Empty if there are none.
pub(super) fn quality_table(records: &[Kept], run_id: &str) -> String {
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
    // Once for both tables: the speeds' may hold a figure of a record that has no line here.
    let believed = records.iter().filter(|kept| kept.doubt.is_none());
    text += &model_notes(believed.map(|kept| &kept.record));
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
    let name = format!("{variant} ({}) on {}", measured.candidate_formats, measured.model);
    cell(&name)
}

/// Returns why a record fails, and which of its figures are less certain.
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
        cell(&measured.model),
        cell(&measured.candidate.variant),
        cell(&measured.candidate_formats),
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
        cell(&measured.text.name),
        perplexity.scored.to_string(),
    ];
    format!("| {} |\n", cells.join(" | "))
}
