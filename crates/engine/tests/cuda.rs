//! The CUDA engine against the reference, phase by phase; its determinism; its faults.
//!
//! A harness of its own (libtest-mimic): without a usable GPU the tests that need one are reported
//! as ignored, and with `MONOLITH_NEEDS_GPU` set they fail.

#[path = "cuda/ablation.rs"]
mod ablation;
mod common;
#[path = "cuda/poison.rs"]
mod poison;

use ablation::{
    a_fault_is_named_in_every_row, dependent_graphs_give_the_bits_of_the_headline,
    every_row_gives_the_bits_of_the_headline, every_row_keeps_the_promises,
    recording_rows_give_the_same_tokens,
};
use common::promises::{self, TOLERANCE, echo};
use common::{decode, intermediates, pack, pack_as, random, random_codes};
use libtest_mimic::{Arguments, Trial};
use monolith_abi::dump::{Dump, NO_BLOCK, NO_LAYER, Stamp};
use monolith_abi::kernel::{EOS_MAX, INJECTED_NO_LOAD, INJECTED_NO_POST, INJECTED_NO_RELEASE};
use monolith_abi::{EventKind, Phase, Role, WaitKind};
use monolith_engine::cuda::{Injected, usable};
use monolith_engine::{CudaEngine, CudaOptions, Engine, EngineError};
use monolith_kernels::{Arch, Variant};
use monolith_model::{Config, MemoryWeights, Tensor, synth};
use monolith_pack::Formats;
use monolith_reference::{KvFormat, Reference, Stop, first_difference};
use poison::Poison;
use std::time::{Duration, Instant};

/// [`TOLERANCE`], where bf16 keys and values of the cache may have rounded the other way: the
/// exchange keeps 16 bits of a value, so that one in some hundreds does.
const ROUNDED_OTHERWISE: f32 = 1e-2;

/// The smallest shape that the kernel runs: everything a multiple of 256, heads of 128.
fn config() -> Config {
    let config = synth::shape("tiny").expect("a named shape");
    Config { layers: 3, vocab: 1003, max_positions: 4096, ..config }
}

/// The first position at which the blocks of a KV head share the positions before it.
fn first_split() -> usize {
    let variant = Variant::of_formats(Formats::BF16.map()).expect("a row of bf16");
    Arch::SM_90A.tuning(variant).kv_local
}

macro_rules! tests {
    ($($name:ident)+) => { vec![$((stringify!($name), $name as fn()),)+] };
}

fn main() {
    let arguments = Arguments::from_args();
    let missing = usable(0).err().filter(|_| std::env::var_os("MONOLITH_NEEDS_GPU").is_none());
    if let Some(why) = missing.as_ref().filter(|_| !arguments.list) {
        eprintln!("ignored: the tests that need a GPU: {why}");
    }
    let on_gpu = tests![
        every_phase_agrees_with_the_reference
        every_format_agrees_with_the_reference
        positions_to_the_end_of_the_context_agree
        the_bits_depend_on_neither_blocks_nor_delays_nor_runs
        the_bits_are_the_same_over_the_wrap_of_the_epoch
        texts_are_the_same_twice_around_the_epoch
        the_last_epoch_ends_an_engine
        shared_memory_that_nobody_wrote_changes_nothing
        engines_that_take_turns_do_not_disturb_each_other
        a_decode_is_its_steps_and_a_prefill_too
        going_back_gives_the_same_as_never_having_gone_on
        a_timed_decode_is_a_decode
        no_step_runs_after_a_stop_token
        a_stop_token_ends_a_decode_on_the_device
        the_argmax_reaches_every_row
        the_first_of_equal_rows_wins
        a_few_steps_for_sanitizers
        a_few_steps_of_every_build
        every_logit_is_written
        a_block_that_fails_is_named_within_the_bound
        a_fault_at_the_default_timeout_is_named_and_harms_no_later_engine
        a_failed_step_says_who_waited_for_whom
        a_recorded_step_is_the_same_step_with_everything_named
        what_cannot_be_run_is_refused_before_a_launch
        damaged_weights_are_an_error_and_not_a_token
        every_row_gives_the_bits_of_the_headline
        every_row_keeps_the_promises
        recording_rows_give_the_same_tokens
        a_fault_is_named_in_every_row
        dependent_graphs_give_the_bits_of_the_headline
    ];
    let anywhere = tests![a_variant_of_another_format_is_refused];
    let trial = |(name, run): (&'static str, fn()), ignored: bool| {
        Trial::test(name, move || {
            run();
            Ok(())
        })
        .with_ignored_flag(ignored)
    };
    let on_gpu = on_gpu.into_iter().map(|test| trial(test, missing.is_some()));
    let trials = on_gpu.chain(anywhere.into_iter().map(|test| trial(test, false))).collect();
    libtest_mimic::run(&arguments, trials).exit();
}

