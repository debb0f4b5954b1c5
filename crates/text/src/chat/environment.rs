//! Sets up the template engine as `transformers` sets up Jinja2 for chat templates.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::ZonedDateTime;
use jiff::fmt::strtime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Object, ObjectRepr, Rest, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, Value, filters};
use minijinja_contrib::{globals, pycompat};

use super::json::{Style, python_json};
use super::python::{self, invalid};
use super::source::{CONCAT, ITEMS, PERCENT};
use super::strings;

/// Limit of instructions for one rendering: a template comes from the network, and must end.
/// Qwen3's takes about a hundred per message. The engine counts 64 bytes of text as one.
const FUEL: u64 = 1_000_000;

/// Fuel for `bytes` of messages: a template may go over their text some sixteen times.
pub(crate) fn fuel(bytes: usize) -> u64 {
    FUEL.saturating_add(bytes as u64 / 4)
}

/// An environment without templates.
pub(crate) fn chat_environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_syntax(jinja2_syntax());
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(method);
    environment.set_formatter(write_like_python);
    environment.set_fuel(Some(FUEL));
    add_filters(&mut environment);
    environment.add_test("callable", is_callable);
    environment.add_function(PERCENT, |left: &Value, right: &Value| python::percent(left, right));
    environment.add_function(CONCAT, |values: Rest<Value>| python::concat(&values));
    environment.add_function(ITEMS, |value: &Value| python::items(value));
    environment.add_test("sequence", is_sequence);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("lipsum", |_: Rest<Value>| -> Result<Value, Error> {
        Err(invalid("lipsum(), a random text, is not supported".into()))
    });
    environment
        .add_function("strftime_now", |format: &str| time_text(format, &ZonedDateTime::now()));
    environment.add_function("cycler", Cycler::create);
    environment.add_function("joiner", globals::joiner);
    // Jinja2 has none of these; a template that tests for them has another way for Jinja2.
    environment.remove_global("debug");
    for test in ["startingwith", "endingwith"] {
        environment.remove_test(test);
    }
    environment
}

/// Filters that the engine lacks, implements differently from Jinja2, or does not bound.
fn add_filters(environment: &mut Environment<'static>) {
    environment.add_filter("tojson", tojson);
    environment.add_filter("string", |value: &Value| python::text(value));
    environment.add_filter("join", join);
    environment.add_filter("format", |pattern: &str, args: Rest<Value>| {
        let mapping = args.len() == 1 && args[0].is_kwargs();
        python::printf(pattern, &args, (!mapping).then_some(args.len()))
    });
    environment.add_filter("replace", replace);
    environment.add_filter("indent", indent);
    environment.add_filter("wordcount", minijinja_contrib::filters::wordcount);
    let of_text: [(&str, Value); 7] = [
        ("upper", Value::from_function(filters::upper)),
        ("lower", Value::from_function(filters::lower)),
        ("title", Value::from_function(filters::title)),
        ("capitalize", Value::from_function(filters::capitalize)),
        ("trim", Value::from_function(filters::trim)),
        ("escape", Value::from_function(filters::escape)),
        ("e", Value::from_function(filters::escape)),
    ];
    for (name, filter) in of_text {
        // The engine writes a list as Rust does before it works on its text.
        environment.add_filter(name, move |state: &mut State, args: Rest<Value>| {
            refuse_containers(name, &args)?;
            filter.call(state, &args)
        });
    }
    environment.add_filter("safe", |value: &Value| python::text(value));
    for filter in ["pprint", "split", "lines", "bool", "zip", "chain"] {
        environment.remove_filter(filter);
    }
}

/// Jinja's delimiters; a block alone on a line leaves no blank line.
fn jinja2_syntax() -> SyntaxConfig {
    SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .expect("the default delimiters are valid")
}

#[expect(clippy::needless_pass_by_value, reason = "the form that the engine calls filters in")]
fn tojson(
    value: &Value,
    ascii: Option<&Value>,
    indent: Option<&Value>,
    options: Kwargs,
) -> Result<String, Error> {
    if value.is_undefined() {
        return Err(Error::new(ErrorKind::UndefinedError, "tojson of an undefined value"));
    }
    let named = |name: &'static str| options.get::<Option<&Value>>(name);
    let mut style = Style::new(match indent.or(named("indent")?) {
        Some(indent) => indentation(indent)?,
        None => None,
    });
    // Models are trained on text, not on escapes; the filter of `transformers` defaults to this.
    style.ascii = ascii.or(named("ensure_ascii")?).is_some_and(Value::is_true);
    style.sort_keys = named("sort_keys")?.is_some_and(Value::is_true);
    if let Some(separators) = named("separators")?.filter(|value| !value.is_none()) {
        let both: Vec<Value> = separators.try_iter()?.collect();
        let [Some(item), Some(key)] = [0, 1].map(|at| both.get(at).and_then(Value::as_str)) else {
            return Err(invalid("tojson: separators are two strings".into()));
        };
        (style.item_separator, style.key_separator) = (item.to_owned(), key.to_owned());
    }
    options.assert_all_used()?;
    python_json(value, &style)
}

