//! Every part of a quality record forged in turn: none may pass; and how reports show records.

use crate::environment;
use crate::quality::passing;
use monolith_harness::identity::Subject;
use monolith_harness::quality::{
    Agreement, AgreementRule, Control, PromptScore, QualityRecord, forgery, mismatches,
    record_refusals, refusals,
};
use monolith_harness::record::RunFolder;
use monolith_harness::report::render;
use std::sync::OnceLock;

fn record() -> QualityRecord {
    static RECORD: OnceLock<QualityRecord> = OnceLock::new();
    RECORD.get_or_init(passing).clone()
}

#[test]
fn a_whole_measurement_passes() {
    let record = record();
    assert_eq!(record.failures, [""; 0]);
    assert!(record.quality_passed && !record.is_experimental());
    assert_eq!(refusals(&record, &record.measured.candidate), [""; 0]);
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(QualityRecord::read(&record.write(folder.path()).unwrap()).unwrap(), record);
}

#[test]
fn no_value_can_be_edited() {
    let candidate = record().measured.candidate;
    let whole = serde_json::to_value(record()).unwrap();
    let mut paths = Vec::new();
    crate::forgery::leaves(&whole, "", &mut paths);
    assert!(paths.len() > 100, "{}", paths.len());
    // The windows and prompts are many of a kind: some of each.
    for path in paths.iter().filter(|path| !path.contains("/numbers/") || path.len() % 7 == 0) {
        let mut forged = whole.clone();
        let leaf = forged.pointer_mut(path).unwrap();
        *leaf = crate::forgery::altered(leaf);
        let Ok(forged) = serde_json::from_value::<QualityRecord>(forged) else { continue };
        assert_ne!(refusals(&forged, &candidate), [""; 0], "{path}");
    }
}

