//! The traces in `results/`, checked against what the kernel guarantees.

use monolith_abi::{EventKind, Phase};
use monolith_xray::{Trace, page};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Every committed trace whose clocks were aligned by anchors in time (from 2026-11-30 on).
fn committed() -> Vec<PathBuf> {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results");
    let runs = std::fs::read_dir(results).unwrap().flatten().map(|entry| entry.path());
    let recent = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        path.is_dir() && *name >= *"2026-11-30"
    };
    let files = runs.filter(recent).flat_map(|run| std::fs::read_dir(run).unwrap().flatten());
    let is_trace = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("xray-") && name.ends_with(".json.gz")
    };
    let mut traces: Vec<PathBuf> = files.map(|entry| entry.path()).filter(is_trace).collect();
    traces.sort();
    traces
}

/// For each wait on a product's value, the nanoseconds from when its producer began the work in
/// which it publishes to the wait's end.
fn after_the_producer_began(trace: &Trace) -> Vec<i64> {
    let mut last_work = HashMap::new();
    for span in trace.spans().iter().filter(|span| span.kind == EventKind::Work) {
        let begin = last_work.entry((span.block, span.phase, span.layer)).or_insert(0);
        *begin = span.begin_ns.max(*begin);
    }
    let waits = trace
        .spans()
        .iter()
        .filter(|span| span.kind == EventKind::WaitExchange && span.phase != Phase::Attention);
    let measured = waits.filter_map(|wait| {
        let began = last_work.get(&(wait.waits_on?, wait.phase, wait.layer))?;
        Some(wait.end_ns as i64 - *began as i64)
    });
    measured.collect()
}

/// A value cannot be seen before its block begins to sum it up. Each block's clock is aligned on
/// its own, so a wrong alignment would fail this test.
#[test]
fn no_wait_ends_before_its_producer_begins_to_sum() {
    let traces = committed();
    assert!(traces.len() >= 4, "{traces:?}");
    for path in traces {
        let trace = page::read(&std::fs::read(&path).unwrap()).unwrap();
        let measured = after_the_producer_began(&trace);
        let least = measured.iter().min().copied().unwrap();
        println!("{}: {} waits, the earliest after {least} ns", path.display(), measured.len());
        assert!(measured.len() > 5_000, "{}: {} waits", path.display(), measured.len());
        assert!(least > 0, "{}: a wait ended {least} ns after its cause", path.display());
    }
}
