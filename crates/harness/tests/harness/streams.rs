//! Token streams: timed in a pass of their own, of the row's tokens, and raced within one run only.

use crate::bench::options;
use crate::forgery::leaves;
use crate::{environment, load, pack, prompts, record, reference_dir};
use monolith_harness::HarnessError;
use monolith_harness::bench::{Bench, BenchOptions, Row, StreamRecord, run};
use monolith_harness::environment::{Environment, Probe, Target};
use monolith_harness::report::{PageRaces, run_readme};
use monolith_harness::runs::RunFolder;
use monolith_text::Tokenizer;
use serde_json::{Value, json};
use std::path::Path;

fn tokenizer() -> Tokenizer {
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/tiny");
    Tokenizer::load(&tiny).expect("it is committed")
}

/// A row of the prompts' test under the gate in a folder, and its streams; `change` may make the
/// row another one before.
fn streams_of(
    folder: &Path,
    change: impl FnOnce(&mut Row),
) -> Result<(Row, StreamRecord), HarnessError> {
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
    let gate = bench.gate(folder)?;
    let options = BenchOptions { runs: 2, steps: vec![24], depths: Vec::new(), ..options() };
    let (mut rows, _) = run(&mut bench, &options, Some(&gate), &mut |_| ())?;
    let mut row = rows.remove(0);
    change(&mut row);
    let streams = bench.streams(&row, &tokenizer(), &mut |_| ())?;
    Ok((row, streams.expect("our engine times its tokens")))
}

/// A run with a gate, a row and its streams.
fn measured(results: &Path) -> (RunFolder, Row, StreamRecord) {
    let folder = RunFolder::open(results, &environment()).unwrap();
    folder.add_gate(&record(), &reference_dir()).unwrap();
    let (row, streams) = streams_of(&folder.path, |_| ()).unwrap();
    folder.add_rows(std::slice::from_ref(&row)).unwrap();
    folder.add_streams(&streams).unwrap();
    (folder, row, streams)
}

fn races(results: &Path) -> Value {
    serde_json::to_value(PageRaces::of(results).unwrap()).unwrap()
}

#[test]
fn every_token_of_some_prompts_has_its_time_and_its_text() {
    let results = tempfile::tempdir().unwrap();
    let (folder, row, streams) = measured(results.path());
    let read = StreamRecord::read(&folder.path.join(streams.file_name())).unwrap();
    assert_eq!(read, streams);
    assert_eq!((read.n_gen, read.pass.prompts), (24, prompts().ids.len()));
    assert_eq!(read.tokens_sha256, row.tokens_sha256);
    assert_eq!(Some(read.pass.headline_tok_s), row.tok_s_median);
    let kept: Vec<usize> = read.streams.iter().map(|stream| stream.prompt).collect();
    assert_eq!(kept, [0, 3, 8, 16]);
    let tokenizer = tokenizer();
    for stream in &read.streams {
        assert_eq!(stream.prompt_ids, prompts().ids[stream.prompt]);
        assert!(stream.runs_ns.len() == 5 && stream.runs_ns.is_sorted());
        assert_eq!(stream.ns.iter().sum::<u64>(), stream.runs_ns[2]);
        let ids = [&[stream.first.token], &stream.tokens[..]].concat();
        let text = stream.first.piece.clone() + &stream.pieces.concat();
        assert_eq!(text, tokenizer.decode(&ids, false), "the pieces are the text");
    }
    let readme = run_readme(&folder).unwrap();
    assert!(readme.contains("## Token streams"), "{readme}");
    assert!(readme.contains("4 of 20 prompts, 24 tokens each, monotonic clock"), "{readme}");
}

#[test]
fn a_pass_with_other_tokens_than_the_row_is_an_error() {
    let results = tempfile::tempdir().unwrap();
    let folder = RunFolder::open(results.path(), &environment()).unwrap();
    folder.add_gate(&record(), &reference_dir()).unwrap();
    let error = streams_of(&folder.path, |row| row.tokens_sha256 = "0".repeat(64)).unwrap_err();
    assert!(matches!(error, HarnessError::Unsteady { .. }), "{error}");
}

