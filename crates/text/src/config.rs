//! `tokenizer_config.json`: the fields that this crate uses.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};

use crate::{Error, file};

/// The fields of `tokenizer_config.json` that are used. Each may be absent.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct TokenizerConfig {
    pub tokenizer_class: Option<String>,
    pub bos_token: Option<TokenText>,
    pub sep_token: Option<TokenText>,
    pub cls_token: Option<TokenText>,
    pub mask_token: Option<TokenText>,
    #[serde(default)]
    pub eos_token: Field,
    #[serde(default)]
    pub unk_token: Field,
    #[serde(default)]
    pub pad_token: Field,
    #[serde(default)]
    pub added_tokens_decoder: BTreeMap<String, Added>,
    pub chat_template: Option<TemplateField>,
}

/// A token by its text, alone or inside an `AddedToken` object.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a token: a string or an object with `content`")]
pub(crate) enum TokenText {
    Plain(String),
    Object { content: String },
}

/// A token for which the tokenizer's class has a default. The default replaces an absent field,
/// and not a `null`.
#[derive(Debug, Default)]
pub(crate) enum Field {
    #[default]
    Absent,
    Null,
    Token(TokenText),
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or(Self::Null, Self::Token))
    }
}

impl Field {
    /// The token that the file names.
    pub fn named(&self) -> Option<&str> {
        match self {
            Self::Token(token) => Some(token.as_str()),
            Self::Absent | Self::Null => None,
        }
    }

    fn or<'a>(&'a self, default: Option<&'a str>) -> Option<&'a str> {
        if matches!(self, Self::Absent) { default } else { self.named() }
    }
}

impl TokenText {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Plain(text) | Self::Object { content: text } => text,
        }
    }
}

/// One entry of `added_tokens_decoder`.
#[derive(Debug, Deserialize)]
pub(crate) struct Added {
    pub content: String,
}

/// One template, or several with names (`default`, `tool_use`, ...).
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected chat_template: a string or a list of named templates")]
pub(crate) enum TemplateField {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Debug, Deserialize)]
pub(crate) struct NamedTemplate {
    pub name: String,
    pub template: String,
}

impl TokenizerConfig {
    pub fn path(dir: &Path) -> PathBuf {
        dir.join("tokenizer_config.json")
    }

    /// The special tokens by the names that a chat template knows, as in `special_tokens_map` of
    /// `transformers`. Qwen3 uses the class of Qwen2, which has defaults for three of them.
    pub fn special_tokens(&self) -> Vec<(&'static str, String)> {
        let class = self.tokenizer_class.as_deref().unwrap_or_default();
        let default =
            matches!(class, "Qwen2Tokenizer" | "Qwen2TokenizerFast").then_some("<|endoftext|>");
        let text = |token: &'_ Option<TokenText>| token.as_ref().map(|t| t.as_str().to_owned());
        [
            ("bos_token", text(&self.bos_token)),
            ("eos_token", self.eos_token.or(default).map(str::to_owned)),
            ("unk_token", self.unk_token.or(default).map(str::to_owned)),
            ("sep_token", text(&self.sep_token)),
            ("pad_token", self.pad_token.or(default).map(str::to_owned)),
            ("cls_token", text(&self.cls_token)),
            ("mask_token", text(&self.mask_token)),
        ]
        .into_iter()
        .filter_map(|(name, text)| Some((name, text?)))
        .collect()
    }

    /// Reads the folder's file. Without a file, every field is absent.
    pub fn load(dir: &Path) -> Result<Self, Error> {
        Ok(file::read_json(&Self::path(dir))?.unwrap_or_default())
    }
}
