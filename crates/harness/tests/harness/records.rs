//! Run folders that were torn, edited or copied together: what is wrong is said, and the rest
//! shows.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use crate::reports::measured;
use crate::{environment, record, reference, reference_dir};
use monolith_harness::bench::Row;
use monolith_harness::environment::Environment;
use monolith_harness::gate::{GateRecord, contradictions};
use monolith_harness::report::{Report, render, run_readme};
use monolith_harness::runs::{Index, RunFolder};
use std::path::Path;

fn edit(path: &Path, change: impl FnOnce(String) -> String) {
    let text = std::fs::read_to_string(path).unwrap();
    std::fs::write(path, change(text)).unwrap();
}

/// A second run, of another GPU, with a row of another engine.
fn second(results: &Path, row: &Row) -> RunFolder {
    let other = Environment {
        gpu: "Another GPU".into(),
        kind: "gpu".into(),
        run_id: "another run".into(),
        ..environment()
    };
    let folder = RunFolder::open(results, &other).unwrap();
    let row = Row {
        engine: "peer".into(),
        gpu: other.gpu,
        run_id: other.run_id,
        gate_passed: None,
        ..row.clone()
    };
    folder.add_rows(&[row]).unwrap();
    folder
}

fn shows(text: &str, rows: &[Row]) -> bool {
    rows.iter().all(|row| text.contains(&format!("{:.0} (", row.tok_s_median.unwrap_or(0.0))))
}

/// Wherever a write of rows or commands ended, the rows before it have their table, and the next
/// row begins on a line of its own.
#[test]
fn a_torn_last_line_takes_nothing_away() {
    let results = tempfile::tempdir().unwrap();
    let (folder, rows) = measured(results.path());
    for name in ["rows.jsonl", "commands.jsonl"] {
        let path = folder.path.join(name);
        let whole = std::fs::read_to_string(&path).unwrap();
        let last = whole.trim_end().rfind('\n').map_or(0, |at| at + 1);
        for end in [last + 1, usize::midpoint(last, whole.len()), whole.len() - 2] {
            std::fs::write(&path, format!("{whole}{}", &whole[last..end])).unwrap();
            let report = Report::of(results.path()).unwrap();
            assert_eq!(report.problems, [""; 0]);
            assert!(shows(&report.text, &rows), "{}", report.text);
            assert!(report.text.contains(&format!("{name}: line ")), "{}", report.text);
            let removed = match name {
                "rows.jsonl" => folder.add_rows(&rows[..1]).unwrap(),
                _ => folder.add_command("another command", &[]).unwrap(),
            };
            assert!(removed.is_some_and(|what| what.contains(name)));
            let text = render(results.path()).unwrap();
            assert!(shows(&text, &rows) && !text.contains("incomplete"), "{text}");
            let count = whole.lines().count() + 1;
            assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), count);
            std::fs::write(&path, &whole).unwrap();
        }
    }
}

#[test]
fn a_wrong_line_is_named_and_other_runs_have_their_tables() {
    for name in ["rows.jsonl", "commands.jsonl"] {
        let results = tempfile::tempdir().unwrap();
        let (folder, rows) = measured(results.path());
        second(results.path(), &rows[0]);
        edit(&folder.path.join(name), |text| format!("{{\"half\": \n{text}"));
        let report = Report::of(results.path()).unwrap();
        let wanted = format!("{name}: line 1: ");
        assert!(report.problems.iter().any(|what| what.contains(&wanted)), "{report:?}");
        assert!(report.text.contains("| peer |") && report.text.contains(&wanted), "{report:?}");
        assert!(!shows(&report.text, &rows[1..]), "{report:?}");
    }
}

/// Tables go by `environment.json`: an index that says something else shows nothing.
#[test]
fn an_index_that_contradicts_the_environment_is_refused() {
    for (field, value) in [("gpu", "A faster GPU"), ("kind", "gpu"), ("date", "1999-01-01")] {
        let results = tempfile::tempdir().unwrap();
        let (folder, rows) = measured(results.path());
        second(results.path(), &rows[0]);
        edit(&results.path().join("index.json"), |text| {
            let mut index: serde_json::Value = serde_json::from_str(&text).unwrap();
            index["runs"][0][field] = value.into();
            index.to_string()
        });
        let report = Report::of(results.path()).unwrap();
        let named = |what: &String| {
            what.contains("index.json") && what.contains("environment.json") && what.contains(value)
        };
        assert!(report.problems.iter().any(named), "{report:?}");
        assert!(!report.text.contains(&format!("### {value}")), "{report:?}");
        assert!(!shows(&report.text, &rows[1..]) && report.text.contains("| peer |"), "{report:?}");
        assert!(RunFolder::open(results.path(), &environment()).is_err(), "{}", folder.name);
    }
}

