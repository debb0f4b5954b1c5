//! What every engine promises, once: the test of an engine loads it in the ways that it has, and
//! the promises are checked here. An engine's test holds only what others do not have.

use super::{decode, intermediates, pack_as, random_codes};
use monolith_abi::Phase;
use monolith_engine::{Engine, EngineError};
use monolith_model::{Config, LayerTensor, MemoryWeights, Tensor, Weights};
use monolith_pack::{Formats, Pack};
use monolith_reference::{KvFormat, Reference, Stop, first_difference};
use std::sync::Arc;

/// How far an engine's value may be from the reference's, as a share of the largest value of the
/// same phase and position. Both work in f32 and differ only in the order of their sums; the
/// bf16 cache can turn such a difference into one of half a bf16 ulp of a key (2^-9).
pub const TOLERANCE: f32 = 2e-3;

/// Steps the engine from position 0, one position for each of `tolerances`, and asserts after
/// each step that every phase agrees with the reference within that tolerance. `said` advances the
/// reference by the token, and gets the engine's answer to it.
fn every_phase_agrees(
    engine: &mut dyn Engine,
    weights: &MemoryWeights,
    tolerances: &[f32],
    place: &str,
    said: impl Fn(&mut Reference, u32, u32),
) {
    let config = weights.config();
    let mut reference = Reference::new(weights, KvFormat::Bf16);
    let stop = Stop { layers: config.layers, after: Phase::LmHead };
    let mut token = 3;
    for (position, &tolerance) in tolerances.iter().enumerate() {
        let wanted = reference.trace(&[token], stop).expect("the reference runs");
        let next = engine.step(token, position).expect("the step runs");
        let difference = first_difference(&wanted, &intermediates(engine), tolerance);
        assert_eq!(difference, None, "{place}, position {position}");
        said(&mut reference, token, next);
        token = (token * 31 + 17) % config.vocab as u32;
    }
}

/// Every phase agrees with the reference, and the token is one of the reference's best.
/// `tolerances` has one for each position.
pub fn phases_and_tokens_agree(
    engine: &mut dyn Engine,
    weights: &MemoryWeights,
    tolerances: &[f32],
    place: &str,
) {
    let most = tolerances.iter().copied().fold(TOLERANCE, f32::max);
    every_phase_agrees(engine, weights, tolerances, place, |reference, token, next| {
        let outputs = reference.extend(&[token]).expect("the reference runs");
        let logits = outputs.logits.row(0);
        let best = logits[outputs.greedy[0] as usize];
        assert!(logits[next as usize] >= best - most * best.abs(), "{place}");
    });
}

/// Every phase agrees with the reference in every format, tied or not. `tolerances` has one for
/// each position.
pub fn every_format_agrees<E: Engine>(
    config: &Config,
    tolerances: &[f32],
    load: impl Fn(Arc<Pack>) -> E,
) {
    for formats in Formats::NAMED {
        a_format_agrees(config, formats, tolerances, &load);
    }
}

/// [`every_format_agrees`] for one map of formats.
pub fn a_format_agrees<E: Engine>(
    config: &Config,
    formats: Formats,
    tolerances: &[f32],
    load: impl Fn(Arc<Pack>) -> E,
) {
    for tied in [true, false] {
        let config = Config { tied, ..config.clone() };
        let weights = random_codes(&config, 43);
        let mut engine = load(pack_as(&weights, formats));
        assert!(engine.info().variant.starts_with(&*formats.name()));
        let place = format!("{}, tied {tied}", formats.name());
        every_phase_agrees(&mut engine, &weights, tolerances, &place, |reference, token, _| {
            reference.advance(&[token]).expect("the reference runs");
        });
    }
}

/// All engines give the same tokens and the same bits of every logit; the first one three times
/// more. An engine is dropped before the next one is loaded.
pub fn the_bits_are_the_same<E: Engine>(
    steps: usize,
    engines: impl IntoIterator<Item = (String, E)>,
) {
    let mut base = None;
    for (place, mut engine) in engines {
        let again = if base.is_none() { 3 } else { 0 };
        for run in 0..=again {
            let decoded = decode(&mut engine, steps);
            let base = base.get_or_insert_with(|| decoded.clone());
            assert_eq!(*base, decoded, "{place}, run {run}");
        }
    }
}

