//! Every part of a quality record forged in turn, and of the files beside it: none may pass.

use crate::quality::{large, passing};
use monolith_harness::identity::sha256_hex;
use monolith_harness::quality::{
    Agreement, Control, Kept, Outcome, OwnControl, PromptScore, QualityRecord, Reading, forgery,
    mismatches, record_refusals, refusals,
};
use monolith_harness::subject::Ours;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub fn whole() -> Outcome {
    static OUTCOME: OnceLock<Outcome> = OnceLock::new();
    OUTCOME.get_or_init(passing).clone()
}

pub fn record() -> QualityRecord {
    whole().record
}

/// A candidate that errs at every 20th position, by little: its perplexity hardly rises, and by
/// itself it soon says something else.
pub fn parting() -> Outcome {
    static OUTCOME: OnceLock<Outcome> = OnceLock::new();
    OUTCOME.get_or_init(|| large([0.1, 0.1], 20)).clone()
}

#[test]
fn a_whole_measurement_passes() {
    let record = record();
    assert_eq!(record.verdicts().as_written.failures, [""; 0]);
    assert!(record.quality_passed && !record.is_experimental());
    assert_eq!(refusals(&record, &record.measured.candidate), [""; 0]);
    let folder = tempfile::tempdir().unwrap();
    let path = whole().write(folder.path()).unwrap();
    assert_eq!(Kept::read(&path).unwrap(), Kept { record, doubt: None });
}

