//! Checkpoints as other programs leave them: read and said aloud, or refused by name.

use crate::support::{Place, ids, replace, tiny};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::Value;
use std::path::Path;

type Entry = (String, Dtype, Vec<usize>, Vec<u8>);

/// The shipped model's tensors.
fn entries() -> Vec<Entry> {
    let file = std::fs::read(tiny().join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let entry = |(name, tensor): (&str, TensorView)| {
        (name.to_owned(), tensor.dtype(), tensor.shape().to_vec(), tensor.data().to_vec())
    };
    tensors.iter().map(entry).collect()
}

/// Puts other tensors into a copy of the shipped model.
fn put(model: &Path, entries: &[Entry]) {
    let views = entries.iter().map(|(name, dtype, shape, bytes)| {
        (name.clone(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    replace(&model.join("model.safetensors"), &safetensors::serialize(views, None).unwrap());
}

const RUN: [&str; 7] = ["run", "--json", "-n", "6", "-p", "My fellow", "-m"];

/// The tokens that a model gives, and what it says.
fn run(place: &Place, model: &str) -> (Vec<i64>, String) {
    let seen = place.run(&[&RUN[..], &[model]].concat());
    assert_eq!(seen.code, 0, "{}", seen.stderr);
    let json: Value = serde_json::from_str(&seen.stdout).unwrap();
    (ids(&json["tokens"]), seen.stderr)
}

#[test]
fn an_own_head_under_a_tied_flag_is_used_and_said_once() {
    let place = Place::new();
    let (tied, said) = run(&place, tiny().to_str().unwrap());
    assert!(!said.contains("lm_head"), "{said}");
    let embedding =
        entries().into_iter().find(|(name, ..)| name == "model.embed_tokens.weight").unwrap();
    let (_, dtype, shape, bytes) = embedding;
    let head = |bytes: Vec<u8>| -> Vec<Entry> {
        let mut all = entries();
        all.push(("lm_head.weight".into(), dtype, shape.clone(), bytes));
        all
    };
    put(&place.model("copy"), &head(bytes.clone()));
    assert_eq!(run(&place, "copy"), (tied.clone(), said), "an equal copy is silent");

    // The head that ranks tokens the other way round: every row negated.
    let negated = bytes.as_chunks::<2>().0.iter().flat_map(|&[low, high]| [low, high ^ 0x80]);
    put(&place.model("own"), &head(negated.collect()));
    let (own, said) = run(&place, "own");
    assert_ne!(own, tied);
    let sentence =
        "monolith: own: tie_word_embeddings is true, but the checkpoint holds an lm_head";
    assert_eq!(said.matches(sentence).count(), 1, "{said}");
    place.succeeds(&["pack", "-m", "own", "-o", "own.pack"]);
    let header = place.succeeds(&["inspect", "--json", "own.pack"]);
    let header: Value = serde_json::from_str(&header).unwrap();
    assert_eq!(header["header"]["config"]["tie_word_embeddings"], false);
    // The reference reads the same head as the engine.
    let diff = place.run(&["diff", "-m", "own", "--tokens", "5,6,7"]);
    assert_eq!(diff.code, 0, "{}", diff.stderr);
    assert_eq!(diff.stderr.matches(sentence).count(), 1, "{}", diff.stderr);
}

#[test]
fn wider_weights_are_rounded_and_said_once() {
    let place = Place::new();
    let (tokens, _) = run(&place, tiny().to_str().unwrap());
    let wide = |(name, _, shape, bytes): Entry| -> Entry {
        let bytes = bytes.as_chunks::<2>().0.iter().flat_map(|&[low, high]| [0, 0, low, high]);
        (name, Dtype::F32, shape, bytes.collect())
    };
    put(&place.model("wide"), &entries().into_iter().map(wide).collect::<Vec<_>>());
    let (seen, said) = run(&place, "wide");
    assert_eq!(seen, tokens);
    let sentence = "monolith: wide: 68 of 68 tensors are F32: they are rounded to bf16";
    assert_eq!(said.matches(sentence).count(), 1, "{said}");
    for formats in ["bf16", "fp8"] {
        for (model, out) in [("wide", "a"), (tiny().to_str().unwrap(), "b")] {
            place.succeeds(&["pack", "-m", model, "--format", formats, "-o", out]);
        }
        let header = |pack| -> Value {
            serde_json::from_str(&place.succeeds(&["inspect", "--json", pack])).unwrap()
        };
        assert_eq!(header("a")["header"]["sections"], header("b")["header"]["sections"]);
    }
    let diff = place.run(&["diff", "-m", "wide", "--tokens", "5,6,7"]);
    assert_eq!(diff.code, 0, "{}", diff.stderr);
}

#[test]
fn a_pack_ends_where_its_folder_does() {
    let place = Place::new();
    let long = |model: &str| -> Value {
        let args = ["run", "--json", "-n", "12", "-p", "My fellow", "-m", model];
        serde_json::from_str(&place.succeeds(&args)).unwrap()
    };
    let free = ids(&long(tiny().to_str().unwrap())["tokens"]);
    let end_at = |place: usize| free[place].to_string();
    let first_end = free.iter().position(|id| *id == free[5]).unwrap();
    let model = place.model("m");
    std::fs::remove_file(model.join("generation_config.json")).unwrap();
    let config = std::fs::read_to_string(model.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["eos_token_id"] = serde_json::json!([free[5]]);
    replace(&model.join("config.json"), config.to_string().as_bytes());

    let of_folder = long("m");
    assert_eq!(of_folder["stopped"], "end of text");
    assert_eq!(ids(&of_folder["tokens"]), free[..first_end]);
    std::fs::create_dir(place.path("p")).unwrap();
    std::fs::copy(tiny().join("tokenizer.json"), place.path("p/tokenizer.json")).unwrap();
    place.succeeds(&["pack", "-m", "m", "-o", "p/x.pack"]);
    let of_pack = long("p/x.pack");
    assert_eq!(
        (&of_pack["tokens"], &of_pack["stopped"]),
        (&of_folder["tokens"], &"end of text".into())
    );
    assert!(
        place
            .succeeds(&["inspect", "p/x.pack"])
            .contains(&format!("ends at      token {}", free[5]))
    );

    // Another model's config.json beside the pack changes nothing, a generation_config.json does.
    std::fs::write(place.path("p/config.json"), r#"{"eos_token_id": 1}"#).unwrap();
    assert_eq!(long("p/x.pack")["tokens"], of_folder["tokens"]);
    let generation = format!(r#"{{"eos_token_id": [{}]}}"#, end_at(0));
    std::fs::write(place.path("p/generation_config.json"), generation).unwrap();
    assert_eq!(ids(&long("p/x.pack")["tokens"]), [0i64; 0]);

    // What generation_config.json says at pack time is in the pack, too.
    let generation = format!(r#"{{"eos_token_id": {}}}"#, end_at(2));
    std::fs::write(model.join("generation_config.json"), generation).unwrap();
    place.succeeds(&["pack", "-m", "m", "-o", "p/x.pack"]);
    std::fs::remove_file(place.path("p/generation_config.json")).unwrap();
    assert_eq!(ids(&long("p/x.pack")["tokens"]), ids(&long("m")["tokens"]));
    assert!(ids(&long("m")["tokens"]).len() <= 2);
}

#[test]
fn other_files_under_a_checkpoints_names_are_told_for_what_they_are() {
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n";
    let page = b"<!DOCTYPE html>\n<html><body>Please sign in</body></html>";
    for (bytes, word) in [(&pointer[..], "a Git LFS pointer"), (page, "an HTML page")] {
        for file in ["model.safetensors", "config.json", "tokenizer.json"] {
            let place = Place::new();
            replace(&place.model("m").join(file), bytes);
            let seen = place.run(&[&RUN[..], &["m"]].concat());
            assert_eq!(seen.code, 1, "{}", seen.stderr);
            assert!(seen.stderr.contains(word) && seen.stderr.contains(file), "{}", seen.stderr);
        }
    }
}

#[test]
fn a_folder_with_other_weights_names_them() {
    let place = Place::new();
    let model = place.model("m");
    std::fs::remove_file(model.join("model.safetensors")).unwrap();
    std::fs::write(model.join("adapter_model.safetensors"), "x").unwrap();
    place.fails(&[&RUN[..], &["m"]].concat(), 4, "it holds a LoRA adapter: merge it");
}

#[test]
fn a_search_for_scales_is_told_and_needs_scales() {
    let place = Place::new();
    let tiny = tiny();
    let model = tiny.to_str().unwrap();
    let search = ["--scale-search", "mse"];
    let pack = ["pack", "-m", model, "--format", "fp8", "-o"];
    place.succeeds(&[&pack[..], &["amax.pack"]].concat());
    place.succeeds(&[&pack[..], &["mse.pack"], &search].concat());
    let bf16 = ["pack", "-m", model, "-o", "x.pack", search[0], search[1]];
    place.fails(&bf16, 2, "weights in bf16 have no scales; add --format fp8");
    let text = place.succeeds(&["inspect", "mse.pack"]);
    assert!(text.contains("format       fp8, scales by least squared error"), "{text}");
    let header = |pack| -> Value {
        serde_json::from_str(&place.succeeds(&["inspect", "--json", pack])).unwrap()
    };
    let (amax, mse) = (header("amax.pack"), header("mse.pack"));
    assert_eq!(mse["header"]["scale_search"], "mse");
    assert_eq!(amax["header"].get("scale_search"), None);
    assert_ne!(mse["header"]["sections"], amax["header"]["sections"]);
    let unpack = ["unpack", "-m", "amax.pack", "-o", "u", search[0], search[1]];
    place.fails(&unpack, 2, "the scales of amax.pack were chosen by amax");
}
