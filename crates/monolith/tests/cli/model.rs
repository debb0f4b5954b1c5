//! Models that are somewhere else, incomplete or damaged: each named, with the cure.

use crate::support::{Place, Running, outcome, replace, tiny};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

const RUN: [&str; 5] = ["run", "-q", "-n", "3", "-p"];

fn run(model: &str) -> Vec<&str> {
    [&RUN[..], &["My fellow", "-m", model]].concat()
}

#[test]
fn a_model_is_found_by_any_path() {
    let place = Place::new();
    let wanted = place.succeeds(&run(tiny().to_str().unwrap()));
    place.model("a model");
    std::os::unix::fs::symlink(tiny(), place.path("link")).unwrap();
    for path in ["a model", "a model/", "./link"] {
        assert_eq!(place.succeeds(&run(path)), wanted, "{path}");
    }
    let seen = outcome(place.command(&run(".")).current_dir(place.path("link")));
    assert_eq!(seen.stdout, wanted);
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_need_not_be_named_in_utf8() {
    let (place, name) = (Place::new(), OsStr::from_bytes(b"m\xff"));
    place.model(name);
    let mut command = place.command(&["run", "-p", "My fellow", "-n", "3", "-m"]);
    assert_eq!(outcome(command.arg(name)).code, 0);
}

#[test]
fn a_model_that_is_not_there() {
    let place = Place::new();
    for path in ["/nowhere", "./nowhere", "nowhere", "x.pack", "", "~/model", "a/b/c"] {
        place.fails(&run(path), 4, "no such file or folder");
    }
    place.fails(&run("org/name"), 4, "`monolith pull org/name` downloads it");
    place.fails(&run("org/name@v1"), 4, "`monolith pull org/name --revision v1` downloads it");
    place.fails(&["run", "-p", "x"], 4, "`monolith pull Qwen/Qwen3-0.6B` downloads it");
    // Neither does a name that no file can have end up in a question to the hub.
    place.fails(&run(&"x".repeat(300)), 1, "xxx: File name too long");
    std::fs::create_dir(place.path("empty")).unwrap();
    place.fails(&run("empty"), 4, "empty is not a model folder: it has no config.json");
}

#[test]
fn a_file_that_is_no_model() {
    let place = Place::new();
    place.model("m");
    place.fails(&run("m/model.safetensors"), 2, "is one file of a model: name its folder");
    place.fails(&run("m/demo-prompt.txt"), 1, "m/demo-prompt.txt: not a pack");
    place.fails(&run("/dev/null"), 2, "/dev/null is not a regular file");
}

#[test]
fn files_that_are_missing() {
    let place = Place::new();
    for (file, cure) in [
        ("model.safetensors", "m/model.safetensors: No such file"),
        ("tokenizer.json", "m/tokenizer.json: no such file; text needs one; copy it from a model"),
        ("config.json", "m is not a model folder: it has no config.json"),
    ] {
        let dir = place.model("m");
        std::fs::remove_file(dir.join(file)).unwrap();
        place.fails(&run("m"), 4, cure);
        std::fs::remove_dir_all(dir).unwrap();
    }
}

#[test]
fn files_that_are_damaged() {
    let place = Place::new();
    let weights = std::fs::read(tiny().join("model.safetensors")).unwrap();
    let cases: [(&str, &[u8], &str); 9] = [
        ("config.json", b"{", "m/config.json: not JSON"),
        ("config.json", b"", "m/config.json: not a config.json, but an empty file"),
        ("config.json", br#"{"model_type": "llama"}"#, "m/config.json: not supported: model_type"),
        ("tokenizer.json", b"{}", "m/tokenizer.json: "),
        ("tokenizer.json", b"\xff", "m/tokenizer.json: not UTF-8"),
        ("tokenizer_config.json", b"[", "m/tokenizer_config.json: "),
        ("generation_config.json", b"[", "m/generation_config.json: "),
        ("model.safetensors", b"", "m/model.safetensors: "),
        ("model.safetensors", &weights[..weights.len() / 2], "m/model.safetensors: "),
    ];
    for (file, bytes, message) in cases {
        let dir = place.model("m");
        replace(&dir.join(file), bytes);
        place.fails(&run("m"), 1, message);
        std::fs::remove_dir_all(dir).unwrap();
    }
}

#[test]
fn a_system_reason_is_given_once() {
    let place = Place::new();
    std::fs::remove_file(place.model("m").join("model.safetensors")).unwrap();
    let seen = place.run(&run("m"));
    assert_eq!(seen.stderr.matches("No such file").count(), 1, "{}", seen.stderr);
}

#[test]
fn weights_that_are_no_numbers() {
    let place = Place::new();
    let mut weights = std::fs::read(tiny().join("model.safetensors")).unwrap();
    let end = weights.len();
    weights[end - 64..].fill(0xff);
    let dir = place.model("m");
    replace(&dir.join("model.safetensors"), &weights);
    place.fails(&run("m"), 1, "the logits are not numbers: check the model's weights");
}

#[test]
fn a_fifo_is_refused_and_not_waited_for() {
    let place = Place::new();
    let dir = place.model("m");
    std::fs::remove_file(dir.join("model.safetensors")).unwrap();
    for fifo in [dir.join("model.safetensors"), place.path("fifo")] {
        let mut mkfifo = Command::new("mkfifo");
        mkfifo.arg(fifo);
        assert_eq!(Running::new(mkfifo).outcome().code, 0);
    }
    place.fails(&run("m"), 1, "m/model.safetensors is not a regular file");
    place.fails(&run("fifo"), 2, "fifo is not a regular file");
    place.fails(&["inspect", "fifo"], 2, "fifo is not a regular file");
}

#[test]
fn chat_with_a_model_that_has_no_template() {
    let place = Place::new();
    replace(&place.model("m").join("tokenizer_config.json"), b"{}");
    place.fails(&[&run("m")[..], &["--chat"]].concat(), 1, "no chat template");
}
