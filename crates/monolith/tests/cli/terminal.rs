//! Control characters of files, models and tokens: none reaches a terminal as it is.

use crate::support::*;
use std::path::Path;
use std::process::Command;

/// Changes a terminal's title and colours, and hides what follows.
const HOSTILE: &str = "x\u{1b}]0;title\u{7}\u{1b}[31m\u{9b}5m\u{202e}y";
const SHOWN: &str = "x\\u{1b}]0;title\\u{7}\\u{1b}[31m\\u{9b}5m\\u{202e}y";

#[track_caller]
fn is_harmless(text: &str) {
    let hostile = |c: char| c.is_control() && c != '\n' && c != '\t' || c == '\u{202e}';
    assert!(!text.contains(hostile), "{text:?}");
}

/// Harmless, and nothing of it is lost.
#[track_caller]
fn is_written_out(text: &str) {
    is_harmless(text);
    assert!(text.contains(SHOWN), "{text}");
}

/// A model whose files are changed.
fn model(place: &Place, change: impl Fn(&Path)) {
    change(&place.model("m"));
}

#[test]
fn errors_about_a_models_files() {
    let place = Place::new();
    model(&place, |dir| {
        let config = std::fs::read_to_string(dir.join("config.json")).unwrap();
        let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
        config["model_type"] = HOSTILE.into();
        replace(&dir.join("config.json"), config.to_string().as_bytes());
    });
    let seen = place.run(&["run", "-m", "m", "-p", "x", "-n", "1"]);
    assert_eq!(seen.code, 1);
    is_harmless(&seen.stderr);
    // The reader of the configuration shows it as JSON, which leaves the rest to be written out.
    assert!(seen.stderr.contains(r"\u001b[31m\u{9b}5m\u{202e}y"), "{}", seen.stderr);
}

#[test]
fn what_a_chat_template_raises() {
    let place = Place::new();
    model(&place, |dir| {
        let template = format!("{{{{ raise_exception(\"{HOSTILE}\") }}}}");
        replace(&dir.join("chat_template.jinja"), template.as_bytes());
    });
    let seen = place.run(&["run", "--chat", "-m", "m", "-p", "x", "-n", "1"]);
    assert_eq!(seen.code, 1);
    is_written_out(&seen.stderr);
}

#[test]
fn names_of_files_and_warnings_about_a_prompt() {
    let place = Place::new();
    let seen = place.run(&["inspect", &format!("{HOSTILE}.pack")]);
    assert_eq!(seen.code, 4);
    is_written_out(&seen.stderr);

    let wrong = place.run(&["run", &format!("--{HOSTILE}")]);
    assert_eq!(wrong.code, 2);
    is_harmless(&wrong.stderr);
    // The parser of the command line takes out whole sequences.
    assert!(wrong.stderr.contains(r"\u{9b}5m\u{202e}y"), "{}", wrong.stderr);

    let model = tiny();
    let prompt = format!("<|{HOSTILE}|>");
    let seen = place.run(&["run", "-m", model.to_str().unwrap(), "-p", &prompt, "-n", "1"]);
    assert_eq!(seen.code, 0);
    is_written_out(&seen.stderr);
}

/// A pack whose model has a hostile name.
#[test]
fn tables_of_foreign_files() {
    let place = Place::new();
    std::fs::create_dir(place.path("named")).unwrap();
    let named = place.model(format!("named/{HOSTILE}"));
    let packed = place.run(&["pack", "-m", named.to_str().unwrap(), "-o", "m.pack"]);
    assert_eq!(packed.code, 0);
    is_written_out(&packed.stderr);
    is_written_out(&place.succeeds(&["inspect", "m.pack"]));
}

/// A tokenizer that writes the escape character where the model means " the".
fn model_that_writes_escapes(place: &Place) {
    model(place, |dir| {
        let path = dir.join("tokenizer.json");
        let text = std::fs::read_to_string(&path).unwrap();
        let mut tokenizer: serde_json::Value = serde_json::from_str(&text).unwrap();
        let vocab = tokenizer["model"]["vocab"].as_object_mut().unwrap();
        // The byte 0x1b in the alphabet of byte-level tokenizers.
        let (the, escape) = (vocab["Ġthe"].clone(), vocab["ě"].clone());
        vocab.insert("Ġthe".into(), escape);
        vocab.insert("ě".into(), the);
        replace(&path, tokenizer.to_string().as_bytes());
    });
}

/// Generated text: as it is for a program, written out for a terminal.
#[test]
fn generated_text() {
    let place = Place::new();
    model_that_writes_escapes(&place);
    let run = "run -m m -n 40 -q -p 'It separates the Old World from'";
    let program = env!("CARGO_BIN_EXE_monolith");
    let start = |shell: &str, args: &[&str]| {
        let mut command = Command::new(shell);
        command.args(args).current_dir(place.path("")).env("MONOLITH_CACHE", place.path("cache"));
        command.env("CUDA_VISIBLE_DEVICES", "");
        let seen = Running::new(command).outcome();
        assert_eq!(seen.code, 0, "{}", seen.stderr);
        seen.stdout
    };
    let piped = start("sh", &["-c", &format!("{program} {run}")]);
    assert!(piped.contains('\u{1b}'), "{piped:?}");

    // `script` gives the program a terminal.
    let terminal = format!("{program} {run}");
    let shown = start("script", &["-qec", &terminal, "/dev/null"]);
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
    assert_eq!(shown.replace("\r\n", "\n"), piped.replace('\u{1b}', "\\u{1b}"));
}
