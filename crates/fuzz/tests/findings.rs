//! What finds faults finds each kind: in parsers with an injected one.

#![allow(clippy::unwrap_used, reason = "a test, helpers and all")]

use assert_cmd::Command;
use std::time::Duration;

/// Runs the program; its exit code and its text.
fn fuzz(parser: &str, out: &std::path::Path, options: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::cargo_bin("monolith-fuzz").unwrap();
    command.args(["--parser", parser, "--hang-s", "1", "--jobs", "1", "--out"]).arg(out);
    let output = command.args(options).timeout(Duration::from_secs(100)).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

/// Every finding's number, input and words.
fn findings(text: &str) -> Vec<(u64, String)> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("FOUND: "));
    let number = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "input").unwrap();
        words[at + 1].parse().unwrap()
    };
    lines.map(|line| (number(line), line.to_owned())).collect()
}

/// Every faulty input of a small run is found, kept, and found again by its number alone.
fn finds(parser: &str, inputs: u64, what: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (code, text) = fuzz(parser, folder.path(), &["--inputs", &inputs.to_string()]);
    let found = findings(&text);
    assert_eq!(code, Some(1), "{text}");
    assert!(!found.is_empty() && (found.len() as u64) < inputs, "{text}");
    assert!(text.contains(&format!("{inputs} inputs in ")), "none is left out: {text}");
    for number in 0..inputs {
        let said = found.iter().find(|(at, _)| *at == number);
        let kept = folder.path().join(format!("{parser}-1-{number}"));
        assert_eq!(kept.exists(), said.is_some(), "input {number}: {text}");
        if let Some((_, words)) = said {
            assert!(words.contains(what), "{words}");
            assert_eq!(std::fs::read(kept).unwrap(), [1]);
        }
    }
    let (first, _) = &found[0];
    let again = ["--from", &first.to_string(), "--inputs", "1"];
    let (code, text) = fuzz(parser, folder.path(), &again);
    assert_eq!((code, findings(&text).len()), (Some(1), 1), "{text}");
}

#[test]
fn a_panic_is_found() {
    finds("injected-panic", 40, "panic: panicked at");
}

#[test]
fn an_abort_is_found() {
    finds("injected-abort", 12, "abort (signal: 6");
}

#[test]
fn an_input_that_does_not_end_is_found() {
    finds("injected-hang", 16, "does not end within 1 s");
}

#[test]
fn an_input_that_takes_too_much_memory_is_found() {
    finds("injected-memory", 12, "memory allocation of 1099511627776 bytes failed");
}

#[test]
fn injected_faults_take_no_part_in_a_run() {
    let listed = Command::cargo_bin("monolith-fuzz").unwrap().arg("--list").output().unwrap();
    assert!(!String::from_utf8(listed.stdout).unwrap().contains("injected"));
}