#[test]
fn the_gate_is_the_one_as_written() {
    let record = parting().record;
    let agreement = &record.numbers.agreement;
    assert!(agreement.greedy < 0.9 && agreement.forced >= 0.9, "{agreement:?}");
    // The control agrees even less, and loosens nothing.
    let control = record.control.as_ref().unwrap();
    assert!(control.agreement.greedy < agreement.greedy, "{:?}", control.agreement);
    assert!(!record.quality_passed && forgery(&record).is_none());
    let verdicts = record.verdicts();
    let [failure] = &verdicts.as_written.failures[..] else { panic!("{verdicts:?}") };
    assert!(failure.ends_with("agree, each engine by itself: at least 90% is asked"), "{failure}");
    assert!(verdicts.by(Reading::AfterTheSameText).passed, "{verdicts:?}");
    assert_eq!(record_refusals(&record), std::slice::from_ref(failure));
    assert_eq!(record.claimed, Some(verdicts));
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
const FORGERIES: [Forgery; 42] = [
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
    ("at most +2% is asked", |r| r.numbers.perplexity.rise = f64::NAN),
    ("at most +2% is asked", worse),
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
    ("each engine by itself", |r| r.numbers.agreement.greedy = 0.899),
    ("agreement: it names no tokens", |r| r.tokens_sha256 = None),
    ("not bf16", |r| r.measured.reference_formats = "fp8".into()),
    ("another run or build", |r| r.measured.reference.build.push('0')),
    ("one of the two controls", |r| r.control = None),
    ("one of the two controls", |r| r.own_control = None),
    ("one of the two controls", |r| r.measured.control_sha256 = None),
    // Numbers out of files: none may be looped over, allocated or summed before it is bounded.
    ("the text's tokens", |r| r.measured.text.tokens = 1 << 60),
    ("the context", |r| r.measured.options.context = usize::MAX),
    ("the stride", |r| r.measured.options.stride = usize::MAX),
    ("the KL positions", |r| r.measured.options.kl_positions = usize::MAX),
    ("the tokens after a prompt", |r| r.measured.options.new = usize::MAX),
    ("window 5: its counts", |r| r.numbers.windows[5].scored = 3_600_000_000_000),
    ("window 5: its counts", |r| r.numbers.windows[5].compared = usize::MAX),
    ("perplexity: the windows", |r| (r.measured.text.tokens, r.measured.options.stride) = MANY),
    ("agreement: it is not", |r| r.numbers.prompts[7].prefix = usize::MAX),
];

/// A text of more windows than fit into memory.
const MANY: (usize, usize) = (1 << 32, 1);

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

#[test]
fn a_claim_is_not_believed() {
    let mut forged = parting().record;
    forged.quality_passed = true;
    let says = "does not say what its numbers say";
    assert!(forgery(&forged.clone().sealed()).unwrap().contains(says));
    forged.claimed = record().claimed;
    assert!(forgery(&forged.clone().sealed()).unwrap().contains(says));
    forged.quality_passed = false;
    assert!(forgery(&forged.sealed()).unwrap().contains(says));
    let later = QualityRecord { schema_version: 3, ..record() }.judged();
    assert_eq!(forgery(&later).unwrap(), "the quality record's version is 3");
}

#[test]
fn controls_that_cannot_be() {
    type Forge = fn(&mut Control, &mut OwnControl);
    let forgeries: [(&str, Forge); 13] = [
        ("control: it is not what its prompts sum to", |c, _| c.agreement.greedy = 0.95),
        ("control: its numbers cannot be", |c, _| c.prompts[0].greedy = 65),
        ("control: its numbers cannot be", |c, _| c.prompts[5].forced = 1_064),
        ("control: its numbers cannot be", |c, _| c.prompts[7].prefix = usize::MAX),
        ("control: it is of other prompts", |c, _| c.prompt_ids_sha256.push('0')),
        ("control: it is of other weights", |c, _| c.tensors_sha256.push('0')),
        ("control: it is another one", |c, _| c.sha256.replace_range(..1, "x")),
        ("control: it is of another number of prompts", |c, _| c.prompts.truncate(99)),
        ("control: it is of another number of prompts", |c, _| c.prompts.clear()),
        ("own control: it is not what its prompts sum to", |_, o| o.agreement.greedy = 0.95),
        ("own control: its numbers cannot be", |_, o| o.prompts[0].prefix = usize::MAX),
        ("own control: its numbers cannot be", |_, o| o.prompts[0].forced = 65),
        ("own control: it is of another number", |_, o| o.prompts.truncate(99)),
    ];
    for (index, (said, forge)) in forgeries.iter().enumerate() {
        let mut forged = record();
        let (mut control, mut own) = (forged.control.unwrap(), forged.own_control.unwrap());
        forge(&mut control, &mut own);
        if index > 0 {
            control.agreement = Agreement::of(&control.prompts, 64);
        }
        (forged.control, forged.own_control) = (Some(control), Some(own));
        let forged = forged.sealed();
        let reasons = record_refusals(&forged);
        assert!(reasons.iter().any(|reason| reason.contains(said)), "{index} {said}: {reasons:?}");
        assert!(forgery(&forged).is_some(), "{index} {said}");
    }
}

/// The file of this kind beside a record.
fn beside(folder: &Path, kind: &str) -> PathBuf {
    let mut files = folder.read_dir().unwrap().flatten().map(|entry| entry.path());
    let begins = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(kind);
    files.find(begins).unwrap()
}

#[test]
fn a_record_without_its_tokens_is_not_believed() {
    for kind in ["tokens-", "control-"] {
        let folder = tempfile::tempdir().unwrap();
        let path = parting().write(folder.path()).unwrap();
        let file = beside(folder.path(), kind);
        let text = std::fs::read_to_string(&file).unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let doubt = || Kept::read(&path).unwrap().doubt;
        assert_eq!(doubt(), None);
        for changed in [text.replacen('1', "2", 1), String::new(), "[".repeat(100_000)] {
            std::fs::write(&file, changed).unwrap();
            assert_eq!(doubt().unwrap(), format!("{name} is not the file that the record names"));
        }
        std::fs::write(&file, vec![b' '; (16 << 20) + 1]).unwrap();
        assert!(doubt().unwrap().contains("larger than the 16 MiB"));
        std::fs::remove_file(&file).unwrap();
        assert!(doubt().unwrap().starts_with(&name), "{:?}", doubt());
    }
}

/// Scores that some tokens may have, but not these.
fn other(scores: &mut [PromptScore]) {
    for score in scores {
        *score = PromptScore { greedy: 64, prefix: 64, forced: 64 };
    }
}

#[test]
fn counts_that_the_tokens_do_not_give_are_refused() {
    let doubt = |forge: fn(&mut QualityRecord)| {
        let folder = tempfile::tempdir().unwrap();
        let mut outcome = parting();
        forge(&mut outcome.record);
        outcome.record = outcome.record.judged();
        assert_eq!(forgery(&outcome.record), None, "it is consistent by itself");
        Kept::read(&outcome.write(folder.path()).unwrap()).unwrap().doubt
    };
    assert_eq!(doubt(|_| ()), None);
    let found = doubt(|r| {
        other(&mut r.numbers.prompts);
        r.numbers.agreement = Agreement::of(&r.numbers.prompts, 64);
    });
    assert_eq!(found.unwrap(), "the agreement is not what the tokens give");
    let found = doubt(|r| {
        let own = r.own_control.as_mut().unwrap();
        other(&mut own.prompts);
        own.agreement = Agreement::of(&own.prompts, 64);
    });
    assert_eq!(found.unwrap(), "the own control is not what the tokens give");
    let found = doubt(|r| {
        let control = r.control.as_mut().unwrap();
        other(&mut control.prompts);
        control.agreement = Agreement::of(&control.prompts, 64);
    });
    assert_eq!(found.unwrap(), "the control is not what its file says");
    let found = doubt(|r| r.tokens_sha256 = Some("é".repeat(32)));
    assert_eq!(found.unwrap(), "its tokens file has no hash");
    let found = doubt(|r| r.tokens_sha256 = Some(String::new()));
    assert_eq!(found.unwrap(), "its tokens file has no hash");
}

#[test]
fn tokens_of_other_prompts_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut outcome = whole();
    outcome.tokens.prompt_ids_sha256.push('0');
    let sha256 = sha256_hex(outcome.tokens.to_json().as_bytes());
    outcome.record.tokens_sha256 = Some(sha256);
    outcome.record = outcome.record.judged();
    let kept = Kept::read(&outcome.write(folder.path()).unwrap()).unwrap();
    assert_eq!(kept.doubt.unwrap(), "the tokens are of other prompts");
}

