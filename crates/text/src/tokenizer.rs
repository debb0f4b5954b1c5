use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::Value;
use tokenizers::{DecoderWrapper, Tokenizer as HfTokenizer};

use crate::bytes::push_token_bytes;
use crate::config::{Field, TokenizerConfig};
use crate::guard::catch;
use crate::{Error, StreamDecoder, file};

/// The longest run of whitespace that a text may have.
///
/// The splitting patterns of byte-level tokenizers (`\s*[\r\n]+`, `\s+(?!\S)`) step back through a
/// run of whitespace one character at a time. The regex engine gives up after 1,000,000 steps, and
/// the tokenizer then drops the rest of the text without an error (1,100,000 spaces give wrong
/// ids, 900,000 give the right ones).
const WHITESPACE_RUN_MAX: usize = 500_000;

/// What a special token's text (`<|im_end|>`) means inside a text to encode.
///
/// There is no default: reading a user's text as markup allows prompt injection, and reading
/// markup as text breaks a chat without an error.
///
/// A text that only looks like a special token (`<|foo|>`) is ordinary text under every policy;
/// [`Tokenizer::lookalikes`] finds those. Added tokens that the tokenizer does not flag as
/// special (Qwen3's `<think>`, `<tool_call>`) are one id under every policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncodePolicy {
    /// A plain prompt: special tokens are recognised, and the tokenizer adds its own (such as
    /// a beginning-of-text token) if it declares any. `tokenizer(text)` in `transformers`.
    Prompt,
    /// A plain prompt whose special tokens are text: they are not recognised, and the tokenizer
    /// adds its own. `tokenizer(text, split_special_tokens=True)`.
    LiteralPrompt,
    /// A rendered chat template: special tokens are recognised, and nothing is added, because the
    /// template has written every special token. `tokenizer(text, add_special_tokens=False)`.
    Rendered,
    /// Data: special tokens are not recognised, and nothing is added.
    /// `tokenizer(text, split_special_tokens=True, add_special_tokens=False)`.
    Literal,
}

/// A token with its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedToken {
    /// Its number in the vocabulary.
    pub id: u32,
    /// Its text.
    pub text: String,
}

/// A part of a text that has the form of a special token, but is not in the vocabulary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookalike {
    /// Byte offset in the text.
    pub offset: usize,
    /// The text, `<|` and `|>` included.
    pub text: String,
}

/// A byte-level BPE tokenizer from a model folder.
#[derive(Debug)]
pub struct Tokenizer {
    /// Recognises special tokens.
    parsing: HfTokenizer,
    /// Reads special tokens as text. The library has one setting for a whole tokenizer, so this
    /// policy needs a second one. It is made on first use.
    literal: OnceLock<HfTokenizer>,
    /// Has no added tokens. It is made on first use.
    plain: OnceLock<HfTokenizer>,
    /// The added tokens by id. Their text is not in the alphabet of bytes.
    added: BTreeMap<u32, String>,
    special: BTreeSet<u32>,
    bos: Option<NamedToken>,
    eos: Option<NamedToken>,
    pad: Option<NamedToken>,
    warnings: Vec<String>,
}

impl Tokenizer {
    /// Loads `tokenizer.json`, and `tokenizer_config.json` and `special_tokens_map.json` if there
    /// are any.
    ///
    /// Truncation and padding settings in the file are dropped: a prompt is never shortened
    /// silently.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Unreadable`] or [`Error::Corrupt`] naming the file;
    /// [`Error::Unsupported`] if it is not a byte-level tokenizer.
    pub fn load(dir: &Path) -> Result<Self, Error> {
        let path = dir.join("tokenizer.json");
        let text =
            file::read_json_text(&path)?.ok_or_else(|| Error::Missing { path: path.clone() })?;
        let mut tokenizer = Self::from_json(&text, &path)?;
        tokenizer.apply_config(&TokenizerConfig::load(dir)?, dir)?;
        Ok(tokenizer)
    }

