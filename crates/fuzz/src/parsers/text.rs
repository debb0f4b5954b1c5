//! Text: tokenizer, its configuration, chat templates, end tokens.

use super::{Parser, Scratch, nothing};
use crate::corpus;
use crate::mutate::mutated;
use anyhow::{Context, Result};
use monolith_text::{
    ChatOptions, ChatTemplate, EncodePolicy, Json, Message, StopTokens, Tokenizer,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub const PARSERS: &[Parser] = &[
    Parser {
        name: "generation-config",
        about: "generation_config.json",
        weight: 60,
        corpus: || {
            Ok(vec![
                corpus::file("data/tiny/generation_config.json")?,
                b"{\"eos_token_id\":[1,2]}".to_vec(),
            ])
        },
        mutate: mutated,
        prepare: nothing,
        run: |bytes, scratch| {
            scratch.put("generation_config.json", bytes) && StopTokens::load(scratch.dir()).is_ok()
        },
    },
    Parser {
        name: "tokenizer",
        about: "tokenizer.json",
        weight: 3,
        corpus: || Ok(vec![tokenizer()?]),
        mutate: mutated,
        prepare: put_config,
        run: |bytes, scratch| scratch.put("tokenizer.json", bytes) && tokenizes(scratch),
    },
    Parser {
        name: "tokenizer-config",
        about: "tokenizer_config.json",
        weight: 3,
        corpus: || Ok(vec![corpus::file("data/tiny/tokenizer_config.json")?]),
        mutate: mutated,
        prepare: |scratch| scratch.need("tokenizer.json", &tokenizer()?),
        run: |bytes, scratch| {
            let written = scratch.put("tokenizer_config.json", bytes);
            let template = ChatTemplate::load(scratch.dir());
            let rendered = template.is_ok_and(|template| renders(&template));
            written && tokenizes(scratch) && rendered
        },
    },
    Parser {
        name: "special-tokens-map",
        about: "special_tokens_map.json",
        weight: 3,
        corpus: || {
            let map = json!({
                "bos_token": null,
                "eos_token": { "content": "<|im_end|>", "lstrip": false },
                "pad_token": "<|endoftext|>",
                "additional_special_tokens": ["<|im_start|>"],
            });
            Ok(vec![serde_json::to_vec(&map)?])
        },
        mutate: mutated,
        prepare: |scratch| {
            scratch.need("tokenizer.json", &tokenizer()?)?;
            scratch.need("chat_template.jinja", b"{{ bos_token }}{{ eos_token }}{{ pad_token }}")
        },
        run: |bytes, scratch| {
            let written = scratch.put("special_tokens_map.json", bytes);
            let template = ChatTemplate::load(scratch.dir());
            let rendered = template.is_ok_and(|template| renders(&template));
            written && tokenizes(scratch) && rendered
        },
    },
    Parser {
        name: "template",
        about: "chat_template.jinja, rendered",
        weight: 15,
        corpus: templates,
        mutate: mutated,
        prepare: put_config,
        run: |bytes, scratch| {
            let written = scratch.put("chat_template.jinja", bytes);
            let template = ChatTemplate::load(scratch.dir());
            written && template.is_ok_and(|template| renders(&template))
        },
    },
];

fn put_config(scratch: &Scratch) -> Result<()> {
    let config = corpus::file("data/tiny/tokenizer_config.json")?;
    scratch.need("tokenizer_config.json", &config)
}

/// The shipped tokenizer, cut to its first tokens and the merges among them.
fn tokenizer() -> Result<Vec<u8>> {
    let mut json: Value = serde_json::from_slice(&corpus::file("data/tiny/tokenizer.json")?)?;
    let model = &mut json["model"];
    let vocab = model["vocab"].as_object_mut().context("a vocabulary")?;
    vocab.retain(|_, id| id.as_u64().is_some_and(|id| id < 400));
    let known: BTreeSet<String> = vocab.keys().cloned().collect();
    let merges = model["merges"].as_array_mut().context("merges")?;
    merges.retain(|merge| {
        let parts: Vec<&str> = match merge {
            Value::String(text) => text.split(' ').collect(),
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        parts.iter().all(|part| known.contains(*part)) && known.contains(&parts.concat())
    });
    let length = known.len();
    for (index, token) in json["added_tokens"].as_array_mut().into_iter().flatten().enumerate() {
        token["id"] = json!(length + index);
    }
    Ok(serde_json::to_vec(&json)?)
}

const SAMPLE: &str = "The Atlantic <|im_start|>ocean, d\u{e9}j\u{e0} vu: 12345 \u{1f4a5}\n\n  end";

fn tokenizes(scratch: &Scratch) -> bool {
    let Ok(tokenizer) = Tokenizer::load(scratch.dir()) else { return false };
    let Ok(ids) = tokenizer.encode(SAMPLE, EncodePolicy::Rendered) else { return false };
    let mut stream = tokenizer.stream_decoder(false);
    let pushed = ids.iter().chain(&[0, u32::MAX]).filter_map(|&id| stream.push(id)).count();
    let texts = [stream.finish(), Some(tokenizer.decode(&ids, true))];
    let lookalikes = tokenizer.lookalikes(SAMPLE).len();
    let special = tokenizer.special_tokens().count();
    pushed + texts.len() + lookalikes + special > 0
}

fn renders(template: &ChatTemplate) -> bool {
    let call =
        json!([{ "type": "function", "function": { "name": "f", "arguments": { "x": 1 } } }]);
    let own = |value: Value| serde_json::from_value::<Json>(value);
    let (Ok(call), Ok(tool)) = (own(call), own(json!({ "name": "f", "parameters": {} }))) else {
        return false;
    };
    let messages = [
        Message::new("system", "Be brief."),
        Message::new("user", "What is <b>7 x 6</b>?"),
        Message::new("assistant", "<think>\nhm\n</think>\n42").with("tool_calls", call),
        Message::new("tool", "{\"y\": 2}"),
        Message::new("user", "d\u{e9}j\u{e0} vu"),
    ];
    let plain = ChatOptions { add_generation_prompt: true, ..ChatOptions::default() };
    let full = ChatOptions { tools: vec![tool], enable_thinking: Some(false), ..plain.clone() };
    template.render(&messages, &plain).is_ok() & template.render(&messages, &full).is_ok()
}

fn templates() -> Result<Vec<Vec<u8>>> {
    let tiny: Value = serde_json::from_slice(&corpus::file("data/tiny/tokenizer_config.json")?)?;
    let tiny = tiny["chat_template"].as_str().context("a chat template")?;
    Ok([tiny, include_str!("../../corpus/tools.jinja"), include_str!("../../corpus/wide.jinja")]
        .map(|text| text.as_bytes().to_vec())
        .to_vec())
}
