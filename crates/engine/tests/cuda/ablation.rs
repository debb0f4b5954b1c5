//! The rows of the ablation: other hand-offs, attention as a phase of its own, a kernel a phase.
//! They have the headline row's arithmetic, and so its bits.

use super::common::{decode, promises, random, random_codes};
use super::{config, first_split, load, load_as, loaded, pack_as};
use monolith_abi::kernel::{INJECTED_NO_LOAD, INJECTED_NO_POST};
use monolith_abi::{Attention, Launch, Phase};
use monolith_engine::cuda::Injected;
use monolith_engine::{CudaEngine, CudaOptions, Engine, EngineError};
use monolith_kernels::Variant;
use monolith_kernels::variant::TABLE;
use monolith_model::{Config, MemoryWeights};
use monolith_pack::Formats;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Positions of a text: past those that one block attends to.
fn steps() -> usize {
    first_split() + 30
}

/// The rows that only the ablation measures, of these formats; recording or not. Without those of
/// [`dependent_graphs`].
fn rows(formats: Formats, xray: bool) -> impl Iterator<Item = &'static Variant> {
    let is_one =
        move |row: &&Variant| !row.is_released() && row.xray == xray && row.runs(formats.map());
    TABLE.iter().filter(is_one).filter(|row| row.launch != Launch::DependentGraph)
}

/// Rows for which a driver once ended the process: their tests stand apart, so that the others end.
fn dependent_graphs(formats: Formats) -> impl Iterator<Item = &'static Variant> {
    let is_one = move |row: &&Variant| row.runs(formats.map());
    TABLE.iter().filter(is_one).filter(|row| row.launch == Launch::DependentGraph)
}

fn options(row: &'static Variant) -> CudaOptions {
    CudaOptions { variant: Some(row), ..CudaOptions::default() }
}

/// Compiles the kernels of the rows at once, which one after the other takes minutes: the cache has
/// them then. Whoever needs one that cannot be had says why.
fn compile(
    weights: &MemoryWeights,
    formats: Formats,
    rows: impl Iterator<Item = &'static Variant>,
) {
    let pack = pack_as(weights, formats);
    std::thread::scope(|scope| {
        for row in rows {
            let pack = Arc::clone(&pack);
            scope.spawn(move || CudaEngine::load(pack, &options(row)).is_ok());
        }
    });
}

pub fn every_row_gives_the_bits_of_the_headline() {
    for formats in [Formats::BF16, Formats::FP8] {
        bits_are_the_headlines(formats, || rows(formats, false));
    }
}

pub fn dependent_graphs_give_the_bits_of_the_headline() {
    for formats in [Formats::BF16, Formats::FP8] {
        bits_are_the_headlines(formats, || dependent_graphs(formats));
    }
}

/// Says where logits first differ, of `vocab` a position, and how many there do.
fn first_difference(seen: &[u32], wanted: &[u32], vocab: usize) -> String {
    let mut positions = seen.chunks(vocab).zip(wanted.chunks(vocab)).enumerate();
    let Some((position, (seen, wanted))) = positions.find(|(_, (a, b))| a != b) else {
        return "none differs".into();
    };
    let differing: Vec<_> = (0..vocab).filter(|&at| seen[at] != wanted[at]).collect();
    let at = differing[0];
    let [seen, wanted] = [seen[at], wanted[at]].map(f32::from_bits);
    format!(
        "first at position {position}, {} of {vocab}: logit {at} is {seen:e}, not {wanted:e}",
        differing.len()
    )
}

/// On grids that the row is tuned for, and on others; also where blocks are delayed.
fn bits_are_the_headlines<R: Iterator<Item = &'static Variant>>(
    formats: Formats,
    rows: impl Fn() -> R,
) {
    let weights = random(&config(), 11);
    compile(&weights, formats, rows());
    let wanted = decode(&mut load_as(&weights, formats, &CudaOptions::default()), steps());
    for row in rows() {
        eprintln!("{}", row.name);
        for (blocks, delay_seed) in [(128, 0), (132, 0), (8, 0), (1, 0), (132, 2)] {
            let place = format!("{}, {blocks} blocks, delays by seed {delay_seed}", row.name);
            let options = CudaOptions { blocks: Some(blocks), delay_seed, ..options(row) };
            let engine = CudaEngine::load(pack_as(&weights, formats), &options);
            if matches!(engine, Err(EngineError::BlockCount { .. })) {
                eprintln!("left out, for want of multiprocessors: {place}");
                continue;
            }
            let mut engine = loaded(engine);
            // Step by step, then again in the same engine, then all steps at once.
            for run in 0..2 {
                let seen = decode(&mut engine, steps());
                assert_eq!(seen.0, wanted.0, "{place}, run {run}: other tokens");
                assert!(
                    seen.1 == wanted.1,
                    "{place}, run {run}: other logits, {}",
                    first_difference(&seen.1, &wanted.1, config().vocab)
                );
            }
            let decoded = engine.decode(1, 0, steps()).expect("the decode runs");
            assert_eq!(decoded.tokens, wanted.0, "{place}: other tokens of a decode");
        }
    }
}

