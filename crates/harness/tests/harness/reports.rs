//! Reports: one GPU a table, and no speed without a gate.

use crate::bench::measure;
use crate::{environment, record, reference_dir};
use monolith_harness::HarnessError;
use monolith_harness::bench::Row;
use monolith_harness::environment::Environment;
use monolith_harness::gate::{ROWS, Rule};
use monolith_harness::report::{render, run_readme, write_readme};
use monolith_harness::runs::{Index, RunFolder};
use std::path::Path;

/// A run of the CPU engine with its rows.
pub fn measured(results: &Path) -> (RunFolder, Vec<Row>) {
    let filled = || -> Result<(RunFolder, Vec<Row>), HarnessError> {
        let folder = RunFolder::open(results, &environment())?;
        folder.add_gate(&record(), &reference_dir())?;
        let rows = measure(&folder.path)?.0;
        folder.add_rows(&rows)?;
        folder.add_command("a command", &["a version".into()])?;
        Ok((folder, rows))
    };
    filled().expect("a gated engine is measured")
}

fn median(row: &Row) -> String {
    format!("{:.0} (", row.tok_s_median.unwrap_or(0.0))
}

#[test]
fn gated_rows_have_a_speed_and_others_a_reason() {
    let results = tempfile::tempdir().unwrap();
    let (folder, rows) = measured(results.path());
    let text = render(results.path()).unwrap();
    rows.iter().for_each(|row| assert!(text.contains(&median(row)), "{text}"));
    let compared = record().checks.logits.rows;
    assert!(compared < ROWS, "the fixture's reference is a small one");
    assert!(text.contains(&format!("| passed, {compared} of {ROWS} logits rows |")), "{text}");
    let readme = run_readme(&folder).unwrap();
    for part in ["a command", "a version", "passed; ", &median(&rows[0])] {
        assert!(readme.contains(part), "{part}: {readme}");
    }
    let peer = |gate_passed, speed| Row {
        engine: "peer".into(),
        test: format!("test of {speed}"),
        tok_s_median: Some(speed),
        gate_passed,
        ..rows[1].clone()
    };
    let mut forged = Row { tok_s_median: Some(777_777.0), ..rows[1].clone() };
    forged.build.push('0');
    let ruled = Row { gate_rule: Some(Rule::F32Settles), ..rows[2].clone() };
    let fewer = Row { gate_rows: Some(1), ..rows[0].clone() };
    let added = [forged, ruled, fewer, peer(None, 111_111.0), peer(Some(false), 222_222.0)];
    folder.add_rows(&added).unwrap();
    let text = render(results.path()).unwrap();
    assert!(text.contains("111111") && text.contains("another build"), "{text}");
    assert!(text.contains("another rule"), "{text}");
    assert!(text.contains("another number of logits rows"), "{text}");
    assert!(!text.contains("777777") && !text.contains("222222 "), "{text}");
    // The forged row is the test's last: it hides the one before.
    assert!(!text.contains(&median(&rows[1])), "{text}");
}

#[test]
fn without_the_gate_record_there_is_no_speed() {
    let results = tempfile::tempdir().unwrap();
    let (folder, rows) = measured(results.path());
    std::fs::remove_file(folder.path.join(record().file_name())).unwrap();
    let text = render(results.path()).unwrap();
    assert!(text.contains("no gate record"), "{text}");
    rows.iter().for_each(|row| assert!(!text.contains(&median(row)), "{text}"));
}

