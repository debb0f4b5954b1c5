//! The template engine, set up as `transformers` sets up Jinja2 for chat templates.

use jiff::ZonedDateTime;
use jiff::fmt::strtime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, Value};
use minijinja_contrib::pycompat;

use super::json::{python_float, python_json};

/// Instructions that one rendering may take: a template comes from the network, and must end.
/// Qwen3's takes about a hundred a message.
const FUEL: u64 = 50_000_000;

/// An environment without templates.
pub(crate) fn chat_environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_syntax(jinja2_syntax());
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(pycompat::unknown_method_callback);
    environment.set_formatter(write_like_python);
    environment.set_fuel(Some(FUEL));
    environment.add_filter("tojson", tojson);
    environment.add_function("raise_exception", raise_exception);
    environment
        .add_function("strftime_now", |format: &str| time_text(format, &ZonedDateTime::now()));
    environment
}

/// Jinja's delimiters; a block on a line of its own leaves no blank line behind.
fn jinja2_syntax() -> SyntaxConfig {
    SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .expect("the default delimiters are valid")
}

#[expect(clippy::needless_pass_by_value, reason = "the form that the engine calls filters in")]
fn tojson(value: &Value, options: Kwargs) -> Result<String, Error> {
    if value.is_undefined() {
        return Err(Error::new(ErrorKind::UndefinedError, "tojson of an undefined value"));
    }
    let indent: Option<usize> = options.get("indent")?;
    // Models are trained on text, not on escapes; the filter of `transformers` defaults to this.
    if options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false) {
        return Err(unsupported("tojson(ensure_ascii=true)"));
    }
    options.assert_all_used()?;
    python_json(value, indent)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
}

fn unsupported(what: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{what} is not supported"))
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

fn time_text(format: &str, now: &ZonedDateTime) -> Result<String, Error> {
    strtime::format(format, now).map_err(|error| {
        Error::new(ErrorKind::InvalidOperation, format!("strftime_now({format:?}): {error}"))
    })
}

/// Prints `{{ value }}` as Jinja2 does, where the spellings differ.
fn write_like_python(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    let text = match value.kind() {
        ValueKind::None => "None".to_owned(),
        ValueKind::Bool => if value.is_true() { "True" } else { "False" }.to_owned(),
        ValueKind::Number if !value.is_integer() => match f64::try_from(value.clone()) {
            Ok(number) if number.is_finite() => python_float(number),
            _ => value.to_string(),
        },
        // Python would print these with its own quotes; no known template relies on it, and
        // guessing would change a prompt silently.
        ValueKind::Map | ValueKind::Seq => {
            return Err(unsupported("printing a list or mapping without tojson"));
        }
        _ => return minijinja::escape_formatter(out, state, value),
    };
    Ok(out.write_str(&text)?)
}

#[cfg(test)]
mod tests {
    use minijinja::context;

    use super::*;

    fn render(template: &str) -> Result<String, Error> {
        let value: super::super::Json = r#"{"z":1,"a":[1.0,"é<"]}"#.parse().unwrap();
        chat_environment()
            .render_str(template, context! { value => value.0, no => false, nil => () })
    }

    #[test]
    fn values_print_as_in_python() {
        assert_eq!(
            render("{{ no }} {{ nil }} {{ 1.0 }} {{ 1e16 }} {{ 3 }}").unwrap(),
            "False None 1.0 1e+16 3"
        );
        assert_eq!(render("[{{ missing }}]").unwrap(), "[]");
    }

    #[test]
    fn lists_are_refused_rather_than_misprinted() {
        let error = render("{{ value }}").unwrap_err().to_string();
        assert!(error.contains("printing a list or mapping without tojson"), "{error}");
    }

    #[test]
    fn tojson_keeps_order_and_text() {
        assert_eq!(render("{{ value | tojson }}").unwrap(), r#"{"z": 1, "a": [1.0, "é<"]}"#);
        let indented = render("{{ value.a | tojson(indent=4) }}").unwrap();
        assert_eq!(indented, "[\n    1.0,\n    \"é<\"\n]");
        assert!(render("{{ value | tojson(sort_keys=true) }}").is_err());
        assert!(render("{{ value | tojson(ensure_ascii=true) }}").is_err());
        assert!(render("{{ missing | tojson }}").is_err());
    }

    #[test]
    fn blocks_are_trimmed_and_loops_controlled() {
        let template = "  {% for x in [1, 2, 3] %}\n{% if x == 2 %}{% break %}{% endif %}\n\
                        {{ x }}\n  {% endfor %}\nend\n";
        assert_eq!(render(template).unwrap(), "1\nend");
    }

    #[test]
    fn python_string_methods() {
        let template = "{{ ' a,b '.strip().split(',')[-1] }}{{ 'x'.startswith('x') }}";
        assert_eq!(render(template).unwrap(), "bTrue");
    }

    #[test]
    fn a_template_that_does_not_end_is_stopped() {
        let template = "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}\
                        {% endfor %}";
        assert_eq!(render(template).unwrap_err().kind(), ErrorKind::OutOfFuel);
    }

    #[test]
    fn times_are_formatted_as_by_strftime() {
        let now: ZonedDateTime = "2026-03-07T09:05:00[UTC]".parse().unwrap();
        assert_eq!(time_text("%d %b %Y", &now).unwrap(), "07 Mar 2026");
        assert_eq!(
            time_text("%A, %B %-d, %Y %H:%M", &now).unwrap(),
            "Saturday, March 7, 2026 09:05"
        );
        assert!(time_text("%", &now).is_err());
        assert_eq!(render("{{ strftime_now('%Y') | length }}").unwrap(), "4");
    }
}
