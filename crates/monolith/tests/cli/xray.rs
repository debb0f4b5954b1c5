//! `run --xray`: the file, and what happens where there can be none; `xray`: what it says.

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
    // What recording costs was measured, and is said.
    assert!(trace.meta().pace.is_some_and(|pace| pace.headline_tok_s > 0.0), "{}", seen.stderr);
    assert!(seen.stderr.contains("tok/s unrecorded; recording takes"), "{}", seen.stderr);
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
    assert!(trace(&place).meta().pace.is_some());
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
        (".", ". cannot be written: it is not a regular file"),
        ("/dev/null", "/dev/null cannot be written: it is not a regular file"),
        ("", "--xray"),
    ] {
        let code = if path.is_empty() { 2 } else { 1 };
        let args = ["run", "-m", model.to_str().unwrap(), "-p", "x", "--xray", path];
        place.fails(&args, code, message);
    }
}

/// A place with a dump of one step in it, `x.xray`.
fn recorded() -> Place {
    let place = Place::new();
    run(&place, &["-n", "3", "-p", "x", "-t", "2", "-q", "--xray", "x.xray", "--xray-at", "2"]);
    place
}

#[test]
fn a_dump_is_written_where_its_name_asks_for_it() {
    let place = recorded();
    let dump = monolith_xray::dump_file::read(&std::fs::read(place.path("x.xray")).unwrap());
    let dump = dump.unwrap();
    assert_eq!((dump.model.as_str(), dump.blocks.len()), ("tiny", 2));
}

#[test]
fn a_recorded_step_is_analyzed() {
    let place = recorded();
    let text = place.succeeds(&["xray", "analyze", "x.xray"]);
    assert!(text.contains("\ntoken ") && text.contains(" on 2 threads: "), "{text}");
    for part in ["% unrecorded", "critical path: ", "wait_exchange qkv", "tiny, bf16-cpu"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json = place.succeeds(&["xray", "analyze", "x.xray", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let token = json["token_ns"].as_u64().unwrap();
    let totals = json["path"]["totals"].as_object().unwrap();
    assert_eq!(totals.values().map(|ns| ns.as_u64().unwrap()).sum::<u64>(), token);
    assert_eq!(json["blocks"].as_array().unwrap().len(), 2);
}

#[test]
fn the_pages_trace_is_analyzed_too() {
    let place = recorded();
    let written = place.succeeds(&["xray", "export", "x.xray", "--to", "page"]);
    assert_eq!(written, "x.json.gz\n");
    assert_eq!(trace(&place).meta().blocks, 2);
    let analyze = |file| place.succeeds(&["xray", "analyze", file]);
    assert_eq!(analyze("x.json.gz"), analyze("x.xray"));
}

#[test]
fn every_format_is_written_beside_the_dump_or_where_asked() {
    let place = recorded();
    for (format, name) in [
        ("perfetto", "x.pftrace"),
        ("chrome", "x.chrome-trace.json"),
        ("speedscope", "x.speedscope.json"),
        ("csv", "x.csv"),
        ("png", "x.png"),
    ] {
        // The second time it replaces its own.
        for _ in 0..2 {
            let written = place.succeeds(&["xray", "export", "x.xray", "--to", format]);
            assert_eq!(written, format!("{name}\n"));
        }
        assert!(!std::fs::read(place.path(name)).unwrap().is_empty());
        let other = ["xray", "export", "x.xray", "--to", format, "-o", "other"];
        assert_eq!(place.succeeds(&other), "other\n");
        std::fs::remove_file(place.path("other")).unwrap();
    }
    let csv = std::fs::read_to_string(place.path("x.csv")).unwrap();
    assert!(csv.starts_with("block,"), "{csv}");
    assert!(std::fs::read(place.path("x.png")).unwrap().starts_with(b"\x89PNG"));
}

#[test]
fn what_is_no_recorded_step() {
    let place = recorded();
    let dump = std::fs::read(place.path("x.xray")).unwrap();
    std::fs::write(place.path("cut.xray"), &dump[..dump.len() - 1]).unwrap();
    std::fs::write(place.path("notes.txt"), "notes").unwrap();
    for (file, code, message) in [
        ("none.xray", 2, "none.xray: No such file"),
        ("cut.xray", 1, "cut.xray: the dump's body has"),
        ("notes.txt", 1, "notes.txt is neither a dump (.xray) nor a page"),
    ] {
        place.fails(&["xray", "analyze", file], code, message);
        place.fails(&["xray", "export", file, "--to", "csv", "-o", "x.csv"], code, message);
        assert!(!place.path("x.csv").exists());
    }
}

#[test]
fn what_is_not_replaced() {
    let place = recorded();
    std::fs::write(place.path("notes.txt"), "notes").unwrap();
    for format in ["page", "perfetto", "chrome", "speedscope", "csv", "png"] {
        let onto = |file, code, message| {
            let args = ["xray", "export", "x.xray", "--to", format, "-o", file];
            place.fails(&args, code, message);
        };
        onto("notes.txt", 1, "notes.txt exists and is no ");
        onto("x.xray", 2, "x.xray is the input file");
    }
    assert_eq!(std::fs::read(place.path("notes.txt")).unwrap(), b"notes");
    place.fails(&["xray", "export", "x.xray", "--to", "pdf"], 2, "perfetto");
    place.fails(&["xray", "export", "x.xray"], 2, "--to");
    place.fails(&["xray"], 2, "analyze");
}

#[test]
fn positions_that_cannot_be_recorded() {
    let (place, model) = (Place::new(), tiny());
    std::fs::write(place.path("notes.txt"), "notes").unwrap();
    let base = ["xray", "record", "-m", model.to_str().unwrap(), "--engine", "cpu", "-q"];
    let largest = usize::MAX.to_string();
    for (args, message) in [
        (["--at", "4090", "-n", "64"], "does not fit in 4096 positions"),
        (["--at", &largest, "-n", "64"], "does not fit in 4096 positions"),
        (["--at", "16", "-n", &largest], "does not fit in 4096 positions"),
        (["--at", "16,16", "-n", "4"], "--at 16: named twice"),
        (["--at", "16", "-o", "notes.txt"], "--out notes.txt: not a folder"),
    ] {
        place.fails(&[&base[..], &args].concat(), 2, message);
    }
    assert_eq!(place.path("").read_dir().unwrap().count(), 1, "nothing is written");
}