fn load(weights: &MemoryWeights, options: &CudaOptions) -> CudaEngine {
    loaded(CudaEngine::load(pack(weights), options))
}

fn load_as(weights: &MemoryWeights, formats: Formats, options: &CudaOptions) -> CudaEngine {
    loaded(CudaEngine::load(pack_as(weights, formats), options))
}

fn loaded(engine: Result<CudaEngine, EngineError>) -> CudaEngine {
    engine.unwrap_or_else(|error| panic!("{error}"))
}

fn every_phase_agrees_with_the_reference() {
    for tied in [true, false] {
        let config = Config { tied, ..config() };
        let weights = random(&config, 7);
        let mut engine = load(&weights, &CudaOptions::default());
        let place = format!("tied {tied}");
        let tolerances = tolerances(first_split() + 80);
        promises::phases_and_tokens_agree(&mut engine, &weights, &tolerances, &place);
    }
}

/// Of so many positions. A key or value that rounds the other way stays in the cache, and moves
/// what comes after it.
fn tolerances(positions: usize) -> Vec<f32> {
    (0..positions).map(|at| if at < 20 { TOLERANCE } else { ROUNDED_OTHERWISE }).collect()
}

fn every_format_agrees_with_the_reference() {
    let tolerances = tolerances(first_split() + 40);
    promises::every_format_agrees(&config(), &tolerances, |pack| {
        loaded(CudaEngine::load(pack, &CudaOptions::default()))
    });
}

fn a_variant_of_another_format_is_refused() {
    let weights = random_codes(&config(), 43);
    let variant = Variant::of_formats(Formats::FP8.map());
    let options = CudaOptions { variant, ..CudaOptions::default() };
    let Err(error) = CudaEngine::load(pack(&weights), &options) else { panic!("it was loaded") };
    let said = error.to_string();
    assert!(said.contains("fp8-flag runs weights in fp8, but the pack is in bf16"), "{said}");
}

fn positions_to_the_end_of_the_context_agree() {
    let config = Config { layers: 2, ..config() };
    let weights = random(&config, 17);
    let options = CudaOptions { context: Some(4096), ..CudaOptions::default() };
    let mut engine = load(&weights, &options);
    let tokens: Vec<u32> = (0..4096u32).map(|at| (at * 7919 + 11) % 1003).collect();
    engine.prefill(&tokens[..4094]).expect("the prompt fits");
    let mut reference = Reference::new(&weights, KvFormat::Bf16);
    reference.advance(&tokens[..4094]).expect("the reference runs");
    let stop = Stop { layers: config.layers, after: Phase::LmHead };
    for (position, &token) in tokens.iter().enumerate().skip(4094) {
        let wanted = reference.trace(&[token], stop).expect("the reference runs");
        reference.advance(&[token]).expect("the reference runs");
        engine.step(token, position).expect("the step runs");
        let difference = first_difference(&wanted, &intermediates(&engine), TOLERANCE);
        assert_eq!(difference, None, "position {position}");
    }
    assert!(matches!(engine.step(1, 4096), Err(EngineError::Context { .. })));
}

fn the_bits_depend_on_neither_blocks_nor_delays_nor_runs() {
    for formats in [Formats::BF16, Formats::FP8] {
        bits_depend_on_nothing(formats);
    }
}

