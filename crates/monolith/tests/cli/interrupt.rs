//! Ending in the middle: Ctrl-C, and a reader that has seen enough.

use crate::support::{Outcome, Place, Running, replace, tiny};
use monolith_model::{Config, Tensor};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A model with the shape of the 0.6B one, or of fewer layers of it, whose weights are all zero: a
/// file with a hole, which takes no room and no time to make.
fn zero_model(place: &Place, name: &str, layers: usize) {
    let config = Config { layers, ..Config::qwen3_0_6b() };
    let (mut entries, mut at) = (Vec::new(), 0u64);
    for tensor in Tensor::all(&config) {
        let (rows, cols) = tensor.shape(&config);
        let shape = if tensor.is_norm() { vec![cols] } else { vec![rows, cols] };
        let end = at + 2 * (rows * cols) as u64;
        let entry = serde_json::json!({"dtype": "BF16", "shape": shape, "data_offsets": [at, end]});
        entries.push(format!("{}:{entry}", serde_json::json!(tensor.name())));
        at = end;
    }
    let header = format!("{{{}}}", entries.join(","));
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
    let dir = place.model(name);
    replace(&dir.join("config.json"), config.to_json().as_bytes());
    replace(&dir.join("model.safetensors"), &bytes);
    let file = std::fs::File::options().write(true).open(dir.join("model.safetensors")).unwrap();
    file.set_len(bytes.len() as u64 + at).unwrap();
}

/// A model as small as the shipped one with room for a decode that takes minutes, so that no test
/// sees its end.
fn endless_model(place: &Place) {
    let config = std::fs::read_to_string(tiny().join("config.json")).unwrap();
    let longer = "\"max_position_embeddings\": 60000";
    let config = config.replace("\"max_position_embeddings\": 4096", longer);
    assert!(config.contains(longer));
    replace(&place.model("m").join("config.json"), config.as_bytes());
}

const ENDLESS: [&str; 10] =
    ["run", "-m", "m", "--ignore-eos", "-n", "59000", "--context", "60000", "-p", "My fellow"];

/// Such a decode.
fn endless(place: &Place, more: &[&str]) -> Running {
    endless_model(place);
    place.start(&[&ENDLESS[..], more].concat())
}

/// When Ctrl-C is pressed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    /// As soon as the program listens.
    AtOnce,
    /// Once it has said how far it is.
    AfterASign,
    /// Once it writes a file.
    WhileWriting,
}

use Moment::{AfterASign, AtOnce, WhileWriting};

/// Every command that takes its time, and moments of it. None has a result at any of them.
const CASES: [(&[&str], &[Moment]); 13] = [
    (&["run", "-m", "m", "-f", "long.txt", "--context", "60000"], &[AtOnce, AfterASign]),
    (&["run", "-m", "large", "-p", "x"], &[WhileWriting]),
    (&["pack", "-m", "large", "-o", "x.pack"], &[AtOnce, WhileWriting]),
    (&["unpack", "-m", "large", "-o", "unpacked"], &[WhileWriting]),
    // From a pack, nothing is packed first: what it writes is the folder.
    (&["unpack", "-m", "wide.pack", "-o", "unpacked"], &[WhileWriting]),
    (&["synth", "-o", "synthetic"], &[AtOnce, WhileWriting]),
    (&["diff", "-m", "large"], &[WhileWriting]),
    (&["gate", "-m", "large"], &[WhileWriting]),
    (&["bench", "-m", "large"], &[WhileWriting]),
    (&["bench", "-m", "m", "-r", "100000"], &[AtOnce, AfterASign]),
    (
        &["quality", "-m", "m", "--format", "fp8", "--prompts", "none.jsonl", "-n", "1"],
        &[AfterASign],
    ),
    (&["xray", "record", "-m", "m", "-r", "100000", "-q"], &[AfterASign]),
    (&["pull", "org/name"], &[AtOnce, AfterASign]),
];

/// A place for each case: the models, a long prompt, prompts for `quality`.
fn place() -> Place {
    let place = Place::new();
    endless_model(&place);
    zero_model(&place, "large", 28);
    zero_model(&place, "wide", 1);
    replace(&place.path("long.txt"), "My fellow Americans, tonight. ".repeat(7000).as_bytes());
    let prompt = "{\"id\": \"a\", \"chat\": false, \"text\": \"My fellow\"}\n";
    replace(&place.path("none.jsonl"), prompt.as_bytes());
    place
}

/// Whether a line says how far the program is: its seconds stand at the end, or it is the place
/// where `quality` is.
fn is_sign(line: &str) -> bool {
    let seconds = line.ends_with(" s") && line.contains(", ");
    seconds || line.starts_with("quality: window ")
}

/// Presses Ctrl-C at this moment.
fn interrupted(place: &Place, mut running: Running, moment: Moment) -> Outcome {
    let before = place.files().len();
    running.until_it_listens();
    match moment {
        AtOnce => (),
        AfterASign => {
            running.until("a sign of life", |running| running.stderr().lines().any(is_sign));
        }
        WhileWriting => running.until("a file", |_| {
            let files = place.files();
            files.len() > before && files.iter().any(|(path, bytes)| *bytes > 0 && is_part(path))
        }),
    }
    running.interrupt();
    running.outcome()
}

