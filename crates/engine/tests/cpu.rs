//! The CPU engine against the reference, phase by phase; its determinism; its faults.

mod common;

use common::promises::{self, TOLERANCE};
use common::{decode, intermediates, pack, pack_as, random, random_codes};

use monolith_abi::dump::{NO_BLOCK, Stamp};
use monolith_abi::{EventKind, MatrixKind, Phase, WeightFormat};
use monolith_engine::cpu::{Injected, simd::Simd};
use monolith_engine::{CpuEngine, CpuOptions, Engine, EngineError};
use monolith_model::{Config, LayerTensor, MemoryWeights, Tensor};
use monolith_pack::Formats;
use monolith_reference::{KvFormat, Reference, Stop, first_difference};
use proptest::prelude::*;
use std::ops::ControlFlow;
use std::time::Duration;

fn config() -> Config {
    Config {
        hidden: 64,
        intermediate: 88,
        layers: 3,
        heads: 6,
        kv_heads: 3,
        head_dim: 16,
        vocab: 203,
        max_positions: 200,
        ..Config::qwen3_0_6b()
    }
}

fn options(threads: usize) -> CpuOptions {
    CpuOptions { threads, ..CpuOptions::default() }
}

fn load(weights: &MemoryWeights, options: &CpuOptions) -> CpuEngine {
    CpuEngine::load(pack(weights), options).expect("the options suit the model")
}