/// A model that answers every token with a token of its own: the residual stream is the
/// embedding's row, a code of plus and minus ones, and exactly one row of the head has that code.
pub fn echo(config: &Config, answer: impl Fn(usize) -> usize) -> MemoryWeights {
    let code = |token: usize, col: usize| {
        let mut hash = (token * 65_537 + col) as u64;
        for _ in 0..3 {
            hash = (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        }
        if hash >> 40 & 1 == 0 { 1.0 } else { -1.0 }
    };
    let mut asks = vec![0; config.vocab];
    (0..config.vocab).for_each(|token| asks[answer(token)] = token);
    MemoryWeights::from_fn(config, |tensor, row, col| match tensor {
        Tensor::Embedding => code(row, col),
        Tensor::LmHead => code(asks[row], col),
        Tensor::Layer(_, LayerTensor::OProj | LayerTensor::DownProj) => 0.0,
        tensor if tensor.is_norm() => 1.0,
        _ => 0.01,
    })
}

/// The argmax reaches every row of a head of this shape.
pub fn every_row_can_win<E: Engine>(config: &Config, load: impl Fn(&MemoryWeights) -> E) {
    let config = Config { tied: false, layers: 1, ..config.clone() };
    // 12,347 is a prime: unless it divides the vocabulary, every row is some token's answer.
    assert_ne!(config.vocab % 12_347, 0);
    let answer = |token: usize| (token * 12_347 + 5) % config.vocab;
    let mut engine = load(&echo(&config, answer));
    for token in 0..config.vocab {
        let next = engine.step(token as u32, 0).expect("runs");
        assert_eq!(next as usize, answer(token), "token {token}");
    }
}

/// Of rows with the same logit, to the bit, the first wins, at each of these distances.
pub fn the_first_of_equal_rows_wins<E: Engine>(
    config: &Config,
    distances: &[usize],
    load: impl Fn(&MemoryWeights) -> E,
) {
    let config = Config { tied: false, layers: 1, ..config.clone() };
    let base = echo(&config, |token| token);
    for &apart in distances {
        // Every row has a twin `apart` rows on: same code, same logit, to the bit.
        let first = |row: usize| if row / apart % 2 == 1 { row - apart } else { row };
        let weights = MemoryWeights::from_fn(&config, |tensor, row, col| match tensor {
            Tensor::LmHead => base.view(tensor).at(first(row), col).to_f32(),
            other => base.view(other).at(row, col).to_f32(),
        });
        let mut engine = load(&weights);
        for token in (0..config.vocab).filter(|&token| first(token) == token) {
            let next = engine.step(token as u32, 0).expect("runs") as usize;
            assert_eq!(next, token, "a twin {apart} rows on");
        }
    }
}

/// A decode gives the tokens of its steps, also after a prefill. There is room for 150 positions.
pub fn a_decode_is_its_steps_and_a_prefill_too(engine: &mut dyn Engine) {
    let (tokens, _) = decode(engine, 150);
    let decoded = engine.decode(1, 0, 150).expect("the decode runs");
    assert_eq!(decoded.tokens, tokens);
    assert!(decoded.seconds > 0.0);
    let prompt: Vec<u32> = [&[1], &tokens[..99]].concat();
    assert_eq!(engine.prefill(&prompt).expect("the prompt fits"), tokens[99]);
    assert_eq!(engine.decode(tokens[99], 100, 50).expect("runs").tokens, tokens[100..150]);
}

/// A timed decode gives the tokens of a decode, each with a time that is not before the one before
/// it; and the steps after it are those of a decode too.
pub fn a_timed_decode_is_a_decode(engine: &mut dyn Engine) {
    let tokens = engine.decode(1, 0, 60).expect("the decode runs").tokens;
    let timed = engine.decode_timed(1, 0, 40).expect("the timed decode runs");
    assert_eq!((timed.tokens.as_slice(), engine.cached()), (&tokens[..40], 40));
    assert_eq!(timed.at_ns.len(), 40);
    assert!(timed.at_ns.is_sorted() && timed.at_ns[39] > 0, "{:?}", timed.at_ns);
    assert_eq!(engine.decode(tokens[39], 40, 20).expect("runs").tokens, tokens[40..]);
    let refused = engine.decode_timed(1, 0, engine.info().context + 1);
    assert!(refused.is_err(), "beyond the context");
}

/// Stepping from an earlier position gives the same as never having gone on. The vocabulary has
/// more than 152 tokens.
pub fn going_back_gives_the_same_as_never_having_gone_on(engine: &mut dyn Engine) {
    let tokens = [5, 9, 100, 7, 3, 3];
    let first: Vec<u32> =
        tokens.iter().enumerate().map(|(p, &t)| engine.step(t, p).expect("runs")).collect();
    for (position, token) in [150, 151, 152].into_iter().enumerate() {
        engine.step(token, 2 + position).expect("runs");
    }
    for position in 2..tokens.len() {
        assert_eq!(engine.step(tokens[position], position).expect("runs"), first[position]);
    }
    assert_eq!(engine.cached(), tokens.len());
}

/// A stop token ends a decode, and no step runs after it.
pub fn no_step_runs_after_a_stop_token(engine: &mut dyn Engine) {
    let last_row = engine.config().vocab as u32 - 1;
    let all = engine.decode(1, 0, 60).expect("runs").tokens;
    assert_eq!((all.len(), engine.cached()), (60, 60));
    for stop in [vec![all[30]], vec![last_row, all[0]], vec![all[59], all[10]], vec![]] {
        let end = all.iter().position(|token| stop.contains(token)).map_or(60, |last| last + 1);
        let decoded = engine.decode_until(1, 0, 60, &stop).expect("runs");
        assert_eq!(decoded.tokens, all[..end], "{stop:?}");
        assert_eq!(engine.cached(), end, "{stop:?}");
    }
}

/// A token outside the vocabulary, a gap and a position beyond the context are refused, and harm
/// nothing. The engine has run nothing yet.
pub fn what_cannot_be_run_is_refused(engine: &mut dyn Engine) {
    let (vocab, context) = (engine.config().vocab, engine.info().context);
    let refused = engine.step(vocab as u32, 0).expect_err("beyond the vocabulary");
    assert!(matches!(refused, EngineError::Token { .. }), "{refused}");
    assert!(refused.to_string().contains(&format!("token {vocab}")), "{refused}");
    let refused = engine.step(1, 1).expect_err("a gap");
    assert!(matches!(refused, EngineError::Gap { position: 1, cached: 0 }), "{refused}");
    let refused = engine.decode(1, 0, context + 1).expect_err("beyond the context");
    assert!(matches!(refused, EngineError::Context { .. }), "{refused}");
    engine.step(1, 0).expect("a refused step harms nothing");
}

/// Weights with such a value give an error and not a token.
pub fn damage_is_an_error<E: Engine>(
    mut weights: MemoryWeights,
    (tensor, value): (Tensor, f32),
    load: impl Fn(&MemoryWeights) -> E,
) {
    weights.set(tensor, 0, 0, value);
    let error = load(&weights).step(1, 0).expect_err("NaN logits");
    assert!(matches!(error, EngineError::NotANumber), "{tensor:?}: {error}");
}
