//! `diff`: the engine against the reference.

use crate::support::{Place, replace, tiny};

fn diff<'a>(model: &'a str, args: &[&'a str]) -> Vec<&'a str> {
    [&["diff", "-m", model], args].concat()
}

#[test]
fn the_engine_agrees_with_the_reference() {
    let (place, model) = (Place::new(), tiny());
    let model = model.to_str().unwrap();
    let text = place.succeeds(&diff(model, &[]));
    assert!(text.contains("4 tokens, layers 0 to 5, up to lm_head: no element differs"), "{text}");
    let text = place.succeeds(&diff(model, &["--layers", "1", "--stop-after", "qkv"]));
    assert!(text.contains("layers 0 to 0, up to qkv"), "{text}");
    let text = place.succeeds(&diff(model, &["--layers", "2", "--tokens", "9,8"]));
    assert!(text.contains("2 tokens, layers 0 to 1, up to down"), "{text}");
}

#[test]
fn the_first_element_that_differs_is_named() {
    let (place, model) = (Place::new(), tiny());
    // Sums in another order: the last bit of some element differs, and 0 is tolerated.
    let seen = place.run(&diff(model.to_str().unwrap(), &["--tolerance", "0"]));
    seen.is_failure(1, "position 0: layer 0 qkv, row 0, element ");
    assert!(seen.stderr.contains("(reference, then cpu)"), "{}", seen.stderr);
}

#[test]
fn what_cannot_be_compared() {
    let (place, model) = (Place::new(), tiny());
    let model = model.to_str().unwrap();
    for (args, message) in [
        (&["--stop-after", "embed"][..], "possible values: qkv, attention"),
        (&["--layers", "0"], "--layers"),
        (&["--layers", "7"], "the model has 6"),
        (&["--layers", "1", "--stop-after", "lm_head"], "omit --layers"),
        (&["--tokens", "4096"], "--tokens: 4096 is not in the vocabulary of 4096"),
        (&["--tokens", "1,2,3", "--context", "2"], "--tokens: 3 tokens, the context has 2"),
        (&["--tokens", ""], "--tokens"),
        (&["--tolerance", "nan"], "--tolerance"),
        (&["--tolerance", "-1"], "--tolerance"),
    ] {
        place.fails(&diff(model, args), 2, message);
    }
    place.fails(&diff("/nowhere", &[]), 4, "no such file or folder");
    std::fs::write(place.path("x.pack"), "").unwrap();
    place.fails(&diff("x.pack", &[]), 2, "x.pack is a pack; name a model folder");
}

#[test]
fn a_damaged_model_is_named() {
    let place = Place::new();
    replace(&place.model("m").join("model.safetensors"), b"nothing");
    place.fails(&diff("m", &[]), 1, "m/model.safetensors: ");
}