    /// A tokenizer from the text of a `tokenizer.json` alone. `path` is for messages.
    ///
    /// # Errors
    /// [`Error::Corrupt`] or [`Error::Unsupported`] as for [`Tokenizer::load`].
    pub fn from_json(text: &str, path: &Path) -> Result<Self, Error> {
        let corrupt = |reason| Error::Corrupt { path: path.to_owned(), reason };
        let not_one = |reason: String| corrupt(format!("not a tokenizer: {reason}"));
        let parts: Parts =
            serde_json::from_str(text).map_err(|error| not_one(error.to_string()))?;
        require_supported(&parts, path)?;
        let parsed = catch(|| -> tokenizers::Result<HfTokenizer> {
            let mut parsed = HfTokenizer::from_bytes(text)?;
            parsed.with_padding(None);
            parsed.with_truncation(None)?;
            Ok(parsed)
        });
        let parsing = parsed
            .map_err(|panic| not_one(format!("the tokenizers library failed on it: {panic}")))?
            .map_err(|error| not_one(error.to_string()))?;
        require_byte_level(&parsing, path)?;
        let decoder = parsing.get_added_tokens_decoder();
        let special =
            decoder.iter().filter(|(_, token)| token.special).map(|(&id, _)| id).collect();
        Ok(Self {
            parsing,
            literal: OnceLock::new(),
            plain: OnceLock::new(),
            added: decoder.into_iter().map(|(id, token)| (id, token.content)).collect(),
            special,
            bos: None,
            eos: None,
            pad: None,
            warnings: Vec::new(),
        })
    }

    fn apply_config(&mut self, config: &TokenizerConfig, dir: &Path) -> Result<(), Error> {
        let corrupt = |path, reason| Error::Corrupt { path, reason };
        let pad = config.special(|tokens| &tokens.pad_token);
        let pad_text = pad.0.named().filter(|text| !text.is_empty());
        for (id, added) in config.added_tokens_decoder.iter().flatten() {
            let in_vocabulary = id.parse().ok().and_then(|id| self.token(id));
            // A batch of one needs no padding, so the padding token may be missing.
            let only_pads = in_vocabulary.is_none() && pad_text == Some(&*added.content);
            if in_vocabulary.as_ref() != Some(&added.content) && !only_pads {
                let reason = format!(
                    "added_tokens_decoder gives {:?} the id {id}, where tokenizer.json has {}",
                    added.content,
                    in_vocabulary.map_or("nothing".to_owned(), |token| format!("{token:?}")),
                );
                return Err(corrupt(TokenizerConfig::path(dir), reason));
            }
        }
        let named = |name: &str, (field, file): (&Field, &str)| {
            // An empty text names no token.
            let text = field.named().filter(|text| !text.is_empty());
            let Some(text) = text else { return Ok(None) };
            let id = self.id(text).ok_or_else(|| {
                let reason = format!("{name} is {text:?}, which tokenizer.json does not have");
                corrupt(dir.join(file), reason)
            })?;
            Ok(Some(NamedToken { id, text: text.to_owned() }))
        };
        let bos = named("bos_token", config.special(|tokens| &tokens.bos_token))?;
        let eos = named("eos_token", config.special(|tokens| &tokens.eos_token))?;
        let pad = named("pad_token", pad).unwrap_or_else(|error| {
            self.warnings.push(format!("{error}; it is not needed, as nothing is padded"));
            None
        });
        (self.bos, self.eos, self.pad) = (bos, eos, pad);
        Ok(())
    }

    /// Harmless faults of the files, one sentence each.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Encodes text to ids; `policy` says how special tokens are treated.
    ///
    /// # Errors
    /// [`Error::Encode`] if the tokenizer cannot split this text, for example because it has more
    /// than half a million spaces in a row.
    pub fn encode(&self, text: &str, policy: EncodePolicy) -> Result<Vec<u32>, Error> {
        let longest = longest_whitespace_run(text);
        if longest > WHITESPACE_RUN_MAX {
            let reason = format!(
                "it has {longest} whitespace characters in a row, at most {WHITESPACE_RUN_MAX} \
                 can be split reliably"
            );
            return Err(Error::Encode { reason });
        }
        let (tokenizer, adds) = match policy {
            EncodePolicy::Prompt => (&self.parsing, true),
            EncodePolicy::Rendered => (&self.parsing, false),
            EncodePolicy::LiteralPrompt => (self.literal(), true),
            EncodePolicy::Literal => (self.literal(), false),
        };
        encode(tokenizer, text, adds)
    }

    fn literal(&self) -> &HfTokenizer {
        self.literal.get_or_init(|| {
            let mut literal = self.parsing.clone();
            literal.set_encode_special_tokens(true);
            literal
        })
    }

