//! The gate on an engine that is right, against what transformers said.

use crate::{load, record, reference, reference_dir};
use monolith_harness::gate::{GateRecord, Rule, planted_next, planted_pack, refusals};
use monolith_harness::reference::{OwnDivergences, Reference};
use monolith_harness::subject::Ours;
use monolith_model::Config;
use monolith_pack::Formats;

#[test]
fn the_cpu_engine_passes() {
    let record = record();
    assert_eq!(record.failures, [""; 0]);
    assert!(record.passed);
    let tokens = &record.checks.tokens;
    assert_eq!((tokens.prompts, tokens.new, tokens.positions), (20, 256, 5120));
    assert!(tokens.match_rate > 0.97 && tokens.exempt > 0, "{tokens:?}");
    assert_eq!(record.checks.vocabulary.reached, crate::fixture::config().vocab);
    assert_eq!(record.checks.context.context, crate::fixture::config().max_positions);
    let subject = record.subject.clone();
    assert_eq!(refusals(&record, &subject, &reference().summary.prompt_ids_sha256), [""; 0]);
}

/// f32 settles a divergence whatever the margin, but only if it is the engine's side it takes.
#[test]
fn f32_settles_only_what_it_says() {
    let mut record = record();
    // The reference keeps to the margin itself: then so must the engine.
    let own = record.reference.own.unwrap();
    assert_eq!((own.positions, own.beyond_tolerance, Rule::of(&own)), (5120, 0, Rule::Margin));
    record.checks.tokens.rule = Rule::F32Settles;
    let failures = |record: &GateRecord| record.checks.failures(&record.reference);
    assert!(failures(&record)[0].contains("the rule is not"), "{:?}", failures(&record));
    record.reference.own = Some(OwnDivergences { beyond_tolerance: 1, ..own });
    let tokens = &mut record.checks.tokens;
    tokens.exempt = tokens.divergences.len() - tokens.as_f32;
    assert!(tokens.exempt < tokens.as_f32);
    let settled = tokens.divergences.iter().position(|d| d.found == d.f32).unwrap();
    tokens.divergences[settled].margin = 1e9;
    assert_eq!(failures(&record), [""; 0]);
    let divergence = &mut record.checks.tokens.divergences[settled];
    divergence.f32 = divergence.expected;
    record.checks.tokens.as_f32 -= 1;
    assert!(failures(&record)[0].contains("no near tie"), "{:?}", failures(&record));
}

#[test]
fn the_reference_settles_the_rule() {
    let rule = |all, beyond_tolerance| {
        Rule::of(&OwnDivergences { positions: 5000, all, beyond_tolerance })
    };
    assert_eq!(rule(0, 0), Rule::Margin);
    assert_eq!(rule(100, 0), Rule::Margin);
    assert_eq!(rule(101, 0), Rule::F32Settles);
    assert_eq!(rule(1, 1), Rule::F32Settles);
    // As counted in the files that transformers left.
    let own = reference().own_divergences();
    let said = &reference().summary;
    let margins = reference().margin.concat();
    let tokens = said.tokens.concat();
    let differs: Vec<usize> =
        (0..tokens.len()).filter(|&at| tokens[at] != reference().f32_argmax[at]).collect();
    assert_eq!((own.positions, own.all), (tokens.len(), differs.len()));
    let beyond = differs.iter().filter(|&&at| f64::from(margins[at]) >= said.tolerance);
    assert_eq!(own.beyond_tolerance, beyond.count());
    assert!(own.all > 0);
}

#[test]
fn a_record_reads_back_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = record().write(folder.path()).unwrap();
    assert_eq!(GateRecord::read(&path).unwrap(), record());
}

#[test]
fn every_id_is_planted_for_any_shape() {
    for (vocab, tied) in [(64, true), (65, true), (65, false), (1, true)] {
        let config = Config { vocab, tied, ..crate::fixture::config() };
        for formats in Formats::NAMED {
            let mut engine = load(planted_pack(&config, formats).unwrap(), 1).unwrap();
            for token in 0..vocab as u32 {
                assert_eq!(engine.step(token, 0).unwrap(), planted_next(token, vocab), "{token}");
            }
        }
    }
}

/// Of layers in FP8 under a head in bf16 a record says both.
#[test]
fn a_record_names_all_formats() {
    for formats in Formats::NAMED {
        let pack = planted_pack(&crate::fixture::config(), formats).unwrap();
        let engine = load(pack.clone(), 1).unwrap();
        let subject = Ours::of(engine.info(), &pack, "run").unwrap();
        assert_eq!(subject.format, formats.name());
    }
}

#[test]
fn a_reference_that_was_changed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let copy = |name: &str| {
        std::fs::copy(reference_dir().join(name), folder.path().join(name)).unwrap();
    };
    let refused = |changed: &str| {
        let error = Reference::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains(changed), "{error}");
    };
    refused("reference.json");
    copy("reference.json");
    refused("reference.safetensors");
    copy("reference.safetensors");
    assert!(Reference::open(folder.path()).is_ok());
    let json = std::fs::read_to_string(reference_dir().join("reference.json")).unwrap();
    let tolerance = format!("\"tolerance\":{}", reference().summary.tolerance);
    for (from, to, changed) in [
        (tolerance.as_str(), "\"tolerance\":1.0", "tolerance"),
        ("\"schema_version\":1", "\"schema_version\":2", "schema version 2"),
        ("\"prompts\":[[", "\"prompts\":[[1,", "their hash"),
        ("\"tokens\":[[", "\"tokens\":[[1,", "tokens"),
        ("\"tokens\":[[", "\"tokens\":[[173,", "tokens"),
        ("\"logits_sha256\":\"", "\"logits_sha256\":\"0", "by its hash"),
    ] {
        assert!(json.contains(from), "{from}");
        let forged = json.replacen(from, to, 1);
        std::fs::write(folder.path().join("reference.json"), forged).unwrap();
        refused(changed);
    }
}

#[test]
fn every_token_of_a_prompt_is_told() {
    let (record, told) = crate::gated();
    let summary = &reference().summary;
    let (prompts, longest) = (summary.prompts.len(), longest());
    let last = record.checks.determinism.runs.len();
    let passes = ["teacher-forced".into(), format!("run {last} of {last}, freshly loaded")];
    for pass in &passes {
        // The prompt's last token is a step of its own.
        let (at, all) = (longest.0 + 1, longest.1 - 1);
        for done in 1..=all {
            let line = format!("{pass}: prompt {at} of {prompts}, {done} of {all} tokens");
            assert!(told.contains(&line), "{line}: {told:?}");
        }
    }
    let line = format!("decode against single steps: prompt {prompts} of {prompts}, 1 of ");
    assert!(told.iter().any(|told| told.starts_with(&line)), "{line}: {told:?}");
    assert!(told.iter().any(|told| told.starts_with("the context's end, 1 of ")), "{told:?}");
}

/// The index of the longest prompt, and its length.
fn longest() -> (usize, usize) {
    let lengths = reference().summary.prompts.iter().map(Vec::len).enumerate();
    lengths.max_by_key(|(_, length)| *length).unwrap()
}
