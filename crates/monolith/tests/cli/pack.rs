//! `pack`, `inspect`, and running a pack.

use crate::support::{Place, outcome, replace, tiny};
use std::os::unix::fs::PermissionsExt;

/// A pack of the shipped model, as `tiny.pack`.
fn packed() -> Place {
    let place = Place::new();
    let seen = place.run(&["pack", "-m", tiny().to_str().unwrap(), "-o", "tiny.pack"]);
    assert_eq!((seen.code, seen.stdout.as_str()), (0, ""));
    assert!(seen.stderr.contains("`monolith inspect tiny.pack` shows it"), "{}", seen.stderr);
    place
}

#[test]
fn inspect_shows_what_a_token_reads() {
    let place = packed();
    let text = place.succeeds(&["inspect", "tiny.pack", "--gb-s", "100", "--position", "10"]);
    for part in ["tiny", "6 layers", "bytes a token            13903360", "roofline at 100 GB/s"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let sections = place.succeeds(&["inspect", "tiny.pack", "--sections"]);
    assert!(sections.lines().count() > text.lines().count() + 6, "{sections}");
}

#[test]
fn inspect_speaks_json() {
    let args = ["inspect", "tiny.pack", "--json", "--gb-s", "100", "--position", "10"];
    let seen: serde_json::Value = serde_json::from_str(&packed().succeeds(&args)).unwrap();
    let bytes = 13_903_360 + 10 * 6144;
    assert_eq!(seen["header"]["source"]["model"], "tiny");
    assert_eq!(seen["bytes_at_position"], bytes);
    assert_eq!(seen["roofline_tok_s"], 100e9 / f64::from(bytes));
}

#[test]
fn a_pack_runs_beside_its_tokenizer_and_says_so_without() {
    let (place, model) = (packed(), tiny());
    let args = ["run", "-q", "-n", "9", "-p", "My fellow", "-m", "tiny.pack"];
    place.fails(&args, 4, "a pack holds the weights only: copy its model's tokenizer.json");
    for file in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
        std::fs::copy(tiny().join(file), place.path(file)).unwrap();
    }
    let of_folder = [&args[..7], &[model.to_str().unwrap()]].concat();
    assert_eq!(place.succeeds(&args), place.succeeds(&of_folder));
}