    /// The ids of a token's text, with no added token recognised.
    ///
    /// # Errors
    /// [`Error::Encode`], also if the vocabulary has the same token for the plain text.
    pub(crate) fn encode_as_text(&self, token: &str) -> Result<Vec<u32>, Error> {
        let plain = match self.plain.get() {
            Some(plain) => plain,
            None => {
                let mut plain = HfTokenizer::new(self.parsing.get_model().clone());
                plain
                    .with_normalizer(self.parsing.get_normalizer().cloned())
                    .map_err(|error| Error::Encode { reason: error.to_string() })?;
                plain.with_pre_tokenizer(self.parsing.get_pre_tokenizer().cloned());
                self.plain.get_or_init(|| plain)
            }
        };
        let ids = encode(plain, token, false)?;
        if self.id(token).is_some_and(|id| ids.contains(&id)) {
            let reason = format!("{token:?} as text is the token {token:?} all the same");
            return Err(Error::Encode { reason });
        }
        Ok(ids)
    }

    /// The special tokens that the tokenizer recognises in a text, in order, each once.
    ///
    /// # Errors
    /// Those of [`Tokenizer::encode`].
    pub fn special_in(&self, text: &str) -> Result<Vec<NamedToken>, Error> {
        let mut found: Vec<NamedToken> = Vec::new();
        for id in self.encode(text, EncodePolicy::Rendered)? {
            if self.is_special(id) && found.iter().all(|token| token.id != id) {
                let text = self.added.get(&id).cloned().unwrap_or_default();
                found.push(NamedToken { id, text });
            }
        }
        Ok(found)
    }

    /// Decodes all `ids` at once. Ids outside the vocabulary stand for no text.
    #[must_use]
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let mut decoder = self.stream_decoder(skip_special);
        let mut text: String = ids.iter().filter_map(|&id| decoder.push(id)).collect();
        text.extend(decoder.finish());
        text
    }

    /// A decoder for ids that arrive one at a time. With `skip_special` it leaves special tokens
    /// out of the text.
    #[must_use]
    pub fn stream_decoder(&self, skip_special: bool) -> StreamDecoder<'_> {
        StreamDecoder::new(self, skip_special)
    }

    /// Number of tokens, added tokens included.
    ///
    /// A model's output is often padded beyond this: Qwen3 has 151,669 tokens and 151,936 rows.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.parsing.get_vocab_size(true)
    }

    /// The id of a token by its vocabulary entry (`Ġthe`, `<|im_end|>`).
    #[must_use]
    pub fn id(&self, token: &str) -> Option<u32> {
        self.parsing.token_to_id(token)
    }

    /// The vocabulary entry of an id.
    #[must_use]
    pub fn token(&self, id: u32) -> Option<String> {
        self.parsing.id_to_token(id)
    }

    /// Appends the bytes that an id stands for. Returns false if the id has no token.
    pub(crate) fn push_bytes(&self, id: u32, out: &mut Vec<u8>) -> bool {
        if let Some(text) = self.added.get(&id) {
            out.extend_from_slice(text.as_bytes());
            return true;
        }
        let token = self.token(id);
        if let Some(token) = &token {
            push_token_bytes(token, out);
        }
        token.is_some()
    }

    /// Whether the tokenizer flags this id as special.
    #[must_use]
    pub fn is_special(&self, id: u32) -> bool {
        self.special.contains(&id)
    }

    /// Every special token, by id.
    pub fn special_tokens(&self) -> impl Iterator<Item = (u32, &str)> {
        self.added_tokens().filter(|(id, _)| self.is_special(*id))
    }

    /// Every added token, special or not, by id.
    pub fn added_tokens(&self) -> impl Iterator<Item = (u32, &str)> {
        self.added.iter().map(|(&id, text)| (id, text.as_str()))
    }

    /// The beginning-of-text token, where the model's files name one.
    #[must_use]
    pub fn bos(&self) -> Option<&NamedToken> {
        self.bos.as_ref()
    }

    /// The end token that the model's files name. To end a generation, see
    /// [`StopTokens`](crate::StopTokens), which may hold more.
    #[must_use]
    pub fn eos(&self) -> Option<&NamedToken> {
        self.eos.as_ref()
    }

    /// The padding token, where the model's files name one.
    #[must_use]
    pub fn pad(&self) -> Option<&NamedToken> {
        self.pad.as_ref()
    }

    /// The parts of `text` that have the form of a special token, `<|...|>`, but are not in the
    /// vocabulary. Such a part is often a typing error, or markup of another model.
    #[must_use]
    pub fn lookalikes(&self, text: &str) -> Vec<Lookalike> {
        marked_names(text)
            .filter(|(_, name)| self.id(name).is_none())
            .map(|(offset, name)| Lookalike { offset, text: name.to_owned() })
            .collect()
    }
}

