//! Entry points for fuzzers: any bytes in place of a model folder's files.
//!
//! Each function returns whether the bytes were accepted. None may panic, abort, or run for ever,
//! whatever the bytes are.

use std::path::Path;

use serde_json::Value;

use crate::config::TokenizerConfig;
use crate::{ChatOptions, ChatTemplate, EncodePolicy, Message, StopTokens, Tokenizer, file};

/// A chat template: compiles it, and renders two messages with it.
#[must_use]
pub fn template(bytes: &[u8]) -> bool {
    let source = String::from_utf8_lossy(bytes).into_owned();
    let Ok(template) = ChatTemplate::from_source(source, "fuzz.jinja".into()) else { return false };
    let messages = [Message::new("system", "Be brief."), Message::new("user", "é <|im_end|>\n")];
    template.render(&messages, &ChatOptions::default()).is_ok()
}

/// A `tokenizer.json`: loads it, encodes a text under every policy, and decodes ids.
#[must_use]
pub fn tokenizer(bytes: &[u8]) -> bool {
    if file::not_json(bytes).is_some() {
        return false;
    }
    let text = String::from_utf8_lossy(bytes);
    let Ok(tokenizer) = Tokenizer::from_json(&text, Path::new("fuzz.json")) else { return false };
    let text = "The sea é 漢字 \u{1F600}\u{301} <|im_end|>\n\n  12345 th the don't";
    let policies = [
        EncodePolicy::Prompt,
        EncodePolicy::LiteralPrompt,
        EncodePolicy::Rendered,
        EncodePolicy::Literal,
    ];
    let mut accepted = true;
    for policy in policies {
        match tokenizer.encode(text, policy) {
            Ok(ids) => drop(tokenizer.decode(&ids, false)),
            Err(_) => accepted = false,
        }
    }
    for (_, token) in tokenizer.added_tokens() {
        accepted &= tokenizer.encode_as_text(token).is_ok();
    }
    let ids: Vec<u32> = (0..300).chain([u32::MAX]).collect();
    drop(tokenizer.decode(&ids, true));
    accepted
}

/// A `tokenizer_config.json`: reads it, and its chat template if it has one.
#[must_use]
pub fn tokenizer_config(bytes: &[u8]) -> bool {
    let Ok(config) = serde_json::from_slice::<TokenizerConfig>(bytes) else { return false };
    drop(config.special_tokens());
    let path = Path::new("fuzz.json");
    ChatTemplate::from_config(config, path).is_ok_and(|template| {
        let messages = [Message::new("user", "é <|im_end|>\n")];
        template.render(&messages, &ChatOptions::default()).is_ok()
    })
}

/// A `generation_config.json` or `config.json`, for its end-of-text tokens.
#[must_use]
pub fn generation_config(bytes: &[u8]) -> bool {
    serde_json::from_slice::<Value>(bytes)
        .is_ok_and(|config| StopTokens::from_json(&config, Path::new("fuzz.json")).is_ok())
}