/// A file that is being written, of any name that is not one of the place's own.
fn is_part(path: &Path) -> bool {
    let own = ["long.txt", "none.jsonl"];
    let in_model = ["m", "large", "wide"].iter().any(|name| path.parent().unwrap().ends_with(name));
    !in_model && !own.iter().any(|name| path.ends_with(name))
}

#[test]
fn the_first_ctrl_c_ends_every_command_and_leaves_nothing() {
    // A hub that answers nothing.
    let hub = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", hub.local_addr().unwrap());
    for (args, moments) in CASES {
        for &moment in moments {
            let place = place();
            if args.contains(&"wide.pack") {
                place.succeeds(&["pack", "-m", "wide", "-o", "wide.pack"]);
            }
            let before: Vec<PathBuf> = place.files().into_iter().map(|(path, _)| path).collect();
            let program = std::process::Command::new(env!("CARGO_BIN_EXE_monolith"));
            let mut command = place.as_job(program, args);
            command.env("HF_ENDPOINT", &url);
            let seen = interrupted(&place, Running::new(command), moment);
            assert_eq!(seen.code, 130, "{args:?} {moment:?}: {}", seen.stderr);
            assert!(seen.stderr.contains("interrupted"), "{args:?} {moment:?}: {}", seen.stderr);
            assert_eq!(seen.stdout, "", "{args:?} {moment:?}");
            let mut after: Vec<PathBuf> = place.files().into_iter().map(|(path, _)| path).collect();
            // What a pull has begun, the next one resumes; what quality measured, the next keeps.
            after.retain(|path| !path.starts_with(place.path("hf")));
            if args[0] == "quality" {
                after.retain(|path| !path.starts_with(place.path("results")));
            }
            assert_eq!(after, before, "{args:?} {moment:?}");
        }
    }
}

/// A shell starts background jobs with Ctrl-C ignored, and what is ignored is inherited.
#[test]
fn what_was_inherited_does_not_matter() {
    for moment in [AtOnce, AfterASign] {
        let place = place();
        let args = ["run", "-m", "m", "-f", "long.txt", "--context", "60000"];
        let seen = interrupted(&place, place.start_ignoring(&args), moment);
        assert_eq!(seen.code, 130, "{moment:?}: {}", seen.stderr);
    }
}

#[test]
fn ctrl_c_during_the_prompt_says_how_far_it_came() {
    let place = place();
    let running = place.start(&["run", "-m", "m", "-f", "long.txt", "--context", "60000"]);
    let seen = interrupted(&place, running, AfterASign);
    assert_eq!(seen.code, 130, "{}", seen.stderr);
    assert!(seen.stderr.contains("interrupted after"), "{}", seen.stderr);
    assert!(!seen.stderr.contains("tok/s"), "{}", seen.stderr);
}

#[test]
fn ctrl_c_ends_the_text_and_prints_the_statistics() {
    let place = Place::new();
    let mut running = endless(&place, &["--xray", "x.json.gz", "--xray-at", "58000"]);
    running.until("some text", |running| running.stdout().len() > 10);
    running.interrupt();
    let seen = running.outcome();
    assert_eq!(seen.code, 0, "{}", seen.stderr);
    assert!(seen.stderr.contains("tok/s"), "{}", seen.stderr);
    assert!(seen.stderr.contains("stopped: interrupted"), "{}", seen.stderr);
    assert!(seen.stdout.ends_with('\n'));
    let trace = std::fs::read(place.path("x.json.gz")).unwrap();
    assert!(monolith_xray::page::read(&trace).is_ok());
}

/// A program that hangs in a write, since nobody reads, cannot end by itself.
#[test]
fn a_second_ctrl_c_ends_what_hangs() {
    let place = Place::new();
    endless_model(&place);
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut filler = writer.try_clone().unwrap();
    let program = std::process::Command::new(env!("CARGO_BIN_EXE_monolith"));
    let mut running = Running::writing(place.as_job(program, &ENDLESS), writer);
    let mut text = [0; 10];
    reader.read_exact(&mut text).unwrap();
    // It generates. From here on the pipe is full.
    let filling = std::thread::spawn(move || filler.write_all(&[0; 1 << 20]));
    running.interrupt();
    std::thread::sleep(Duration::from_secs(1));
    assert!(!running.has_ended(), "it wants to write the rest of its text");
    // Again and again: two signals that meet are one.
    running.until_ended_by(Running::interrupt);
    let seen = running.outcome();
    assert_eq!(seen.code, 130, "{}", seen.stderr);
    drop(reader);
    assert!(filling.join().unwrap().is_err(), "the pipe was full to the end");
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let place = Place::new();
    endless_model(&place);
    let program = std::process::Command::new(env!("CARGO_BIN_EXE_monolith"));
    let seen = Running::reading(place.as_job(program, &ENDLESS), 10).outcome();
    assert_eq!((seen.code, seen.stderr.as_str()), (0, ""));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_a_failure() {
    let (place, model) = (Place::new(), tiny());
    let model = model.to_str().unwrap();
    for args in [&["doctor"][..], &["run", "-m", model, "-p", "My fellow", "-n", "4"]] {
        let program = std::process::Command::new(env!("CARGO_BIN_EXE_monolith"));
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let seen = Running::writing(place.as_job(program, args), full).outcome();
        seen.is_failure(1, "monolith: standard output: No space left");
    }
}