fn encode(tokenizer: &HfTokenizer, text: &str, adds: bool) -> Result<Vec<u32>, Error> {
    let encoded = catch(|| tokenizer.encode_fast(text, adds).map(|it| it.get_ids().to_vec()));
    let failed = |reason| Error::Encode { reason };
    encoded
        .map_err(|panic| failed(format!("the tokenizers library failed: {panic}")))?
        .map_err(|error| failed(error.to_string()))
}

fn longest_whitespace_run(text: &str) -> usize {
    let mut longest = 0;
    let mut run = 0;
    for c in text.chars() {
        run = if c.is_whitespace() { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}

/// Every `<|name|>` of a text with its offset. A name has no whitespace, `<`, `>` or `|`.
fn marked_names(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices("<|").filter_map(|(start, open)| {
        let inner = &text[start + open.len()..];
        let length = inner.find(|c: char| c.is_whitespace() || matches!(c, '<' | '>' | '|'))?;
        let named = length > 0 && inner[length..].starts_with("|>");
        let end = start + open.len() + length + "|>".len();
        named.then(|| (start, &text[start..end]))
    })
}

/// The parts of a `tokenizer.json` that are checked before the library reads it.
#[derive(Deserialize)]
struct Parts {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    model: Model,
}

#[derive(Default, Deserialize)]
struct Model {
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    dropout: Option<f64>,
}

/// Refuses settings that no byte-level tokenizer uses, those that give a text other ids each time,
/// and normalizers that can make a text grow without a bound.
fn require_supported(parts: &Parts, path: &Path) -> Result<(), Error> {
    let unsupported = |reason| Err(Error::Unsupported { path: PathBuf::from(path), reason });
    let Model { continuing_subword_prefix, end_of_word_suffix, dropout } = &parts.model;
    let affixes = [
        ("continuing_subword_prefix", continuing_subword_prefix),
        ("end_of_word_suffix", end_of_word_suffix),
    ];
    for (name, affix) in affixes {
        if affix.as_ref().is_some_and(|affix| !affix.is_empty()) {
            return unsupported(format!("{name} is set, which no byte-level tokenizer uses"));
        }
    }
    if dropout.is_some_and(|dropout| dropout != 0.0) {
        return unsupported("dropout is set: a text would have other tokens each time".into());
    }
    let mut open = vec![&parts.normalizer];
    while let Some(part) = open.pop() {
        match part.get("type").and_then(Value::as_str) {
            None
            | Some("NFC" | "NFD" | "NFKC" | "NFKD" | "Lowercase" | "Strip" | "StripAccents") => {}
            Some("Sequence") => {
                open.extend(
                    part.get("normalizers").and_then(Value::as_array).into_iter().flatten(),
                );
            }
            Some(other) => {
                return unsupported(format!("normalizer {other}; only Unicode's are handled"));
            }
        }
    }
    Ok(())
}

fn require_byte_level(tokenizer: &HfTokenizer, path: &Path) -> Result<(), Error> {
    let reason = match tokenizer.get_decoder() {
        Some(DecoderWrapper::ByteLevel(_)) => return Ok(()),
        // The variant's name is enough; its fields may be long.
        Some(other) => {
            let debug = format!("{other:?}");
            let name = debug.split(['(', ' ', '{']).next().unwrap_or_default();
            format!("decoder {name}; only ByteLevel is handled")
        }
        None => "no decoder; only ByteLevel is handled".to_owned(),
    };
    Err(Error::Unsupported { path: PathBuf::from(path), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_names_are_marked() {
        let found: Vec<_> = marked_names("a<|b|> <|c d|> <||> <|<|e|>|> é<|f|").collect();
        assert_eq!(found, [(1, "<|b|>"), (22, "<|e|>")]);
    }
}