#[test]
fn folders_that_are_missing_double_or_unlisted_are_said() {
    let results = tempfile::tempdir().unwrap();
    let (folder, rows) = measured(results.path());
    let other = second(results.path(), &rows[0]);
    let problems = |word: &str| {
        let report = Report::of(results.path()).unwrap();
        assert!(report.problems.iter().any(|what| what.contains(word)), "{word}: {report:?}");
        report.text
    };
    let whole = std::fs::read_to_string(results.path().join("index.json")).unwrap();
    let set = |runs: &[&str]| {
        let index: Index = serde_json::from_str(&whole).unwrap();
        let of = |name: &&str| index.runs.iter().find(|run| run.folder == **name).unwrap().clone();
        let index = Index { runs: runs.iter().map(of).collect() };
        std::fs::write(results.path().join("index.json"), serde_json::to_string(&index).unwrap())
            .unwrap();
    };
    set(&[&folder.name, &other.name, &folder.name]);
    let text = problems(&format!("index.json lists {} twice", folder.name));
    assert!(shows(&text, &rows), "{text}");
    set(&[&other.name]);
    problems(&format!("index.json does not list {}", folder.name));
    set(&[&folder.name, &other.name]);
    std::fs::remove_dir_all(&other.path).unwrap();
    let text = problems(&format!("{}/environment.json", other.name));
    assert!(shows(&text, &rows), "{text}");
    // A copy of a run under another name is the same run.
    std::fs::create_dir(&other.path).unwrap();
    for entry in std::fs::read_dir(&folder.path).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), other.path.join(entry.file_name())).unwrap();
    }
    edit(&results.path().join("index.json"), |text| {
        let mut index: serde_json::Value = serde_json::from_str(&text).unwrap();
        let name = index["runs"][1]["folder"].clone();
        index["runs"][1] = index["runs"][0].clone();
        index["runs"][1]["folder"] = name;
        index.to_string()
    });
    problems("are both of run");
}

/// What can be recomputed from a folder is: without the reference, with another one, or with one
/// that says something else, there is no speed.
#[test]
fn a_gate_needs_its_reference_in_the_folder() {
    let results = tempfile::tempdir().unwrap();
    let (folder, rows) = measured(results.path());
    let path = folder.path.join(format!("reference-{}.json", &record().reference.sha256[..8]));
    let whole = std::fs::read_to_string(&path).unwrap();
    let hidden = |word: &str| {
        let text = render(results.path()).unwrap();
        assert!(!shows(&text, &rows) && text.contains(word), "{word}: {text}");
    };
    std::fs::remove_file(&path).unwrap();
    hidden("reference is not in the run's folder");
    std::fs::write(&path, whole.replacen("1", "2", 1)).unwrap();
    hidden("and the gate names");
    std::fs::write(&path, &whole).unwrap();
    assert!(shows(&render(results.path()).unwrap(), &rows));
    // A record that was made to say otherwise, and sealed again.
    let mut forged = record();
    let at = &mut forged.checks.tokens.divergences[0];
    (at.expected, at.f32) = (at.expected ^ 1, at.f32 ^ 1);
    forged.sealed().write(&folder.path).unwrap();
    hidden("has other tokens");
}