pub fn every_row_keeps_the_promises() {
    let weights = random(&config(), 13);
    compile(&weights, Formats::BF16, rows(Formats::BF16, false));
    for row in rows(Formats::BF16, false) {
        eprintln!("{}", row.name);
        promises::a_decode_is_its_steps_and_a_prefill_too(&mut load(&weights, &options(row)));
        promises::going_back_gives_the_same_as_never_having_gone_on(&mut load(
            &weights,
            &options(row),
        ));
        promises::no_step_runs_after_a_stop_token(&mut load(&weights, &options(row)));
        promises::what_cannot_be_run_is_refused(&mut load(&weights, &options(row)));
    }
}

/// Rows that record give the same tokens, and whole dumps. Rows of a kernel a phase do not record.
pub fn recording_rows_give_the_same_tokens() {
    let weights = random_codes(&config(), 41);
    for formats in [Formats::BF16, Formats::FP8] {
        let wanted = decode(&mut load_as(&weights, formats, &CudaOptions::default()), steps()).0;
        compile(&weights, formats, rows(formats, true));
        for row in rows(formats, true) {
            let mut engine = load_as(&weights, formats, &options(row));
            for (position, chosen) in [(0, 16), (steps() - 20, 10)] {
                let token = if position == 0 { 1 } else { wanted[position - 1] };
                let left = steps() - position;
                let recorded = engine.decode_recorded(token, position, left, chosen);
                let (decoded, dump) = recorded.unwrap_or_else(|error| {
                    panic!("{}, position {position}: {error}", row.name);
                });
                assert_eq!(decoded.tokens, wanted[position..], "{}", row.name);
                assert_eq!(dump.position as usize, position + chosen);
                assert!(dump.blocks.iter().all(|block| block.lost == 0), "{}", row.name);
            }
        }
        let by_phase = rows(formats, false).filter(|row| row.is_by_phase());
        for row in by_phase {
            let recording = CudaOptions { records: true, ..options(row) };
            let Err(error) = CudaEngine::load(pack_as(&weights, formats), &recording) else {
                panic!("{} records", row.name)
            };
            assert!(matches!(error, EngineError::NoXray(_)), "{}: {error}", row.name);
        }
    }
}

/// A block that keeps its values, or does not load its weights, ends a step in an error that names
/// the phase. (At the end of a kernel nobody waits, so that a kept value goes unnoticed there.)
pub fn a_fault_is_named_in_every_row() {
    let weights = random(&Config { vocab: 301, ..config() }, 19);
    compile(&weights, Formats::BF16, rows(Formats::BF16, false));
    for row in rows(Formats::BF16, false) {
        let post = |phase: Phase| (INJECTED_NO_POST, phase, format!("{} of layer 1", phase.name()));
        let kept = Phase::LAYER.map(post).into_iter().filter(|_| !row.is_by_phase());
        let unloaded =
            (INJECTED_NO_LOAD, Phase::GateUp, "the weights of gate_up of layer 1".to_owned());
        for (kind, phase, words) in kept.chain([unloaded]) {
            let place = format!("{}, injected {kind} in {}", row.name, phase.name());
            let injected = Some(Injected { kind, block: 1, layer: 1, phase });
            let timeout = Duration::from_millis(200);
            let options = CudaOptions { injected, timeout, blocks: Some(8), ..options(row) };
            let mut engine = load(&weights, &options);
            let begin = Instant::now();
            // One block's attention is the others' business from the first split on, or at once.
            let failed =
                (0..steps()).find_map(|position| Some((position, engine.step(1, position).err()?)));
            let (position, error) = failed.unwrap_or_else(|| panic!("{place}: no fault"));
            let message = error.to_string();
            assert!(begin.elapsed() < Duration::from_secs(10), "{place}: {message}");
            assert!(message.contains(&words), "{place}: {message}");
            let waits_for_long = phase == Phase::Attention && row.attention == Attention::Fused;
            assert_eq!(position, if waits_for_long { first_split() } else { 0 }, "{place}");
            eprintln!("{place}: {message} ({:?})", begin.elapsed());
            assert!(matches!(engine.step(1, 0), Err(EngineError::Stopped)));
        }
    }
}
