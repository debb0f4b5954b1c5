//! The cache, tracing and stopping, the first difference, and refusals.

mod common;

use common::{relative_difference, small, tokens, weights};
use half::bf16;
use monolith_abi::Phase;
use monolith_model::Config;
use monolith_reference::{
    Intermediates, KvFormat, Place, Reference, ReferenceError, Stop, first_difference,
};
use ndarray::s;

/// The order of f32 sums may depend on how many rows are multiplied together; nothing else does.
const ROUNDING: f32 = 2e-6;

#[test]
fn incremental_equals_whole_sequence() {
    let config = small();
    let weights = weights(&config, 5);
    let tokens = tokens(&config, 150);
    for format in [KvFormat::F32, KvFormat::Bf16] {
        let whole = Reference::new(&weights, format).extend(&tokens).unwrap();
        let mut reference = Reference::new(&weights, format);
        let mut begin = 0;
        for length in [1, 1, 5, 1, 130, 12] {
            let part = reference.extend(&tokens[begin..begin + length]).unwrap();
            let wanted = whole.logits.slice(s![begin..begin + length, ..]);
            let difference = relative_difference(wanted, &part.logits);
            assert!(difference < ROUNDING, "from {begin}: {difference:e}");
            assert_eq!(part.greedy, whole.greedy[begin..begin + length]);
            begin += length;
            assert_eq!(reference.positions(), begin);
        }
    }
}

#[test]
fn the_bf16_cache_holds_rounded_values() {
    let config = small();
    let weights = weights(&config, 5);
    let tokens = tokens(&config, 30);
    let mut exact = Reference::new(&weights, KvFormat::F32);
    let mut rounded = Reference::new(&weights, KvFormat::Bf16);
    let (a, b) = (exact.extend(&tokens).unwrap(), rounded.extend(&tokens).unwrap());
    // The first layer's keys and values come from the same numbers in both.
    let (exact, rounded) = (&exact.caches()[0], &rounded.caches()[0]);
    for (exact, rounded) in [(exact.keys(), rounded.keys()), (exact.values(), rounded.values())] {
        assert!(exact.iter().zip(rounded).all(|(&x, &y)| bf16::from_f32(x).to_f32() == y));
        assert_ne!(exact, rounded);
    }
    let difference = relative_difference(&a.logits, &b.logits);
    assert!(difference > 1e-5 && difference < 0.05, "{difference:e}");
}

#[test]
fn a_truncated_cache_continues_as_before() {
    let config = small();
    let weights = weights(&config, 5);
    let tokens = tokens(&config, 20);
    let mut reference = Reference::new(&weights, KvFormat::Bf16);
    let first = reference.extend(&tokens).unwrap();
    reference.truncate(12);
    let again = reference.extend(&tokens[12..]).unwrap();
    let difference = relative_difference(first.logits.slice(s![12.., ..]), &again.logits);
    assert!(difference < ROUNDING, "{difference:e}");
}

/// Every place of a model of `layers` layers, in order.
fn places(layers: usize) -> Vec<Place> {
    let mut all = vec![Place::EMBED];
    for layer in 0..layers {
        all.extend(Phase::LAYER.map(|phase| Place { layer: Some(layer), phase }));
    }
    all.extend([Place::LM_HEAD, Place::ARGMAX]);
    all
}

#[test]
fn a_trace_ends_where_it_should_and_leaves_the_cache() {
    let config = small();
    let weights = weights(&config, 5);
    let tokens = tokens(&config, 9);
    let mut reference = Reference::new(&weights, KvFormat::F32);
    reference.extend(&tokens[..4]).unwrap();
    let all = places(config.layers);
    for (at, place) in all.iter().enumerate() {
        let layers = place.layer.map_or(config.layers, |layer| layer + 1);
        let stop = Stop { layers, after: place.phase };
        let seen = reference.trace(&tokens[4..], stop).unwrap();
        let order: Vec<Place> = seen.iter().map(|(place, _)| place).collect();
        assert_eq!(order, all[..=at]);
        assert_eq!(reference.positions(), 4);
    }
    let stop = Stop { layers: config.layers, after: Phase::Argmax };
    let seen = reference.trace(&tokens[4..], stop).unwrap();
    let out = reference.extend(&tokens[4..]).unwrap();
    assert_eq!(seen.get(Place::LM_HEAD).unwrap(), out.logits);
    let greedy: Vec<u32> = seen.get(Place::ARGMAX).unwrap().iter().map(|&id| id as u32).collect();
    assert_eq!(greedy, out.greedy);
    let shallow = reference.trace(&tokens[..1], Stop { layers: 0, after: Phase::LmHead }).unwrap();
    assert_eq!(shallow.iter().count(), 2, "embed, then the head on its output");
}

