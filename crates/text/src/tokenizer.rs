use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tokenizers::{DecoderWrapper, Tokenizer as HfTokenizer};

use crate::config::TokenizerConfig;
use crate::{Error, StreamDecoder, file};

/// Whitespace characters in a row that a text may hold.
///
/// The splitting patterns of byte-level tokenizers (`\s*[\r\n]+`, `\s+(?!\S)`) step back through a
/// run of whitespace one character at a time. Past 1,000,000 steps the regex engine gives up, and
/// the tokenizer takes that for the end of the text: wrong ids, no error (seen at 1,100,000 spaces,
/// right at 900,000).
const WHITESPACE_RUN_MAX: usize = 500_000;

/// What a special token's text (`<|im_end|>`) means inside a text to encode.
///
/// There is no default on purpose: taking a user's text for markup is how prompts are injected,
/// and taking markup for text silently breaks a chat.
///
/// A text that only looks like a special token (`<|foo|>`) is ordinary text under every policy;
/// [`Tokenizer::lookalikes`] finds those. Added tokens that the tokenizer does not flag as
/// special (Qwen3's `<think>`, `<tool_call>`) are vocabulary, and one id under every policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncodePolicy {
    /// A plain prompt: special tokens are recognised, and the tokenizer adds its own (such as
    /// a beginning-of-text token) where it declares any. `tokenizer(text)` in `transformers`.
    Prompt,
    /// A rendered chat template: special tokens are recognised, nothing is added, because the
    /// template wrote them all. `tokenizer(text, add_special_tokens=False)`.
    Rendered,
    /// Data: special tokens are not recognised, nothing is added.
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

/// Something in a text that is written like a special token and is none in this vocabulary.
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
    /// Takes them for text. The choice is a setting of the whole tokenizer, so the second policy
    /// needs a second one; it is made on first use.
    literal: OnceLock<HfTokenizer>,
    special: BTreeMap<u32, String>,
    bos: Option<NamedToken>,
    eos: Option<NamedToken>,
    pad: Option<NamedToken>,
}

impl Tokenizer {
    /// Loads `tokenizer.json`, and `tokenizer_config.json` where there is one.
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
            file::read_optional(&path)?.ok_or_else(|| Error::Missing { path: path.clone() })?;
        let mut parsing = HfTokenizer::from_bytes(text).map_err(|error| Error::Corrupt {
            path: path.clone(),
            reason: format!("not a tokenizer: {error}"),
        })?;
        require_byte_level(&parsing, &path)?;
        parsing.with_padding(None);
        parsing
            .with_truncation(None)
            .map_err(|error| Error::Corrupt { path, reason: error.to_string() })?;

