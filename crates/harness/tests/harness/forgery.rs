//! Every part of a gate record forged in turn: none may give a speed.

use crate::{record, reference};
use monolith_harness::gate::{Divergence, GateRecord, Rule, refusals, refusals_in};
use monolith_harness::reference::OwnDivergences;
use monolith_harness::subject::Ours;
use serde_json::Value;

fn prompt_ids() -> &'static str {
    &reference().summary.prompt_ids_sha256
}

/// Every path to a value that holds no others.
pub fn leaves(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| leaves(value, &format!("{at}/{name}"), found));
        }
        Value::Array(list) => list
            .iter()
            .enumerate()
            .for_each(|(index, value)| leaves(value, &format!("{at}/{index}"), found)),
        _ => found.push(at.into()),
    }
}

pub fn altered(value: &Value) -> Value {
    match value {
        Value::Bool(flag) => (!flag).into(),
        Value::Number(number) if number.is_f64() => {
            (number.as_f64().unwrap_or(0.0) * 0.999_999_999 + 1e-12).into()
        }
        Value::Number(number) => (number.as_u64().unwrap_or(0) + 1).into(),
        Value::String(text) => format!("{text}0").into(),
        Value::Null => "known".into(),
        other => panic!("{other} is no leaf"),
    }
}

#[test]
fn no_value_can_be_edited() {
    let subject = record().subject;
    let whole = serde_json::to_value(record()).unwrap();
    let mut paths = Vec::new();
    leaves(&whole, "", &mut paths);
    assert!(paths.len() > 100, "{}", paths.len());
    for path in paths {
        let mut forged = whole.clone();
        let leaf = forged.pointer_mut(&path).unwrap();
        *leaf = altered(leaf);
        // What does not even read back is no gate.
        let Ok(forged) = serde_json::from_value::<GateRecord>(forged) else { continue };
        assert_ne!(refusals(&forged, &subject, prompt_ids()), [""; 0], "{path}");
    }
}

