//! The stopwatch: gated, and complete.

use crate::{environment, load, pack, prompts, record, reference_dir};
use monolith_harness::bench::{
    Bench, BenchOptions, Facts, Gate, Output, Roofline, Row, Test, rendered, row, run,
};
use monolith_harness::environment::{Probe, Target};
use monolith_harness::gate::GateRecord;
use monolith_harness::predict::{Calibration, Predictor};
use monolith_harness::runs::RunFolder;
use monolith_harness::{HarnessError, Progress};
use monolith_model::synth;
use monolith_pack::Formats;
use std::path::Path;

pub fn options() -> BenchOptions {
    // The CPU has no model of its own: any will do to see what a row records.
    let predictor = Predictor::new(Calibration::shipped(), "h200").expect("a known GPU");
    let roofline = Roofline { bandwidth_gb_s: 100.0, source: "a test".into() };
    BenchOptions {
        runs: 3,
        steps: vec![64],
        depths: vec![16, 512, 1024],
        roofline: Some(roofline),
        predictor: Some(predictor),
        ..BenchOptions::default()
    }
}

pub fn measure(folder: &Path) -> Result<(Vec<Row>, Vec<String>), HarnessError> {
    measure_with(&options(), |bench| bench.gate(folder).map(Some))
}

/// Measures what the options say, under the gate that is found.
fn measure_with(
    options: &BenchOptions,
    gate: impl FnOnce(&Bench) -> Result<Option<Gate>, HarnessError>,
) -> Result<(Vec<Row>, Vec<String>), HarnessError> {
    measure_telling(options, gate, &mut |_| ())
}

fn measure_telling(
    options: &BenchOptions,
    gate: impl FnOnce(&Bench) -> Result<Option<Gate>, HarnessError>,
    progress: &mut Progress,
) -> Result<(Vec<Row>, Vec<String>), HarnessError> {
    let (probe, environment, pack, prompts) =
        (Probe::new(Target::Cpu), environment(), pack(), prompts());
    let mut engine = load(pack.clone(), 640).expect("there is room");
    let mut bench = Bench {
        engine: &mut *engine,
        pack: &pack,
        prompts: &prompts,
        environment: &environment,
        probe: &probe,
    };
    let gate = gate(&bench)?;
    run(&mut bench, options, gate.as_ref(), progress)
}

/// Within a prompt too, unless it is timed.
#[test]
fn it_is_told_how_far_a_prompt_is() {
    let options = BenchOptions {
        runs: 1,
        steps: vec![4],
        depths: vec![16],
        prompt_lengths: vec![32],
        ..options()
    };
    let mut told = Vec::new();
    let mut tell = |what: &str| told.push(what.to_owned());
    measure_telling(&options, |_| Ok(None), &mut tell).unwrap();
    let is_told = |line: &str| told.iter().any(|told| told.starts_with(line));
    for line in ["tg4 @ d16, 1 of 16 tokens", "tg4 @ d16, 16 of 16 tokens", "pp32, run 1 of 1"] {
        assert!(is_told(line), "{line}: {told:?}");
    }
    let prompts = prompts().ids.len();
    assert!(is_told(&format!("tg4 @ prompts, run 1 of 1, prompt {prompts} of {prompts}, 1 of ")));
    assert!(!is_told("pp32, 1 of") && !is_told("pp32, run 1 of 1, "), "{told:?}");
}

