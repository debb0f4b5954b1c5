//! Model folders that are small, incomplete or wrong.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use monolith_text::{ChatOptions, ChatTemplate, EncodePolicy, Error, Tokenizer};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A byte-level tokenizer of single ASCII letters, with one special token and one that the
/// post-processor puts first.
fn tiny() -> Value {
    json!({
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 3, "strategy": "LongestFirst",
                       "stride": 0},
        "padding": {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null,
                    "pad_id": 0, "pad_type_id": 0, "pad_token": "a"},
        "added_tokens": [
            added(26, "<s>"), added(27, "<|end|>")
        ],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
                          "use_regex": false},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                     {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [26], "tokens": ["<s>"]}}},
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
                    "use_regex": false},
        "model": {"type": "BPE", "vocab": vocab(), "merges": []}
    })
}

fn added(id: u32, content: &str) -> Value {
    json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
           "normalized": false, "special": true})
}

fn vocab() -> Value {
    ('a'..='z').enumerate().map(|(id, letter)| (letter.to_string(), json!(id))).collect()
}

fn load(tokenizer: &Value, config: Option<&str>) -> Result<Tokenizer, Error> {
    Tokenizer::load(folder(tokenizer, &[("tokenizer_config.json", config)]).path())
}

/// A folder with this tokenizer, and with those of the files that have a text.
fn folder(tokenizer: &Value, files: &[(&str, Option<&str>)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    for (name, text) in files {
        let Some(text) = text else { continue };
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

#[test]
fn prompts_get_the_tokenizers_own_tokens_and_nothing_is_cut_or_padded() {
    let tokenizer = load(&tiny(), None).unwrap();
    let encode = |policy| tokenizer.encode("abcde<|end|>", policy).unwrap();
    assert_eq!(encode(EncodePolicy::Prompt), [26, 0, 1, 2, 3, 4, 27]);
    assert_eq!(encode(EncodePolicy::Rendered), [0, 1, 2, 3, 4, 27]);
    assert_eq!(encode(EncodePolicy::Literal), [0, 1, 2, 3, 4, 4, 13, 3]);
    assert_eq!(tokenizer.vocab_size(), 28);
}

#[test]
fn the_config_names_tokens_as_text_or_object() {
    let config = r#"{"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "<|end|>",
                     "pad_token": null, "added_tokens_decoder": {"26": {"content": "<s>"}}}"#;
    let tokenizer = load(&tiny(), Some(config)).unwrap();
    assert_eq!(tokenizer.bos().map(|token| token.id), Some(26));
    assert_eq!(tokenizer.eos().map(|token| token.id), Some(27));
    assert_eq!(tokenizer.pad(), None);
}

/// As in transformers 5.24: `special_tokens_map.json` counts where `tokenizer_config.json` has no
/// `added_tokens_decoder`, and then replaces what both name.
#[test]
fn an_older_models_special_tokens_are_in_a_map() {
    let own = r#"{"bos_token": "<|end|>", "sep_token": "a", "mask_token": "b"}"#;
    let newer = r#"{"bos_token": "<|end|>", "added_tokens_decoder": {}}"#;
    let map = r#"{"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "<|end|>",
                  "sep_token": null, "additional_special_tokens": ["<s>"]}"#;
    for (config, map, expected) in [
        (None, None, "|||"),
        (None, Some(map), "<s>|<|end|>||"),
        (Some("{}"), Some(map), "<s>|<|end|>||"),
        (Some(own), None, "<|end|>||a|b"),
        (Some(own), Some(map), "<s>|<|end|>||b"),
        (Some(newer), Some(map), "<|end|>|||"),
        (Some(newer), Some("not read"), "<|end|>|||"),
    ] {
        let template = "{{ bos_token }}|{{ eos_token }}|{{ sep_token }}|{{ mask_token }}";
        let files = [
            ("tokenizer_config.json", config),
            ("special_tokens_map.json", map),
            ("chat_template.jinja", Some(template)),
        ];
        let dir = folder(&tiny(), &files);
        let chat = ChatTemplate::load(dir.path()).unwrap();
        assert_eq!(chat.render(&[], &ChatOptions::default()).unwrap(), expected);
        let tokenizer = Tokenizer::load(dir.path()).unwrap();
        let texts = [tokenizer.bos(), tokenizer.eos()];
        let texts = texts.map(|token| token.map_or("", |token| &*token.text));
        assert!(expected.starts_with(&texts.join("|")), "{texts:?}");
    }
}

#[test]
fn a_map_that_is_wrong_is_named() {
    for (map, reason) in [
        (r#"{"eos_token": "</s>"}"#, "eos_token is \"</s>\", which tokenizer.json does not have"),
        (r#"{"eos_token": 3}"#, "expected a token"),
        ("[", "EOF while parsing"),
    ] {
        let config = r#"{"eos_token": "<|end|>"}"#;
        let files =
            [("tokenizer_config.json", Some(config)), ("special_tokens_map.json", Some(map))];
        let error = Tokenizer::load(folder(&tiny(), &files).path()).unwrap_err().to_string();
        assert!(error.contains("special_tokens_map.json: ") && error.contains(reason), "{error}");
    }
}

#[test]
fn a_missing_tokenizer_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = Tokenizer::load(dir.path()).unwrap_err();
    assert!(matches!(&error, Error::Missing { path } if path.ends_with("tokenizer.json")));
    let error = Tokenizer::load(Path::new("no/such/folder")).unwrap_err().to_string();
    assert!(error.starts_with("no/such/folder/tokenizer.json: no such file"), "{error}");
}

#[test]
fn corrupt_files_are_named_with_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    for (contents, reason) in [
        (&b"{\"version\": \"1.0\", "[..], "tokenizer.json: not a tokenizer: EOF while parsing"),
        (b"{}", "tokenizer.json: not a tokenizer: "),
        (b"\xff\xfe", "tokenizer.json: not UTF-8 text"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "a Git LFS pointer"),
        (b"<!DOCTYPE html>\n<html>", "an HTML page"),
        (b"GGUF\x03", "a GGUF file"),
        (b"\n", "tokenizer.json: not JSON text, but an empty file"),
    ] {
        std::fs::write(dir.path().join("tokenizer.json"), contents).unwrap();
        let error = Tokenizer::load(dir.path()).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }));
        assert!(error.to_string().contains(reason), "{error}");
    }
}

