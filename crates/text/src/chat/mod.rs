//! Renders chat messages to one prompt with the model's own template.

mod environment;
mod json;
mod literal;
mod python;
mod source;
mod strings;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use minijinja::{Environment, Value};
use serde::{Deserialize, Serialize};

pub use json::Json;

use crate::config::{TemplateField, TokenizerConfig};
use crate::guard::{self, Failure};
use crate::{Error, file};

const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";

/// Time limit of a template. Its instructions and its text are also counted and bounded; the clock
/// ends operations that are not counted, such as comparing lists that contain themselves many
/// times.
const TIME_MAX: Duration = Duration::from_secs(30);

/// Names under which a message's reasoning is found. The first is the one that templates read.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// One message of a conversation. Reads and writes as the JSON that chat APIs use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool`, or another role of the template.
    pub role: String,
    /// The text. If a message has none, as with `tool_calls`, the template does not see the field
    /// either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Other fields for the template: `tool_calls`, `reasoning_content`, `name`.
    #[serde(flatten)]
    pub extra: BTreeMap<String, Json>,
}

impl Message {
    /// Returns a message with only text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: Some(content.into()), extra: BTreeMap::new() }
    }

    /// Returns the message with one more field.
    #[must_use]
    pub fn with(mut self, field: impl Into<String>, value: Json) -> Self {
        self.extra.insert(field.into(), value);
        self
    }

    /// Returns the message as `transformers` shows it to a template: without fields that are
    /// `null`, and with the reasoning under the name that templates read.
    fn to_value(&self) -> Value {
        let text = self.content.as_deref().map(|text| ("content", Value::from(text)));
        let mut fields: Vec<(&str, Value)> =
            [("role", Value::from(&*self.role))].into_iter().chain(text).collect();
        let extra = self.extra.iter().filter(|(_, json)| !json.0.is_none());
        fields.extend(extra.map(|(field, json)| (&**field, json.0.clone())));
        let found = |name: &str| fields.iter().find(|field| field.0 == name);
        if let Some((_, reasoning)) = REASONING.iter().find_map(|name| found(name)).cloned() {
            if found("thinking").is_none() {
                fields.insert(0, ("thinking", reasoning.clone()));
            }
            match fields.iter_mut().find(|field| field.0 == REASONING[0]) {
                Some(field) => field.1 = reasoning,
                None => fields.push((REASONING[0], reasoning)),
            }
        }
        Value::from_pairs(fields)
    }

    /// Returns the approximate bytes of the message's text, to bound the template's work.
    fn bytes(&self) -> usize {
        self.role.len()
            + self.content.as_ref().map_or(0, String::len)
            + self.extra.values().map(|json| json.0.to_string().len()).sum::<usize>()
    }
}

/// The template's other variables, besides the messages.
#[derive(Debug, Clone, Default)]
pub struct ChatOptions {
    /// Whether to end with the opening of an assistant's turn, which the model continues.
    pub add_generation_prompt: bool,
    /// Whether a reasoning model may think first. `None` leaves the variable undefined, so the
    /// template's own default holds (Qwen3 thinks).
    pub enable_thinking: Option<bool>,
    /// The available tools, as JSON schemas. The template sees `none` if there are none.
    pub tools: Vec<Json>,
    /// Documents to answer from. The template sees `none` if there are none.
    pub documents: Vec<Json>,
    /// Any other variable of the template. It may replace a special token's.
    pub variables: BTreeMap<String, Json>,
}

/// A model's chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    path: PathBuf,
    has_tool_use: bool,
    /// `bos_token` and similar tokens, if the tokenizer has them.
    special: Vec<(&'static str, String)>,
    /// The templates' own text.
    literals: String,
}

impl ChatTemplate {
    /// Loads `chat_template.jinja` or, if there is none, `chat_template` of
    /// `tokenizer_config.json`: one template, or a list with a `default` and perhaps a `tool_use`,
    /// which is used if tools are given.
    ///
    /// # Errors
    /// [`Error::NoTemplate`]; [`Error::Template`] with the line of a syntax error or of too deep
    /// nesting; [`Error::Unreadable`] or [`Error::Corrupt`].
    pub fn load(dir: &Path) -> Result<Self, Error> {
        let mut config = TokenizerConfig::load(dir)?;
        let jinja = dir.join("chat_template.jinja");
        let path = match file::read_template(&jinja)? {
            Some(text) => {
                config.chat_template = Some(TemplateField::One(text));
                jinja
            }
            None => TokenizerConfig::path(dir),
        };
        Self::from_config(config, &path)
    }

    /// The template that a configuration holds, read from `path`.
    pub(crate) fn from_config(config: TokenizerConfig, path: &Path) -> Result<Self, Error> {
        let special = config.special_tokens();
        let no_template = || {
            let dir = path.parent().unwrap_or(Path::new(""));
            Error::NoTemplate { dir: dir.to_owned() }
        };
        let sources = match config.chat_template.ok_or_else(no_template)? {
            TemplateField::One(source) => vec![(DEFAULT.to_owned(), source)],
            TemplateField::Named(list) => list
                .into_iter()
                .filter(|named| [DEFAULT, TOOL_USE].contains(&&*named.name))
                .map(|named| (named.name, named.template))
                .collect(),
        };
        if !sources.iter().any(|(name, _)| name == DEFAULT) {
            return Err(no_template());
        }
        Self::of_sources(path.to_owned(), sources, special)
    }