#[test]
fn without_a_gate_a_speed_is_unverified_and_no_run_keeps_it() {
    let options = BenchOptions {
        runs: 2,
        steps: vec![8, 4],
        depths: vec![0, 16],
        prompt_lengths: vec![32],
        prompts: false,
        ..options()
    };
    let (rows, left_out) = measure_with(&options, |_| Ok(None)).unwrap();
    let tests: Vec<&str> = rows.iter().map(|row| row.test.as_str()).collect();
    assert_eq!(tests, ["pp32", "tg8", "tg8 @ d16", "tg4", "tg4 @ d16"]);
    assert!(left_out.is_empty());
    for row in &rows {
        assert_eq!((row.gate_passed, row.gate_rule, &row.gate_sha256), (Some(false), None, &None));
        assert!(row.tok_s_median.unwrap() > 0.0);
    }
    let prompt = &rows[0];
    assert_eq!((prompt.n_prompt, prompt.n_gen, prompt.n_depth), (32, 0, Some(0)));
    assert_eq!((prompt.gb_s, prompt.bytes_per_token, prompt.roofline_share), (None, None, None));
    assert!(prompt.scope.starts_with("prompt processing"), "{}", prompt.scope);
    let table = rendered(&rows, Output::Md);
    assert_eq!(table.matches("| *unverified* |").count(), rows.len(), "{table}");

    let results = tempfile::tempdir().unwrap();
    let folder = RunFolder::open(results.path(), &environment()).unwrap();
    let refused = folder.add_rows(&rows).unwrap_err().to_string();
    assert!(refused.contains("the row of pp32 is unverified"), "{refused}");
    assert_eq!(folder.rows().unwrap(), []);
}

#[test]
fn there_is_no_speed_without_a_gate() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |word: &str| match measure(folder.path()).unwrap_err() {
        HarnessError::Ungated { reasons } => {
            assert!(reasons.iter().any(|reason| reason.contains(word)), "{reasons:?}");
        }
        other => panic!("{other}"),
    };
    refused("run `monolith gate`");
    let mut forged = record();
    forged.subject.run_id = "another".into();
    forged.sealed().write(folder.path()).unwrap();
    refused("another run");
    let failed = GateRecord { passed: false, ..record() };
    failed.write(folder.path()).unwrap();
    refused("did not pass");
}

#[test]
fn a_gated_engine_is_measured() {
    let results = tempfile::tempdir().unwrap();
    let folder = RunFolder::open(results.path(), &environment()).unwrap();
    folder.add_gate(&record(), &reference_dir()).unwrap();
    let (rows, left_out) = measure(&folder.path).unwrap();
    let tests: Vec<&str> = rows.iter().map(|row| row.test.as_str()).collect();
    assert_eq!(tests, ["tg64 @ prompts", "tg64 @ d16", "tg64 @ d512"]);
    assert_eq!(left_out.len(), 1);
    for row in &rows {
        let (least, middle) = (row.tok_s_min.unwrap(), row.tok_s_median.unwrap());
        assert!(0.0 < least && least <= middle && middle <= row.tok_s_max.unwrap());
        assert_eq!((row.samples_ts.len(), row.samples_ns.len()), (3, 3));
        assert_eq!(row.gate_passed, Some(true));
        assert_eq!(row.scope, "decode only, argmax included, no launches");
        let gb_s = row.bytes_per_token.unwrap() * middle / 1e9;
        assert_eq!(row.gb_s, Some(gb_s));
        assert_eq!(row.roofline_share, Some(gb_s / 100.0));
        // No kernel runs the fixture's shape.
        assert_eq!((row.predicted_tok_s, &row.prediction), (None, &None));
    }
    let header = pack().header().bytes_per_token as f64;
    let kv = pack().header().kv_bytes_per_position as f64;
    assert_eq!(rows[1].bytes_per_token, Some(header + kv * (16.0 + 31.5)));
    folder.add_rows(&rows).unwrap();
    assert_eq!(folder.rows().unwrap(), rows);
    every_output_names_the_speed(&rows);
}

