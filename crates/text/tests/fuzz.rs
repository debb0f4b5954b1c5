//! Bounded fuzzing of the files of a model folder. `fuzz` may say yes or no; it may not panic.

#![allow(clippy::unwrap_used)]

use monolith_text::fuzz;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A byte-level tokenizer with two merges, as small as can be.
fn small_tokenizer() -> Value {
    let mut vocab = serde_json::Map::new();
    for (id, byte) in (b'!'..=b'~').enumerate() {
        vocab.insert(char::from(byte).to_string(), json!(id));
    }
    for (id, token) in ["Ġ", "Ċ", "th", "the", "Ġthe"].into_iter().enumerate() {
        vocab.insert(token.into(), json!(94 + id));
    }
    let added = |id: u32, content: &str, special: bool| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false,
               "rstrip": false, "normalized": false, "special": special})
    };
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [added(99, "<|im_end|>", true), added(100, "<think>", false)],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": " ?\\p{L}+|\\s+(?!\\S)|\\s+"},
             "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
             "use_regex": false}]},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|im_end|>", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                     {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<|im_end|>": {"id": "<|im_end|>", "ids": [99],
                                              "tokens": ["<|im_end|>"]}}},
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
                    "use_regex": false},
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
                  "continuing_subword_prefix": null, "end_of_word_suffix": null,
                  "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                  "vocab": vocab, "merges": [["t", "h"], ["th", "e"], ["Ġ", "the"]]},
    })
}

/// Other values for a place in a JSON document.
fn other_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        prop_oneof![
            Just(-1_i64),
            Just(0),
            Just(1),
            Just(99),
            Just(i64::from(u32::MAX)),
            any::<i64>()
        ]
        .prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "(\\PC|\u{1b}|\n){0,8}".prop_map(Value::from),
        prop_oneof![
            Just(""),
            Just("the"),
            Just("<|im_end|>"),
            Just("NFKC"),
            Just("Replace"),
            Just("Prepend"),
            Just("ByteLevel"),
            Just("WordPiece"),
            Just("Unigram"),
            Just("Metaspace"),
            Just("Digits"),
            Just("(a|aa)+$"),
            Just("(("),
            Just("\\p{"),
            Just("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
        ]
        .prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!([["the", "the"], ["a", "b"]])),
        Just(json!({"type": "Sequence", "normalizers": [], "pretokenizers": []})),
    ]
}

/// Every place of a document, in order.
fn places(value: &Value, at: &str, out: &mut Vec<String>) {
    out.push(at.to_owned());
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                places(item, &format!("{at}/{index}"), out);
            }
        }
        Value::Object(fields) => {
            for (key, item) in fields {
                let key = key.replace('~', "~0").replace('/', "~1");
                places(item, &format!("{at}/{key}"), out);
            }
        }
        _ => {}
    }
}

/// A document with some of its places changed or taken out.
fn mutated(mut document: Value, changes: Vec<(prop::sample::Index, Option<Value>)>) -> Value {
    for (index, change) in changes {
        let mut all = Vec::new();
        places(&document, "", &mut all);
        let at = &all[index.index(all.len())];
        let Some((parent, key)) = at.rsplit_once('/') else { continue };
        match (change, document.pointer_mut(parent)) {
            (Some(value), _) => *document.pointer_mut(at).unwrap() = value,
            (None, Some(Value::Object(fields))) => {
                fields.remove(&key.replace("~1", "/").replace("~0", "~"));
            }
            (None, Some(Value::Array(items))) => {
                items.remove(key.parse().unwrap());
            }
            (None, _) => {}
        }
    }
    document
}

fn changes() -> impl Strategy<Value = Vec<(prop::sample::Index, Option<Value>)>> {
    prop::collection::vec(
        (any::<prop::sample::Index>(), prop::option::weighted(0.8, other_value())),
        0..5,
    )
}