/// A folder of this repository's results.
fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/2026-11-30-h200-01")
}

#[test]
fn records_of_version_1_are_judged_by_their_numbers() {
    for (name, greedy, forced) in [
        ("quality-fp8-flag-fp8-3f85a2bf7473298d-ffaada56.json", 0.538, 0.966),
        ("quality-fp8-flag-fp8-9a2911d93e6734a7-ad75c055.json", 0.342, 0.956),
    ] {
        let kept = Kept::read(&committed().join(name)).unwrap();
        assert_eq!(kept.doubt, None, "{name}");
        let record = kept.record;
        assert!(record.quality_passed, "it was judged by the rule of its day");
        let agreement = &record.numbers.agreement;
        assert!((agreement.greedy - greedy).abs() < 0.001, "{agreement:?}");
        assert!((agreement.forced - forced).abs() < 0.001, "{agreement:?}");
        let verdicts = record.verdicts();
        assert!(!verdicts.as_written.passed && verdicts.after_the_same_text.passed);
        assert_ne!(record_refusals(&record), [""; 0], "{name}");
        assert_eq!(record.file_name(), name);
        let mut forged = record.clone();
        forged.numbers.agreement.greedy = 0.95;
        assert!(forgery(&forged.clone()).unwrap().contains("was changed"));
        assert!(forgery(&forged.sealed()).unwrap().contains("not what the prompts sum to"));
    }
}

#[test]
fn hostile_records_of_version_1_end_at_once() {
    let name = "quality-fp8-flag-fp8-9a2911d93e6734a7-ad75c055.json";
    let record = QualityRecord::read(&committed().join(name)).unwrap();
    let forgeries: [Forgery; 4] = [
        ("window 5: its counts", |r| r.numbers.windows[5].scored = 3_600_000_000_000),
        ("the text's tokens", |r| {
            (r.measured.text.tokens, r.measured.options.stride) = (1 << 60, 1);
        }),
        ("control: its numbers", |r| r.control.as_mut().unwrap().prompts[5].forced = 1_064),
        ("control: its numbers", |r| r.control.as_mut().unwrap().prompts[7].prefix = usize::MAX),
    ];
    for (said, forge) in forgeries {
        let mut forged = record.clone();
        forge(&mut forged);
        assert!(forgery(&forged).unwrap().contains("was changed"), "{said}");
        let doubt = forgery(&forged.sealed()).unwrap();
        assert!(doubt.contains(said), "{said}: {doubt}");
    }
}

#[test]
fn a_record_is_of_one_engine() {
    let own = record().measured.candidate;
    let cases: [fn(&mut Ours); 12] = [
        |s| s.engine.push('0'),
        |s| s.variant.push('0'),
        |s| s.format.push('0'),
        |s| s.gpu.push('0'),
        |s| s.blocks += 1,
        |s| s.build.push('0'),
        |s| s.kernels = Some(String::new()),
        |s| s.cubin_sha256 = Some(String::new()),
        |s| s.nvrtc = Some("13.0.1".into()),
        |s| s.commit = Some("another".into()),
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