#[test]
fn widths_are_those_of_the_contract() {
    let config = small();
    let weights = weights(&config, 5);
    let stop = Stop { layers: 2, after: Phase::Argmax };
    let seen = Reference::new(&weights, KvFormat::F32).trace(&[1, 2, 3], stop).unwrap();
    for (place, output) in seen.iter() {
        let width = match place.phase {
            Phase::Embed | Phase::OProj | Phase::Down => config.hidden,
            Phase::Qkv => config.q_dim() + 2 * config.kv_dim(),
            Phase::Attention => config.q_dim(),
            Phase::GateUp => config.intermediate,
            Phase::LmHead => config.vocab,
            Phase::Argmax => 1,
        };
        assert_eq!(output.shape(), [3, width], "{place}");
    }
}

/// A copy with one element changed.
fn with_change(
    from: &Intermediates,
    place: Place,
    row: usize,
    col: usize,
    to: f32,
) -> Intermediates {
    let mut copy = Intermediates::default();
    for (at, output) in from.iter() {
        let mut output = output.to_owned();
        if at == place {
            output[(row, col)] = to;
        }
        copy.insert(at, output.nrows(), output.into_iter().collect());
    }
    copy
}

#[test]
fn the_first_difference_is_found_and_named() {
    let config = small();
    let weights = weights(&config, 5);
    let stop = Stop { layers: 2, after: Phase::LmHead };
    let trace = Reference::new(&weights, KvFormat::F32).trace(&[1, 2, 3], stop).unwrap();
    assert_eq!(first_difference(&trace, &trace, 0.0), None);
    for (place, output) in trace.iter() {
        let (row, col) = (output.nrows() - 1, output.ncols() - 1);
        let changed = with_change(&trace, place, row, col, output[(row, col)] + 1.0);
        let found = first_difference(&trace, &changed, 1e-3).unwrap();
        assert_eq!((found.place, found.row, found.index), (place, row, col));
    }
    let place = Place { layer: Some(1), phase: Phase::Qkv };
    let broken = with_change(&trace, place, 2, 5, f32::NAN);
    let broken = with_change(&broken, Place::LM_HEAD, 0, 0, 1e9);
    let found = first_difference(&trace, &broken, 1e9).unwrap();
    let text = found.to_string();
    assert!(text.starts_with("layer 1 qkv, row 2, element 5: "), "{text}");
    assert!(first_difference(&broken, &broken, 1e9).is_some(), "NaN differs from itself");
}

#[test]
fn what_cannot_be_computed_is_refused_and_changes_nothing() {
    let config = Config { max_positions: 6, ..small() };
    let weights = weights(&config, 5);
    let mut reference = Reference::new(&weights, KvFormat::F32);
    reference.extend(&[1, 2, 3, 4]).unwrap();
    let error = reference.extend(&[1, 2, 3]).unwrap_err();
    assert_eq!(error, ReferenceError::Positions { wanted: 7, max_positions: 6 });
    let error = reference.extend(&[config.vocab as u32]).unwrap_err();
    assert_eq!(error, ReferenceError::Token { token: 331, vocab: 331 });
    for stop in [
        Stop { layers: 3, after: Phase::Qkv },
        Stop { layers: 3, after: Phase::LmHead },
        Stop { layers: 0, after: Phase::Down },
    ] {
        let error = reference.trace(&[1], stop).unwrap_err();
        assert!(matches!(error, ReferenceError::Stop { .. }), "{error}");
    }
    assert_eq!(reference.positions(), 4);
    reference.extend(&[1, 2]).unwrap();
}
