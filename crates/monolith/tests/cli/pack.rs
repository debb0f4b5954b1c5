//! `pack`, `inspect`, and running a pack.

use crate::support::{Place, outcome, replace, tiny};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
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
    place.fails(&args, 4, "a pack holds no tokenizer: copy its model's tokenizer.json");
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
        let message = format!("{special} cannot be written: it is not a regular file");
        place.fails(&["pack", "-m", model, "-o", special], 1, &message);
    }
    place.fails(&["pack", "-m", "tiny.pack", "-o", "x.pack"], 2, "name a model folder");
    place.fails(&["pack", "-m", "/nowhere", "-o", "x.pack"], 4, "no such file or folder");
    place.fails(&["pack", "-m", model], 2, "--out");
    assert!(!place.path("x.pack").exists());
}

#[test]
fn fp8_packs_say_what_was_lost() {
    let (place, model) = (Place::new(), tiny());
    let model = model.to_str().unwrap();
    for (format, quantized) in [("fp8", true), ("fp8-head-bf16", false)] {
        let seen = place.run(&["pack", "-m", model, "--format", format, "-o", "a.pack"]);
        assert_eq!((seen.code, seen.stdout.as_str()), (0, ""), "{}", seen.stderr);
        assert!(seen.stderr.contains(&format!("packed {model} as {format}: ")), "{}", seen.stderr);
        let text = place.succeeds(&["inspect", "a.pack"]);
        let losses = |text: &str| -> Vec<String> {
            let lines =
                text.lines().map(str::trim_end).skip_while(|line| !line.contains("became 0"));
            lines
                .take_while(|line| line.contains('%') || line.contains("became"))
                .map(String::from)
                .collect()
        };
        let shown = losses(&seen.stderr);
        assert_eq!(shown, losses(&text));
        assert_eq!(shown.len(), if quantized { 6 } else { 5 }, "{shown:?}");
        assert_eq!(shown.iter().any(|line| line.contains("lm_head")), quantized);
        for part in [&format!("format       {format}\n"), "tiles fp8", "scales f32 per row"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let json: serde_json::Value =
            serde_json::from_str(&place.succeeds(&["inspect", "a.pack", "--json"])).unwrap();
        assert_eq!(json["header"]["formats"]["layers"], "fp8");
        assert!(json["header"]["bytes_per_token"].as_u64().unwrap() < 13_903_360 * 6 / 10);
    }
    let names = ["bf16", "fp8", "fp8-head-bf16"];
    let seen = place.run(&["pack", "-m", model, "--format", "fp9", "-o", "b.pack"]);
    assert!(seen.code == 2 && names.iter().all(|name| seen.stderr.contains(name)));
}

#[test]
fn a_pack_has_one_format() {
    let place = packed();
    for file in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
        std::fs::copy(tiny().join(file), place.path(file)).unwrap();
    }
    let run = ["run", "-q", "-n", "2", "-p", "My", "-m", "tiny.pack", "--format"];
    place.succeeds(&[&run[..], &["bf16"]].concat());
    let message = "--format fp8: tiny.pack is bf16; name the model's folder, or omit --format";
    place.fails(&[&run[..], &["fp8"]].concat(), 2, message);
}

/// The shipped model, its layers as an FP8 checkpoint: code 0x38 is 1.
fn fp8_checkpoint(place: &Place) {
    let dir = place.model("fp8");
    let file = std::fs::read(dir.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let mut entries = Vec::new();
    for (name, view) in tensors.tensors() {
        let shape = view.shape().to_vec();
        if name.ends_with("_proj.weight") {
            let codes = vec![0x38; shape[0] * shape[1]];
            entries.push((name.clone(), Dtype::F8_E4M3, shape.clone(), codes));
            let scales = 0.5f32.to_le_bytes().repeat(shape[0]);
            entries.push((format!("{name}_scale"), Dtype::F32, vec![shape[0], 1], scales));
        } else {
            entries.push((name, view.dtype(), shape, view.data().to_vec()));
        }
    }
    let views = entries.iter().map(|(name, dtype, shape, bytes)| {
        (name.clone(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    replace(&dir.join("model.safetensors"), &safetensors::serialize(views, None).unwrap());
    quantized_as(place, COMPRESSED);
}

const COMPRESSED: &str = r#"{"quant_method": "compressed-tensors", "format": "float-quantized",
    "config_groups": {"group_0": {"weights":
        {"type": "float", "num_bits": 8, "strategy": "channel", "symmetric": true}}}}"#;

fn quantized_as(place: &Place, quantization: &str) {
    let text = std::fs::read(tiny().join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_slice(&text).unwrap();
    config["quantization_config"] = serde_json::from_str(quantization).unwrap();
    replace(&place.path("fp8/config.json"), config.to_string().as_bytes());
}

#[test]
fn an_fp8_checkpoint_is_taken_over() {
    let place = Place::new();
    fp8_checkpoint(&place);
    let seen = place.run(&["pack", "-m", "fp8", "-o", "as-stored.pack"]);
    for part in ["packed fp8 as fp8-head-bf16", "down: 1536 rows copied", " 0.000% "] {
        assert!(seen.stderr.contains(part), "{part}: {}", seen.stderr);
    }
    let seen = place.run(&["pack", "-m", "fp8", "--format", "fp8", "-o", "fp8.pack"]);
    let head = "lm_head: 0 rows copied from the checkpoint's FP8, 4096 quantized here";
    assert!(seen.code == 0 && seen.stderr.contains(head), "{}", seen.stderr);
    place.succeeds(&["run", "-q", "-n", "2", "-p", "My", "-m", "fp8"]);
    let bf16 = ["pack", "-m", "fp8", "--format", "bf16", "-o", "bf16.pack"];
    place.fails(&bf16, 1, "q_proj.weight: FP8 in the checkpoint");
    place.fails(&["diff", "-m", "fp8"], 1, "quantization_config");
    quantized_as(&place, r#"{"quant_method": "fp8", "weight_block_size": [128, 128]}"#);
    for args in [&["pack", "-m", "fp8", "-o", "x.pack"][..], &["run", "-m", "fp8", "-p", "a"]] {
        place.fails(args, 1, "name the bf16 checkpoint and pack it with `--format fp8`");
    }
    assert!(!place.path("x.pack").exists() && !place.path("bf16.pack").exists());
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
    assert!(first.stderr.contains("packing large as bf16 into "), "{}", first.stderr);
    let second = place.run(&args);
    assert_eq!((second.code, second.stderr.as_str()), (0, ""));
    // Another format is another pack.
    for file in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
        std::fs::copy(tiny().join(file), place.path("large").join(file)).unwrap();
    }
    let run = |format: &str| {
        place.run(&["run", "-q", "-n", "1", "-p", "My", "-m", "large", "--format", format]).stderr
    };
    assert!(run("fp8").contains("packing large as fp8 into "));
    assert_eq!((run("fp8"), run("bf16")), (String::new(), String::new()));
    // One that was damaged is made again.
    for pack in place.path("cache").read_dir().unwrap() {
        std::fs::write(pack.unwrap().path(), "damaged").unwrap();
    }
    assert!(place.run(&args).stderr.contains("packing large as bf16 into "));
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
