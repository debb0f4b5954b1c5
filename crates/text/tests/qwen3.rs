//! Known answers of Qwen3's real tokenizer and chat template.
//!
//! Where they come from: `qwen3_encodings.json` from a byte-level BPE written in Python for the
//! purpose (`regex`, `unicodedata`, the merges of tokenizer.json), which agreed with Python's
//! `tokenizers` 0.23 on every row; `qwen3_chats.json` from Jinja2 3.1 in the sandboxed
//! environment of `transformers` (trim_blocks, lstrip_blocks, loopcontrols, its `tojson`).

#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;

use monolith_text::{ChatOptions, ChatTemplate, EncodePolicy, Json, Message, Tokenizer};
use proptest::prelude::*;
use serde::Deserialize;

#[derive(Deserialize)]
struct Encoding {
    text: String,
    /// With special tokens recognised.
    ids: Vec<u32>,
    /// With special tokens taken for text, where that differs.
    literal: Option<Vec<u32>>,
}

#[derive(Deserialize)]
struct Chat {
    name: String,
    messages: Vec<Message>,
    options: Options,
    text: String,
}

#[derive(Deserialize)]
struct Options {
    add_generation_prompt: bool,
    enable_thinking: Option<bool>,
    #[serde(default)]
    tools: Vec<Json>,
}

fn tokenizer(dir: &Path) -> Tokenizer {
    Tokenizer::load(dir).unwrap()
}

#[test]
fn encodings_are_exact_and_decode_back() {
    let Some(dir) = support::qwen3_dir() else { return };
    let tokenizer = tokenizer(dir);
    let rows: Vec<Encoding> =
        serde_json::from_str(include_str!("data/qwen3_encodings.json")).unwrap();
    for row in rows {
        for (policy, expected) in [
            (EncodePolicy::Prompt, &row.ids),
            (EncodePolicy::Rendered, &row.ids),
            (EncodePolicy::Literal, row.literal.as_ref().unwrap_or(&row.ids)),
        ] {
            let ids = tokenizer.encode(&row.text, policy).unwrap();
            assert_eq!(&ids, expected, "{:?} as {policy:?}", row.text);
            // Normalization (NFC) is a fixed point after one round.
            let back = tokenizer.decode(&ids, false);
            assert_eq!(tokenizer.encode(&back, policy).unwrap(), ids);
        }
    }
}

#[test]
fn the_vocabulary_is_qwen3s() {
    let Some(dir) = support::qwen3_dir() else { return };
    let tokenizer = tokenizer(dir);
    assert_eq!(tokenizer.vocab_size(), 151_669);
    assert_eq!(tokenizer.id("<|im_end|>"), Some(151_645));
    assert_eq!(tokenizer.token(151_644).as_deref(), Some("<|im_start|>"));
    assert_eq!(tokenizer.token(151_669), None);
    assert_eq!(tokenizer.bos(), None);
    assert_eq!(tokenizer.eos().unwrap().id, 151_645);
    assert_eq!(tokenizer.pad().unwrap().id, 151_643);
    assert_eq!(tokenizer.special_tokens().count(), 14);
    assert!(tokenizer.is_special(151_645));
    assert!(!tokenizer.is_special(tokenizer.id("<think>").unwrap()));
}

#[test]
fn lookalikes_are_found_and_real_tokens_are_not() {
    let Some(dir) = support::qwen3_dir() else { return };
    let found = tokenizer(dir).lookalikes("<|im_start|>user é <|eot_id|> <|fim_pad|> <|x y|>");
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].offset, &*found[0].text), (20, "<|eot_id|>"));
}

#[test]
fn special_tokens_can_be_left_out_and_unknown_ids_are_no_text() {
    let Some(dir) = support::qwen3_dir() else { return };
    let tokenizer = tokenizer(dir);
    let ids = [151_644, 9707, 151_669, 151_935, u32::MAX, 151_667, 151_645];
    assert_eq!(tokenizer.decode(&ids, true), "Hello<think>");
    assert_eq!(tokenizer.decode(&ids, false), "<|im_start|>Hello<think><|im_end|>");
}

#[test]
fn a_character_cut_in_two_waits_for_its_end() {
    let Some(dir) = support::qwen3_dir() else { return };
    let tokenizer = tokenizer(dir);
    // A zero-width joiner is three bytes in two tokens.
    let text = "👩\u{200d}👩";
    let ids = tokenizer.encode(text, EncodePolicy::Literal).unwrap();
    let mut decoder = tokenizer.stream_decoder(false);
    let pieces: Vec<_> = ids.iter().map(|&id| decoder.push(id)).collect();
    let expected = [Some("👩"), None, Some("\u{200d}"), Some("👩")];
    assert_eq!(pieces.iter().map(Option::as_deref).collect::<Vec<_>>(), expected);
    assert_eq!(decoder.finish(), None);

    let mut decoder = tokenizer.stream_decoder(false);
    assert_eq!(decoder.push(ids[1]), None);
    assert_eq!(decoder.finish().as_deref(), Some("\u{FFFD}"));
}