/// A tokenizer of one's own in place of an error of the library.
#[test]
fn a_tokenizer_that_fails_the_library_is_an_error_of_the_file() {
    let change = |pointer: &str, value: Value| {
        let mut tokenizer = tiny();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        tokenizer.pointer_mut(parent).unwrap()[key] = value;
        load(&tokenizer, None).unwrap_err().to_string()
    };
    let prefix = "x".repeat(99);
    for (pointer, value, reason) in [
        // The library cuts the prefix off a shorter token.
        ("/model/continuing_subword_prefix", json!(prefix), "continuing_subword_prefix is set"),
        ("/model/end_of_word_suffix", json!("</w>"), "end_of_word_suffix is set"),
        // It writes a merged token into a buffer as long as the longest in the vocabulary.
        ("/model/merges", json!([["a", "b"]]), "tokenizers library failed on it: "),
        ("/model/dropout", json!(0.5), "dropout is set"),
        // Each makes a text as long as it likes.
        ("/normalizer", json!({"type": "Prepend", "prepend": prefix}), "normalizer Prepend"),
        (
            "/normalizer",
            json!({"type": "Sequence", "normalizers": [
                {"type": "NFC"},
                {"type": "Replace", "pattern": {"String": "a"}, "content": prefix}]}),
            "normalizer Replace",
        ),
    ] {
        let error = change(pointer, value);
        assert!(error.contains("tokenizer.json: ") && error.contains(reason), "{error}");
    }
}