#[test]
fn gpus_never_share_a_table() {
    let results = tempfile::tempdir().unwrap();
    let (folder, rows) = measured(results.path());
    let other = Environment {
        gpu: "Another GPU".into(),
        kind: "gpu".into(),
        run_id: "another run".into(),
        ..environment()
    };
    let second = RunFolder::open(results.path(), &other).unwrap();
    assert!(second.name.ends_with("-another-01"), "{}", second.name);
    assert_eq!(RunFolder::open(results.path(), &other).unwrap(), second);
    assert!(second.add_rows(&rows).is_err(), "rows of another run");
    let row = Row {
        engine: "peer".into(),
        gpu: "Another GPU".into(),
        run_id: "another run".into(),
        ..rows[0].clone()
    };
    second.add_rows(&[row]).unwrap();
    let text = render(results.path()).unwrap();
    let (gpu, cpu) = text.split_once(&format!("### {}", environment().gpu)).unwrap();
    assert!(gpu.contains("### Another GPU") && gpu.contains("| peer |"), "{text}");
    assert!(!gpu.contains("| monolith |") && !cpu.contains("| peer |"), "{text}");
    let index = Index::read(results.path()).unwrap();
    let names: Vec<&str> = index.runs.iter().map(|run| run.folder.as_str()).collect();
    assert_eq!(names, [folder.name, second.name]);
}

/// A later run that measured less does not take the engines of the earlier one out of the table;
/// one that measured as much does.
#[test]
fn the_table_is_of_the_fullest_run() {
    let results = tempfile::tempdir().unwrap();
    let row = |run: &str, variant: &str| Row {
        engine: "peer".into(),
        variant: variant.into(),
        run_id: run.into(),
        gate_passed: None,
        ..measured(tempfile::tempdir().unwrap().path()).1[0].clone()
    };
    let add = |run: &str, rows: &[Row]| {
        let environment = Environment { run_id: run.into(), ..environment() };
        RunFolder::open(results.path(), &environment).unwrap().add_rows(rows).unwrap();
        let text = render(results.path()).unwrap();
        let (_, measured) = text.split_once("Measured in [results/").unwrap();
        measured.split(']').next().unwrap().to_owned()
    };
    let first = add("first", &[row("first", "a"), row("first", "b")]);
    assert_eq!(add("second", &[row("second", "a")]), first);
    let third = add("third", &[row("third", "a"), row("third", "c")]);
    assert_ne!(third, first);
}

/// Names of engines and models come from other programs and from files.
#[test]
fn hostile_names_stay_in_their_cells() {
    let results = tempfile::tempdir().unwrap();
    let (folder, rows) = measured(results.path());
    let hostile = "a|b\u{1b}[31m\n| c <img src=x>\u{202e}";
    let row = |gate_passed| Row {
        engine: "peer".into(),
        variant: hostile.into(),
        model: hostile.into(),
        gate_passed,
        ..rows[0].clone()
    };
    folder.add_rows(&[row(None), Row { engine: "other".into(), ..row(Some(false)) }]).unwrap();
    let readme = run_readme(&folder).unwrap();
    for text in [render(results.path()).unwrap(), readme] {
        assert!(!text.contains(|c: char| c.is_control() && c != '\n' || c == '\u{202e}'), "{text}");
        assert!(!text.contains(" <img") && !text.contains("\n| c"), "{text}");
        let cell = r"a\|b\u{1b}\[31m\u{a}\| c \<img src=x\>\u{202e}";
        assert!(text.contains(&format!("| peer | {cell} |")), "{text}");
        assert!(text.contains(&format!("- other {cell} (")), "{text}");
    }
}

#[test]
fn no_results_say_so() {
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(render(empty.path()).unwrap(), "Nothing was measured yet.\n");
}

#[test]
fn a_folders_readme_is_the_report_of_what_is_in_it() {
    let results = tempfile::tempdir().unwrap();
    let (folder, _) = measured(results.path());
    write_readme(&folder).unwrap();
    let path = folder.path.join("README.md");
    let first = std::fs::read_to_string(&path).unwrap();
    assert_eq!(first, run_readme(&folder).unwrap());
    folder.add_command("one more command", &[]).unwrap();
    write_readme(&folder).unwrap();
    let second = std::fs::read_to_string(&path).unwrap();
    assert!(!first.contains("one more command") && second.contains("one more command"));
}
