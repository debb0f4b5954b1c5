//! `predict`: a table, a comparison with a committed run, and a fit to it.

use crate::measure::root;
use crate::support::Place;

/// The shipped numbers.
fn shipped() -> serde_json::Value {
    let file = std::fs::read(root("crates/harness/src/predict/h200.json")).unwrap();
    serde_json::from_slice(&file).unwrap()
}

/// The committed run that they were fitted to, with rows, probes and X-rays.
fn run() -> String {
    root(&format!("results/{}", shipped()["origin"]["run"].as_str().unwrap()))
}

/// How many rows they were fitted to.
fn fitted_to() -> usize {
    shipped()["origin"]["fitted_to"].as_array().unwrap().len()
}

/// The errors of a comparison's rows, in percent: of those fitted to, and of the others.
fn errors(table: &str) -> (Vec<f64>, Vec<f64>) {
    let (mut fitted, mut held_out) = (Vec::new(), Vec::new());
    for line in table.lines().filter(|line| line.contains("| tg256 @")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let error: f64 = cells[6].trim_end_matches('%').parse().unwrap();
        if line.contains("held out") { held_out.push(error) } else { fitted.push(error) }
    }
    (fitted, held_out)
}

#[test]
fn a_gpu_that_nobody_measured_is_predicted_and_said_to_be() {
    let text = Place::new().succeeds(&["predict", "--gpu", "rtx-5090"]);
    for part in [
        "Predicted, not measured",
        "| bf16 | qwen3-0.6b | tg256 @ d16 |",
        "| fp8 | qwen3-0.6b | tg256 @ d2048 |",
        shipped()["origin"]["run"].as_str().unwrap(),
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let more = ["predict", "--shape", "tiny", "--format", "fp8", "-d", "0,64", "-n", "8"];
    let text = Place::new().succeeds(&more);
    assert!(text.contains("| fp8 | tiny | tg8 @ d64 |") && !text.contains("bf16"), "{text}");
}

#[test]
fn the_shipped_numbers_predict_rows_that_they_were_not_fitted_to() {
    let text = Place::new().succeeds(&["predict", "--check", &run()]);
    let (fitted, held_out) = errors(&text);
    assert_eq!(fitted.len(), fitted_to(), "{text}");
    assert!(held_out.len() >= fitted.len(), "{text}");
    // The worst is the tiny model's at 1,024 (notes/prediction.md).
    assert!(fitted.iter().chain(&held_out).all(|error| error.abs() < 8.0), "{text}");
}

#[test]
fn a_fit_gives_the_shipped_numbers_again() {
    let place = Place::new();
    let text =
        place.succeeds(&["predict", "--calibrate", &run(), "-d", "16,512,2048", "-o", "own.json"]);
    assert_eq!(errors(&text).0.len(), fitted_to(), "{text}");
    let own: serde_json::Value =
        serde_json::from_slice(&std::fs::read(place.path("own.json")).unwrap()).unwrap();
    let shipped = shipped();
    assert_eq!(own["origin"], shipped["origin"]);
    for name in ["layer_us", "group_us", "batch_us", "exchange_us", "launch_us", "argmax_us"] {
        let of = |file: &serde_json::Value| file["parameters"][name].as_f64().unwrap();
        assert!((of(&own) - of(&shipped)).abs() < 1e-3 * of(&shipped), "{name}: {own}");
    }
    let same = place.succeeds(&["predict", "--calibration", "own.json"]);
    assert_eq!(same, place.succeeds(&["predict"]));
}

#[test]
fn what_cannot_be_predicted_is_named() {
    let place = Place::new();
    place.fails(&["predict", "--gpu", "t4"], 2, "its bandwidth and clock are not known");
    place.fails(&["predict", "--shape", "nope"], 2, "neither a named shape");
    place.fails(&["predict", "--calibration", "none.json"], 2, "none.json");
    place.fails(&["predict", "--check", "none"], 2, "none: no folder of a run");
    place.fails(&["predict", "--out", "x"], 2, "--calibrate");
    place.fails(&["predict", "--calibrate", &run(), "-d", "77"], 1, "no verified row");
    let cpu = root("results/2026-11-30-cpu-01");
    place.fails(&["predict", "--check", &cpu], 2, "no prediction for");
    place.fails(&["predict", "--calibrate", &cpu], 2, "no trace of a GPU's step");
}
