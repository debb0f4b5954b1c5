//! `synth`: the same bytes for the same seed, and never over what is there.

use crate::support::{Place, tiny};

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
    place.fails(&["run", "-m", "made/here", "-p", "x"], 4, "without one the model takes no text");
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
    place.fails(&["synth", "--shape", "huge", "-o", "x"], 2, "--shape huge: no shape");
    let args = ["synth", "--shape", tokenizer.to_str().unwrap(), "-o", "x"];
    place.fails(&args, 1, "tokenizer.json: model_type is missing");
    place.fails(&["synth"], 2, "--out");
    assert!(!place.path("x").exists());
}
