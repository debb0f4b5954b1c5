//! Gate, stopwatch, records and report on the CPU engine; and everything that must not pass.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../common/fixture.rs"]
mod fixture;

mod adapters;
mod bench;
mod broken;
mod forgery;
mod gate;
mod modules;
mod quality;
mod quality_forgery;
mod quality_reports;
mod records;
mod reports;
mod streams;
mod tiny;

use monolith_engine::{CpuEngine, CpuOptions, Engine};
use monolith_harness::LoadError;
use monolith_harness::environment::{Environment, Probe, Target};
use monolith_harness::gate::{GateOptions, GateRecord, run};
use monolith_harness::prompts::PromptIds;
use monolith_harness::reference::Reference;
use monolith_pack::{Pack, Source, pack_to_bytes};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

fn reference_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fixture")
}

fn reference() -> &'static Reference {
    static REFERENCE: OnceLock<Reference> = OnceLock::new();
    REFERENCE.get_or_init(|| Reference::open(&reference_dir()).expect("it is committed"))
}

fn pack() -> Arc<Pack> {
    static PACK: OnceLock<Arc<Pack>> = OnceLock::new();
    let made = PACK.get_or_init(|| {
        let source = Source { model: "fixture".into(), revision: None };
        let bytes = pack_to_bytes(&fixture::weights(), source);
        Arc::new(Pack::from_bytes(bytes, "fixture.pack").expect("it is whole"))
    });
    made.clone()
}

fn prompts() -> PromptIds {
    PromptIds {
        rule: "the reference's".into(),
        prompt_set_sha256: String::new(),
        ids: reference().summary.prompts.clone(),
    }
}

fn load(pack: Arc<Pack>, context: usize) -> Result<Box<dyn Engine>, LoadError> {
    let options = CpuOptions { context: Some(context), threads: 1, ..CpuOptions::default() };
    Ok(Box::new(CpuEngine::load(pack, &options)?))
}

fn environment() -> Environment {
    Probe::new(Target::Cpu).environment(&monolith_engine::cpu::device_name())
}

/// The gate of the fixture on the CPU engine.
fn record() -> GateRecord {
    gated().0.clone()
}

/// The same, run once for all tests, and what it told meanwhile.
fn gated() -> &'static (GateRecord, Vec<String>) {
    static GATED: OnceLock<(GateRecord, Vec<String>)> = OnceLock::new();
    GATED.get_or_init(|| {
        let run_id = environment().run_id;
        let options = GateOptions::default();
        let mut told = Vec::new();
        let mut tell = |what: &str| told.push(what.to_owned());
        let record = run(&pack(), &load, reference(), &run_id, &options, &mut tell);
        (record.expect("it runs"), told)
    })
}
