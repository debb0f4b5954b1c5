//! `synth`: the same bytes for the same seed, and never over what is there.

use crate::support::{Place, tiny};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::path::{Path, PathBuf};

/// What is shipped to be rebuilt.
fn standin() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/standin").canonicalize().unwrap()
}

/// A folder of deltas that change nothing about these weights of seed 5, at rank 1.
fn idle_deltas(base: &Path, out: &Path) {
    std::fs::create_dir(out).unwrap();
    std::fs::copy(base.join("config.json"), out.join("config.json")).unwrap();
    for name in ["generation_config.json", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(tiny().join(name), out.join(name)).unwrap();
    }
    let file = std::fs::read(base.join("model.safetensors")).unwrap();
    let mut entries: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = Vec::new();
    let mut add = |name: String, dtype, shape: &[usize], bytes: &[u8]| {
        entries.push((name, dtype, shape.to_vec(), bytes.to_vec()));
    };
    for (name, tensor) in SafeTensors::deserialize(&file).unwrap().iter() {
        let &[rows, cols] = tensor.shape() else {
            add(name.to_owned(), Dtype::BF16, tensor.shape(), tensor.data());
            continue;
        };
        add(format!("{name}.scale"), Dtype::F32, &[1], &1f32.to_le_bytes());
        // Products of -0: they leave even the sign of a zero.
        let parts = if name == "model.embed_tokens.weight" {
            add(format!("{name}.offset"), Dtype::F32, &[cols], &vec![0; 4 * cols]);
            vec![("rows", 0, cols, 1f32)]
        } else {
            vec![("a", 1, cols, -1.0), ("b", 1, rows, 1.0)]
        };
        for (part, rows, cols, scale) in parts {
            add(format!("{name}.{part}"), Dtype::I8, &[rows, cols], &vec![0; rows * cols]);
            add(
                format!("{name}.{part}_scale"),
                Dtype::F32,
                &[rows],
                &scale.to_le_bytes().repeat(rows),
            );
        }
    }
    let views = entries.iter().map(|(name, dtype, shape, bytes)| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    let file = safetensors::serialize(views, None).unwrap();
    std::fs::write(out.join("deltas-00001-of-00001.safetensors"), file).unwrap();
}

#[test]
fn a_seed_gives_the_same_bytes_every_time() {
    let place = Place::new();
    for (out, seed) in [("a", "7"), ("b", "7"), ("c", "8")] {
        let args = ["synth", "--shape", "tiny", "--seed", seed, "-o", out];
        assert_eq!(place.succeeds(&args), "", "data is in the folder, the rest on stderr");
    }
    let weights = |out: &str| std::fs::read(place.path(out).join("model.safetensors")).unwrap();
    assert!(weights("a") == weights("b") && weights("a") != weights("c"));
}

#[test]
fn a_synthetic_model_packs_and_says_what_it_lacks_to_run() {
    let place = Place::new();
    let config = tiny().join("config.json");
    place.succeeds(&["synth", "--shape", config.to_str().unwrap(), "-o", "made/here"]);
    place.succeeds(&["pack", "-m", "made/here", "-o", "here.pack"]);
    place.fails(&["run", "-m", "made/here", "-p", "x"], 4, "text needs one; copy it from a model");
}

#[test]
fn what_is_there_is_left_alone() {
    let place = Place::new();
    std::fs::create_dir(place.path("full")).unwrap();
    std::fs::write(place.path("full/mine"), "mine").unwrap();
    std::fs::write(place.path("file"), "mine").unwrap();
    for out in ["full", "file"] {
        let message = format!("{out} exists and is not empty: name a new folder");
        place.fails(&["synth", "--shape", "tiny", "-o", out], 1, &message);
    }
    assert_eq!(std::fs::read_to_string(place.path("full/mine")).unwrap(), "mine");
}

#[test]
fn a_shape_that_is_none() {
    let (place, tokenizer) = (Place::new(), tiny().join("tokenizer.json"));
    place.fails(&["synth", "--shape", "huge", "-o", "x"], 2, "--shape huge: neither a named shape");
    let args = ["synth", "--shape", tokenizer.to_str().unwrap(), "-o", "x"];
    place.fails(&args, 1, "tokenizer.json: model_type is missing");
    place.fails(&["synth"], 2, "--out");
    assert!(!place.path("x").exists());
}

#[test]
fn a_model_is_rebuilt_from_deltas_if_it_is_the_promised_one() {
    let place = Place::new();
    let config = tiny().join("config.json");
    place.succeeds(&["synth", "--shape", config.to_str().unwrap(), "--seed", "5", "-o", "base"]);
    idle_deltas(&place.path("base"), &place.path("deltas"));
    let promise = |sha256: &str| {
        let text = format!(r#"{{"base_seed": 5, "model_sha256": "{sha256}"}}"#);
        std::fs::write(place.path("deltas/standin.json"), text).unwrap();
    };
    let args = ["synth", "--deltas", "deltas", "-o", "out/model"];
    promise(&"0".repeat(64));
    let seen = place.run(&args);
    seen.is_failure(1, "standin.json says 0000");
    assert!(!place.path("out/model").exists(), "what is wrong is not kept");

    let (_, found) = seen.stderr.split_once(": sha256 ").unwrap();
    promise(&found[..64]);
    let seen = place.run(&args);
    assert_eq!((seen.code, seen.stdout.as_str()), (0, ""), "{}", seen.stderr);
    assert!(seen.stderr.contains("deltas, over seed 5"), "{}", seen.stderr);
    let weights = |out: &str| std::fs::read(place.path(out).join("model.safetensors")).unwrap();
    assert!(weights("base") == weights("out/model"), "these deltas change nothing");
    place.succeeds(&["run", "-m", "out/model", "-p", "The sea", "-n", "2"]);
    place.fails(&args, 1, "exists and is not empty");
}

#[test]
fn deltas_that_are_none_leave_nothing() {
    let place = Place::new();
    let deltas = standin();
    let deltas = deltas.to_str().unwrap();
    for option in [["--shape", "tiny"], ["--seed", "0"]] {
        let args = [&["synth", "--deltas", deltas, "-o", "x"][..], &option[..]].concat();
        place.fails(&args, 2, "cannot be used with");
    }
    place.fails(&["synth", "--deltas", "none", "-o", "x"], 4, "--deltas none: no such folder");
    let tiny = tiny();
    let tiny = tiny.to_str().unwrap();
    place.fails(&["synth", "--deltas", tiny, "-o", "x"], 1, "standin.json: No such file");
    std::fs::create_dir(place.path("d")).unwrap();
    for name in ["standin.json", "config.json", "deltas-00001-of-00001.safetensors"] {
        std::fs::copy(standin().join(name), place.path("d").join(name)).unwrap();
    }
    place.fails(&["synth", "--deltas", "d", "-o", "x"], 1, "generation_config.json: No such file");
    assert!(!place.path("x").exists());
}

#[test]
fn a_shape_that_no_disk_holds_is_refused_with_its_size() {
    let place = Place::new();
    let shape = |sizes: [u64; 3]| {
        let [hidden, vocab, layers] = sizes;
        let config = serde_json::json!({
            "model_type": "qwen3", "hidden_size": hidden, "vocab_size": vocab,
            "num_hidden_layers": layers, "intermediate_size": hidden, "num_attention_heads": 1,
            "num_key_value_heads": 1, "head_dim": hidden, "max_position_embeddings": 2048,
            "rope_theta": 1e4, "rms_norm_eps": 1e-5, "tie_word_embeddings": false,
        });
        std::fs::write(place.path("shape.json"), config.to_string()).unwrap();
    };
    let synth = ["synth", "--shape", "shape.json", "-o", "out"];
    for sizes in [[1 << 24, 1 << 24, 65_534], [1 << 24, 1 << 24, 1], [1 << 20, 1 << 24, 1]] {
        shape(sizes);
        place.fails(&synth, 1, " GB in bf16): no more than 4398046511104 are taken");
        // A folder and a pack of such a shape are refused by the same words, whatever is in them.
        std::fs::create_dir_all(place.path("m")).unwrap();
        std::fs::copy(place.path("shape.json"), place.path("m/config.json")).unwrap();
        std::fs::copy(tiny().join("model.safetensors"), place.path("m/model.safetensors")).unwrap();
        place.fails(&["pack", "-m", "m", "-o", "x.pack"], 1, " GB in bf16)");
    }
    assert!(!place.path("out").exists());
}

#[test]
fn what_a_killed_command_left_is_removed_by_the_next() {
    let place = Place::new();
    let tiny = tiny();
    let stale = [".monolith-aaaaaaaaaaaa.part", ".monolith-bbbbbbbbbbbb.part"];
    let commands = [
        vec!["pack", "-m", tiny.to_str().unwrap(), "-o", "x.pack"],
        vec!["synth", "--shape", "tiny", "-o", "made"],
        vec!["unpack", "-m", tiny.to_str().unwrap(), "-o", "unpacked"],
    ];
    for command in commands {
        std::fs::write(place.path(stale[0]), "half a pack").unwrap();
        std::fs::create_dir(place.path(stale[1])).unwrap();
        std::fs::write(place.path(stale[1]).join("model.safetensors"), "half").unwrap();
        place.succeeds(&command);
        for name in stale {
            assert!(!place.path(name).exists(), "{command:?} leaves {name}");
        }
    }
    let left: Vec<_> =
        place.path("").read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}
