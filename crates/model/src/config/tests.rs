use super::*;
use proptest::prelude::*;
use serde_json::json;

fn parse(text: &str) -> Result<Config, ModelError> {
    Config::parse(text.as_bytes(), Path::new("config.json"))
}

fn with(name: &str, value: Value) -> String {
    let mut json: Value = serde_json::from_str(&Config::qwen3_0_6b().to_json()).unwrap();
    json[name] = value;
    json.to_string()
}

#[test]
fn round_trips() {
    let config = Config::qwen3_0_6b();
    assert_eq!(parse(&config.to_json()).unwrap(), config);
    assert_eq!(config.kv_bytes_per_position(), 28 * 4096);
}

/// A configuration without a base at the top level, and these fields.
fn with_rope(fields: &Value) -> String {
    let mut json: Value = serde_json::from_str(&Config::qwen3_0_6b().to_json()).unwrap();
    for name in ["rope_theta", "rope_scaling"] {
        json.as_object_mut().unwrap().remove(name);
    }
    for (name, value) in fields.as_object().unwrap() {
        json[name] = value.clone();
    }
    json.to_string()
}

#[test]
fn reads_every_home_of_theta() {
    for fields in [
        json!({"rope_theta": 5e5}),
        json!({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}),
        json!({"rope_scaling": {"type": "default", "rope_theta": 500_000}}),
        json!({"rope_theta": 5e5, "rope_parameters": {"rope_theta": 500_000.0}}),
        json!({"rope_theta": 5e5, "rope_parameters": {"partial_rotary_factor": 1.0}}),
    ] {
        assert_eq!(parse(&with_rope(&fields)).unwrap().rope_theta, 5e5);
    }
}

#[test]
fn two_bases_of_rope_that_differ_are_refused_by_name() {
    for (fields, places) in [
        (
            json!({"rope_theta": 100, "rope_parameters": {"rope_theta": 1e6}}),
            ["rope_theta is 100", "rope_parameters.rope_theta is 1000000"],
        ),
        (
            json!({"rope_theta": 1e6, "rope_scaling": {"rope_type": "default", "rope_theta": 100}}),
            ["rope_theta is 1000000", "rope_scaling.rope_theta is 100"],
        ),
        (
            json!({"rope_scaling": {"rope_theta": 1e4}, "rope_parameters": {"rope_theta": 1e6}}),
            ["rope_scaling.rope_theta is 10000", "rope_parameters.rope_theta is 1000000"],
        ),
    ] {
        let message = parse(&with_rope(&fields)).unwrap_err().to_string();
        for place in places {
            assert!(message.contains(place), "{message}");
        }
    }
}