#[test]
fn streams_without_a_gate_or_of_another_run_are_not_kept() {
    let results = tempfile::tempdir().unwrap();
    let (folder, _, mut streams) = measured(results.path());
    streams.gate_passed = Some(false);
    let refused = folder.add_streams(&streams).unwrap_err().to_string();
    assert!(refused.contains("are unverified"), "{refused}");
    streams.gate_passed = Some(true);
    streams.subject.run_id = "another".into();
    let refused = folder.add_streams(&streams).unwrap_err().to_string();
    assert!(refused.contains("do not belong to run"), "{refused}");
}

/// The same streams under another variant's name, in the same folder.
fn second_lane(folder: &RunFolder, row: &Row, streams: &StreamRecord) -> StreamRecord {
    let mut other = streams.clone();
    other.subject.engine = "peer".into();
    other.subject.variant = "peer".into();
    for stream in &mut other.streams {
        stream.tokens[5] += 1;
    }
    let peer = Row { engine: "peer".into(), variant: "peer".into(), ..row.clone() };
    folder.add_rows(&[peer]).unwrap();
    other
}

#[test]
fn streams_of_one_run_race_and_parting_texts_are_counted() {
    let results = tempfile::tempdir().unwrap();
    let (folder, row, streams) = measured(results.path());
    second_lane(&folder, &row, &streams).write(&folder.path).unwrap();
    let page = races(results.path());
    let race = &page["races"][0];
    assert_eq!(page["races"].as_array().unwrap().len(), 1);
    assert_eq!(page["missing"], json!([]));
    assert_eq!((&race["run"], &race["model"]), (&json!(folder.name), &json!("fixture")));
    assert_eq!(race["lanes"].as_array().unwrap().len(), 2);
    assert_eq!(race["lanes"][0]["gate"], "passed");
    assert_eq!(race["absent"], json!([]));
    for prompt in race["prompts"].as_array().unwrap() {
        assert_eq!(prompt["streams"][0]["agrees"], 25);
        assert_eq!(prompt["streams"][1]["agrees"], 6);
        assert_eq!(prompt["streams"][1]["ns"].as_array().unwrap().len(), 24);
    }
}

