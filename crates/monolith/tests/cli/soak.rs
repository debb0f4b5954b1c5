//! `soak`: the same texts again and again.

use crate::measure::prepared;

#[test]
fn a_soak_repeats_its_texts_and_keeps_a_record() {
    let place = prepared();
    let few = ["-n", "90", "--steps", "4", "-t", "2", "--engine", "cpu"];
    let command = ["soak", "-m", "fixture.pack", "--ids", "ids.json", "-o", "soak.json"];
    let text = place.succeeds(&[&command[..], &few].concat());
    for part in ["92 of 90 tokens", "differ from the first time: 0", "first pass", "passed"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let record: serde_json::Value =
        serde_json::from_slice(&std::fs::read(place.path("soak.json")).unwrap()).unwrap();
    assert_eq!((&record["passed"], &record["complete"]), (&true.into(), &true.into()));
    // Three texts are of the second pass: 20 prompts, four tokens each.
    assert_eq!((&record["texts"], &record["prompts"]), (&23.into(), &20.into()), "{record}");
    assert_eq!(record["tokens_sha256"].as_str().map(str::len), Some(64));
}

#[test]
fn a_time_limit_ends_a_soak_with_a_record() {
    let place = prepared();
    let command = ["soak", "-m", "fixture.pack", "--ids", "ids.json", "--limit", "0.001"];
    let text = place.succeeds(&[&command[..], &["-n", "1000000", "-t", "2"]].concat());
    assert!(text.contains("the time limit came before the last token"), "{text}");
    let short = ["soak", "-m", "fixture.pack", "--ids", "ids.json", "--context", "1"];
    place.fails(&short, 1, "no prompt is shorter than the context of 1 positions");
    place.fails(&["soak", "-n", "0"], 2, "--tokens");
}