fn bits_depend_on_nothing(formats: Formats) {
    let weights = random(&config(), 11);
    let plain = [("all blocks".to_owned(), CudaOptions::default())];
    let blocks = [128, 100, 33, 8, 1].map(|blocks| {
        let options = CudaOptions { blocks: Some(blocks), ..CudaOptions::default() };
        (format!("{blocks} blocks"), options)
    });
    let delays = (1..4).map(|delay_seed| {
        let options = CudaOptions { delay_seed, ..CudaOptions::default() };
        (format!("delays by seed {delay_seed}"), options)
    });
    let ways = plain.into_iter().chain(blocks).chain(delays);
    let engines = ways.map(|(place, options)| (place, load_as(&weights, formats, &options)));
    promises::the_bits_are_the_same(first_split() + 40, engines);
}

/// Steps of a turn: a unit of the exchange holds 16 bits of its step's number.
const TURN: u32 = 1 << 16;

/// An engine whose steps' numbers pass the end of 16 bits after a few steps, in the first turn, in
/// the second, and with delays, against one that begins at the first number.
fn the_bits_are_the_same_over_the_wrap_of_the_epoch() {
    for formats in [Formats::BF16, Formats::FP8] {
        let weights = random(&config(), 59);
        let begins = [(0, 0), (TURN - 6, 0), (TURN - 5, 3), (2 * TURN - 6, 0), (9 * TURN - 100, 5)];
        let engines = begins.map(|(epoch_before, delay_seed)| {
            let options = CudaOptions { epoch_before, delay_seed, ..CudaOptions::default() };
            let place = format!("{}, after step {epoch_before}", formats.name());
            (place, load_as(&weights, formats, &options))
        });
        promises::the_bits_are_the_same(first_split() + 40, engines);
    }
}

/// One engine, without a jump: every slot holds units of the numbers before, and is emptied twice.
fn texts_are_the_same_twice_around_the_epoch() {
    const STEPS: usize = 1000;
    let mut engine = load(&random(&config(), 61), &CudaOptions::default());
    let first = engine.decode(1, 0, STEPS).expect("runs").tokens;
    for text in 1..=2 * TURN as usize / STEPS + 1 {
        let again = engine.decode(1, 0, STEPS).expect("runs").tokens;
        let differs = first.iter().zip(&again).position(|(first, again)| first != again);
        assert_eq!((differs, again.len()), (None, STEPS), "text {text}");
    }
}

/// There is no number after the last: the engine says so, and launches nothing.
fn the_last_epoch_ends_an_engine() {
    let options = CudaOptions { epoch_before: u32::MAX - 3, ..CudaOptions::default() };
    let mut engine = load(&random(&config(), 67), &options);
    assert_eq!(engine.decode(1, 0, 3).expect("three numbers are left").tokens.len(), 3);
    assert!(matches!(engine.step(1, 3), Err(EngineError::Stopped)));
}

/// Every step finds NaN in all shared memory that it does not write itself, at positions where
/// every chunk of the KV cache begins, is in the middle, and ends.
fn shared_memory_that_nobody_wrote_changes_nothing() {
    const STEPS: usize = 1200;
    let weights = random_codes(&config(), 47);
    let mut poison = Poison::new();
    for (at, formats) in (1..).zip(Formats::NAMED) {
        let mut engine = load_as(&weights, formats, &CudaOptions::default());
        let (tokens, bits) = decode(&mut engine, STEPS);
        let (mut token, mut logits) = (1, Vec::new());
        for (position, clean) in bits.chunks_exact(config().vocab).enumerate() {
            poison.fill();
            let place = format!("{}, position {position}", formats.name());
            let next = engine.step(token, position);
            token = next.unwrap_or_else(|error| panic!("{place}: {error}"));
            engine.logits(&mut logits);
            assert_eq!(token, tokens[position], "{place}");
            let same = logits.iter().map(|logit| logit.to_bits()).eq(clean.iter().copied());
            assert!(same, "{place}: other logits");
        }
        assert_eq!(poison.filled(at * STEPS as u32), poison.multiprocessors(), "SMs were left out");
    }
}