/// A change of a record, and the word for it.
type Change = (&'static str, fn(&mut GateRecord));

#[test]
fn a_record_is_compared_with_its_reference() {
    let summary = &reference().summary;
    assert_eq!(contradictions(&record(), summary), [""; 0]);
    let changes: [Change; 10] = [
        ("weights", |r| r.reference.tensors_sha256.push('0')),
        ("prompts", |r| r.prompt_ids_sha256.push('0')),
        ("tolerance", |r| r.reference.tolerance *= 2.0),
        ("errors in bf16", |r| r.reference.error.rms *= 2.0),
        ("versions", |r| r.reference.engine.push('0')),
        ("number of prompts", |r| r.checks.tokens.prompts += 1),
        ("near ties", |r| r.checks.tokens.near_ties += 1),
        ("tokens", |r| r.checks.tokens.divergences[0].step = usize::MAX),
        ("context", |r| r.checks.context.sequence += 1),
        ("vocabulary", |r| r.checks.rows.vocab += 1),
    ];
    for (word, change) in changes {
        let mut record = record();
        change(&mut record);
        let found = contradictions(&record, summary);
        assert!(found.len() == 1 && found[0].ends_with(word), "{word}: {found:?}");
    }
}

/// Records of version 1 kept the reference of the last gate only: they are shown, and it is said.
#[test]
fn an_older_record_without_its_reference_says_so() {
    let results = tempfile::tempdir().unwrap();
    let (folder, rows) = measured(results.path());
    let mut older = record();
    older.schema_version = 1;
    older.subject.commit = None;
    let text = serde_json::to_value(older.clone()).unwrap();
    assert!(["cubin_sha256", "nvrtc", "commit"].iter().all(|n| text["subject"].get(n).is_none()));
    older.sealed().write(&folder.path).unwrap();
    let rows: Vec<Row> =
        rows.into_iter().map(|row| Row { schema_version: 1, commit: None, ..row }).collect();
    folder.add_rows(&rows).unwrap();
    std::fs::remove_file(
        folder.path.join(format!("reference-{}.json", &record().reference.sha256[..8])),
    )
    .unwrap();
    let text = render(results.path()).unwrap();
    assert!(shows(&text, &rows) && text.contains("kept no reference for the gate of"), "{text}");
    // The last gate's name then.
    let source = reference_dir().join("reference.json");
    std::fs::copy(source, folder.path.join("reference.json")).unwrap();
    let text = render(results.path()).unwrap();
    assert!(shows(&text, &rows) && !text.contains("kept no reference"), "{text}");
}

/// The committed runs: nothing is wrong with them, and what was shown is shown.
#[test]
fn committed_runs_are_read() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results");
    let report = Report::of(&results).unwrap();
    assert_eq!(report.problems, [""; 0]);
    for (run, shown) in [("2026-11-30-h200-01", 24), ("2026-11-29-cpu-01", 6)] {
        let folder = RunFolder::named(&results, run);
        let sorted = monolith_harness::report::sorted_rows(&folder).unwrap();
        assert_eq!((sorted.shown.len(), sorted.hidden.len()), (shown, 0), "{run}");
    }
}

#[test]
fn a_sealed_run_takes_nothing() {
    let results = tempfile::tempdir().unwrap();
    let (folder, _) = measured(results.path());
    let line = format!("{}  {}/rows.jsonl\n", "0".repeat(64), folder.name);
    std::fs::write(results.path().join("MANIFEST"), line).unwrap();
    let error = RunFolder::open(results.path(), &environment()).unwrap_err().to_string();
    assert!(error.contains("sealed") && error.contains(&folder.name), "{error}");
}

/// Text of a record stays text in its cell, whatever it is.
#[test]
fn no_record_writes_markup_or_control_characters() {
    let results = tempfile::tempdir().unwrap();
    let (folder, rows) = measured(results.path());
    let evil = "x|y\n## z\u{1b}[31m![i](u)<b>`";
    let row = Row {
        engine: evil.into(),
        variant: evil.into(),
        format: evil.into(),
        model: evil.into(),
        test: evil.into(),
        scope: evil.into(),
        gate_passed: None,
        ..rows[0].clone()
    };
    let failed = Row { gate_passed: Some(false), test: format!("{evil}2"), ..row.clone() };
    folder.add_rows(&[row, failed]).unwrap();
    folder.add_command(evil, &[evil.into()]).unwrap();
    let readme = run_readme(&folder).unwrap();
    for text in [render(results.path()).unwrap(), readme] {
        assert!(text.contains(r"x\|y\u{a}## z\u{1b}\[31m!\[i\](u)\<b\>\`"), "{text}");
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        assert!(!text.lines().any(|line| line.starts_with("## z")), "{text}");
    }
}
