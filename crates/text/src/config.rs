//! `tokenizer_config.json`, and `special_tokens_map.json` of older models: the fields that this
//! crate uses.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};

use crate::{Error, file};

const CONFIG: &str = "tokenizer_config.json";
const MAP: &str = "special_tokens_map.json";

/// The fields of `tokenizer_config.json` that are used. Each may be absent.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct TokenizerConfig {
    pub tokenizer_class: Option<String>,
    #[serde(flatten)]
    own: SpecialTokens,
    /// Those of [`MAP`], where that file counts.
    #[serde(skip)]
    mapped: SpecialTokens,
    pub added_tokens_decoder: Option<BTreeMap<String, Added>>,
    pub chat_template: Option<TemplateField>,
}

/// The special tokens that a file names, each under the name that a chat template knows.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SpecialTokens {
    pub bos_token: Field,
    pub eos_token: Field,
    pub unk_token: Field,
    pub sep_token: Field,
    pub pad_token: Field,
    pub cls_token: Field,
    pub mask_token: Field,
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
        dir.join(CONFIG)
    }

    /// One special token, and the name of the file that has the last word on it.
    pub fn special(&self, of: impl Fn(&SpecialTokens) -> &Field) -> (&Field, &'static str) {
        match of(&self.mapped) {
            Field::Absent => (of(&self.own), CONFIG),
            mapped => (mapped, MAP),
        }
    }

    /// The special tokens by the names that a chat template knows, as in `special_tokens_map` of
    /// `transformers`. Qwen3 uses the class of Qwen2, which has defaults for three of them.
    pub fn special_tokens(&self) -> Vec<(&'static str, String)> {
        let class = self.tokenizer_class.as_deref().unwrap_or_default();
        let default =
            matches!(class, "Qwen2Tokenizer" | "Qwen2TokenizerFast").then_some("<|endoftext|>");
        let text = |of: fn(&SpecialTokens) -> &Field, default| {
            self.special(of).0.or(default).map(str::to_owned)
        };
        [
            ("bos_token", text(|tokens| &tokens.bos_token, None)),
            ("eos_token", text(|tokens| &tokens.eos_token, default)),
            ("unk_token", text(|tokens| &tokens.unk_token, default)),
            ("sep_token", text(|tokens| &tokens.sep_token, None)),
            ("pad_token", text(|tokens| &tokens.pad_token, default)),
            ("cls_token", text(|tokens| &tokens.cls_token, None)),
            ("mask_token", text(|tokens| &tokens.mask_token, None)),
        ]
        .into_iter()
        .filter_map(|(name, text)| Some((name, text?)))
        .collect()
    }

    /// Reads the folder's files. Without a file, every field of it is absent.
    ///
    /// `special_tokens_map.json` is read where `tokenizer_config.json` has no
    /// `added_tokens_decoder`, and then replaces what both name: `transformers` 5.24 does so.
    pub fn load(dir: &Path) -> Result<Self, Error> {
        let mut config: Self = file::read_json(&Self::path(dir))?.unwrap_or_default();
        if config.added_tokens_decoder.is_none() {
            config.mapped = file::read_json(&dir.join(MAP))?.unwrap_or_default();
        }
        Ok(config)
    }
}
