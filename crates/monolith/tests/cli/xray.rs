//! `run --xray`: the file, and what happens where there can be none.

use crate::support::{PROMPT, Place, tiny};
use monolith_xray::{Trace, page};

fn run(place: &Place, args: &[&str]) -> String {
    let model = tiny();
    place.succeeds(&[&["run", "-m", model.to_str().unwrap()], args].concat())
}

fn trace(place: &Place) -> Trace {
    page::read(&std::fs::read(place.path("x.json.gz")).unwrap()).unwrap()
}

#[test]
fn the_page_reads_the_trace() {
    let (place, model) = (Place::new(), tiny());
    let base = ["run", "-n", "6", "-p", PROMPT, "-t", "2", "-m", model.to_str().unwrap()];
    let plain = place.succeeds(&base);
    let xray = ["--xray", "x.json.gz", "--xray-at", "4"];
    let seen = place.run(&[&base[..], &xray].concat());
    assert_eq!((seen.code, seen.stdout), (0, plain), "{}", seen.stderr);
    assert!(seen.stderr.contains("X-ray of position 33 -> x.json.gz"), "{}", seen.stderr);
    let trace = trace(&place);
    assert_eq!(trace.meta().model, "tiny");
    assert_eq!(trace.meta().position, 33);
    assert_eq!(trace.meta().blocks, 2);
    assert!(place.path("").read_dir().unwrap().count() == 1, "nothing is left beside it");
}

#[test]
fn a_text_that_ends_before_has_its_last_step_recorded() {
    let place = Place::new();
    run(&place, &["-p", "x", "--xray", "x.json.gz", "--xray-at", "4000", "-q"]);
    let json = run(&place, &["-p", "x", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["stopped"], "end of text");
    assert_eq!(u64::from(trace(&place).meta().position), json["n_gen"].as_u64().unwrap());
}

#[test]
fn one_token_records_the_prompts_last_step() {
    let place = Place::new();
    run(&place, &["-n", "1", "-p", PROMPT, "--xray", "x.json.gz"]);
    assert_eq!(trace(&place).meta().position, 29);
}

#[test]
fn json_stays_one_object() {
    let place = Place::new();
    let text = run(&place, &["--json", "-n", "3", "-p", "x", "--xray", "x.json.gz"]);
    assert!(serde_json::from_str::<serde_json::Value>(&text).unwrap().is_object());
    trace(&place);
}

/// Found out before anything is generated: standard output is empty.
#[test]
fn a_trace_that_cannot_be_written_is_refused_at_once() {
    let (place, model) = (Place::new(), tiny());
    for (path, message) in [
        ("none/x.gz", "none/x.gz cannot be written: No such file or directory (os error 2)\n"),
        (".", ". cannot be written: it is no regular file"),
        ("/dev/null", "/dev/null cannot be written: it is no regular file"),
        ("", "--xray"),
    ] {
        let code = if path.is_empty() { 2 } else { 1 };
        let args = ["run", "-m", model.to_str().unwrap(), "-p", "x", "--xray", path];
        place.fails(&args, code, message);
    }
}