/// Words of the template language, and whatever else.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    "{{", "}}", "{%", "%}", "{%-", "-%}", "{#", "#}", "for x in messages", "endfor", "if", "else",
    "elif", "endif", "set x =", "set x", "endset", "macro f(a, b=1)", "endmacro", "f(1)",
    "call f()", "endcall", "filter upper", "endfilter", "generation", "endgeneration", "raw",
    "endraw", "with", "endwith", "break", "continue", "x", "x.role", "x['content']", "messages",
    "messages[0]", "[::-1]", "loop.index", "loop.cycle()", "loop(x)", "recursive",
    "namespace(a=1)", "ns.a", "range(9)", "'a%s'", "\"b\"", "1", "-1", "1.5", "1e99",
    "9999999999999999999", "%", "~", "+", "*", "**", "//", "==", "not", "and", "in", "is",
    "is not", "defined", "none", "true", "(", ")", "[", "]", "{", "}", ",", ":", "|",
    "|tojson(indent=2)", "|join(', ')", "|length", "|list", "|map(attribute='role')", "|sort",
    "|replace('a', 'bb')", "|indent", "|format(1)", "|batch(2)", ".strip()", ".split('a')",
    ".partition('l')", ".items()", ".format(1)", "raise_exception('x')", "strftime_now('%Y')",
    "é", " ", "\n",
];

/// Words of the template language in any order.
fn template_source() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        9 => prop::sample::select(WORDS.to_vec()).prop_map(str::to_owned),
        1 => "\\PC{0,4}",
    ];
    prop::collection::vec(word, 0..40).prop_map(|words| words.join(" "))
}

/// A template that parses more often: tags that are whole.
fn template_of_tags() -> impl Strategy<Value = String> {
    let expressions = [
        "messages",
        "messages[0]",
        "messages | map(attribute='content') | list",
        "'a%s' % messages",
        "1 ~ messages",
        "x",
        "loop.index",
        "[1, [2, 'é']]",
        "{'a': none}",
        "messages | tojson(indent=1)",
        "messages[0].content.split('e')",
        "'%d' % 7",
        "x.y.z",
        "range(3)",
        "(1, 2)",
        "-x ** 2",
        "messages | sort(attribute='role')",
        "x | default(1)",
        "namespace()",
        "cycler(1, 2).next()",
    ];
    let tag = prop::sample::select(expressions.to_vec()).prop_flat_map(|expression| {
        prop::sample::select(vec![
            format!("{{{{ {expression} }}}}"),
            format!("{{% for x in {expression} %}}{{{{ x }}}}{{% endfor %}}"),
            format!("{{% set x = {expression} %}}"),
            format!("{{% if {expression} %}}a{{% else %}}b{{% endif %}}"),
            format!("{{% generation %}}{{{{ {expression} }}}}{{% endgeneration %}}"),
            format!("{{% macro f(a) %}}{{{{ {expression} }}}}{{% endmacro %}}{{{{ f(x) }}}}"),
        ])
    });
    prop::collection::vec(tag, 0..8).prop_map(|tags| tags.concat())
}

fn config() -> Value {
    json!({
        "bos_token": null, "eos_token": {"content": "</s>"}, "pad_token": "<pad>",
        "tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": {"3": {"content": "<x>"}},
        "chat_template": [{"name": "default",
                           "template": "{{ messages[0].content }}{{ eos_token }}"},
                          {"name": "tool_use", "template": "{{ tools }}"}],
    })
}

#[test]
fn the_seeds_are_accepted() {
    assert!(fuzz::tokenizer(small_tokenizer().to_string().as_bytes()));
    assert!(fuzz::tokenizer_config(config().to_string().as_bytes()));
    assert!(fuzz::generation_config(br#"{"eos_token_id": [1, 2]}"#));
    assert!(fuzz::template(b"{{ messages }}"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn any_tokenizer(changes in changes()) {
        let document = mutated(small_tokenizer(), changes).to_string();
        let _ = fuzz::tokenizer(document.as_bytes());
    }

    #[test]
    fn any_tokenizer_config(changes in changes()) {
        let document = mutated(config(), changes).to_string();
        let _ = fuzz::tokenizer_config(document.as_bytes());
    }

    #[test]
    fn any_generation_config(changes in changes(), cut in any::<prop::sample::Index>()) {
        let seed = json!({"eos_token_id": [1, 2], "top_k": 20});
        let document = mutated(seed, changes).to_string();
        let _ = fuzz::generation_config(document.as_bytes());
        let _ = fuzz::generation_config(&document.as_bytes()[..cut.index(document.len())]);
    }

    #[test]
    fn any_template(source in template_source()) {
        let _ = fuzz::template(source.as_bytes());
    }

    #[test]
    fn any_template_of_whole_tags(source in template_of_tags()) {
        let _ = fuzz::template(source.as_bytes());
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = fuzz::template(&bytes);
        let _ = fuzz::tokenizer(&bytes);
        let _ = fuzz::tokenizer_config(&bytes);
        let _ = fuzz::generation_config(&bytes);
    }
}