#[test]
fn the_same_model_packs_to_the_same_bytes_and_replaces_the_old() {
    let place = packed();
    let first = std::fs::read(place.path("tiny.pack")).unwrap();
    replace(&place.path("tiny.pack"), b"MONOPACK and not much more");
    place.succeeds(&["pack", "-m", tiny().to_str().unwrap(), "-o", "tiny.pack"]);
    assert!(std::fs::read(place.path("tiny.pack")).unwrap() == first, "the packs differ");
    let mode = std::fs::metadata(place.path("tiny.pack")).unwrap().permissions().mode();
    assert_eq!(mode & 0o400, 0o400);
    assert_eq!(place.path("").read_dir().unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn a_damaged_pack_is_refused() {
    let place = packed();
    let good = std::fs::read(place.path("tiny.pack")).unwrap();
    let mut altered = good.clone();
    *altered.last_mut().unwrap() ^= 1;
    let mut header = good.clone();
    header[100] ^= 1;
    let cases: [(&[u8], &str); 5] = [
        (b"", "bad.pack: not a pack: the file is empty"),
        (b"GGUF....", "bad.pack: not a pack: it is a GGUF file"),
        (&good[..good.len() / 2], "bad.pack: "),
        (&altered, "does not match its sha256"),
        (&header, "the header does not match its sha256"),
    ];
    for (bytes, message) in cases {
        std::fs::write(place.path("bad.pack"), bytes).unwrap();
        place.fails(&["inspect", "bad.pack"], 1, message);
    }
}

#[test]
fn inspect_of_what_is_no_pack() {
    let (place, model) = (packed(), tiny());
    let model = model.to_str().unwrap();
    place.fails(&["inspect", "nowhere.pack"], 4, "nowhere.pack\": no such file");
    place.fails(&["inspect", model], 2, "is a folder: `monolith pack -m ");
    place.fails(&["inspect", &format!("{model}/model.safetensors")], 1, "pack it first");
    for speed in ["0", "-1", "nan", "inf", "fast"] {
        place.fails(&["inspect", "tiny.pack", "--gb-s", speed], 2, "--gb-s");
    }
    let far = ["inspect", "tiny.pack", "--position", "18446744073709551615"];
    place.fails(&far, 2, "this model has 4096");
}

#[test]
fn pack_refuses_where_it_cannot_write() {
    let (place, model) = (packed(), tiny());
    let model = model.to_str().unwrap();
    place.fails(
        &["pack", "-m", model, "-o", "none/x.pack"],
        1,
        "none/x.pack cannot be written: No such file",
    );
    for special in [".", "/dev/null"] {
        let message = format!("{special} cannot be written: it is no regular file");
        place.fails(&["pack", "-m", model, "-o", special], 1, &message);
    }
    place.fails(&["pack", "-m", "tiny.pack", "-o", "x.pack"], 2, "a model folder is wanted");
    place.fails(&["pack", "-m", "/nowhere", "-o", "x.pack"], 4, "no such file or folder");
    place.fails(&["pack", "-m", model], 2, "--out");
    assert!(!place.path("x.pack").exists());
}

/// A model that is too large to be packed in memory each time, and no larger.
fn large() -> Place {
    let place = Place::new();
    let config = std::fs::read_to_string(tiny().join("config.json")).unwrap();
    let config = config
        .replace("\"vocab_size\": 4096", "\"vocab_size\": 131072")
        .replace("\"num_hidden_layers\": 6", "\"num_hidden_layers\": 1");
    std::fs::write(place.path("config.json"), config).unwrap();
    place.succeeds(&["synth", "--shape", "config.json", "-o", "large"]);
    place
}

#[test]
fn a_large_model_is_packed_once_into_the_cache() {
    let place = large();
    let args = ["diff", "-m", "large", "--tokens", "1", "--stop-after", "qkv"];
    let first = place.run(&args);
    assert!(first.stderr.contains("packing large into "), "{}", first.stderr);
    let second = place.run(&args);
    assert_eq!((second.code, second.stderr.as_str()), (0, ""));
    // One that was damaged is made again.
    let pack = place.path("cache").read_dir().unwrap().next().unwrap().unwrap().path();
    std::fs::write(&pack, "damaged").unwrap();
    assert!(place.run(&args).stderr.contains("packing large into "));
    // A cache that cannot be is named, with the variable that moves it.
    let seen = outcome(place.command(&args).env("MONOLITH_CACHE", place.path("config.json")));
    seen.is_failure(1, "set MONOLITH_CACHE to another one");
}

#[test]
fn an_output_replaces_nothing_but_an_output_of_its_kind() {
    let place = Place::new();
    let model = place.model("m");
    replace(&place.path("prompt.txt"), b"My fellow");
    replace(
        &place.path("prompts.jsonl"),
        b"{\"id\": \"a\", \"kind\": \"x\", \"lang\": \"en\", \"chat\": false, \"text\": \"b\"}\n",
    );
    place.succeeds(&["pack", "-m", "m", "-o", "m.pack"]);
    let files =
        ["m/model.safetensors", "m/config.json", "m/tokenizer.json", "prompt.txt", "m.pack"];
    let before: Vec<Vec<u8>> =
        files.iter().map(|file| std::fs::read(place.path(file)).unwrap()).collect();
    for file in files {
        let run = ["run", "-m", "m", "-f", "prompt.txt", "-n", "2", "--xray", file];
        place.fails(&run, 1, "it is not replaced");
        place.fails(&["ids", "-m", "m", "--prompts", "prompts.jsonl", "-o", file], 1, "replaced");
        if file != "m.pack" {
            place.fails(&["pack", "-m", "m", "-o", file], 1, "it is not replaced");
        }
    }
    for (file, before) in files.iter().zip(before) {
        assert_eq!(std::fs::read(place.path(file)).unwrap(), before, "{file}");
    }
    // Outputs of the same kind are replaced.
    for _ in 0..2 {
        place.succeeds(&["pack", "-m", "m", "-o", "m.pack"]);
        place.succeeds(&["run", "-m", "m", "-p", "a", "-n", "2", "--xray", "x.json.gz"]);
        place.succeeds(&["ids", "-m", "m", "--prompts", "prompts.jsonl", "-o", "ids.json"]);
    }
    drop(model);
}
