//! Chats in which the messages' special tokens are text: a user's `<|im_end|>` ends no turn.

use super::{ChatOptions, ChatTemplate, Json, Message};
use crate::{Error, Tokenizer};

/// Marks around a special token from a message, to tell it from a token that the template wrote.
/// Both are private-use characters, which have no meaning in text.
const BEGIN: char = '\u{f0000}';
const END: char = '\u{f0001}';

impl ChatTemplate {
    /// The prompt's tokens for `messages`, in which every special token counts as text. Special
    /// tokens are then the template's own only. `sanitize_control_tokens=True` in `transformers`.
    ///
    /// Text here are the tokenizer's special tokens, and those of its other added tokens that the
    /// template writes itself (Qwen3's `<think>`).
    ///
    /// # Errors
    /// Those of [`ChatTemplate::render`]; [`Error::Encode`].
    pub fn encode_literal(
        &self,
        tokenizer: &Tokenizer,
        messages: &[Message],
        options: &ChatOptions,
    ) -> Result<Vec<u32>, Error> {
        let tokens = self.control_tokens(tokenizer);
        let marked: Vec<Message> = messages.iter().map(|message| mark(message, &tokens)).collect();
        encode(tokenizer, &self.render(&marked, options)?)
    }

    /// The tokens that make up a chat's form, longest first.
    fn control_tokens(&self, tokenizer: &Tokenizer) -> Vec<String> {
        let mut tokens: Vec<String> = tokenizer
            .added_tokens()
            .filter(|(id, text)| {
                let written = !text.trim().is_empty() && self.literals.contains(*text);
                !text.is_empty() && (tokenizer.is_special(*id) || written)
            })
            .map(|(_, text)| text.to_owned())
            .collect();
        tokens.sort_by_key(|token| std::cmp::Reverse(token.len()));
        tokens
    }
}

fn mark(message: &Message, tokens: &[String]) -> Message {
    Message {
        role: mark_text(&message.role, tokens),
        content: message.content.as_ref().map(|text| mark_text(text, tokens)),
        extra: message
            .extra
            .iter()
            .map(|(field, json)| (field.clone(), mark_json(json, tokens)))
            .collect(),
    }
}

/// Marks the strings in any JSON, but not an object's keys.
fn mark_json(json: &Json, tokens: &[String]) -> Json {
    fn marked(value: serde_json::Value, tokens: &[String]) -> serde_json::Value {
        match value {
            serde_json::Value::String(text) => mark_text(&text, tokens).into(),
            serde_json::Value::Array(items) => {
                items.into_iter().map(|item| marked(item, tokens)).collect()
            }
            serde_json::Value::Object(fields) => {
                fields.into_iter().map(|(key, item)| (key, marked(item, tokens))).collect()
            }
            other => other,
        }
    }
    let value = serde_json::to_value(json).map(|value| marked(value, tokens));
    value.and_then(serde_json::from_value).unwrap_or_else(|_| json.clone())
}

/// Puts marks around every token in the text, and drops marks that are already in it.
fn mark_text(text: &str, tokens: &[String]) -> String {
    let text = text.replace([BEGIN, END], "");
    let mut out = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some(first) = rest.chars().next() {
        let token = tokens.iter().find(|token| rest.starts_with(&***token));
        let length = token.map_or(first.len_utf8(), |token| token.len());
        let (piece, after) = rest.split_at(length);
        if token.is_some() {
            out.push(BEGIN);
            out.push_str(piece);
            out.push(END);
        } else {
            out.push_str(piece);
        }
        rest = after;
    }
    out
}

/// Encodes a text with marks. A template that cuts strings may leave a mark without its other half:
/// such a mark is dropped, but the text on its two sides is not joined into a token.
fn encode(tokenizer: &Tokenizer, rendered: &str) -> Result<Vec<u32>, Error> {
    let mut ids = Vec::new();
    let mut literal = false;
    for piece in rendered.split_inclusive([BEGIN, END]) {
        let closed = piece.ends_with(END);
        let text = piece.trim_end_matches([BEGIN, END]);
        if literal && closed {
            ids.extend(tokenizer.encode_as_text(text)?);
        } else if !text.is_empty() {
            ids.extend(tokenizer.encode(text, crate::EncodePolicy::Rendered)?);
        }
        literal = piece.ends_with(BEGIN);
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_stand_around_the_longest_token() {
        let tokens = ["<|end|><|x|>".to_owned(), "<|end|>".to_owned()];
        assert_eq!(
            mark_text("a<|end|><|x|>\u{f0001}<|end|>\u{f0000}é", &tokens),
            "a\u{f0000}<|end|><|x|>\u{f0001}\u{f0000}<|end|>\u{f0001}é"
        );
    }

    #[test]
    fn every_string_of_a_message_is_marked() {
        let json = r#"{"a": ["<e>", 1, {"<e>": "<e>"}]}"#.parse().unwrap();
        let message = Message::new("user", "<e>").with("extra", json);
        let marked = mark(&message, &["<e>".to_owned()]);
        let expected = "\u{f0000}<e>\u{f0001}";
        assert_eq!(marked.content.as_deref(), Some(expected));
        let json = serde_json::to_value(&marked.extra["extra"]).unwrap();
        assert_eq!(json["a"][0], expected);
        assert_eq!(json["a"][2]["<e>"], expected);
    }
}