/// A forgery, and what must be said about it.
type Forgery = (&'static str, fn(&mut QualityRecord));

/// Numbers that fail or cannot be, sealed as if they were right.
const FORGERIES: [Forgery; 30] = [
    ("thresholds", |r| r.thresholds.perplexity_rise_max = 0.5),
    ("thresholds", |r| r.thresholds.agreement_min = 0.1),
    ("perplexity: the windows", |r| r.measured.options.stride = 31),
    ("perplexity: the windows", |r| r.measured.text.tokens -= 1),
    ("perplexity: the windows", |r| r.numbers.windows.truncate(1)),
    ("perplexity: it is not", |r| r.numbers.perplexity.rise = 0.0),
    ("perplexity: it is not", |r| r.numbers.perplexity.candidate *= 0.999),
    ("perplexity: it is not", |r| r.numbers.perplexity.nll_reference *= 1.001),
    ("perplexity: it is not", |r| r.numbers.windows[3].nll_candidate += 1.0),
    ("perplexity: it is no number", |r| r.numbers.perplexity.candidate = f64::NAN),
    ("is allowed", |r| r.numbers.perplexity.rise = f64::NAN),
    ("is allowed", worse),
    ("tokens scored", |r| r.numbers.perplexity.scored = 9_999),
    ("kl: the positions", |r| r.measured.options.kl_positions = 9_999),
    ("kl: it is not", |r| r.numbers.kl.mean *= 0.5),
    ("kl: it is not", |r| r.numbers.kl.max *= 0.5),
    ("kl: it is not", |r| r.numbers.kl.same_top_1 -= 1),
    ("kl: a window's sums", |r| r.numbers.windows[0].kl = -1.0),
    ("kl: a window's sums", |r| r.numbers.windows[0].kl_max = 0.0),
    ("kl: the percentile", |r| r.numbers.kl.p99 = 1e9),
    ("kl: 9999 positions", |r| r.numbers.kl.positions = 9_999),
    ("agreement: it is not", |r| r.numbers.agreement.greedy = 0.95),
    ("agreement: it is not", |r| r.numbers.prompts.truncate(99)),
    ("agreement: a prompt's", |r| r.numbers.prompts[0].greedy = 65),
    ("agreement: a prompt's", |r| r.numbers.prompts[0].prefix = 63),
    ("agreement: 99 prompts", |r| r.numbers.agreement.prompts = 99),
    ("the same (greedy)", |r| r.numbers.agreement.greedy = 0.899),
    ("not the one that the control", |r| r.thresholds.agreement = AgreementRule::Forced),
    ("not bf16", |r| r.measured.reference_formats = "fp8".into()),
    ("another run or build", |r| r.measured.reference.build.push('0')),
];

/// A candidate as bad as it can be without a sum that does not fit.
fn worse(record: &mut QualityRecord) {
    for window in &mut record.numbers.windows {
        window.nll_candidate *= 2.0;
    }
    record.numbers.perplexity = monolith_harness::quality::Perplexity::of(&record.numbers.windows);
}

#[test]
fn sealed_forgeries_are_found_out() {
    for (index, (said, forge)) in FORGERIES.iter().enumerate() {
        let mut forged = record();
        forge(&mut forged);
        let forged = forged.sealed();
        let reasons = record_refusals(&forged);
        assert!(reasons.iter().any(|reason| reason.contains(said)), "{index} {said}: {reasons:?}");
        assert!(forgery(&forged).is_some(), "{index}: it says that it passed");
    }
}

/// A control of as many prompts, 64 places each, with this many of them the same where bf16 and f32
/// are left to themselves.
fn control(of: &QualityRecord, same: usize) -> Control {
    let prompts = vec![PromptScore { greedy: same, prefix: same, forced: 63 }; 100];
    Control {
        sha256: String::new(),
        engine: "transformers".into(),
        tensors_sha256: "tensors".into(),
        prompt_ids_sha256: of.measured.prompts.ids_sha256.clone(),
        agreement: Agreement::of(&prompts, 64),
        prompts,
    }
}

#[test]
fn the_control_settles_which_comparison_decides() {
    // The candidate parts from the reference after 40 places, and after the same text hardly ever.
    let mut numbers = record().numbers;
    numbers.prompts = vec![PromptScore { greedy: 40, prefix: 40, forced: 62 }; 100];
    numbers.agreement = Agreement::of(&numbers.prompts, 64);
    let judged = |same: Option<usize>| {
        let control = same.map(|same| control(&record(), same));
        QualityRecord::new(record().measured, control, numbers.clone())
    };
    for (same, rule) in [
        (None, AgreementRule::Greedy),
        (Some(58), AgreementRule::Greedy),
        (Some(57), AgreementRule::Forced),
    ] {
        let judged = judged(same);
        assert_eq!(judged.thresholds.agreement, rule, "{same:?}");
        assert_eq!(judged.quality_passed, rule == AgreementRule::Forced, "{:?}", judged.failures);
        assert_eq!(forgery(&judged), None);
    }
    type Forge = fn(&mut Control);
    let forgeries: [(&str, Forge); 8] = [
        ("not what its prompts sum to", |c| c.agreement.greedy = 0.95),
        ("numbers cannot be", |c| c.prompts[0].greedy = 65),
        ("numbers cannot be", |c| c.prompts[0].forced = 65),
        ("other prompts", |c| c.prompt_ids_sha256.push('0')),
        ("other weights", |c| c.tensors_sha256.push('0')),
        ("another number of prompts", |c| c.prompts.truncate(99)),
        ("another number of prompts", |c| c.prompts.clear()),
        ("for any comparison", |c| c.prompts.iter_mut().for_each(|p| p.forced = 57)),
    ];
    for (index, (said, forge)) in forgeries.iter().enumerate() {
        let mut forged = judged(Some(57));
        let control = forged.control.as_mut().unwrap();
        forge(control);
        if index > 0 {
            control.agreement = Agreement::of(&control.prompts, 64);
        }
        let forged = forged.sealed();
        assert!(forgery(&forged).is_some(), "{index} {said}");
        let reasons = record_refusals(&forged);
        assert!(reasons.iter().any(|reason| reason.contains(said)), "{index} {said}: {reasons:?}");
    }
    let mut forged = judged(Some(57));
    forged.control = None;
    assert!(forgery(&forged.sealed()).is_some(), "without its control");
}

#[test]
fn a_record_is_of_one_engine() {
    let own = record().measured.candidate;
    let cases: [fn(&mut Subject); 9] = [
        |s| s.engine.push('0'),
        |s| s.variant.push('0'),
        |s| s.format.push('0'),
        |s| s.gpu.push('0'),
        |s| s.blocks += 1,
        |s| s.build.push('0'),
        |s| s.kernels = Some(String::new()),
        |s| s.weights_sha256.push('0'),
        |s| s.run_id.push('0'),
    ];
    assert_eq!(mismatches(&own, &own), [""; 0]);
    for change in cases {
        let mut other = own.clone();
        change(&mut other);
        assert_eq!(refusals(&record(), &other).len(), 1, "{other:?}");
    }
}

#[test]
fn a_speed_stands_beside_its_own_quality() {
    let results = tempfile::tempdir().unwrap();
    let (folder, rows) = crate::reports::measured(results.path());
    assert!(!render(results.path()).unwrap().contains(" quality |"));
    let row = &rows[0];
    let mut of_row = record();
    of_row.measured.candidate = row.subject();
    of_row.measured.reference.build = row.build.clone();
    let mut of_others = of_row.clone();
    of_others.measured.candidate.blocks += 1;
    folder.add_quality(&of_others.sealed(), None).unwrap();
    assert!(!render(results.path()).unwrap().contains(" quality |"));
    folder.add_quality(&of_row.sealed(), None).unwrap();
    let text = render(results.path()).unwrap();
    assert!(text.contains(" gate | quality |"), "{text}");
    assert!(text.contains("| passed | passed: +") && text.contains("%, 100.0% agree |"), "{text}");
}

#[test]
fn reports_show_what_is_believed() {
    let results = tempfile::tempdir().unwrap();
    let folder = RunFolder::open(results.path(), &environment()).unwrap();
    folder.add_quality(&record(), None).unwrap();
    let mut failed = record();
    failed.numbers.agreement.greedy = 0.0;
    failed.numbers.prompts.iter_mut().for_each(|prompt| (prompt.greedy, prompt.prefix) = (0, 0));
    failed.numbers.prompts.iter_mut().for_each(|prompt| prompt.forced = 63);
    failed.measured.model = "failing".into();
    let numbers = failed.numbers.clone();
    let numbers = monolith_harness::quality::Numbers {
        agreement: Agreement::of(&numbers.prompts, 64),
        ..numbers
    };
    failed.measured.candidate.weights_sha256 = "failing".into();
    folder.add_quality(&QualityRecord::new(failed.measured, None, numbers), None).unwrap();
    let mut forged = record();
    forged.numbers.perplexity.candidate = 1.2345;
    forged.measured.candidate.weights_sha256 = "forged".into();
    folder.add_quality(&forged.sealed(), None).unwrap();
    let mut elsewhere = record();
    elsewhere.measured.candidate.run_id = "elsewhere".into();
    elsewhere.measured.reference.run_id = "elsewhere".into();
    elsewhere.measured.candidate.weights_sha256 = "elsewhere".into();
    folder.add_quality(&elsewhere.sealed(), None).unwrap();
    for text in [render(results.path()).unwrap(), {
        std::fs::read_to_string(folder.path.join("README.md")).unwrap()
    }] {
        assert!(text.contains("| counting | fake | fp8 | 1."), "{text}");
        assert!(
            text.contains("| **100.0%** | 100.0% | 100.0% | not compared | passed | counting.txt"),
            "{text}"
        );
        assert!(
            text.contains("| **0.0%** | 98.4% | 0.0% | not compared | failed | counting.txt"),
            "{text}"
        );
        assert!(text.contains("fake (fp8) on failing: agreement: 0.00% of the tokens"), "{text}");
        assert!(!text.contains("1.2345"), "{text}");
        let said = ["not say what its numbers say", "measured in another run"];
        said.iter().for_each(|said| assert!(text.contains(said), "{text}"));
    }
}
