//! `quality`: a weight format against bf16, from text to record.

use crate::measure::{prepared, root, run_folder};
use crate::support::{Outcome, Place, replace, tiny};

/// Tokens that follow a prompt.
const NEW: usize = 4;

/// Little of everything, on the fixture's pack.
const LITTLE: [&str; 17] = [
    "quality",
    "-m",
    "fixture.pack",
    "--candidate",
    "fixture.pack",
    "--text",
    "text.txt",
    "--window",
    "64",
    "--stride",
    "32",
    "-n",
    "4",
    "-t",
    "1",
    "--prompts",
    "prompts.jsonl",
];

/// A place with the fixture, a text and three prompts.
fn place() -> Place {
    let place = prepared();
    replace(&place.path("text.txt"), "A text of no great depth. ".repeat(20).as_bytes());
    let prompts = std::fs::read_to_string(root("data/prompts/quality.jsonl")).unwrap();
    let few: Vec<&str> = prompts.lines().take(3).collect();
    replace(&place.path("prompts.jsonl"), few.join("\n").as_bytes());
    place
}

fn quality(place: &Place, more: &[&str]) -> Outcome {
    place.run(&[&LITTLE[..], more].concat())
}

/// What transformers might say of the fixture: half of the tokens differ between bf16 and f32, and
/// token 1 is nowhere what the fixture says.
fn control(place: &Place, fed: &str) -> String {
    let ids = place.path("ids.json");
    let arguments = ["ids", "-m", "fixture.pack", "--prompts", "prompts.jsonl", "-o", "ids.json"];
    place.succeeds(&arguments);
    let ids: serde_json::Value = serde_json::from_slice(&std::fs::read(ids).unwrap()).unwrap();
    let ids: Vec<Vec<u32>> = serde_json::from_value(ids["ids"].clone()).unwrap();
    let pack = monolith_pack::Pack::open(&place.path("fixture.pack")).unwrap();
    let (bf16, f32) = (vec![vec![1; NEW]; ids.len()], {
        vec![[[1].repeat(NEW / 2), [2].repeat(NEW / 2)].concat(); ids.len()]
    });
    let json = serde_json::json!({
        "schema_version": 1, "engine": "transformers", "torch": "2", "transformers": "5",
        "attention": "eager", "device": "cpu",
        "tensors_sha256": monolith_harness::identity::tensors_sha256(&pack),
        "prompt_ids_sha256": monolith_harness::identity::ids_sha256(&ids),
        "bf16": bf16, "f32": f32, fed: f32,
    });
    json.to_string()
}

#[test]
fn too_little_is_measured_kept_and_does_not_pass() {
    let place = place();
    replace(&place.path("control.json"), control(&place, "f32_fed").as_bytes());
    let seen = quality(&place, &["--control", "control.json"]);
    assert_eq!(seen.code, 5, "{}", seen.stderr);
    let failed = "the quality gate failed as written: perplexity: 129 tokens scored";
    assert!(seen.stderr.contains(failed), "{}", seen.stderr);
    assert!(seen.stderr.contains("quality: window 1 of 4, step 1 of 63"), "{}", seen.stderr);
    assert!(seen.stderr.contains("+0.000% (129 tokens)"), "{}", seen.stderr);
    for line in [
        "as written (the gate): FAILED: perplexity: ",
        "after the same text: FAILED: perplexity: ",
        "control, this bf16 engine against f32: ",
        "control, bf16 against f32 (transformers 5, torch 2, bf16 and f32, eager attention, cpu): ",
        "50.00% of the greedy tokens agree, 0 of 3 texts are the same, 50.00% agree when f32 is",
    ] {
        assert!(seen.stderr.contains(line), "{line}: {}", seen.stderr);
    }
    let path = place.path(seen.stdout.trim_end());
    assert_eq!(path.parent(), Some(&*run_folder(&place)));
    let record: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(record["quality_passed"], false);
    assert_eq!(record["thresholds"]["perplexity_rise_max"], 0.02);
    assert_eq!(record["thresholds"]["agreement_min"], 0.9);
    assert_eq!(record["verdicts"]["as_written"]["passed"], false);
    assert_eq!(record["verdicts"]["after_the_same_text"]["passed"], false);
    let file = |kind: &str, sha256: &serde_json::Value| {
        let name = format!("{kind}-{}.json", &sha256.as_str().unwrap()[..8]);
        std::fs::read(run_folder(&place).join(name)).unwrap()
    };
    let said = std::fs::read(place.path("control.json")).unwrap();
    assert_eq!(file("control", &record["control"]["sha256"]), said);
    let tokens = file("tokens", &record["tokens_sha256"]);
    let tokens: serde_json::Value = serde_json::from_slice(&tokens).unwrap();
    assert_eq!(tokens["prompts"].as_array().unwrap().len(), 3);
    for list in ["reference", "candidate", "candidate_fed", "reference_fed"] {
        assert_eq!(tokens["prompts"][2][list].as_array().unwrap().len(), NEW, "{list}");
    }
    assert_eq!(record["measured"]["text"]["name"], "text.txt");
    assert_eq!(record["measured"]["options"]["stride"], 32);
    let numbers = &record["numbers"];
    assert_eq!(numbers["perplexity"]["reference"], numbers["perplexity"]["candidate"]);
    assert_eq!(numbers["agreement"]["greedy"], 1.0);
    let report = place.succeeds(&["report"]);
    assert!(report.contains("| **failed** | failed | "), "{report}");
    assert!(report.contains("| 50.0%, 50.0% | text.txt | 129 |"), "{report}");
    let commands = std::fs::read_to_string(run_folder(&place).join("commands.jsonl")).unwrap();
    assert!(commands.contains("monolith quality -m fixture.pack --candidate"), "{commands}");
    // What is edited is not shown.
    let text = std::fs::read_to_string(&path).unwrap();
    replace(
        &path,
        text.replace("\"quality_passed\": false", "\"quality_passed\": true").as_bytes(),
    );
    let report = place.succeeds(&["report"]);
    assert!(report.contains("the quality record was changed"), "{report}");
    assert!(!report.contains("| text.txt |"), "{report}");
}