    /// Makes a template from only its source, with no special tokens. `path` is for messages.
    ///
    /// # Errors
    /// [`Error::Template`] as for [`ChatTemplate::load`].
    pub fn from_source(source: String, path: PathBuf) -> Result<Self, Error> {
        Self::of_sources(path, vec![(DEFAULT.to_owned(), source)], Vec::new())
    }

    fn of_sources(
        path: PathBuf,
        sources: Vec<(String, String)>,
        special: Vec<(&'static str, String)>,
    ) -> Result<Self, Error> {
        let mut literals = String::new();
        let mut prepared = Vec::new();
        for (name, source) in sources {
            file::check_template_size(source.len(), &path)?;
            let source = source::prepare(&source).map_err(|problem| Error::Template {
                path: path.clone(),
                line: problem.line,
                reason: problem.reason,
            })?;
            literals.push_str(&source.literals);
            prepared.push((name, source.text));
        }
        let has_tool_use = prepared.iter().any(|(name, _)| name == TOOL_USE);
        let compile = move || {
            let mut environment = environment::chat_environment();
            for (name, source) in prepared {
                environment.add_template_owned(name, source)?;
            }
            Ok(environment)
        };
        let environment = run(&path, TIME_MAX, compile)?;
        Ok(Self { environment, path, has_tool_use, special, literals })
    }

    /// Renders the prompt for `messages`. Encode it with [`EncodePolicy::Rendered`]: the template
    /// wrote every special token that belongs there.
    ///
    /// [`EncodePolicy::Rendered`]: crate::EncodePolicy::Rendered
    ///
    /// # Errors
    /// [`Error::Template`] with the line: the template raised an error, failed, or took too long.
    pub fn render(&self, messages: &[Message], options: &ChatOptions) -> Result<String, Error> {
        self.render_within(TIME_MAX, messages, options)
    }

    fn render_within(
        &self,
        limit: Duration,
        messages: &[Message],
        options: &ChatOptions,
    ) -> Result<String, Error> {
        let variables = self.variables(messages, options);
        let name = if self.has_tool_use && !options.tools.is_empty() { TOOL_USE } else { DEFAULT };
        let mut environment = self.environment.clone();
        let bytes = messages.iter().map(Message::bytes).sum();
        environment.set_fuel(Some(environment::fuel(bytes)));
        let render = move || environment.get_template(name)?.render(Value::from_pairs(variables));
        run(&self.path, limit, render)
    }

    /// Every variable that `transformers` gives a template, with its value.
    fn variables(&self, messages: &[Message], options: &ChatOptions) -> BTreeMap<String, Value> {
        let list = |items: &[Json]| match items {
            [] => Value::from(()),
            items => items.iter().map(|json| json.0.clone()).collect(),
        };
        let special =
            self.special.iter().map(|(name, text)| ((*name).to_owned(), Value::from(&**text)));
        let own = options.variables.iter().map(|(name, json)| (name.clone(), json.0.clone()));
        let mut variables: BTreeMap<String, Value> = special.chain(own).collect();
        if let Some(enabled) = options.enable_thinking {
            variables.insert("enable_thinking".into(), enabled.into());
        }
        variables.extend([
            ("messages".into(), messages.iter().map(Message::to_value).collect()),
            ("tools".into(), list(&options.tools)),
            ("documents".into(), list(&options.documents)),
            ("add_generation_prompt".into(), options.add_generation_prompt.into()),
        ]);
        variables
    }

    /// The file that the template came from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Runs the template engine on a separate thread, and converts its errors.
fn run<T: Send + 'static>(
    path: &Path,
    limit: Duration,
    call: impl FnOnce() -> Result<T, minijinja::Error> + Send + 'static,
) -> Result<T, Error> {
    let error = |line, reason| Error::Template { path: path.to_owned(), line, reason };
    match guard::on_own_thread(limit, call) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(cause)) => {
            let reason = match (cause.kind(), cause.detail()) {
                (minijinja::ErrorKind::OutOfFuel, _) => {
                    "the template takes too many steps, or makes too much text".to_owned()
                }
                (kind, Some(detail)) => format!("{kind}: {detail}"),
                (kind, None) => kind.to_string(),
            };
            Err(error(cause.line().unwrap_or(0), reason))
        }
        Err(Failure::Panic(message)) => {
            Err(error(0, format!("the template engine failed: {message}")))
        }
        Err(Failure::Timeout) => {
            Err(error(0, format!("the template did not end within {} s", limit.as_secs())))
        }
        Err(Failure::NoThread(reason)) => Err(error(0, format!("no thread to run it: {reason}"))),
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
    fn a_template_that_does_not_end_is_left() {
        // Two lists of 2^60 items each, held many times over, that differ at the last.
        let source = "{% set a = namespace(x=[1]) %}{% set b = namespace(x=[1]) %}\
                      {% for i in range(60) %}{% set a.x = [a.x, a.x] %}{% set b.x = [b.x, b.x] %}\
                      {% endfor %}{{ a.x == b.x }}";
        let template = load(&[("chat_template.jinja", source)]).unwrap();
        let limit = Duration::from_millis(100);
        let error = template.render_within(limit, &[], &ChatOptions::default()).unwrap_err();
        assert!(error.to_string().contains("the template did not end within"), "{error}");
    }

    #[test]
    fn messages_carry_any_field_in_order() {
        let json = r#"{"role": "assistant", "content": null,
                       "tool_calls": [{"z": 1, "a": {"y": 2, "b": 3}}]}"#;
        let message: Message = serde_json::from_str(json).unwrap();
        assert_eq!(message.content, None);
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
