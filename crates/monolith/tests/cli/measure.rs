//! `ids`, `gate`, `bench`, `report`: from a model to a speed, and what stands in the way.

use crate::fixture;
use crate::support::{Outcome, Place, replace, tiny};
use monolith_model::{MemoryWeights, Tensor, Weights};
use monolith_pack::{Source, pack_to_bytes};
use std::path::{Path, PathBuf};

/// What `tools/reference.py` says of the harness's fixture.
fn reference() -> String {
    root("crates/harness/tests/data/fixture")
}

pub fn root(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    path.canonicalize().unwrap().to_str().unwrap().to_owned()
}

fn write_pack(place: &Place, name: &str, weights: &dyn Weights) {
    let source = Source { model: "fixture".into(), revision: None };
    replace(&place.path(name), &pack_to_bytes(weights, source));
}

/// A place with the fixture's pack and its prompts' ids.
pub fn prepared() -> Place {
    let place = Place::new();
    write_pack(&place, "fixture.pack", &fixture::weights());
    let prompts = root("data/prompts/bench.jsonl");
    let args = ["ids", "-m", "fixture.pack", "--prompts", &prompts, "-o", "ids.json"];
    assert_eq!(place.succeeds(&args), "");
    place
}

fn gate(place: &Place, model: &str) -> Outcome {
    place.run(&["gate", "-m", model, "--reference", &reference(), "-t", "2"])
}

/// `bench` of little, with more arguments.
fn bench(place: &Place, more: &[&str]) -> Outcome {
    let few = ["-d", "16,99", "-r", "2", "-n", "8", "--no-prompts", "-t", "2"];
    place.run(&[&["bench", "-m", "fixture.pack", "--ids", "ids.json"], &few[..], more].concat())
}

/// The one run's folder.
pub fn run_folder(place: &Place) -> PathBuf {
    let entries = place.path("results").read_dir().unwrap();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    folders.retain(|path| path.is_dir());
    assert_eq!(folders.len(), 1, "{folders:?}");
    folders.remove(0)
}

#[test]
fn a_speed_needs_a_gate_and_keeps_needing_it() {
    let place = prepared();
    bench(&place, &["--require-gate"]).is_failure(5, "results holds no gate of this machine");
    assert!(!place.path("results").exists(), "a refusal leaves no run");

    let gated = gate(&place, "fixture.pack");
    assert_eq!(gated.code, 0, "{}", gated.stderr);
    assert_eq!(gated.stderr.matches(" passed ").count(), 8, "{}", gated.stderr);
    let record = place.path(gated.stdout.trim_end());
    assert_eq!(record.parent(), Some(&*run_folder(&place)));
    let rule =
        "the reference settles the rule, a token may differ only below the margin's tolerance";
    assert!(gated.stderr.contains(rule), "{}", gated.stderr);
    // What it was judged by lies beside it, under the hash that the record has.
    let judged: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&record).unwrap()).unwrap();
    let sha256 = judged["reference"]["sha256"].as_str().unwrap();
    let kept = run_folder(&place).join(format!("reference-{}.json", &sha256[..8]));
    let said = std::fs::read(Path::new(&reference()).join("reference.json")).unwrap();
    assert_eq!(std::fs::read(kept).unwrap(), said);

    let measured = bench(&place, &["-o", "jsonl", "--energy", "0.1"]);
    assert_eq!(measured.code, 0, "{}", measured.stderr);
    assert!(measured.stderr.contains("no energy counter"), "{}", measured.stderr);
    let rows: Vec<serde_json::Value> =
        measured.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let tests: Vec<&str> = rows.iter().map(|row| row["test"].as_str().unwrap()).collect();
    assert_eq!(tests, ["tg8 @ d16", "tg8 @ d99"]);
    assert!(rows[0]["scope"].as_str().unwrap().starts_with("decode only, argmax included"));
    assert_eq!(rows[0]["samples_ts"].as_array().unwrap().len(), 2);
    let kept = std::fs::read_to_string(run_folder(&place).join("rows.jsonl")).unwrap();
    assert_eq!(kept, measured.stdout);
    let commands = std::fs::read_to_string(run_folder(&place).join("commands.jsonl")).unwrap();
    assert!(commands.contains("monolith bench -m fixture.pack --ids ids.json -d 16,99"));

    let report = place.succeeds(&["report"]);
    let passed = "| passed, 80 of 320 logits rows |";
    assert!(report.contains("tg8 @ d99") && report.contains(passed), "{report}");

    bench(&place, &["--threads", "1"]).is_failure(2, "cannot be used multiple times");
    let other = ["bench", "-m", "fixture.pack", "--ids", "ids.json", "-t", "1"];
    place.fails(
        &[&other[..], &["--require-gate"]].concat(),
        5,
        "another number of blocks: 2, not 1",
    );
    let text = std::fs::read_to_string(&record).unwrap();
    replace(&record, text.replace("\"exempt\": ", "\"exempt\": 1").as_bytes());
    bench(&place, &["--require-gate"]).is_failure(5, "the gate record was changed");
    let report = place.succeeds(&["report"]);
    assert!(report.contains("not shown") && !report.contains("| passed"), "{report}");
}