/// `json.dumps`'s indentation of a level: a number of spaces, or a text.
fn indentation(value: &Value) -> Result<Option<String>, Error> {
    match value.kind() {
        ValueKind::None | ValueKind::Undefined => Ok(None),
        ValueKind::String => Ok(value.as_str().map(str::to_owned)),
        _ => match i64::try_from(value.clone()) {
            Ok(width) if width <= strings::WIDTH_MAX => {
                Ok(Some(" ".repeat(usize::try_from(width).unwrap_or(0))))
            }
            Ok(width) => Err(invalid(format!(
                "an indent of {width}: at most {} is allowed",
                strings::WIDTH_MAX
            ))),
            Err(_) => Err(invalid("an indent is a number or a string".into())),
        },
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the form that the engine calls filters in")]
fn join(
    state: &State,
    values: &Value,
    separator: Option<&Value>,
    attribute: Option<&str>,
    options: Kwargs,
) -> Result<Value, Error> {
    let separator = separator.or(options.get::<Option<&Value>>("d")?);
    let separator = separator.map_or(Ok(String::new()), python::text)?;
    let attribute = attribute.or(options.get::<Option<&str>>("attribute")?);
    options.assert_all_used()?;
    python::join(state, values, &separator, attribute)
}

#[expect(clippy::needless_pass_by_value, reason = "the form that the engine calls filters in")]
fn replace(
    value: &Value,
    old: &Value,
    new: &Value,
    count: Option<i64>,
    options: Kwargs,
) -> Result<String, Error> {
    let count = count.or(options.get::<Option<i64>>("count")?);
    options.assert_all_used()?;
    strings::replace(&python::text(value)?, &python::text(old)?, &python::text(new)?, count)
}

#[expect(clippy::needless_pass_by_value, reason = "the form that the engine calls filters in")]
fn indent(
    value: &Value,
    width: Option<&Value>,
    first: Option<bool>,
    blank: Option<bool>,
    options: Kwargs,
) -> Result<String, Error> {
    let named = |name: &'static str| options.get::<Option<bool>>(name);
    let width = width.or(options.get::<Option<&Value>>("width")?);
    let first = first.or(named("first")?).unwrap_or(false);
    let blank = blank.or(named("blank")?).unwrap_or(false);
    options.assert_all_used()?;
    let by = match width {
        None => " ".repeat(4),
        Some(width) => indentation(width)?.unwrap_or_default(),
    };
    strings::indent(&python::text(value)?, &by, first, blank)
}

fn refuse_containers(filter: &str, args: &[Value]) -> Result<(), Error> {
    let container = |value: &&Value| {
        matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable)
    };
    match args.iter().filter(|value| !value.is_kwargs()).find(container) {
        None => Ok(()),
        Some(value) => {
            Err(invalid(format!("{filter} of a {}: make it a string first", value.kind())))
        }
    }
}

/// Whether a value has a length and items, as Jinja2 asks.
fn is_sequence(value: &Value) -> Result<bool, Error> {
    match value.kind() {
        ValueKind::String | ValueKind::Map | ValueKind::Undefined => Ok(true),
        // Some of the engine's iterators are lists in Python, and some are not.
        ValueKind::Iterable if !python::is_list(value) => {
            Err(invalid("`is sequence` of an iterator: make it a list first (`| list`)".into()))
        }
        _ => Ok(python::is_list(value)),
    }
}

/// Python's `callable`; what is undefined can be called in Jinja2, to say so.
fn is_callable(value: &Value) -> bool {
    let kinds = ["BoxedFunction", "Macro", "Loop", "Joiner"];
    let of_kind = |name: &str| kinds.iter().any(|kind| name.ends_with(kind));
    value.is_undefined() || value.as_object().is_some_and(|object| of_kind(object.type_name()))
}

/// Methods of Python's strings, lists and mappings.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    match value.as_str().map(|text| strings::method(text, name, args)) {
        Some(Ok(Some(result))) => Ok(result),
        Some(Err(error)) => Err(error),
        Some(Ok(None)) | None => pycompat::unknown_method_callback(state, value, name, args),
    }
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    Err(invalid(python::text(message)?))
}

fn time_text(format: &str, now: &ZonedDateTime) -> Result<String, Error> {
    strtime::format(format, now)
        .map_err(|error| invalid(format!("strftime_now({format:?}): {error}")))
}

/// Prints `{{ value }}` as Jinja2 does.
fn write_like_python(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Undefined | ValueKind::String | ValueKind::Invalid | ValueKind::Plain => {
            minijinja::escape_formatter(out, state, value)
        }
        _ => Ok(out.write_str(&python::text(value)?)?),
    }
}

/// Jinja2's `cycler(*items)`.
#[derive(Debug)]
struct Cycler {
    items: Vec<Value>,
    at: AtomicUsize,
}

impl Cycler {
    fn create(items: Rest<Value>) -> Result<Value, Error> {
        if items.is_empty() {
            return Err(invalid("cycler() needs at least one item".into()));
        }
        Ok(Value::from_object(Self { items: items.0, at: AtomicUsize::new(0) }))
    }

    fn current(&self) -> Value {
        self.items[self.at.load(Ordering::Relaxed) % self.items.len()].clone()
    }
}

impl Object for Cycler {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        (key.as_str() == Some("current")).then(|| self.current())
    }

    fn call_method(
        self: &Arc<Self>,
        _: &mut State<'_, '_>,
        name: &str,
        _: &[Value],
    ) -> Result<Value, Error> {
        let current = self.current();
        match name {
            "next" => {
                self.at.fetch_add(1, Ordering::Relaxed);
                Ok(current)
            }
            "reset" => {
                self.at.store(0, Ordering::Relaxed);
                Ok(Value::from(()))
            }
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_as_by_strftime() {
        let now: ZonedDateTime = "2026-03-07T09:05:00[UTC]".parse().unwrap();
        assert_eq!(time_text("%d %b %Y", &now).unwrap(), "07 Mar 2026");
        assert_eq!(
            time_text("%A, %B %-d, %Y %H:%M", &now).unwrap(),
            "Saturday, March 7, 2026 09:05"
        );
        assert!(time_text("%", &now).is_err());
    }
}
