//! Chat messages to one prompt, by the model's own template.

mod environment;
mod json;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use minijinja::{Environment, Value};
use serde::{Deserialize, Serialize};

pub use json::Json;

use crate::config::{TemplateField, TokenText, TokenizerConfig};
use crate::{Error, file};

const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";

/// One message of a conversation. Reads and writes as the JSON that chat APIs use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool`, or what the template knows.
    pub role: String,
    /// What is said; empty where the JSON has none or `null`, as beside `tool_calls`.
    #[serde(default, deserialize_with = "text_or_null")]
    pub content: String,
    /// Anything else the template may look at: `tool_calls`, `reasoning_content`, `name`.
    #[serde(flatten)]
    pub extra: BTreeMap<String, Json>,
}

fn text_or_null<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Message {
    /// A message with nothing but text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), extra: BTreeMap::new() }
    }

    /// The message with one more field.
    #[must_use]
    pub fn with(mut self, field: impl Into<String>, value: Json) -> Self {
        self.extra.insert(field.into(), value);
        self
    }

    fn to_value(&self) -> Value {
        let text = [("role", Value::from(&*self.role)), ("content", Value::from(&*self.content))];
        let extra = self.extra.iter().map(|(field, json)| (&**field, json.0.clone()));
        Value::from_pairs(text.into_iter().chain(extra))
    }
}

/// What a template is told besides the messages.
#[derive(Debug, Clone, Default)]
pub struct ChatOptions {
    /// Whether to end with the opening of an assistant's turn, for the model to go on from.
    pub add_generation_prompt: bool,
    /// Whether a reasoning model may think first. `None` leaves the variable undefined, so the
    /// template's own default holds (Qwen3 thinks).
    pub enable_thinking: Option<bool>,
    /// Tools on offer, as JSON schemas.
    pub tools: Vec<Json>,
    /// Any other variable of the template.
    pub variables: BTreeMap<String, Json>,
}

/// A model's chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    path: PathBuf,
    has_tool_use: bool,
    bos: Option<String>,
    eos: Option<String>,
}

impl ChatTemplate {
    /// Loads `chat_template.jinja`, or where there is none `chat_template` of
    /// `tokenizer_config.json`: one template, or a list that names a `default` and perhaps a
    /// `tool_use`, which then serves whenever tools are given.
    ///
    /// # Errors
    /// [`Error::NoTemplate`]; [`Error::Template`] with the line of a syntax error;
    /// [`Error::Unreadable`] or [`Error::Corrupt`].
    pub fn load(dir: &Path) -> Result<Self, Error> {
        let config = TokenizerConfig::load(dir)?;
        let jinja = dir.join("chat_template.jinja");
        let (path, field) = match file::read_optional(&jinja)? {
            Some(text) => (jinja, Some(TemplateField::One(text))),
            None => (TokenizerConfig::path(dir), config.chat_template),
        };
        let text = |token: Option<TokenText>| Some(token?.as_str().to_owned());
        let mut template = Self {
            environment: environment::chat_environment(),
            path,
            has_tool_use: false,
            bos: text(config.bos_token),
            eos: text(config.eos_token),
        };
        match field {
            None => return Err(Error::NoTemplate { dir: dir.to_owned() }),
            Some(TemplateField::One(source)) => template.add(DEFAULT, source)?,
            Some(TemplateField::Named(list)) => {
                for named in list.into_iter().filter(|n| [DEFAULT, TOOL_USE].contains(&&*n.name)) {
                    template.has_tool_use |= named.name == TOOL_USE;
                    template.add(&named.name, named.template)?;
                }
            }
        }
        if template.environment.get_template(DEFAULT).is_err() {
            return Err(Error::NoTemplate { dir: dir.to_owned() });
        }
        Ok(template)
    }

    /// The prompt for `messages`. Encode it with [`EncodePolicy::Rendered`]: the template wrote
    /// every special token that belongs there.
    ///
    /// [`EncodePolicy::Rendered`]: crate::EncodePolicy::Rendered
    ///
    /// # Errors
    /// [`Error::Template`] with the line: what the template raised, or what it tripped over.
    pub fn render(&self, messages: &[Message], options: &ChatOptions) -> Result<String, Error> {
        let mut variables: BTreeMap<&str, Value> =
            options.variables.iter().map(|(name, json)| (&**name, json.0.clone())).collect();
        variables.insert("messages", messages.iter().map(Message::to_value).collect());
        variables.insert("add_generation_prompt", options.add_generation_prompt.into());
        for (name, token) in [("bos_token", &self.bos), ("eos_token", &self.eos)] {
            // transformers prints nothing for a token that the model does not have.
            variables.insert(name, token.clone().map_or(Value::UNDEFINED, Value::from));
        }
        if let Some(enabled) = options.enable_thinking {
            variables.insert("enable_thinking", enabled.into());
        }
        if !options.tools.is_empty() {
            variables.insert("tools", options.tools.iter().map(|json| json.0.clone()).collect());
        }
        let name = if self.has_tool_use && !options.tools.is_empty() { TOOL_USE } else { DEFAULT };
        self.environment
            .get_template(name)
            .and_then(|template| template.render(Value::from_pairs(variables)))
            .map_err(|error| self.error(&error))
    }