/// Engines of two formats have two layouts of shared memory: each finds what the other left there.
fn engines_that_take_turns_do_not_disturb_each_other() {
    let weights = random_codes(&config(), 53);
    let mut engines =
        Formats::NAMED.map(|formats| load_as(&weights, formats, &CudaOptions::default()));
    let alone = engines.each_mut().map(|engine| decode(engine, 300).0);
    for position in 0..300 {
        for ((engine, alone), formats) in engines.iter_mut().zip(&alone).zip(Formats::NAMED) {
            let before = if position == 0 { 1 } else { alone[position - 1] };
            let next = engine.step(before, position).expect("runs");
            assert_eq!(next, alone[position], "{}, position {position}", formats.name());
        }
    }
}

fn a_decode_is_its_steps_and_a_prefill_too() {
    let mut engine = load(&random(&config(), 13), &CudaOptions::default());
    promises::a_decode_is_its_steps_and_a_prefill_too(&mut engine);
}

fn going_back_gives_the_same_as_never_having_gone_on() {
    let mut engine = load(&random(&config(), 13), &CudaOptions::default());
    promises::going_back_gives_the_same_as_never_having_gone_on(&mut engine);
}

fn a_timed_decode_is_a_decode() {
    let mut engine = load(&random(&config(), 47), &CudaOptions::default());
    promises::a_timed_decode_is_a_decode(&mut engine);
}

fn no_step_runs_after_a_stop_token() {
    let mut engine = load(&random(&config(), 47), &CudaOptions::default());
    promises::no_step_runs_after_a_stop_token(&mut engine);
}

fn a_stop_token_ends_a_decode_on_the_device() {
    const STEPS: usize = 40;
    let config = Config { tied: false, layers: 1, vocab: 20_011, ..config() };
    let answer = |token: usize| (token * 12_347 + 5) % 20_011;
    let weights = echo(&config, answer);
    let mut engine = load(&weights, &CudaOptions::default());
    let chain = std::iter::successors(Some(1), |&token| Some(answer(token)));
    let chain: Vec<u32> = chain.skip(1).take(STEPS + 3).map(|token| token as u32).collect();
    for others in [0, EOS_MAX - 1, EOS_MAX + 2] {
        for last in [0, 5, 15, STEPS - 1] {
            // Tokens that do not occur, then the one that ends the text.
            let absent = (0..20_011).filter(|token| !chain.contains(token)).take(others);
            let stops: Vec<u32> = absent.chain([chain[last]]).collect();
            let place = format!("{} stop tokens, step {last}", stops.len());
            let decoded = engine.decode_until(1, 0, STEPS, &stops).expect("runs");
            assert_eq!(decoded.tokens, chain[..=last], "{place}");
            assert!(decoded.seconds > 0.0, "{place}");
            assert_eq!(engine.cached(), last + 1, "{place}");
            // The last step that ran is the one that gave the stop token.
            let qkv = engine.intermediate(0, Phase::Qkv);
            let before = if last == 0 { 1 } else { chain[last - 1] };
            assert_eq!(engine.step(before, last).expect("runs"), chain[last], "{place}");
            assert_eq!(engine.intermediate(0, Phase::Qkv), qkv, "{place}: later steps ran");
            // And the text can go on.
            let on = engine.decode(chain[last], last + 1, 3).expect("runs").tokens;
            assert_eq!(on, chain[last + 1..last + 4], "{place}");
        }
    }
    let absent = (0..20_011).find(|token| !chain.contains(token)).expect("there is one");
    let whole = engine.decode_until(1, 0, STEPS, &[absent]).expect("runs");
    assert_eq!(whole.tokens, chain[..STEPS]);
    // Nothing ends a text that the caller does not name.
    assert_eq!(engine.decode(1, 0, STEPS).expect("runs").tokens, chain[..STEPS]);
}

fn the_argmax_reaches_every_row() {
    // Not a multiple of a tile's rows, and more tiles than blocks: batches of every size.
    let config = Config { vocab: 20_011, ..config() };
    promises::every_row_can_win(&config, |weights| load(weights, &CudaOptions::default()));
}