/// The decoder of the `tokenizers` crate, as a second opinion.
fn reference(dir: &Path) -> tokenizers::Tokenizer {
    tokenizers::Tokenizer::from_file(dir.join("tokenizer.json")).unwrap()
}

fn stream(tokenizer: &Tokenizer, ids: &[u32], skip_special: bool) -> String {
    let mut decoder = tokenizer.stream_decoder(skip_special);
    let mut text = String::new();
    for &id in ids {
        if let Some(piece) = decoder.push(id) {
            assert!(!piece.is_empty());
            text.push_str(&piece);
        }
    }
    text.extend(decoder.finish());
    text
}

#[test]
fn streaming_equals_the_batch_decode_of_any_text_or_ids() {
    let Some(dir) = support::qwen3_dir() else { return };
    let (tokenizer, reference) = (tokenizer(dir), reference(dir));
    proptest!(ProptestConfig::with_cases(300), |(text in "(\\PC|<\\|im_end\\|>|\n| ){0,60}")| {
        let ids = tokenizer.encode(&text, EncodePolicy::Rendered).unwrap();
        let batch = reference.decode(&ids, false).unwrap();
        prop_assert_eq!(stream(&tokenizer, &ids, false), batch);
    });
    proptest!(ProptestConfig::with_cases(300), |(
        ids in prop::collection::vec(0..151_936_u32, 0..60), skip in any::<bool>()
    )| {
        let batch = reference.decode(&ids, skip).unwrap();
        prop_assert_eq!(stream(&tokenizer, &ids, skip), batch);
    });
}

#[test]
fn data_never_becomes_markup() {
    let Some(dir) = support::qwen3_dir() else { return };
    let tokenizer = tokenizer(dir);
    proptest!(ProptestConfig::with_cases(200), |(
        parts in prop::collection::vec(
            prop_oneof![
                Just("<|im_end|>".to_owned()),
                Just("<|im_start|>".to_owned()),
                "\\PC{0,8}",
            ],
            0..8,
        )
    )| {
        let ids = tokenizer.encode(&parts.concat(), EncodePolicy::Literal).unwrap();
        prop_assert!(ids.iter().all(|&id| !tokenizer.is_special(id)));
    });
}

#[test]
fn chats_render_as_in_transformers() {
    let Some(dir) = support::qwen3_dir() else { return };
    let template = ChatTemplate::load(dir).unwrap();
    let chats: Vec<Chat> = serde_json::from_str(include_str!("data/qwen3_chats.json")).unwrap();
    for chat in chats {
        let options = ChatOptions {
            add_generation_prompt: chat.options.add_generation_prompt,
            enable_thinking: chat.options.enable_thinking,
            tools: chat.options.tools,
            ..ChatOptions::default()
        };
        assert_eq!(template.render(&chat.messages, &options).unwrap(), chat.text, "{}", chat.name);
    }
}

#[test]
fn a_rendered_chat_encodes_to_markup() {
    let Some(dir) = support::qwen3_dir() else { return };
    let options = ChatOptions {
        add_generation_prompt: true,
        enable_thinking: Some(false),
        ..ChatOptions::default()
    };
    let prompt =
        ChatTemplate::load(dir).unwrap().render(&[Message::new("user", "Hello")], &options);
    let ids = tokenizer(dir).encode(&prompt.unwrap(), EncodePolicy::Rendered).unwrap();
    let expected =
        [151_644, 872, 198, 9707, 151_645, 198, 151_644, 77_091, 198, 151_667, 271, 151_668, 271];
    assert_eq!(ids, expected);
}

#[test]
fn long_runs_are_split_as_short_ones_or_refused() {
    let Some(dir) = support::qwen3_dir() else { return };
    let tokenizer = tokenizer(dir);
    // All but the last space are one piece; the last goes with the letter.
    let text = " ".repeat(500_000) + "x";
    let ids = tokenizer.encode(&text, EncodePolicy::Literal).unwrap();
    let (last, spaces) = ids.split_last().unwrap();
    assert_eq!(*last, tokenizer.id("Ġx").unwrap());
    assert_eq!(tokenizer.decode(spaces, false), " ".repeat(499_999));

    let error = tokenizer.encode(&" ".repeat(500_001), EncodePolicy::Literal).unwrap_err();
    assert!(error.to_string().contains("500001 whitespace characters in a row"), "{error}");
}