/// An added token's text is its own, whatever its letters are in the alphabet of bytes.
#[test]
fn added_tokens_are_written_as_they_are() {
    let texts = ["đem", "č", "<|début|>", "«user»", "ñ", "Ġx", "a b", "漢"];
    let mut tokenizer = tiny();
    for (id, text) in texts.iter().enumerate() {
        let token = added(28 + u32::try_from(id).unwrap(), text);
        tokenizer["added_tokens"].as_array_mut().unwrap().push(token);
    }
    let tokenizer = load(&tokenizer, None).unwrap();
    let ids: Vec<u32> = (28..28 + u32::try_from(texts.len()).unwrap()).collect();
    assert_eq!(tokenizer.decode(&ids, false), texts.concat());
    let mut decoder = tokenizer.stream_decoder(false);
    for (&id, text) in ids.iter().zip(texts) {
        assert_eq!(decoder.push(id).as_deref(), Some(text));
        assert_eq!(tokenizer.encode(text, EncodePolicy::Rendered).unwrap(), [id]);
    }
    assert_eq!(decoder.finish(), None);
}

/// A batch of one is never padded.
#[test]
fn a_padding_token_that_is_not_there_is_a_warning() {
    for config in [
        r#"{"pad_token": "[PAD]"}"#,
        r#"{"pad_token": {"content": "[PAD]"},
            "added_tokens_decoder": {"28": {"content": "[PAD]"}}}"#,
    ] {
        let tokenizer = load(&tiny(), Some(config)).unwrap();
        assert_eq!(tokenizer.pad(), None);
        let [warning] = tokenizer.warnings() else { panic!("{:?}", tokenizer.warnings()) };
        let reason = "tokenizer_config.json: pad_token is \"[PAD]\", which tokenizer.json does not \
                      have; it is not needed, as nothing is padded";
        assert!(warning.ends_with(reason), "{warning}");
    }
    // An empty name is none.
    let empty = r#"{"bos_token": "", "eos_token": "", "pad_token": ""}"#;
    let tokenizer = load(&tiny(), Some(empty)).unwrap();
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.pad()), (None, None, None));
    assert!(tokenizer.warnings().is_empty());
}

#[test]
fn a_config_that_contradicts_the_tokenizer_is_refused() {
    for (config, reason) in [
        (r#"{"eos_token": "</s>"}"#, "eos_token is \"</s>\", which tokenizer.json does not have"),
        (
            r#"{"added_tokens_decoder": {"26": {"content": "<b>"}}}"#,
            "gives \"<b>\" the id 26, where tokenizer.json has \"<s>\"",
        ),
        (r#"{"added_tokens_decoder": {"99": {"content": "<b>"}}}"#, "has nothing"),
        (r#"{"bos_token": "<bos>"}"#, "bos_token is \"<bos>\", which tokenizer.json does not have"),
        (
            r#"{"pad_token": "<s>", "added_tokens_decoder": {"27": {"content": "<s>"}}}"#,
            "gives \"<s>\" the id 27, where tokenizer.json has \"<|end|>\"",
        ),
        (r#"{"eos_token": 3}"#, "expected a token"),
        ("{", "EOF while parsing"),
    ] {
        let error = load(&tiny(), Some(config)).unwrap_err().to_string();
        assert!(error.contains("tokenizer_config.json: ") && error.contains(reason), "{error}");
    }
}

#[test]
fn other_kinds_of_tokenizers_are_refused_by_name() {
    for (decoder, name) in [
        (json!({"type": "WordPiece", "prefix": "##", "cleanup": true}), "decoder WordPiece;"),
        (json!({"type": "Sequence", "decoders": [{"type": "ByteFallback"}]}), "decoder Sequence;"),
        (Value::Null, "no decoder;"),
    ] {
        let mut tokenizer = tiny();
        tokenizer["decoder"] = decoder;
        let error = load(&tokenizer, None).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }));
        assert!(error.to_string().contains(name), "{error}");
    }
}
