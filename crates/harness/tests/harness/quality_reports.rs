//! How reports show quality records: both verdicts, the controls, and what a model's card says.

use crate::environment;
use crate::quality_forgery::{parting, record, whole};
use monolith_harness::quality::{Outcome, QualityRecord};
use monolith_harness::report::{render, run_readme};
use monolith_harness::runs::RunFolder;

/// The measurement with another record.
fn with(outcome: Outcome, change: fn(&mut QualityRecord)) -> Outcome {
    let mut record = outcome.record;
    change(&mut record);
    Outcome { record: record.sealed(), ..outcome }
}

/// What the stand-in's card says.
const CARD: &str = "not for judging weight formats";

/// The measurement as one of the stand-in's weights, without controls.
fn as_the_stand_in(mut outcome: Outcome) -> Outcome {
    let hash = "1f3703527e2493651fc564c81520ec8da103705fe1d5fabadd769e387ef7da06";
    let record = &mut outcome.record;
    record.measured.tensors_sha256 = Some(hash.into());
    record.measured.control_sha256 = None;
    (record.control, record.own_control) = (None, None);
    outcome.record = outcome.record.judged();
    outcome
}

#[test]
fn a_speed_stands_beside_its_own_quality() {
    let results = tempfile::tempdir().unwrap();
    let (folder, rows) = crate::reports::measured(results.path());
    assert!(!render(results.path()).unwrap().contains(" quality |"));
    let row = &rows[0];
    let mut of_row = parting();
    of_row.record.measured.candidate = row.subject().ours().unwrap().clone();
    of_row.record.measured.reference.build = row.build.clone();
    of_row.record = of_row.record.judged();
    let mut of_others = of_row.clone();
    of_others.record.measured.candidate.blocks += 1;
    of_others.record = of_others.record.sealed();
    folder.add_quality(&of_others).unwrap();
    assert!(!render(results.path()).unwrap().contains(" quality |"));
    folder.add_quality(&of_row).unwrap();
    let text = render(results.path()).unwrap();
    assert!(text.contains(" gate | quality |"), "{text}");
    let share = format!("{:.1}%", 100.0 * of_row.record.numbers.agreement.greedy);
    let gate = "| passed, 80 of 320 logits rows |";
    let cell = format!("{gate} not as written: {share} of greedy tokens agree (90% asked), ");
    assert!(text.contains(&cell), "{cell}: {text}");
    assert!(text.contains("% perplexity; after the same text: 9"), "{text}");
    let mut good = whole();
    good.record.measured = of_row.record.measured.clone();
    good.record = good.record.judged();
    folder.add_quality(&good).unwrap();
    let text = render(results.path()).unwrap();
    let cell = format!("{gate} as written: 100.0% of greedy tokens agree, +");
    assert!(text.contains(&cell), "{cell}: {text}");
    assert!(!text.contains(CARD), "{text}");
    // What a model's card says is said once for both tables.
    folder.add_quality(&as_the_stand_in(good)).unwrap();
    let text = render(results.path()).unwrap();
    assert!(text.contains(&cell) && text.contains("| not measured | not measured |"), "{text}");
    assert_eq!(text.matches(CARD).count(), 1, "{text}");
}

#[test]
fn both_verdicts_and_both_controls_are_shown() {
    let results = tempfile::tempdir().unwrap();
    let folder = RunFolder::open(results.path(), &environment()).unwrap();
    folder.add_quality(&whole()).unwrap();
    folder
        .add_quality(&with(parting(), |r| {
            r.measured.model = "parting".into();
            r.measured.candidate.weights_sha256 = "parting".into();
        }))
        .unwrap();
    folder
        .add_quality(&with(whole(), |r| {
            r.numbers.perplexity.candidate = 1.2345;
            r.measured.candidate.weights_sha256 = "forged".into();
        }))
        .unwrap();
    folder
        .add_quality(&with(whole(), |r| {
            r.measured.candidate.run_id = "elsewhere".into();
            r.measured.reference.run_id = "elsewhere".into();
            r.measured.candidate.weights_sha256 = "elsewhere".into();
        }))
        .unwrap();
    let pair = |greedy: f64, forced: f64| format!("{:.1}%, {:.1}%", 100.0 * greedy, 100.0 * forced);
    let record = record();
    let own = record.own_control.as_ref().map(|own| &own.agreement).unwrap();
    let control = record.control.as_ref().map(|control| &control.agreement).unwrap();
    let controls =
        format!("{} | {}", pair(own.greedy, own.forced), pair(control.greedy, control.forced));
    for text in [render(results.path()).unwrap(), run_readme(&folder).unwrap()] {
        let head = "| as written | after the same text | our bf16 and f32 | transformers' bf16 and";
        assert!(text.contains(head), "{text}");
        let line = format!("| **passed** | passed | {controls} | counting.txt | 10000 |");
        assert!(text.contains("| counting | fake | fp8 | 1.") && text.contains(&line), "{text}");
        let line = format!("| **failed** | passed | {controls} | counting.txt | 10000 |");
        assert!(text.contains(&line), "{line}: {text}");
        assert!(text.contains("fake (fp8) on parting: agreement: "), "{text}");
        assert!(!text.contains("1.2345"), "{text}");
        let said = ["contradicts itself: perplexity", "measured in another run"];
        said.iter().for_each(|said| assert!(text.contains(said), "{text}"));
    }
    // What contradicts its tokens is not shown either.
    let tokens = folder.path.read_dir().unwrap().flatten().map(|entry| entry.path());
    let is_tokens = |path: &std::path::PathBuf| path.to_string_lossy().contains("tokens-");
    tokens.filter(is_tokens).for_each(|path| std::fs::write(path, "{}").unwrap());
    let text = render(results.path()).unwrap();
    assert!(text.contains("is not the file that the record names"), "{text}");
    assert!(!text.contains("| counting.txt |"), "{text}");
}

#[test]
fn the_stand_ins_card_stands_beside_its_figures() {
    let results = tempfile::tempdir().unwrap();
    let folder = RunFolder::open(results.path(), &environment()).unwrap();
    folder.add_quality(&whole()).unwrap();
    assert!(!render(results.path()).unwrap().contains(CARD));
    // Under whatever name.
    let mut standin = whole();
    standin.record.measured.model = "some name".into();
    standin.record.measured.candidate.weights_sha256 = "standin".into();
    folder.add_quality(&as_the_stand_in(standin)).unwrap();
    let text = render(results.path()).unwrap();
    assert!(text.contains(&format!("some name: the stand-in is {CARD}: most of every")), "{text}");
    assert!(text.contains("| not measured | not measured | counting.txt"), "{text}");
}