    /// The file that the template came from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn add(&mut self, name: &str, source: String) -> Result<(), Error> {
        self.environment
            .add_template_owned(name.to_owned(), source)
            .map_err(|error| self.error(&error))
    }

    fn error(&self, error: &minijinja::Error) -> Error {
        let reason = match error.detail() {
            Some(detail) => format!("{}: {detail}", error.kind()),
            None => error.kind().to_string(),
        };
        Error::Template { path: self.path.clone(), line: error.line().unwrap_or(0), reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(files: &[(&str, &str)]) -> Result<ChatTemplate, String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        ChatTemplate::load(dir.path()).map_err(|error| error.to_string())
    }

    fn render(source: &str, messages: &[Message], options: &ChatOptions) -> Result<String, String> {
        let template = load(&[("chat_template.jinja", source)])?;
        template.render(messages, options).map_err(|error| error.to_string())
    }

    #[test]
    fn the_newer_layout_wins_and_tokens_come_from_the_config() {
        let config = r#"{"bos_token": {"content": "<s>"}, "eos_token": "</s>",
                         "chat_template": "old"}"#;
        let jinja = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}";
        let template =
            load(&[("tokenizer_config.json", config), ("chat_template.jinja", jinja)]).unwrap();
        let text = template.render(&[Message::new("user", "hi")], &ChatOptions::default());
        assert_eq!(text.unwrap(), "<s>hi</s>");
        assert!(template.path().ends_with("chat_template.jinja"));
    }

    #[test]
    fn named_templates_are_chosen_by_tools() {
        let config = r#"{"chat_template": [{"name": "default", "template": "plain"},
            {"name": "tool_use", "template": "{{ tools[0].name }}"},
            {"name": "rag", "template": "{% broken"}]}"#;
        let template = load(&[("tokenizer_config.json", config)]).unwrap();
        let mut options = ChatOptions::default();
        assert_eq!(template.render(&[], &options).unwrap(), "plain");
        options.tools.push(r#"{"name": "clock"}"#.parse().unwrap());
        assert_eq!(template.render(&[], &options).unwrap(), "clock");
    }

    #[test]
    fn no_template_says_where_it_looked() {
        let only_rag = r#"{"chat_template": [{"name": "rag", "template": "x"}]}"#;
        for config in ["{}", only_rag] {
            let error = load(&[("tokenizer_config.json", config)]).unwrap_err();
            assert!(error.contains("no chat template (neither chat_template.jinja"), "{error}");
        }
        let error = load(&[("tokenizer_config.json", r#"{"chat_template": 3}"#)]).unwrap_err();
        assert!(error.contains("tokenizer_config.json: expected chat_template"), "{error}");
    }

    #[test]
    fn errors_name_file_and_line() {
        let error = load(&[("chat_template.jinja", "one\n{% if %}\n")]).unwrap_err();
        assert!(error.contains("chat_template.jinja, chat template line 2: syntax"), "{error}");

        let source = "a\n\n{{ raise_exception('roles must ' ~ 'alternate') }}";
        let error = render(source, &[], &ChatOptions::default()).unwrap_err();
        assert!(error.ends_with("line 3: invalid operation: roles must alternate"), "{error}");

        let error = render("{{ nosuch.field }}", &[], &ChatOptions::default()).unwrap_err();
        assert!(error.contains("line 1: undefined value"), "{error}");
    }

    #[test]
    fn thinking_is_undefined_unless_set() {
        let source = "{{ enable_thinking is defined }} {{ enable_thinking is false }}";
        for (enable_thinking, expected) in
            [(None, "False False"), (Some(true), "True False"), (Some(false), "True True")]
        {
            let options = ChatOptions { enable_thinking, ..ChatOptions::default() };
            assert_eq!(render(source, &[], &options).unwrap(), expected);
        }
    }

    #[test]
    fn messages_carry_any_field_in_order() {
        let json = r#"{"role": "assistant", "content": null,
                       "tool_calls": [{"z": 1, "a": {"y": 2, "b": 3}}]}"#;
        let message: Message = serde_json::from_str(json).unwrap();
        assert_eq!(message.content, "");
        let text =
            render("{{ messages[0].tool_calls[0] | tojson }}", &[message], &ChatOptions::default());
        assert_eq!(text.unwrap(), r#"{"z": 1, "a": {"y": 2, "b": 3}}"#);
        assert!(serde_json::from_str::<Message>(r#"{"content": "x"}"#).is_err());
    }

    #[test]
    fn variables_reach_the_template_but_do_not_replace_messages() {
        let mut options = ChatOptions::default();
        options.variables.insert("mood".into(), "calm".into());
        options.variables.insert("messages".into(), "none".into());
        assert_eq!(render("{{ mood }} {{ messages | length }}", &[], &options).unwrap(), "calm 0");
    }
}
