//! The exit codes, as `monolith --help` documents them: a case of every kind, and its code. (3 for
//! what a GPU lacks is also tested in `src/engine.rs`, 5 in `measure.rs` and `quality.rs`, 6 in
//! `hub.rs`, 130 in `interrupt.rs`.)

use crate::measure::prepared;
use crate::support::{Place, outcome, replace};

/// A place with everything that a case may need.
fn place() -> Place {
    let place = prepared();
    place.model("m");
    place.model("no-config");
    std::fs::remove_file(place.path("no-config/config.json")).unwrap();
    place.model("no-weights");
    std::fs::remove_file(place.path("no-weights/model.safetensors")).unwrap();
    place.model("no-tokenizer");
    std::fs::remove_file(place.path("no-tokenizer/tokenizer.json")).unwrap();
    replace(&place.model("damaged").join("model.safetensors"), b"no weights");
    let pack = std::fs::read(place.path("fixture.pack")).unwrap();
    replace(&place.path("cut.pack"), &pack[..pack.len() / 2]);
    replace(&place.path("notes.txt"), b"notes");
    std::fs::create_dir(place.path("results-of-nothing")).unwrap();
    place
}

#[test]
fn every_kind_of_end_has_its_code() {
    let place = place();
    let cases: [(i32, &[&str]); 50] = [
        // Success.
        (0, &["run", "-m", "m", "-p", "x", "-n", "1"]),
        (0, &["bench", "-m", "fixture.pack", "-d", "0", "-n", "1", "-r", "1", "--no-prompts"]),
        (0, &["report"]),
        (0, &["report", "--results", "results-of-nothing"]),
        (0, &["doctor"]),
        (0, &["inspect", "fixture.pack"]),
        // Failure: something is damaged, differs, or may not be replaced.
        (1, &["run", "-m", "damaged", "-p", "x"]),
        (1, &["bench", "-m", "cut.pack"]),
        (1, &["inspect", "cut.pack"]),
        (1, &["diff", "-m", "m", "--tolerance", "0", "--tokens", "1"]),
        (1, &["pack", "-m", "m", "-o", "notes.txt"]),
        (1, &["ids", "-m", "m", "-o", "/nowhere/ids.json", "--prompts", "notes.txt"]),
        (1, &["bench", "-m", "m", "--ids", "notes.txt"]),
        (1, &["synth", "--shape", "tiny", "-o", "m"]),
        (1, &["xray", "analyze", "notes.txt"]),
        (1, &["xray", "fault"]),
        // Wrong usage: a command, an option or a value that cannot be, or a file that an option
        // names and that is not there.
        (2, &[]),
        (2, &["rnu"]),
        (2, &["run", "-m", "m", "--promt", "x"]),
        (2, &["run", "-m", "m", "-p", ""]),
        (2, &["run", "-m", "m", "-f", "nope"]),
        (2, &["run", "-m", "m", "-p", "x", "--context", "4097"]),
        (2, &["run", "-m", "m/config.json", "-p", "x"]),
        (2, &["pack", "-m", "fixture.pack", "-o", "x.pack"]),
        (2, &["inspect", "m"]),
        (2, &["synth", "--shape", "nope", "-o", "x"]),
        (2, &["pull", "a/b/c"]),
        (2, &["diff", "-m", "m", "--tokens", "4096"]),
        (2, &["ids", "-m", "m", "-o", "x.json", "--prompts", "nope"]),
        (2, &["gate", "-m", "m", "--reference", "nope"]),
        (2, &["gate", "-m", "fixture.pack"]),
        (2, &["bench", "-m", "m", "--ids", "nope"]),
        (2, &["bench", "-m", "fixture.pack", "-n", "1000", "-d", "0", "--no-prompts"]),
        (2, &["bench", "-m", "fixture.pack", "--format", "fp8"]),
        (2, &["quality", "-m", "m", "--format", "fp8", "--text", "nope"]),
        (2, &["quality", "-m", "m", "--format", "fp8", "--prompts", "nope"]),
        (2, &["report", "--results", "nope"]),
        (2, &["xray", "analyze", "nope"]),
        (2, &["xray", "fault", "nope"]),
        (2, &["xray", "record", "-m", "m", "--ids", "nope"]),
        // No usable engine.
        (3, &["run", "-m", "m", "-p", "x", "--engine", "cuda"]),
        (3, &["bench", "-m", "m", "--engine", "cuda"]),
        (3, &["doctor", "--engine", "cuda"]),
        // The model or one of its files is missing.
        (4, &["run", "-m", "/nowhere", "-p", "x"]),
        (4, &["run", "-m", "org/name", "-p", "x"]),
        (4, &["run", "-m", "no-config", "-p", "x"]),
        (4, &["run", "-m", "no-weights", "-p", "x"]),
        (4, &["run", "-m", "no-tokenizer", "-p", "x"]),
        (4, &["inspect", "nope.pack"]),
        // A gate has not passed.
        (5, &["bench", "-m", "fixture.pack", "--require-gate"]),
    ];
    for (code, args) in cases {
        let seen = place.run(args);
        assert_eq!(seen.code, code, "{args:?}: {}", seen.stderr);
        // `doctor` shows what can run, whatever its verdict.
        let quiet = code == 0 || args.first() == Some(&"doctor");
        assert!(quiet || seen.stdout.is_empty(), "{args:?}: {}", seen.stdout);
        assert!(code == 0 || !seen.stderr.is_empty(), "{args:?} says nothing");
    }
}

/// A remote end that is not there.
#[test]
fn a_remote_end_that_fails_is_a_six() {
    let place = Place::new();
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = place.command(&["pull", "org/name"]);
    let seen = outcome(command.env("HF_ENDPOINT", format!("http://{gone}")));
    assert_eq!(seen.code, 6, "{}", seen.stderr);
}

/// What the help says and what the manual says are the codes that there are.
#[test]
fn the_help_documents_every_code() {
    let text = Place::new().succeeds(&["--help"]);
    for code in ["0", "1", "2", "3", "4", "5", "6", "7", "130"] {
        assert!(text.contains(&format!("\n  {code}  ")), "{code}: {text}");
    }
}