/// No gate, a failed one, an altered record, or other options: marked, and kept nowhere.
#[test]
fn without_a_gate_the_numbers_are_marked_and_kept_nowhere() {
    let place = prepared();
    let is_unverified = |more: &[&str], why: &str| {
        let files = place.files();
        let seen = bench(&place, &[&["-o", "json", "-oe", "md"], more].concat());
        assert_eq!(seen.code, 0, "{}", seen.stderr);
        let said = "bench: unverified, and nothing is written: ";
        assert!(seen.stderr.contains(said), "{}", seen.stderr);
        assert!(seen.stderr.contains(why), "{why}: {}", seen.stderr);
        assert!(seen.stderr.contains("| *unverified* | decode only"), "{}", seen.stderr);
        let rows: Vec<serde_json::Value> = serde_json::from_str(&seen.stdout).unwrap();
        assert_eq!(rows.len(), 2);
        for row in &rows {
            assert_eq!((&row["gate_passed"], &row["gate_sha256"]), (&false.into(), &().into()));
            assert!(row["tok_s_median"].as_f64().unwrap() > 0.0);
        }
        assert_eq!(place.files(), files, "nothing is written");
    };
    is_unverified(&[], "results holds no gate of this machine since it started");
    assert!(!place.path("results").exists());
    let gated = gate(&place, "fixture.pack");
    assert_eq!(gated.code, 0, "{}", gated.stderr);
    let record = place.path(gated.stdout.trim_end());
    let text = std::fs::read_to_string(&record).unwrap();
    replace(&record, text.replace("\"exempt\": ", "\"exempt\": 1").as_bytes());
    is_unverified(&[], "the gate record was changed");
    let report = place.succeeds(&["report"]);
    assert!(!report.contains("tg8"), "{report}");
}

/// From a fresh clone to a verified speed of the shipped model, on its own reference and prompts.
#[test]
fn the_shipped_model_is_gated_and_measured_in_two_commands() {
    let (place, model) = (Place::new(), tiny());
    let model = model.to_str().unwrap();
    let gated = place.run(&["gate", "-m", model]);
    assert_eq!(gated.code, 0, "{}", gated.stderr);
    let record = std::fs::read(place.path(gated.stdout.trim_end())).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
    let reference = std::fs::read(root("data/golden/tiny-reference") + "/reference.json").unwrap();
    let sha256 = monolith_harness::identity::sha256_hex(&reference);
    assert_eq!(record["reference"]["sha256"], sha256);
    let measured = place.run(&["bench", "-m", model, "-d", "16", "-n", "16", "-o", "json"]);
    assert_eq!(measured.code, 0, "{}", measured.stderr);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&measured.stdout).unwrap();
    assert!(rows.len() == 2 && rows.iter().all(|row| row["gate_passed"] == true), "{rows:?}");
}

/// What the gate needs is there, and of the shipped weights and prompts.
#[test]
fn the_committed_reference_is_found_by_the_weights() {
    let (place, model) = (Place::new(), tiny());
    let model = model.to_str().unwrap();
    place.fails(&["gate", "-m", model, "--context", "9"], 2, "sets it to 4096: omit it");
    let other = ["gate", "-m", model, "--format", "fp8"];
    place.fails(&other, 2, "no folder data/golden holds a reference of the weights of");
    let reference = root("data/golden/tiny-reference");
    let reference = monolith_harness::reference::Reference::open(Path::new(&reference)).unwrap();
    let prompts = monolith_harness::prompts::bench_ids(Path::new(model), 4096).unwrap();
    assert_eq!(reference.summary.prompt_ids_sha256, prompts.ids_sha256());
}