/// Whatever ties a stream to its run, processor, build, model, test or tokens: with another value
/// it does not race, and the race says who is absent and why.
#[test]
fn streams_of_another_run_processor_build_or_text_never_race() {
    let results = tempfile::tempdir().unwrap();
    let (folder, row, streams) = measured(results.path());
    let lane = second_lane(&folder, &row, &streams);
    type Change = (&'static str, fn(&mut StreamRecord));
    let changes: [Change; 7] = [
        ("another run", |lane| lane.subject.run_id = "x".into()),
        ("another processor", |lane| lane.subject.gpu = "x".into()),
        ("its build and its tokens", |lane| lane.subject.build = "x".into()),
        ("its build and its tokens", |lane| lane.tokens_sha256 = "x".into()),
        ("its build and its tokens", |lane| lane.prompt_ids_sha256 = "x".into()),
        ("its build and its tokens", |lane| lane.test = "tg24 @ d16".into()),
        ("its single tokens were not timed", |lane| lane.model = "x".into()),
    ];
    for (why, change) in changes {
        let mut lane = lane.clone();
        change(&mut lane);
        let path = folder.path.join("stream-lane.json");
        std::fs::write(&path, lane.text()).unwrap();
        let race = &races(results.path())["races"][0];
        assert_eq!(race["lanes"].as_array().unwrap().len(), 1, "{why}");
        assert!(race["absent"][0].as_str().unwrap().contains(why), "{why}: {}", race["absent"]);
    }
    // Times by another clock, or after other prompts, are in a race of their own.
    let changes: [fn(&mut StreamRecord); 2] =
        [|lane| lane.clock = "another".into(), |lane| lane.streams[1].prompt_text.push('x')];
    for change in changes {
        let mut lane = lane.clone();
        change(&mut lane);
        std::fs::write(folder.path.join("stream-lane.json"), lane.text()).unwrap();
        assert_eq!(races(results.path())["races"][0]["lanes"].as_array().unwrap().len(), 1);
    }
}

/// Two runs of one processor: each has a race, and the one with more lanes is shown.
#[test]
fn runs_do_not_mix() {
    let results = tempfile::tempdir().unwrap();
    let (first, row, streams) = measured(results.path());
    let second = Environment { run_id: "second".into(), ..environment() };
    let second = RunFolder::open(results.path(), &second).unwrap();
    let mut later = second_lane(&first, &row, &streams);
    later.subject.run_id = "second".into();
    let peer = Row {
        engine: "peer".into(),
        variant: "peer".into(),
        run_id: "second".into(),
        ..row.clone()
    };
    second.add_rows(&[peer]).unwrap();
    second.add_streams(&later).unwrap();
    let page = races(results.path());
    assert_eq!(page["races"].as_array().unwrap().len(), 1);
    let race = &page["races"][0];
    assert_eq!((&race["run"], race["lanes"].as_array().unwrap().len()), (&json!(second.name), 1));
    // The first run's second lane: now it has more.
    second_lane(&first, &row, &streams).write(&first.path).unwrap();
    let race = &races(results.path())["races"][0];
    assert_eq!((&race["run"], race["lanes"].as_array().unwrap().len()), (&json!(first.name), 2));
}

/// A value of another type, or none at all, is refused by file and field.
#[test]
fn what_is_no_record_is_refused_by_field() {
    let results = tempfile::tempdir().unwrap();
    let (folder, _, streams) = measured(results.path());
    let whole: Value = serde_json::from_str(&streams.text()).unwrap();
    let path = folder.path.join("stream-x.json");
    let refused = |value: &Value| {
        std::fs::write(&path, value.to_string()).unwrap();
        StreamRecord::read(&path).unwrap_err().to_string()
    };
    let mut places = Vec::new();
    leaves(&whole, "", &mut places);
    for place in places.iter().filter(|place| !place.contains("/gate_") && !place.contains("/1/")) {
        let mut wrong = whole.clone();
        *wrong.pointer_mut(place).unwrap() = json!({});
        let error = refused(&wrong);
        let field = place.trim_start_matches('/').split('/').next().unwrap();
        assert!(error.contains("stream-x.json") && error.contains(field), "{place}: {error}");
    }
    let with = |pointer: &str, value: Value| {
        let mut wrong = whole.clone();
        *wrong.pointer_mut(pointer).unwrap() = value;
        refused(&wrong)
    };
    for (pointer, value, words) in [
        ("/schema", json!("monolith-stream/9"), "schema: \"monolith-stream/9\""),
        ("/pass/tok_s", json!(0.0), "pass.tok_s: 0 is no speed"),
        ("/streams", json!([]), "streams: 0, not 1 to 64"),
        ("/streams/2/ns", json!([1]), "streams[2].ns: 1 of them, and n_gen is 24"),
        ("/streams/2/pieces/3", json!(7), "streams[2].pieces[3]: invalid type"),
        ("/streams/0/ns", json!(vec![0; 24]), "streams[0].ns: together neither above 0"),
        ("/streams/0/ns", json!(vec![u64::MAX; 24]), "streams[0].ns: together neither"),
        ("/streams/1/runs_ns/2", json!(1), "streams[1].runs_ns: "),
        ("/streams/1/runs_ns", json!([]), "streams[1].runs_ns: "),
        ("/streams/3/prompt", json!(20), "streams[3].prompt: 20, and the pass had 20"),
        ("/streams/0/prompt", json!(9), "streams: not in order of their prompts"),
    ] {
        let error = with(pointer, value);
        assert!(error.contains(words), "{pointer}: {error}");
    }
    std::fs::write(&path, format!("{}x", streams.text())).unwrap();
    assert!(StreamRecord::read(&path).is_err(), "something after the record");
    // The folder's other streams still race, and the file is named.
    let page = races(results.path());
    assert!(page["problems"][0].as_str().unwrap().contains("stream-x.json"), "{page}");
    assert_eq!(page["races"].as_array().unwrap().len(), 1);
}