        let special = parsing
            .get_added_tokens_decoder()
            .into_iter()
            .filter(|(_, token)| token.special)
            .map(|(id, token)| (id, token.content))
            .collect();
        let mut tokenizer =
            Self { parsing, literal: OnceLock::new(), special, bos: None, eos: None, pad: None };
        tokenizer.apply_config(&TokenizerConfig::load(dir)?, &TokenizerConfig::path(dir))?;
        Ok(tokenizer)
    }

    fn apply_config(&mut self, config: &TokenizerConfig, path: &Path) -> Result<(), Error> {
        let corrupt = |reason| Error::Corrupt { path: path.to_owned(), reason };
        for (id, added) in &config.added_tokens_decoder {
            let in_vocabulary = id.parse().ok().and_then(|id| self.token(id));
            if in_vocabulary.as_ref() != Some(&added.content) {
                return Err(corrupt(format!(
                    "added_tokens_decoder gives {:?} the id {id}, where tokenizer.json has {}",
                    added.content,
                    in_vocabulary.map_or("nothing".to_owned(), |token| format!("{token:?}")),
                )));
            }
        }
        let named = |field: &str, text: Option<&str>| {
            let Some(text) = text else { return Ok(None) };
            let id = self.id(text).ok_or_else(|| {
                corrupt(format!("{field} is {text:?}, which tokenizer.json does not have"))
            })?;
            Ok(Some(NamedToken { id, text: text.to_owned() }))
        };
        let bos = named("bos_token", config.bos_token.as_ref().map(|token| token.as_str()))?;
        let eos = named("eos_token", config.eos_token.as_ref().map(|token| token.as_str()))?;
        let pad = named("pad_token", config.pad_token.as_ref().map(|token| token.as_str()))?;
        (self.bos, self.eos, self.pad) = (bos, eos, pad);
        Ok(())
    }

    /// Text to ids, special tokens treated as `policy` says.
    ///
    /// # Errors
    /// [`Error::Encode`] if the tokenizer's rules cannot split this text, which half a million
    /// spaces in a row will do.
    pub fn encode(&self, text: &str, policy: EncodePolicy) -> Result<Vec<u32>, Error> {
        let longest = longest_whitespace_run(text);
        if longest > WHITESPACE_RUN_MAX {
            let reason = format!(
                "it has {longest} whitespace characters in a row, at most {WHITESPACE_RUN_MAX} \
                 can be split reliably"
            );
            return Err(Error::Encode { reason });
        }
        let tokenizer = match policy {
            EncodePolicy::Prompt | EncodePolicy::Rendered => &self.parsing,
            EncodePolicy::Literal => self.literal.get_or_init(|| {
                let mut literal = self.parsing.clone();
                literal.set_encode_special_tokens(true);
                literal
            }),
        };
        tokenizer
            .encode_fast(text, policy == EncodePolicy::Prompt)
            .map(|encoding| encoding.get_ids().to_vec())
            .map_err(|error| Error::Encode { reason: error.to_string() })
    }

    /// All of `ids` to text at once. Ids outside the vocabulary stand for no text.
    #[must_use]
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let mut decoder = self.stream_decoder(skip_special);
        let mut text: String = ids.iter().filter_map(|&id| decoder.push(id)).collect();
        text.extend(decoder.finish());
        text
    }

    /// A decoder for ids that arrive one at a time; special tokens are left out of the text
    /// where `skip_special` is set.
    #[must_use]
    pub fn stream_decoder(&self, skip_special: bool) -> StreamDecoder<'_> {
        StreamDecoder::new(self, skip_special)
    }

    /// How many ids have a token, added tokens included.
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

    /// Whether the tokenizer flags this id as special.
    #[must_use]
    pub fn is_special(&self, id: u32) -> bool {
        self.special.contains_key(&id)
    }

    /// Every special token, by id.
    pub fn special_tokens(&self) -> impl Iterator<Item = (u32, &str)> {
        self.special.iter().map(|(&id, text)| (id, text.as_str()))
    }

    /// The beginning-of-text token, where `tokenizer_config.json` names one.
    #[must_use]
    pub fn bos(&self) -> Option<&NamedToken> {
        self.bos.as_ref()
    }

    /// The end token that `tokenizer_config.json` names. To end a generation, see
    /// [`StopTokens`](crate::StopTokens), which may hold more.
    #[must_use]
    pub fn eos(&self) -> Option<&NamedToken> {
        self.eos.as_ref()
    }

    /// The padding token, where `tokenizer_config.json` names one.
    #[must_use]
    pub fn pad(&self) -> Option<&NamedToken> {
        self.pad.as_ref()
    }

    /// What in `text` is written like a special token, `<|...|>`, but is not in the vocabulary:
    /// most often a typing error, or markup meant for another model.
    #[must_use]
    pub fn lookalikes(&self, text: &str) -> Vec<Lookalike> {
        marked_names(text)
            .filter(|(_, name)| self.id(name).is_none())
            .map(|(offset, name)| Lookalike { offset, text: name.to_owned() })
            .collect()
    }
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

/// Everything of the form `<|name|>` with its offset; a name has no space, `<`, `>` or `|`.
fn marked_names(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices("<|").filter_map(|(start, open)| {
        let inner = &text[start + open.len()..];
        let length = inner.find(|c: char| c.is_whitespace() || matches!(c, '<' | '>' | '|'))?;
        let named = length > 0 && inner[length..].starts_with("|>");
        let end = start + open.len() + length + "|>".len();
        named.then(|| (start, &text[start..end]))
    })
}

fn require_byte_level(tokenizer: &HfTokenizer, path: &Path) -> Result<(), Error> {
    let reason = match tokenizer.get_decoder() {
        Some(DecoderWrapper::ByteLevel(_)) => return Ok(()),
        // The variant's name is all that is of use; its fields may be long.
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
