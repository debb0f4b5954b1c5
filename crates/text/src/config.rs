//! `tokenizer_config.json`: the part of it that matters here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::{Error, file};

/// The fields of `tokenizer_config.json` that are used; all may be absent.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct TokenizerConfig {
    pub bos_token: Option<TokenText>,
    pub eos_token: Option<TokenText>,
    pub pad_token: Option<TokenText>,
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

    /// Reads the folder's file; defaults where there is none.
    pub fn load(dir: &Path) -> Result<Self, Error> {
        Ok(file::read_json(&Self::path(dir))?.unwrap_or_default())
    }
}