#[test]
fn every_phase_agrees_with_the_reference() {
    for tied in [true, false] {
        let config = Config { tied, ..config() };
        let weights = random(&config, 7);
        for threads in [1, 2, 5] {
            for simd in Simd::available() {
                let mut engine = load(&weights, &CpuOptions { simd, ..options(threads) });
                let place = format!("{simd:?} x {threads}, tied {tied}");
                promises::phases_and_tokens_agree(&mut engine, &weights, &[TOLERANCE; 40], &place);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn odd_shapes_agree_with_the_reference(
        dims in [1..40usize, 1..40usize, 1..3usize, 1..4usize, 1..4usize, 1..12usize, 2..60usize],
        tied in any::<bool>(),
        threads in 1..7usize,
        seed in any::<u64>(),
    ) {
        let [hidden, intermediate, layers, kv_heads, group, half_head, vocab] = dims;
        let config = Config {
            hidden, intermediate, layers, kv_heads, vocab, tied,
            heads: kv_heads * group,
            head_dim: 2 * half_head,
            rope_theta: 100.0,
            ..config()
        };
        let weights = random(&config, seed);
        let mut engine = load(&weights, &options(threads));
        let mut reference = Reference::new(&weights, KvFormat::Bf16);
        let stop = Stop { layers, after: Phase::LmHead };
        for position in 0..20usize {
            let token = ((seed as usize ^ (position * 7)) % vocab) as u32;
            let wanted = reference.trace(&[token], stop).expect("the reference runs");
            reference.advance(&[token]).expect("the reference runs");
            engine.step(token, position).expect("the step runs");
            let seen = intermediates(&engine);
            // A residual of a few values can be small where its terms were not: ten times more.
            prop_assert_eq!(first_difference(&wanted, &seen, 10.0 * TOLERANCE), None);
        }
    }
}

#[test]
fn the_bits_depend_on_neither_threads_nor_registers_nor_delays() {
    let weights = random(&config(), 11);
    let fused = |level: &Simd| *level != Simd::Scalar;
    for formats in Formats::NAMED {
        let pack = pack_as(&random_codes(&config(), 11), formats);
        let levels = Simd::available().into_iter().filter(fused);
        let ways = levels.flat_map(|simd| [1, 2, 3, 4, 9, 30].map(|threads| (simd, threads)));
        let engines = ways.map(|(simd, threads)| {
            let options = CpuOptions { simd, ..options(threads) };
            let engine = CpuEngine::load(pack.clone(), &options).expect("loads");
            (format!("{}, {simd:?} x {threads}", formats.name()), engine)
        });
        promises::the_bits_are_the_same(60, engines);
    }
    let base = decode(&mut load(&weights, &options(1)), 25);
    for seed in 0..4 {
        let delayed = CpuOptions { injected: Some(Injected::Delays { seed }), ..options(3) };
        assert_eq!(decode(&mut load(&weights, &delayed), 25), base, "delays by seed {seed}");
    }
}

#[test]
fn the_argmax_reaches_every_row() {
    for threads in 1..=4 {
        let config = Config { vocab: 1013, ..config() };
        promises::every_row_can_win(&config, |weights| load(weights, &options(threads)));
    }
}

#[test]
fn the_first_of_equal_rows_wins() {
    for threads in 1..=4 {
        let config = Config { vocab: 301, ..config() };
        let distances = [1, 7, 8, 16, 128, 150];
        promises::the_first_of_equal_rows_wins(&config, &distances, |weights| {
            load(weights, &options(threads))
        });
    }
}

#[test]
fn of_all_rows_equal_the_very_first_wins() {
    let config = Config { tied: false, ..config() };
    let mut weights = random(&config, 5);
    for (row, col) in (0..config.vocab).flat_map(|row| (0..config.hidden).map(move |c| (row, c))) {
        weights.set(Tensor::LmHead, row, col, 0.0);
    }
    assert_eq!(load(&weights, &options(3)).step(1, 0).expect("the step runs"), 0);
}

#[test]
fn a_decode_is_its_steps_and_a_prefill_too() {
    let mut engine = load(&random(&config(), 13), &options(2));
    promises::a_decode_is_its_steps_and_a_prefill_too(&mut engine);
}

#[test]
fn going_back_gives_the_same_as_never_having_gone_on() {
    let mut engine = load(&random(&config(), 13), &options(2));
    promises::going_back_gives_the_same_as_never_having_gone_on(&mut engine);
}

/// All keys and values, by what the next steps make of them, and the logits of the last.
fn continuation(engine: &mut CpuEngine, token: u32, position: usize) -> Vec<f32> {
    let mut all = Vec::new();
    let mut logits = Vec::new();
    for step in 0..3 {
        engine.step(token, position + step).expect("the step runs");
        engine.logits(&mut logits);
        all.extend_from_slice(&logits);
    }
    all
}

#[test]
fn a_prompt_gives_the_same_bits_with_the_head_only_at_its_end() {
    let weights = random(&config(), 37);
    for threads in [1, 2, 5] {
        for length in [1, 2, 33] {
            let prompt: Vec<u32> = (0..length).map(|at| (at * 29 + 3) % 203).collect();
            let mut stepped = load(&weights, &options(threads));
            let mut next = None;
            for (position, &token) in prompt.iter().enumerate() {
                next = Some(stepped.step(token, position).expect("the step runs"));
            }
            let injected = Some(Injected::Delays { seed: threads as u64 });
            let mut prefilled = load(&weights, &CpuOptions { injected, ..options(threads) });
            // Before the second time there are logits and keys of another text.
            for first in [1, 3] {
                prefilled.prefill(&[first; 40]).expect("the prompt fits");
                assert_eq!(prefilled.prefill(&prompt).ok(), next, "{threads}, {length}");
                assert_eq!(prefilled.cached(), prompt.len());
            }
            let [mut expected, mut seen] = [Vec::new(), Vec::new()];
            stepped.logits(&mut expected);
            prefilled.logits(&mut seen);
            assert_eq!(seen, expected, "{threads} threads, {length} tokens");
            let expected = continuation(&mut stepped, 7, prompt.len());
            assert_eq!(continuation(&mut prefilled, 7, prompt.len()), expected);
        }
    }
}

#[test]
fn the_logits_of_a_prompts_first_tokens_are_not_computed() {
    // A head that is no number is found by whoever computes it.
    let config = Config { tied: false, ..config() };
    let mut weights = random(&config, 41);
    weights.set(Tensor::LmHead, 100, 0, f32::NAN);
    let mut engine = load(&weights, &options(2));
    let mut done = Vec::new();
    let error = engine.prefill_with(&[1, 2, 3, 4], &mut |count| {
        done.push(count);
        ControlFlow::Continue(())
    });
    assert!(matches!(error, Err(EngineError::NotANumber)), "{error:?}");
    assert_eq!(done, [1, 2, 3]);
}

#[test]
fn a_prompt_says_how_far_it_is_and_ends_where_it_is_told_to() {
    let weights = random(&config(), 43);
    let mut engine = load(&weights, &options(2));
    let prompt = [5; 20];
    let mut done = Vec::new();
    let next = engine.prefill_with(&prompt, &mut |count| {
        done.push(count);
        ControlFlow::Continue(())
    });
    assert!(done.iter().copied().eq(1..=20), "{done:?}");
    let ended = engine.prefill_with(&prompt, &mut |count| end_at(count, 7));
    assert!(matches!(ended, Err(EngineError::Interrupted { done: 7, all: 20 })), "{ended:?}");
    assert_eq!(engine.cached(), 7);
    // Nothing is lost by it: the same prompt from where it ended.
    let mut last = None;
    for position in 7..20 {
        last = Some(engine.step(5, position).expect("the step runs"));
    }
    assert_eq!(last, next.ok());
    // What is done is done: after the last token there is nothing to end.
    assert_eq!(engine.prefill_with(&prompt, &mut |count| end_at(count, 20)).ok(), last);
}

fn end_at(count: usize, end: usize) -> ControlFlow<()> {
    if count == end { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

#[test]
fn a_timed_decode_is_a_decode() {
    let mut engine = load(&random(&config(), 47), &options(2));
    promises::a_timed_decode_is_a_decode(&mut engine);
}

#[test]
fn no_step_runs_after_a_stop_token() {
    let mut engine = load(&random(&config(), 47), &options(2));
    promises::no_step_runs_after_a_stop_token(&mut engine);
}

#[test]
fn what_cannot_be_run_is_refused() {
    let options = CpuOptions { context: Some(5), ..options(2) };
    promises::what_cannot_be_run_is_refused(&mut load(&random(&config(), 17), &options));
}

#[test]
fn the_context_is_what_was_asked_for_and_is_checked() {
    let weights = random(&config(), 17);
    let mut engine = load(&weights, &CpuOptions { context: Some(5), ..options(2) });
    assert_eq!(engine.info().context, 5);
    for position in 0..5 {
        engine.step(1, position).expect("within the context");
    }
    let refused = engine.step(1, 5).expect_err("beyond the context");
    assert!(matches!(refused, EngineError::Context { position: 5, context: 5 }), "{refused}");
    engine.step(1, 0).expect("a refused step harms nothing");
    let refused = engine.step(1, 3).expect_err("a gap");
    assert!(matches!(refused, EngineError::Gap { position: 3, cached: 1 }), "{refused}");

    let default = load(&weights, &options(1));
    assert_eq!(default.info().context, 200, "the model's maximum is below 4,096");
    for (context, threads) in [(Some(0), 1), (Some(201), 1), (None, 0), (None, 5000)] {
        let options = CpuOptions { context, ..options(threads) };
        assert!(CpuEngine::load(pack(&weights), &options).is_err());
    }
}

#[test]
fn a_worker_that_does_not_publish_is_named_after_the_timeout() {
    let weights = random(&config(), 19);
    for phase in Phase::LAYER {
        let injected = Some(Injected::Skip { worker: 1, layer: 1, phase });
        let timeout = Duration::from_millis(50);
        let mut engine = load(&weights, &CpuOptions { injected, timeout, ..options(3) });
        let error = engine.step(1, 0).expect_err("a value never arrives");
        let message = error.to_string();
        let said = format!("{} of layer 1 from block 1", phase.name());
        assert!(message.contains(&said) && message.contains("50ms"), "{message}");
        assert!(matches!(engine.step(1, 0), Err(EngineError::Stopped)));
    }
}

#[test]
fn damaged_weights_are_an_error_and_not_a_token() {
    for (tensor, value) in [
        (Tensor::Layer(1, LayerTensor::DownProj), f32::NAN),
        (Tensor::Layer(0, LayerTensor::VProj), f32::INFINITY),
        (Tensor::Layer(0, LayerTensor::KProj), f32::NAN),
        (Tensor::Layer(1, LayerTensor::QProj), f32::INFINITY),
        (Tensor::Layer(2, LayerTensor::KNorm), f32::NAN),
        (Tensor::Layer(2, LayerTensor::GateProj), f32::NAN),
    ] {
        for threads in [1, 3] {
            promises::damage_is_an_error(random(&config(), 23), (tensor, value), |weights| {
                load(weights, &options(threads))
            });
        }
    }
}

#[test]
fn every_format_agrees_with_the_reference() {
    promises::every_format_agrees(&config(), &[TOLERANCE; 20], |pack| {
        CpuEngine::load(pack, &options(3)).expect("loads")
    });
}

/// Both formats in each layer, and of each activation.
#[test]
fn a_mixed_map_agrees_with_the_reference() {
    let mixed = [MatrixKind::GateUp, MatrixKind::OProj].into_iter();
    let mixed = mixed.fold(Formats::FP8, |all, kind| all.with(kind, WeightFormat::Bf16));
    promises::a_format_agrees(&config(), mixed, &[TOLERANCE; 20], |pack| {
        CpuEngine::load(pack, &options(3)).expect("loads")
    });
}

#[test]
fn a_recorded_step_is_the_same_step_with_every_wait_named() {
    let config = config();
    let weights = random(&config, 29);
    for threads in [1, 3, 8] {
        let mut plain = load(&weights, &options(threads));
        let mut recorded = load(&weights, &options(threads));
        for position in 0..6 {
            let next = plain.step(9, position).expect("runs");
            let (same, dump) = recorded.step_recorded(9, position).expect("runs");
            assert_eq!(next, same);
            assert_eq!((dump.blocks.len(), dump.layers as usize), (threads, config.layers));
            assert_eq!(dump.position as usize, position);
            for (block, left) in dump.blocks.iter().enumerate() {
                let stamps = &left.consumer;
                let work = |phase| {
                    let is = |s: &&Stamp| s.phase == phase && s.kind == EventKind::Work;
                    stamps.iter().filter(is).count()
                };
                for phase in [Phase::Qkv, Phase::OProj, Phase::GateUp, Phase::Down] {
                    assert_eq!(work(phase), config.layers);
                }
                assert_eq!((work(Phase::Embed), work(Phase::LmHead)), (1, 1));
                assert!(stamps.is_sorted_by_key(|stamp| stamp.clock), "{stamps:?}");
                assert_eq!(stamps.last().expect("stamps").kind, EventKind::Unrecorded);
                assert!(left.anchors.len() >= 2 && left.lost == 0 && left.copies.is_empty());
                for stamp in stamps {
                    let somebody_else = usize::from(stamp.producer) != block
                        && usize::from(stamp.producer) < threads;
                    let is_wait = stamp.kind == EventKind::WaitExchange;
                    assert!(if is_wait { somebody_else } else { stamp.producer == NO_BLOCK });
                }
            }
        }
    }
}

#[test]
fn a_recorded_step_may_follow_and_precede_plain_ones() {
    let weights = random(&config(), 31);
    let mut engine = load(&weights, &options(4));
    let mut lengths = Vec::new();
    for position in 0..150 {
        if position % 3 == 1 {
            let (_, dump) = engine.step_recorded(2, position).expect("runs");
            let stamps = dump.blocks.iter().flat_map(|block| &block.consumer);
            let work = stamps.filter(|stamp| stamp.kind == EventKind::Work);
            lengths.push(work.filter(|stamp| stamp.phase != Phase::Argmax).count());
        } else {
            engine.step(2, position).expect("runs");
        }
    }
    assert!(lengths.windows(2).all(|pair| pair[0] == pair[1]), "{lengths:?}");
}