/// A row has its prediction, the error and every part, and every output has them.
#[test]
fn a_prediction_stands_beside_its_row() {
    let predictor = options().predictor.unwrap();
    let config = synth::shape("qwen3-0.6b").unwrap();
    let prediction = predictor.predict(&config, Formats::BF16, 16, 256).unwrap();
    let (environment, subject) = (environment(), record().subject);
    let row = row(&Facts {
        subject: &subject,
        model: "a model",
        environment: &environment,
        test: Test::Depth { depth: 16, steps: 256 },
        seconds: &[0.1, 0.2, 0.3],
        launches_per_token: None,
        bytes_per_token: None,
        roofline: None,
        prediction: Some(prediction.clone()),
        gate: None,
        prompt_ids_sha256: "",
        tokens_sha256: "",
        context: 4096,
        clock: "a clock",
        telemetry: None,
    });
    let predicted = row.predicted_tok_s.unwrap();
    assert_eq!(Some(predicted), prediction.parts.map(|parts| parts.tok_s()));
    assert_eq!(row.predicted.prediction_error, Some(predicted / (256.0 / 0.2) - 1.0));
    assert!((parts(&row).iter().sum::<f64>() * predicted - 1e6).abs() < 1e-3, "{row:?}");
    let read: Row = serde_json::from_str(&serde_json::to_string(&row).unwrap()).unwrap();
    assert_eq!(read, row);
    let rows = [row];
    let table = rendered(&rows, Output::Md);
    for part in ["parts of the prediction", "| hand-offs |", "another GPU (NVIDIA H200"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    for output in [Output::Csv, Output::Sql, Output::Jsonl] {
        let text = rendered(&rows, output);
        assert!(text.contains("predicted_hand_offs_us"), "{text}");
    }
    sql_types_are_those_of_the_values(&rows);
}

/// The parts of a row's prediction, us.
fn parts(row: &Row) -> [f64; 6] {
    [
        row.predicted.predicted_weights_us,
        row.predicted.predicted_hand_offs_us,
        row.predicted.predicted_compute_us,
        row.predicted.predicted_head_us,
        row.predicted.predicted_argmax_us,
        row.predicted.predicted_launch_us,
    ]
    .map(Option::unwrap)
}

/// Fields that a row must have, whatever else it has.
const FIELDS: [&str; 19] = [
    "engine",
    "variant",
    "format",
    "gpu",
    "position",
    "tok_s_median",
    "tok_s_min",
    "tok_s_max",
    "launches_per_token",
    "bytes_per_token",
    "gb_s",
    "roofline_share",
    "predicted_tok_s",
    "gate_passed",
    "build",
    "scope",
    "n_prompt",
    "n_gen",
    "avg_ts",
];

fn every_output_names_the_speed(rows: &[Row]) {
    let speed = rows[1].tok_s_median.unwrap_or(0.0);
    for (name, output) in Output::ALL {
        assert_eq!(Output::from_name(name), Some(output));
        let text = rendered(rows, output);
        let shown = if output == Output::Md { format!("{speed:.2}") } else { speed.to_string() };
        assert!(text.contains(&shown), "{name}: {text}");
        let fields = if output == Output::Md { &[][..] } else { &FIELDS };
        fields.iter().for_each(|field| assert!(text.contains(field), "{name}: {field}"));
    }
    assert_eq!(Output::from_name("xml"), None);
    sql_types_are_those_of_the_values(rows);
    let parsed: Vec<Row> = serde_json::from_str(&rendered(rows, Output::Json)).expect("it is JSON");
    assert_eq!(parsed, rows);
    let csv = rendered(rows, Output::Csv);
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    assert_eq!(reader.records().map(Result::unwrap).count(), rows.len());
}

/// What SQL declares a column to be is what the rows hold in it.
fn sql_types_are_those_of_the_values(rows: &[Row]) {
    let text = rendered(rows, Output::Sql);
    let (table, inserts) = text.split_once("\n);\n").expect("a table, then rows");
    assert_eq!(inserts.matches("INSERT INTO monolith_bench (").count(), rows.len());
    let row = serde_json::to_value(rows.last()).unwrap();
    let mut columns = 0;
    for line in table.lines().skip(1) {
        let (name, declared) = line.trim().trim_end_matches(',').split_once(' ').unwrap();
        // A bare name could be a word of SQL's own, as `commit` is.
        let name = name.strip_prefix('"').and_then(|name| name.strip_suffix('"')).unwrap();
        let fits = match &row[name] {
            serde_json::Value::Null => true,
            serde_json::Value::Bool(_) => declared == "INTEGER",
            serde_json::Value::Number(number) => {
                declared == if number.is_f64() { "REAL" } else { "INTEGER" }
            }
            _ => declared == "TEXT",
        };
        assert!(fits, "{name} {declared}: {}", row[name]);
        columns += 1;
    }
    assert!(columns > 30, "{table}");
}