fn the_first_of_equal_rows_wins() {
    let config = Config { vocab: 3001, ..config() };
    let distances = [1, 7, 8, 16, 128, 1500];
    promises::the_first_of_equal_rows_wins(&config, &distances, |weights| {
        load(weights, &CudaOptions::default())
    });
}

/// Few blocks, few steps, a long timeout: what compute-sanitizer can watch in a minute.
fn a_few_steps_for_sanitizers() {
    let config = Config { layers: 1, vocab: 301, ..config() };
    let weights = random(&config, 37);
    let options = CudaOptions {
        blocks: Some(4),
        context: Some(256),
        timeout: Duration::from_secs(300),
        ..CudaOptions::default()
    };
    let mut engine = load(&weights, &options);
    // Past the first position that the blocks share, so that shares are combined too.
    let prompt: Vec<u32> = (0..first_split() as u32 + 4).collect();
    engine.prefill(&prompt).expect("the prompt fits");
    let decoded = engine.decode(5, prompt.len(), 3).expect("runs");
    assert_eq!(decoded.tokens.len(), 3);
}

/// The same of every row of the table, recording and not: what memcheck can watch in a minute.
fn a_few_steps_of_every_build() {
    let config = Config { layers: 1, vocab: 301, ..config() };
    let weights = random_codes(&config, 37);
    for (formats, records) in Formats::NAMED.iter().flat_map(|&of| [(of, false), (of, true)]) {
        let options = CudaOptions {
            blocks: Some(4),
            context: Some(256),
            timeout: Duration::from_secs(300),
            records,
            ..CudaOptions::default()
        };
        let mut engine = load_as(&weights, formats, &options);
        let prompt: Vec<u32> = (0..first_split() as u32 + 2).collect();
        engine.prefill(&prompt).expect("the prompt fits");
        if records {
            let (decoded, dump) = engine.decode_recorded(5, prompt.len(), 3, 1).expect("runs");
            assert_eq!(decoded.tokens.len(), 3);
            assert!(dump.blocks.iter().all(|block| block.lost == 0 && !block.consumer.is_empty()));
        } else {
            assert_eq!(engine.decode(5, prompt.len(), 3).expect("runs").tokens.len(), 3);
        }
    }
}

fn every_logit_is_written() {
    let weights = random(&config(), 31);
    let mut engine = load(&weights, &CudaOptions::default());
    let mut logits = Vec::new();
    for position in 0..3 {
        engine.poison_logits().expect("the GPU takes it");
        engine.step(2, position).expect("runs");
        engine.logits(&mut logits);
        assert!(logits.iter().all(|logit| logit.is_finite()));
    }
}

fn a_block_that_fails_is_named_within_the_bound() {
    let weights = random(&config(), 19);
    let post = |phase: Phase| {
        (INJECTED_NO_POST, phase, format!("{} of layer 1 from block 1 (", phase.name()))
    };
    let cases = Phase::LAYER.map(post).into_iter().chain([
        (INJECTED_NO_LOAD, Phase::GateUp, "the weights of gate_up of layer 1".to_owned()),
        (INJECTED_NO_RELEASE, Phase::Qkv, "to be released".to_owned()),
    ]);
    let builds = cases.flat_map(|case| [(case.clone(), false), (case, true)]);
    for ((kind, phase, words), records) in builds {
        // One block of a few: it owns rows of every phase, and the KV head 1.
        let injected = Some(Injected { kind, block: 1, layer: 1, phase });
        let timeout = Duration::from_millis(200);
        let blocks = Some(8);
        let options = CudaOptions { injected, timeout, blocks, records, ..CudaOptions::default() };
        let mut engine = load(&weights, &options);
        let begin = Instant::now();
        // Not releasing a stage is felt when the ring comes round to it again; partial results of
        // attention are published from the first split position on.
        let failed = (0..first_split() + 40).find_map(|position| engine.step(1, position).err());
        if let Some(EngineError::KernelFault(dump)) = &failed {
            assert_eq!(dump.cause.role, Role::Consumer, "{kind} {phase:?}, recording {records}");
        }
        let message = failed.map(|error| error.to_string()).unwrap_or_default();
        // It ends, and by the wait's timeout: no other bound is as short.
        assert!(begin.elapsed() < Duration::from_secs(10), "{kind} {phase:?}: {message}");
        assert!(message.contains(&words), "{kind} {phase:?}: {message}");
        eprintln!("injected {kind} in {}: {message} ({:?})", phase.name(), begin.elapsed());
        assert!(matches!(engine.step(1, 0), Err(EngineError::Stopped)));
    }
}

