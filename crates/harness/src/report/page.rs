//! The same runs as the page's data: every run with a speed to show, and why others have none.

use super::quality::quality_of;
use super::speeds::gate_words;
use super::{Run, runs};
use crate::HarnessError;
use crate::bench::Row;
use crate::gate::ROWS;
use crate::quality::{Kept, QualityRecord, Verdicts, note};
use serde::Serialize;
use std::path::Path;

/// Format and version, first in the data.
pub const SCHEMA: &str = "monolith-results/1";

/// Every run, the newest first.
#[derive(Clone, Debug, Serialize)]
pub struct PageResults {
    schema: &'static str,
    runs: Vec<PageRun>,
    /// Records that are missing, damaged or contradictory.
    pub problems: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
struct PageRun {
    folder: String,
    kind: String,
    gpu: String,
    date: String,
    driver: Option<String>,
    cuda: Option<String>,
    power_limit_w: Option<f64>,
    rows: Vec<PageRow>,
    /// What was measured and may not be shown, with the reason.
    hidden: Vec<String>,
    notes: Vec<String>,
}

/// A row whose speed may be shown. Fields are named as in [`Row`].
#[derive(Clone, Debug, Serialize)]
struct PageRow {
    engine: String,
    variant: String,
    format: String,
    model: String,
    test: String,
    position: Option<usize>,
    tok_s_median: Option<f64>,
    tok_s_min: Option<f64>,
    tok_s_max: Option<f64>,
    runs: usize,
    bytes_per_token: Option<f64>,
    gb_s: Option<f64>,
    roofline_share: Option<f64>,
    roofline_gb_s: Option<f64>,
    roofline_source: Option<String>,
    predicted_tok_s: Option<f64>,
    launches_per_token: Option<f64>,
    tokens_per_joule: Option<f64>,
    energy_method: Option<String>,
    power_w: Option<f64>,
    sm_clock_mhz: Option<u32>,
    throttled: Option<bool>,
    gate: String,
    scope: String,
    commit: Option<String>,
    quality: Option<PageQuality>,
}

/// What a weight format costs against bf16, measured in the row's own run.
#[derive(Clone, Debug, Serialize)]
struct PageQuality {
    perplexity: f64,
    perplexity_bf16: f64,
    perplexity_rise: f64,
    kl_mean: f64,
    kl_p99: f64,
    greedy: f64,
    forced: f64,
    as_written: bool,
    after_the_same_text: bool,
    experimental: bool,
    failures: Vec<String>,
    note: Option<String>,
}

impl PageResults {
    /// Reads every run that has speeds to show.
    ///
    /// # Errors
    /// A results folder, an index or a record that cannot be read.
    pub fn of(results: &Path) -> Result<PageResults, HarnessError> {
        let (found, problems) = runs(results)?;
        let shown = found.iter().filter(|run| !run.rows.shown.is_empty());
        let runs = shown.map(page_run).collect::<Result<Vec<PageRun>, HarnessError>>()?;
        Ok(PageResults { schema: SCHEMA, runs, problems })
    }
}

fn page_run(run: &Run) -> Result<PageRun, HarnessError> {
    let qualities = run.folder.qualities()?;
    let nvml = run.environment.nvml.as_ref();
    let hidden = run.rows.hidden.iter().map(|(row, reason)| {
        format!("{} {} on {}, {}: {reason}", row.engine, row.variant, row.model, row.test)
    });
    Ok(PageRun {
        folder: run.folder.name.clone(),
        kind: run.environment.kind.clone(),
        gpu: run.environment.gpu.clone(),
        date: run.environment.day().to_owned(),
        driver: nvml.and_then(|gpu| gpu.driver.clone()),
        cuda: nvml.and_then(|gpu| gpu.cuda.clone()),
        power_limit_w: nvml.and_then(|gpu| gpu.power_limit_w),
        rows: run.rows.shown.iter().map(|row| page_row(row, &qualities)).collect(),
        hidden: hidden.collect(),
        notes: run.rows.notes.clone(),
    })
}

fn page_row(row: &Row, qualities: &[Kept]) -> PageRow {
    let telemetry = row.telemetry.as_ref();
    let fewer = row.gate_rows.filter(|&rows| rows < ROWS && row.gate_passed == Some(true));
    let fewer = fewer.map_or(String::new(), |rows| format!(", {rows} of {ROWS} logits rows"));
    PageRow {
        engine: row.engine.clone(),
        variant: row.variant.clone(),
        format: row.format.clone(),
        model: row.model.clone(),
        test: row.test.clone(),
        position: row.position,
        tok_s_median: row.tok_s_median,
        tok_s_min: row.tok_s_min,
        tok_s_max: row.tok_s_max,
        runs: row.samples_ts.len(),
        bytes_per_token: row.bytes_per_token,
        gb_s: row.gb_s,
        roofline_share: row.roofline_share,
        roofline_gb_s: row.roofline.as_ref().map(|roofline| roofline.bandwidth_gb_s),
        roofline_source: row.roofline.as_ref().map(|roofline| roofline.source.clone()),
        predicted_tok_s: row.predicted_tok_s,
        launches_per_token: row.launches_per_token,
        tokens_per_joule: row.energy.as_ref().map(|energy| energy.tokens_per_joule),
        energy_method: row.energy.as_ref().map(|energy| energy.method.clone()),
        power_w: telemetry.and_then(|state| state.power_w),
        sm_clock_mhz: telemetry.and_then(|state| state.sm_clock_mhz),
        throttled: row.throttled,
        gate: format!("{}{fewer}", gate_words(row)),
        scope: row.scope.clone(),
        commit: row.commit.clone(),
        quality: quality_of(row, qualities).map(page_quality),
    }
}

fn page_quality(record: &QualityRecord) -> PageQuality {
    let Verdicts { as_written, after_the_same_text } = record.verdicts();
    let numbers = &record.numbers;
    PageQuality {
        perplexity: numbers.perplexity.candidate,
        perplexity_bf16: numbers.perplexity.reference,
        perplexity_rise: numbers.perplexity.rise,
        kl_mean: numbers.kl.mean,
        kl_p99: numbers.kl.p99,
        greedy: numbers.agreement.greedy,
        forced: numbers.agreement.forced,
        as_written: as_written.passed,
        after_the_same_text: after_the_same_text.passed,
        experimental: record.is_experimental(),
        failures: as_written.failures,
        note: note(record).map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_committed_speed_with_a_gate_is_there_once() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results");
        let page = PageResults::of(&results).unwrap();
        assert_eq!(page.problems, Vec::<String>::new());
        let (found, _) = runs(&results).unwrap();
        let expected: usize = found.iter().map(|run| run.rows.shown.len()).sum();
        assert_eq!(page.runs.iter().map(|run| run.rows.len()).sum::<usize>(), expected);
        assert!(expected > 0);
        for run in &page.runs {
            assert!(run.rows.iter().all(|row| row.gate.starts_with("passed")), "{}", run.folder);
        }
    }
}