#[test]
fn rope_by_type_of_layer_and_every_unknown_word_about_it_are_refused_by_name() {
    let yarn = json!({"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6});
    for (fields, words) in [
        (json!({"full_attention": yarn}), ["rope_parameters.full_attention", "yarn"]),
        (
            json!({"full_attention": {"rope_theta": 1e6}}),
            ["rope_parameters.full_attention", "layer"],
        ),
        (json!({"partial_rotary_factor": 0.5}), ["rope_parameters.partial_rotary_factor", "0.5"]),
        (json!({"mrope_section": [1, 2]}), ["rope_parameters.mrope_section", "[1,2]"]),
        (json!({"attention_factor": 1.2}), ["rope_parameters.attention_factor", "1.2"]),
    ] {
        let fields = json!({"rope_theta": 1e6, "rope_parameters": fields});
        let error = parse(&with_rope(&fields)).unwrap_err();
        assert!(matches!(error, ModelError::Unsupported { .. }), "{error}");
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
    }
    let message = parse(&with("partial_rotary_factor", 0.5.into())).unwrap_err().to_string();
    assert!(message.contains("partial_rotary_factor 0.5"), "{message}");
}

#[test]
fn a_key_that_is_there_twice_is_refused_by_name() {
    let text = Config::qwen3_0_6b().to_json().replacen('{', r#"{"rope_theta": 100,"#, 1);
    let message = parse(&text).unwrap_err().to_string();
    assert!(message.contains(r#"the key "rope_theta" is there twice"#), "{message}");
}

#[test]
fn layer_types_and_the_number_of_layers_must_agree() {
    let kinds = |count| vec![Value::from("full_attention"); count].into();
    parse(&with("layer_types", kinds(28))).unwrap();
    let message = parse(&with("layer_types", kinds(27))).unwrap_err().to_string();
    assert!(message.contains("layer_types lists 27 layers, num_hidden_layers is 28"), "{message}");
}

#[test]
fn dimensions_whose_sums_would_overflow_are_refused_with_the_size_they_make() {
    let mut json: Value = serde_json::from_str(&Config::qwen3_0_6b().to_json()).unwrap();
    for (name, value) in [
        ("vocab_size", 1 << 24),
        ("hidden_size", 1 << 24),
        ("intermediate_size", 1 << 24),
        ("num_hidden_layers", 65_534),
        ("num_attention_heads", 1),
        ("num_key_value_heads", 1),
        ("head_dim", 1 << 24),
    ] {
        json[name] = value.into();
    }
    let message = parse(&json.to_string()).unwrap_err().to_string();
    assert!(message.contains("weights (") && message.contains(" GB in bf16)"), "{message}");
    let message = parse(&with("vocab_size", (1 << 24).into()));
    assert_eq!(message.unwrap().vocab, 1 << 24, "32 GB of embedding are large, not absurd");

    let mut cache: Value = serde_json::from_str(&Config::qwen3_0_6b().to_json()).unwrap();
    cache["max_position_embeddings"] = (1 << 24).into();
    cache["hidden_size"] = 1.into();
    cache["intermediate_size"] = 1.into();
    cache["num_hidden_layers"] = 60_000.into();
    cache["num_attention_heads"] = (1 << 16).into();
    cache["num_key_value_heads"] = (1 << 16).into();
    let message = parse(&cache.to_string()).unwrap_err().to_string();
    assert!(message.contains("KV cache of"), "{message}");
}

#[test]
fn every_missing_field_is_named() {
    for name in [
        "model_type",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "vocab_size",
        "max_position_embeddings",
        "rope_theta",
        "rms_norm_eps",
        "tie_word_embeddings",
    ] {
        let message = parse(&with(name, Value::Null)).unwrap_err().to_string();
        assert!(message.contains(name) && message.contains("missing"), "{message}");
    }
}

#[test]
fn what_is_not_run_is_refused_by_name() {
    for (name, value, word) in [
        ("model_type", "qwen3_moe".into(), "qwen3_moe"),
        ("hidden_act", "gelu".into(), "gelu"),
        ("attention_bias", true.into(), "attention_bias"),
        ("use_sliding_window", true.into(), "use_sliding_window"),
        ("model_type", "qwen3\u{1b}[31m".into(), "qwen3\\u001b[31m"),
        ("rope_scaling", json!({"rope_type": "yarn", "factor": 4.0}), "yarn"),
        ("rope_scaling", json!({"factor": 2.0}), "factor"),
        ("rope_parameters", json!({"rope_type": "linear"}), "linear"),
        ("layer_types", json!(["sliding_attention"]), "sliding_attention"),
        ("quantization_config", json!({"quant_method": "fp8"}), "fp8"),
    ] {
        let error = parse(&with(name, value)).unwrap_err();
        assert!(matches!(error, ModelError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn wrong_values_are_refused_by_name() {
    for (name, value) in [
        ("hidden_size", Value::from(0)),
        ("hidden_size", Value::from(-4)),
        ("vocab_size", Value::from(1u64 << 40)),
        ("head_dim", Value::from(127)),
        ("num_key_value_heads", Value::from(3)),
        ("rope_theta", Value::from("1e6")),
        ("rms_norm_eps", Value::from(-1.0)),
        ("tie_word_embeddings", Value::from(1)),
        ("eos_token_id", Value::from("</s>")),
        ("rope_scaling", Value::from(3)),
    ] {
        let message = parse(&with(name, value)).unwrap_err().to_string();
        assert!(message.contains(name), "{message}");
    }
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Config::parse(&text, Path::new("config.json"));
    }

    #[test]
    fn a_mutated_config_never_panics(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut text = Config::qwen3_0_6b().to_json().into_bytes();
        let at = at.index(text.len());
        text[at] = byte;
        let _ = Config::parse(&text, Path::new("config.json"));
    }
}