/// At the default timeout: a fault ends in an error that names it, and on the same GPU the next
/// engine gives the same bits.
fn a_fault_at_the_default_timeout_is_named_and_harms_no_later_engine() {
    let weights = random(&config(), 19);
    let base = decode(&mut load(&weights, &CudaOptions::default()), 80);
    for (kind, phase, words) in [
        (INJECTED_NO_POST, Phase::OProj, "o_proj of layer 1 from block 1 ("),
        (INJECTED_NO_POST, Phase::LmHead, "lm_head from block 1 ("),
        (INJECTED_NO_LOAD, Phase::Down, "the weights of down of layer 1"),
    ] {
        let layer = if phase == Phase::LmHead { u32::from(NO_LAYER) } else { 1 };
        let injected = Some(Injected { kind, block: 1, layer, phase });
        // Of a few blocks, block 1 owns rows of every phase.
        let options = CudaOptions { injected, blocks: Some(8), ..CudaOptions::default() };
        let begin = Instant::now();
        let error = load(&weights, &options).step(1, 0).expect_err("a fault was injected");
        let message = error.to_string();
        eprintln!("injected {kind} in {}: {message} ({:?})", phase.name(), begin.elapsed());
        assert!(message.contains(words) && message.contains("2s"), "{message}");
        assert_eq!(decode(&mut load(&weights, &CudaOptions::default()), 80), base, "{message}");
    }
}

fn a_failed_step_says_who_waited_for_whom() {
    let weights = random(&config(), 19);
    let injected =
        Some(Injected { kind: INJECTED_NO_POST, block: 1, layer: 1, phase: Phase::OProj });
    let timeout = Duration::from_millis(200);
    let options = CudaOptions { injected, timeout, blocks: Some(8), ..CudaOptions::default() };
    let mut engine = load(&weights, &options);
    engine.step(1, 0).expect_err("block 1 keeps its values");
    let options = CudaOptions { blocks: Some(8), ..options };
    let mut engine = load(&weights, &options);
    let Err(EngineError::KernelFault(dump)) = engine.decode(1, 0, 5) else { panic!("no fault") };
    assert_eq!((dump.blocks, dump.position, dump.cause.producer), (8, 0, 1));
    assert_eq!((dump.cause.phase, dump.cause.layer), (Phase::OProj, Some(1)));
    // All blocks lack the values, the one that has them included, and no loader can go on.
    let roles = |role| dump.waits.iter().filter(move |wait| wait.role == role);
    let consumers: Vec<_> = roles(Role::Consumer).collect();
    assert_eq!(
        consumers.iter().map(|wait| wait.block).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 5, 6, 7]
    );
    assert!(consumers.iter().all(|wait| wait.producer == 1 && wait.phase == Phase::OProj));
    assert!(roles(Role::Loader).all(|wait| wait.kind == WaitKind::RingEmpty));
}

/// The variant that records spans.
fn recording() -> CudaOptions {
    CudaOptions { records: true, ..CudaOptions::default() }
}

