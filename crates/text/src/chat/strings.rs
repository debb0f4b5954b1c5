//! Methods and filters of Python's strings, with bounds on their results.

use minijinja::value::{ValueKind, from_args};
use minijinja::{Error, Value};

use super::python::{Written, invalid, partition};

/// Columns that a text may be indented by, or padded to: no prompt is wider.
pub(crate) const WIDTH_MAX: i64 = 999_999;

/// A method of a string; `None` for one that is not implemented here.
pub(crate) fn method(text: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let value = match name {
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            partition(text, separator, name == "rpartition")?
        }
        "join" => {
            let (values,): (&Value,) = from_args(args)?;
            join(text, values)?
        }
        "splitlines" => {
            let (keep_ends,): (Option<bool>,) = from_args(args)?;
            lines(text, keep_ends.unwrap_or(false)).into_iter().map(Value::from).collect()
        }
        "format" => {
            check_format(text, args)?;
            return Ok(None);
        }
        "replace" => {
            let (old, new, count): (&str, &str, Option<i64>) = from_args(args)?;
            Value::from(replace(text, old, new, count)?)
        }
        _ => return Ok(None),
    };
    Ok(Some(value))
}

/// `separator.join(values)`, which takes strings only.
fn join(separator: &str, values: &Value) -> Result<Value, Error> {
    let mut out = Written::default();
    for (index, value) in values.try_iter()?.enumerate() {
        let text = value.as_str().ok_or_else(|| {
            invalid(format!("join: item {index} is a {}, not a string", value.kind()))
        })?;
        if index > 0 {
            out.push(separator)?;
        }
        out.push(text)?;
    }
    Ok(Value::from(String::from(out)))
}

/// Refuses arguments that the engine's `format` would write wrongly or without a bound.
fn check_format(pattern: &str, args: &[Value]) -> Result<(), Error> {
    let container = |value: &&Value| {
        matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable)
            && !value.is_kwargs()
    };
    if let Some(value) = args.iter().find(container) {
        return Err(invalid(format!("format of a {}: make it a string first", value.kind())));
    }
    let mut digits = 0_i64;
    let mut depth = 0_usize;
    for c in pattern.replace("{{", "").replace("}}", "").chars() {
        digits = match c.to_digit(10) {
            Some(digit) => (digits * 10 + i64::from(digit)).min(WIDTH_MAX + 1),
            None => 0,
        };
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > 0 && digits > WIDTH_MAX {
            return Err(invalid(format!("format: a width of more than {WIDTH_MAX}")));
        }
        if depth > 1 {
            return Err(invalid("format: a field inside a field".into()));
        }
    }
    Ok(())
}

/// `str.replace`.
pub(crate) fn replace(
    text: &str,
    old: &str,
    new: &str,
    count: Option<i64>,
) -> Result<String, Error> {
    // A negative count is none.
    let most = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
    let mut out = Written::default();
    let mut done = 0;
    for (at, found) in text.match_indices(old).take(most) {
        out.push(&text[done..at])?;
        out.push(new)?;
        done = at + found.len();
    }
    out.push(&text[done..])?;
    Ok(out.into())
}

/// Jinja2's filter `indent`.
pub(crate) fn indent(text: &str, by: &str, first: bool, blank: bool) -> Result<String, Error> {
    let mut out = Written::default();
    let text = format!("{text}\n");
    for (index, line) in lines(&text, false).into_iter().enumerate() {
        if index > 0 {
            out.push("\n")?;
        }
        if if index == 0 { first } else { blank || !line.is_empty() } {
            out.push(by)?;
        }
        out.push(line)?;
    }
    Ok(out.into())
}

/// `str.splitlines`.
fn lines(text: &str, keep_ends: bool) -> Vec<&str> {
    let ends =
        |c: char| matches!(c, '\n'..='\r' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(ends) {
        let after = &rest[at..];
        let first = after.chars().next().map_or(0, char::len_utf8);
        let length = if after.starts_with("\r\n") { 2 } else { first };
        found.push(&rest[..if keep_ends { at + length } else { at }]);
        rest = &rest[at + length..];
    }
    if !rest.is_empty() {
        found.push(rest);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values: CPython 3.11.
    #[test]
    fn lines_end_as_in_python() {
        let text = "a\nb\r\nc\rd\u{b}e\u{2028}f\n\n";
        assert_eq!(lines(text, false), ["a", "b", "c", "d", "e", "f", ""]);
        assert_eq!(lines("a\r\nb", true), ["a\r\n", "b"]);
        assert!(lines("", false).is_empty());
    }

    /// Expected values: Jinja2 3.1.6.
    #[test]
    fn indentation_is_jinjas() {
        for (text, first, blank, expected) in [
            ("a\nb", false, false, "a\n  b"),
            ("a\n\nb\n", false, false, "a\n\n  b\n"),
            ("a\n\nb", true, true, "  a\n  \n  b"),
            ("", true, false, "  "),
        ] {
            assert_eq!(indent(text, "  ", first, blank).unwrap(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_text_does_not_grow_without_end() {
        let many = "a".repeat(1 << 20);
        let error = replace(&many, "a", &many, None).unwrap_err().to_string();
        assert!(error.contains("more than 32 MiB of text"), "{error}");
        assert!(indent(&"a\n".repeat(1 << 20), &" ".repeat(1 << 10), false, false).is_err());
        assert_eq!(replace("aaa", "a", "b", Some(2)).unwrap(), "bba");
        assert_eq!(replace("ab", "", "-", None).unwrap(), "-a-b-");
    }

    #[test]
    fn a_format_is_checked_before_it_is_done() {
        for pattern in ["{:1000000}", "{:>99999999999999999999}", "{:{}}", "{0:{1}}"] {
            assert!(check_format(pattern, &[]).is_err(), "{pattern}");
        }
        assert!(check_format("{{1000000}} {:>5} {}", &[Value::from("a")]).is_ok());
        assert!(check_format("{}", &[Value::from(vec![1])]).is_err());
    }
}