#[test]
fn the_tiny_model_has_its_own_text() {
    let place = Place::new();
    let (model, prompts) = (tiny(), place.path("prompts.jsonl"));
    let line = "{\"id\": \"a\", \"chat\": false, \"text\": \"My fellow\"}\n";
    replace(&prompts, line.as_bytes());
    let args = ["quality", "-m", model.to_str().unwrap(), "--format", "fp8", "--prompts"];
    let less = ["prompts.jsonl", "--limit-tokens", "200", "--window", "128", "--stride", "64"];
    let seen = place.run(&[&args[..], &less, &["-n", "4"]].concat());
    assert_eq!(seen.code, 5, "{}", seen.stderr);
    let record = std::fs::read(place.path(seen.stdout.trim_end())).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
    let measured = &record["measured"];
    assert_eq!(measured["text"]["name"], "heldout.txt");
    assert_eq!(measured["text"]["tokens_whole"], 50_592);
    assert_eq!(measured["reference_formats"], "bf16");
    assert_eq!(measured["candidate_formats"], "fp8");
    let kl = record["numbers"]["kl"]["mean"].as_f64().unwrap();
    assert!(kl > 0.0 && kl < 0.1, "{kl}");
}

#[test]
fn after_ctrl_c_the_same_command_goes_on() {
    let place = place();
    let prompts = std::fs::read_to_string(root("data/prompts/quality.jsonl")).unwrap();
    replace(&place.path("prompts.jsonl"), prompts.as_bytes());
    replace(&place.path("text.txt"), "A text of no great depth. ".repeat(400).as_bytes());
    let mut running = place.start(&LITTLE);
    // The first of some eighty windows is done.
    running.until("a window", |running| running.stderr().contains("window 1 of "));
    running.interrupt();
    let seen = running.outcome();
    assert_eq!(seen.code, 130, "{}", seen.stderr);
    let said = &seen.stderr;
    assert!(said.contains("monolith: interrupted at window "), "{said}");
    assert!(said.contains("run the same command to continue"), "{said}");
    let seen = quality(&place, &[]);
    assert_eq!(seen.code, 5, "{}", seen.stderr);
    assert!(seen.stderr.contains("as written (the gate): FAILED"), "{}", seen.stderr);
}

#[test]
fn arguments_that_cannot_be() {
    let place = place();
    let refused = |more: &[&str], code: i32, named: &str| {
        quality(&place, more).is_failure(code, named);
        assert!(!place.path("results").join("index.json").exists(), "{named}");
    };
    refused(&["--context", "9"], 2, "omit it");
    refused(&["--limit-tokens", "1"], 2, "fewer than two tokens");
    refused(&["--limit-tokens", "0"], 2, "--limit-tokens");
    refused(&["--kl-positions", "0"], 2, "--kl-positions");
    refused(&["--control", "none.json"], 2, "none.json");
    replace(&place.path("other.json"), control(&place, "f32_fef").as_bytes());
    refused(&["--control", "other.json"], 1, "other.json: missing field `f32_fed`");
    refused(&["--candidate-format", "fp8"], 2, "fixture.pack is bf16");
    refused(&["--engine", "cuda"], 3, "GPU");
    refused(&["--engine", "cpu", "--blocks", "4"], 2, "cannot be used with");
    let fails = |args: &[&str], code: i32, named: &str| {
        place.fails(&[&["quality", "-m", "fixture.pack"], args].concat(), code, named);
    };
    fails(&[], 2, "--candidate");
    fails(&["--candidate", "nowhere.pack"], 4, "nowhere.pack");
    fails(&["--candidate", "fixture.pack"], 2, "no text: name one with --text");
    let own = ["--candidate", "fixture.pack", "--prompts", "prompts.jsonl", "--text"];
    fails(&[&own[..], &["none.txt"]].concat(), 2, "none.txt: no such text file");
    fails(&[&own[..], &["fixture.pack"]].concat(), 2, "it is not UTF-8");
    fails(&[&own[..], &["text.txt", "--window", "9", "--stride", "9"]].concat(), 2, "--stride 9");
    fails(&[&own[..], &["text.txt", "-n", "900"]].concat(), 2, "this model has 640");
    let tiny = tiny();
    let other = ["--candidate", tiny.to_str().unwrap(), "--prompts", "prompts.jsonl", "--text"];
    fails(&[&other[..], &["text.txt", "-n", "4"]].concat(), 2, "not the same model");
}