/// A forgery, and what must be said about it.
type Forgery = (&'static str, fn(&mut GateRecord));

fn own(positions: usize, all: usize, beyond_tolerance: usize) -> Option<OwnDivergences> {
    Some(OwnDivergences { positions, all, beyond_tolerance })
}

/// Failing numbers under `passed: true`, sealed as if they were right.
const NUMBERS: [Forgery; 42] = [
    ("weights:", |r| r.checks.weights.tensors_sha256.clear()),
    ("weights:", |r| r.reference.tensors_sha256.clear()),
    ("tolerance", |r| r.reference.tolerance *= 2.0),
    ("tokens:", |r| r.checks.tokens.divergences[0].margin = 1e9),
    ("tokens:", |r| r.checks.tokens.divergences[0].margin = f64::NAN),
    ("tokens:", |r| r.checks.tokens.divergences.truncate(3)),
    ("tokens:", |r| r.checks.tokens.matches -= 1),
    ("tokens:", |r| r.checks.tokens.match_rate = 1.0),
    ("tokens:", |r| r.checks.tokens.exempt -= 1),
    ("tokens:", |r| r.checks.tokens.as_f32 += 1),
    ("tokens:", |r| r.checks.tokens.rule = Rule::F32Settles),
    ("the rule is not", |r| r.reference.own = own(5120, 5120, 1)),
    ("the rule is not", |r| {
        r.reference.own = None;
        r.checks.tokens.rule = Rule::F32Settles;
    }),
    ("contradict", |r| r.reference.own = own(5119, 50, 0)),
    ("contradict", |r| r.reference.own = own(5120, 0, 0)),
    ("contradict", |r| r.reference.own = own(0, 1, 0)),
    ("tokens:", |r| r.checks.tokens.prompts = 19),
    ("tokens:", |r| r.checks.tokens.new = 255),
    ("excused", exempt_everything),
    ("logits:", |r| r.checks.logits.engine.rms = 1e9),
    ("logits:", |r| r.checks.logits.engine.p999 = f64::NAN),
    ("logits:", |r| r.checks.logits.engine.count -= 1),
    ("logits:", |r| r.checks.logits.rows = 0),
    ("rows:", |r| r.checks.rows.argmax_mismatches = 1),
    ("rows:", |r| r.checks.rows.never_changed = 1),
    ("rows:", |r| r.checks.rows.not_finite = 1),
    ("vocabulary:", |r| r.checks.vocabulary.reached -= 1),
    ("determinism:", |r| r.checks.determinism.runs[2].push('0')),
    ("determinism:", |r| r.checks.determinism.runs.truncate(2)),
    ("decode:", |r| r.checks.decode.mismatches = 1),
    ("decode:", |r| r.checks.decode.tokens -= 1),
    ("context:", |r| r.checks.context.sequence -= 1),
    ("context:", |r| r.checks.context.refused_beyond = false),
    ("context:", |r| r.checks.context.engine.p999 = 1e9),
    ("context: 2 of 8 positions are excused", |r| at_the_end(r, &[(0, 9), (1, 9)])),
    ("context: 1 divergences", |r| {
        at_the_end(r, &[(0, 9)]);
        r.checks.context.divergences[0].margin = 1e9;
    }),
    ("context: the numbers contradict", |r| at_the_end(r, &[(0, 9), (0, 9)])),
    ("context: the numbers contradict", |r| at_the_end(r, &[(16, 9)])),
    ("context:", |r| r.checks.context.positions = usize::MAX),
    ("tokens: the numbers contradict", |r| {
        (r.checks.tokens.prompts, r.checks.tokens.new) = (usize::MAX, usize::MAX);
    }),
    ("tokens: the numbers contradict", |r| r.checks.tokens.matches = usize::MAX),
    ("machine code", |r| r.subject.kernels = Some("x".into())),
];

/// Divergences among the last positions, by place and what f32 says; the engine says 1.
fn at_the_end(record: &mut GateRecord, places: &[(usize, u32)]) {
    let context = &mut record.checks.context;
    let first = context.sequence - context.positions;
    context.divergences = places
        .iter()
        .map(|&(at, f32)| Divergence {
            prompt: 0,
            step: first + at,
            expected: 0,
            found: 1,
            f32,
            margin: 0.0,
        })
        .collect();
}

#[test]
fn few_positions_at_the_end_may_be_excused() {
    let passes = |rule: Rule, places: &[(usize, u32)]| {
        let mut record = record();
        at_the_end(&mut record, places);
        record.checks.tokens.rule = rule;
        let failures = record.checks.failures(&record.reference);
        !failures.iter().any(|failure| failure.starts_with("context:"))
    };
    assert!(passes(Rule::Margin, &[]) && passes(Rule::Margin, &[(0, 9)]));
    assert!(!passes(Rule::Margin, &[(0, 9), (1, 9)]));
    // What f32 says needs no excuse by one rule, and one like any other by the other.
    assert!(!passes(Rule::Margin, &[(0, 1), (1, 1)]));
    assert!(passes(Rule::F32Settles, &[(0, 1), (1, 1), (2, 9)]));
    assert!(!passes(Rule::F32Settles, &[(0, 1), (1, 9), (2, 9)]));
}

/// More near ties than a right engine would need.
fn exempt_everything(record: &mut GateRecord) {
    let tokens = &mut record.checks.tokens;
    tokens.divergences = (0..1000)
        .map(|at| Divergence {
            prompt: at / 256,
            step: at % 256,
            expected: 0,
            found: 1,
            f32: 1,
            margin: 0.0,
        })
        .collect();
    (tokens.exempt, tokens.as_f32, tokens.matches) = (1000, 1000, tokens.positions - 1000);
    tokens.match_rate = tokens.matches as f64 / tokens.positions as f64;
}

#[test]
fn failing_numbers_do_not_pass_by_saying_so() {
    for (index, (word, forge)) in NUMBERS.iter().enumerate() {
        let mut record = record();
        forge(&mut record);
        assert!(record.passed);
        let record = record.sealed();
        let reasons = refusals(&record, &record.subject.clone(), prompt_ids());
        assert!(reasons.iter().any(|reason| reason.contains(word)), "{index}: {reasons:?}");
    }
}

#[test]
fn a_record_that_says_it_failed_has() {
    let failed = GateRecord { passed: false, ..record() }.sealed();
    assert_eq!(refusals(&failed, &failed.subject.clone(), prompt_ids()).len(), 1);
    let failed = GateRecord { failures: vec!["something".into()], ..record() }.sealed();
    assert_eq!(refusals(&failed, &failed.subject.clone(), prompt_ids()).len(), 1);
    for schema_version in [0, 3, u32::MAX] {
        let other = GateRecord { schema_version, ..record() }.sealed();
        assert_eq!(refusals(&other, &other.subject.clone(), prompt_ids()).len(), 1);
    }
    let older = GateRecord { schema_version: 1, ..record() }.sealed();
    assert_eq!(refusals(&older, &older.subject.clone(), prompt_ids()), [""; 0]);
}

/// A change of what is to be measured, and the word for it.
type Change = (&'static str, fn(&mut Ours));

#[test]
fn another_build_weights_run_or_prompts_are_not_gated() {
    let changes: [Change; 12] = [
        ("engine", |s| s.engine.push('x')),
        ("variant", |s| s.variant.push('x')),
        ("format", |s| s.format.push('x')),
        ("GPU", |s| s.gpu.push('x')),
        ("build", |s| s.build.push('x')),
        ("set of kernels", |s| s.kernels = Some("x".into())),
        ("machine code", |s| s.cubin_sha256 = Some("x".into())),
        ("NVRTC", |s| s.nvrtc = Some("13.1".into())),
        ("commit", |s| s.commit = Some("x".into())),
        ("weights", |s| s.weights_sha256.push('x')),
        ("run", |s| s.run_id.push('x')),
        ("number of blocks", |s| s.blocks += 1),
    ];
    for (word, change) in changes {
        let mut subject = record().subject;
        change(&mut subject);
        let reasons = refusals(&record(), &subject, prompt_ids());
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        assert!(reasons[0].contains(&format!("another {word}")), "{reasons:?}");
    }
    assert_eq!(refusals(&record(), &record().subject, "other prompts").len(), 1);
}

#[test]
fn a_missing_or_broken_file_is_no_gate() {
    let folder = tempfile::tempdir().unwrap();
    let subject = record().subject;
    let reasons = refusals_in(folder.path(), &subject, prompt_ids()).unwrap_err();
    assert!(reasons[0].contains("run `monolith gate`"), "{reasons:?}");
    let path = record().write(folder.path()).unwrap();
    assert_eq!(refusals_in(folder.path(), &subject, prompt_ids()), Ok(record()));
    let whole = std::fs::read_to_string(&path).unwrap();
    for text in ["", "{}", "{\"passed\": true}", &whole[..whole.len() / 2]] {
        std::fs::write(&path, text).unwrap();
        assert!(refusals_in(folder.path(), &subject, prompt_ids()).is_err(), "{text}");
    }
}