fn a_recorded_step_is_the_same_step_with_everything_named() {
    let weights = random(&config(), 41);
    let mut plain = load(&weights, &CudaOptions::default());
    let mut engine = load(&weights, &recording());
    let tokens = plain.decode(1, 0, first_split() + 100).expect("runs").tokens;
    // One share of the positions, and several.
    let one = (0, first_split() - 20, 16);
    let several = (first_split() - 40, 80, 60);
    for (position, steps, chosen) in [one, several] {
        let token = if position == 0 { 1 } else { tokens[position - 1] };
        let (decoded, dump) =
            engine.decode_recorded(token, position, steps, chosen).expect("the steps run");
        assert_eq!(decoded.tokens, tokens[position..position + steps]);
        assert_eq!(dump.position as usize, position + chosen);
        check_dump(&dump);
    }
    let (next, dump) = engine.step_recorded(tokens[9], 10).expect("runs");
    assert_eq!(next, tokens[10]);
    check_dump(&dump);
    assert_eq!(engine.step(tokens[10], 11).expect("a step need not record"), tokens[11]);
    assert!(matches!(plain.step_recorded(1, 0), Err(EngineError::NoXray(_))));
}

fn check_dump(dump: &Dump) {
    let config = config();
    assert!(dump.blocks.len() > 32 && dump.clock_hz > 500_000_000, "{}", dump.clock_hz);
    let mut bytes = std::collections::BTreeMap::new();
    let mut producers = 0;
    for (at, block) in dump.blocks.iter().enumerate() {
        assert_eq!(block.lost, 0);
        assert!(block.consumer.is_sorted_by_key(|stamp| stamp.clock), "block {at}");
        assert!(block.loader.is_sorted_by_key(|stamp| stamp.clock), "block {at}");
        assert!(block.epilogue.is_sorted_by_key(|stamp| stamp.clock), "block {at}");
        for stamps in [&block.consumer, &block.epilogue] {
            assert_eq!(stamps.last().expect("stamps").kind, EventKind::Unrecorded);
        }
        // A block publishes what it has begun to add up, once a round.
        let sums = |s: &&Stamp| s.kind == EventKind::Work && s.phase == Phase::Qkv;
        assert!(block.epilogue.iter().filter(sums).count() >= config.layers, "block {at}");
        let waits = |phase| {
            let is = |s: &&Stamp| s.kind == EventKind::WaitExchange && s.phase == phase;
            block.consumer.iter().filter(is).count()
        };
        for phase in [Phase::OProj, Phase::Down] {
            assert_eq!(waits(phase), config.layers, "block {at}, {}", phase.name());
        }
        // Once an item of the down projection; some blocks have none.
        assert_eq!(waits(Phase::GateUp) % config.layers, 0, "block {at}");
        producers += block.consumer.iter().filter(|stamp| stamp.producer != NO_BLOCK).count();
        assert!(
            block
                .consumer
                .iter()
                .all(|s| s.producer == NO_BLOCK || usize::from(s.producer) < dump.blocks.len())
        );
        assert!(block.anchors.len() >= 2, "block {at}: {} anchors", block.anchors.len());
        for copy in &block.copies {
            assert!(copy.arrival_clock >= copy.issue_clock);
            *bytes.entry(copy.phase).or_insert(0) += u64::from(copy.bytes);
        }
    }
    assert!(producers > dump.blocks.len(), "{producers} waits name a producer");
    for phase in [Phase::Qkv, Phase::OProj, Phase::GateUp, Phase::Down, Phase::LmHead] {
        let wanted = dump.phase_bytes.iter().find(|(of, _)| *of == phase).expect("bytes").1;
        assert_eq!(bytes[&phase], wanted, "{}", phase.name());
    }
}

fn what_cannot_be_run_is_refused_before_a_launch() {
    let weights = random(&config(), 23);
    let mut engine = load(&weights, &CudaOptions::default());
    promises::what_cannot_be_run_is_refused(&mut engine);
    for options in [
        CudaOptions { context: Some(0), ..CudaOptions::default() },
        CudaOptions { context: Some(5000), ..CudaOptions::default() },
        CudaOptions { blocks: Some(0), ..CudaOptions::default() },
        CudaOptions { blocks: Some(1000), ..CudaOptions::default() },
    ] {
        assert!(CudaEngine::load(pack(&weights), &options).is_err());
    }
}

fn damaged_weights_are_an_error_and_not_a_token() {
    let damage = (Tensor::FinalNorm, f32::NAN);
    promises::damage_is_an_error(random(&config(), 29), damage, |weights| {
        load(weights, &CudaOptions::default())
    });
}