#[test]
fn a_gate_of_other_weights_fails_and_says_what() {
    let place = prepared();
    let weights = fixture::weights();
    let other = MemoryWeights::from_fn(weights.config(), |tensor, row, col| {
        let value = if tensor.is_norm() && tensor != Tensor::FinalNorm {
            weights.view(tensor).at(0, col)
        } else {
            weights.view(tensor).at(row, col)
        };
        if tensor == Tensor::FinalNorm { -value.to_f32() } else { value.to_f32() }
    });
    write_pack(&place, "other.pack", &other);
    let seen = gate(&place, "other.pack");
    assert_eq!(seen.code, 5, "{}", seen.stderr);
    assert!(place.path(seen.stdout.trim_end()).is_file(), "{}", seen.stdout);
    let lines = seen.stderr.lines().map(|line| line.split_whitespace().take(2).collect());
    let lines: Vec<Vec<&str>> = lines.collect();
    for check in [["weights", "FAILED"], ["tokens", "FAILED"], ["decode", "passed"]] {
        assert!(lines.contains(&check.to_vec()), "{check:?}: {}", seen.stderr);
    }
    assert!(seen.stderr.contains("the gate failed: weights: the reference read other weights"));
    // The weights' own gate is still to be run.
    bench(&place, &["--require-gate"]).is_failure(5, "run `monolith gate` in this run first");
    // And a record under these weights' name does not become theirs by that.
    let failed = place.path(seen.stdout.trim_end());
    assert!(gate(&place, "fixture.pack").code == 0, "the fixture's gate passes");
    let folder = failed.parent().expect("the run's folder");
    let names = std::fs::read_dir(folder).expect("the run's folder");
    let own = names
        .map(|entry| entry.expect("an entry").path())
        .find(|path| path != &failed && path.display().to_string().contains("/gate-"))
        .expect("the fixture's record");
    std::fs::copy(&failed, &own).expect("a copy");
    bench(&place, &["--require-gate"]).is_failure(5, "another weights");
}

#[test]
fn ids_come_from_the_tokenizer_where_there_is_one() {
    let (place, model, prompts) = (Place::new(), tiny(), root("data/prompts/bench.jsonl"));
    let args = ["ids", "-m", model.to_str().unwrap(), "--prompts", &prompts, "-o", "ids.json"];
    let seen = place.run(&args);
    assert_eq!((seen.code, seen.stdout.as_str()), (0, ""), "{}", seen.stderr);
    assert!(seen.stderr.contains("20 prompts") && seen.stderr.contains("tokenizer"));
    let text = std::fs::read(place.path("ids.json")).unwrap();
    let written: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(written["ids"].as_array().unwrap().len(), 20);
    place.fails(&["ids", "-m", "/nowhere", "-o", "x"], 4, "/nowhere");
    let missing = ["ids", "-m", model.to_str().unwrap(), "--prompts", "none.jsonl", "-o", "x"];
    place.fails(&missing, 2, "none.jsonl");
}

#[test]
fn arguments_that_cannot_be() {
    let place = Place::new();
    let bench = |option: &[&str], named: &str| {
        place.fails(&[&["bench", "--ids", "x"], option].concat(), 2, named);
    };
    bench(&["-r", "0"], "--repetitions");
    bench(&["-n", "8-4"], "--n-gen");
    bench(&["-p", "1-8*1"], "--n-prompt");
    bench(&["-d", "16,-1"], "--n-depth");
    bench(&["-d", ""], "--n-depth");
    bench(&["-o", "xml"], "md, csv, json, jsonl, sql");
    bench(&["-oe", "xml"], "md, csv, json, jsonl, sql");
    bench(&["--bandwidth-gb-s", "4000"], "--bandwidth-source");
    bench(&["--bandwidth-source", "a probe"], "--bandwidth-gb-s");
    bench(&["--bandwidth-gb-s", "0", "--bandwidth-source", "x"], "--bandwidth-gb-s");
    bench(&["--variant", "fp4"], "no kernel variant `fp4`; there are: bf16-flag");
    bench(&["--engine", "cpu", "--blocks", "4"], "options of the CUDA engine");
    bench(&["--blocks", "4", "--threads", "4"], "cannot be used with");
    bench(&["--blocks", "0"], "--blocks");
    bench(&["--energy", "0"], "--energy");
    place.fails(&["bench", "--ids", "x", "--blocks", "4"], 3, "GPU");
    place.fails(&["bench", "--ids", "none.json"], 2, "none.json");
    place.fails(&["gate", "--reference", "none"], 2, "none/reference.json");
    let none = ["bench", "-m", "fixture.pack", "-n", "0"];
    let place = prepared();
    place.fails(&none, 2, "-p, -n and the prompts ask for none");
    place.fails(&[&none[..], &["-p", "900"]].concat(), 2, "pp900 needs 900 positions");
    let context = ["gate", "--reference", &reference(), "--context", "9"];
    place.fails(&context, 2, "omit it");
}

#[test]
fn a_report_of_nothing_says_so() {
    let place = Place::new();
    assert_eq!(place.succeeds(&["report"]), "Nothing was measured yet.\n");
    place.fails(&["report", "--results", "nope"], 2, "--results nope: no such folder");
}
