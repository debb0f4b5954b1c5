//! Writes values as Python does: `str()`, `repr()` and the formatting operators.

use minijinja::formatting::{FormatStyle, format as format_text};
use minijinja::value::{Tuple, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// Limit of text from one filter or operator: far more than any context holds.
const TEXT_BYTES_MAX: usize = 32 << 20;

/// Lists and mappings inside each other that are written.
pub(crate) const DEPTH_MAX: usize = 200;

/// A text with a size limit.
#[derive(Debug, Default)]
pub(crate) struct Written(String);

impl Written {
    pub fn push(&mut self, text: &str) -> Result<(), Error> {
        self.room_for(text.len())?;
        self.0.push_str(text);
        Ok(())
    }

    pub fn repeat(&mut self, text: &str, count: usize) -> Result<(), Error> {
        self.room_for(text.len().saturating_mul(count))?;
        self.0.extend(std::iter::repeat_n(text, count));
        Ok(())
    }

    fn room_for(&self, more: usize) -> Result<(), Error> {
        if self.0.len().saturating_add(more) > TEXT_BYTES_MAX {
            let reason = format!("more than {} MiB of text", TEXT_BYTES_MAX >> 20);
            return Err(Error::new(ErrorKind::InvalidOperation, reason));
        }
        Ok(())
    }
}

impl From<Written> for String {
    fn from(written: Written) -> Self {
        written.0
    }
}

/// `str(value)`; empty for an undefined value, as in Jinja2.
pub(crate) fn text(value: &Value) -> Result<String, Error> {
    let mut out = Written::default();
    push_text(&mut out, value)?;
    Ok(out.into())
}

/// Appends `str(value)`.
pub(crate) fn push_text(out: &mut Written, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(()),
        ValueKind::String => out.push(value.as_str().unwrap_or_default()),
        _ => push_repr(out, value, 0),
    }
}

/// `repr(value)`.
pub(crate) fn repr(value: &Value) -> Result<String, Error> {
    let mut out = Written::default();
    push_repr(&mut out, value, 0)?;
    Ok(out.into())
}

fn push_repr(out: &mut Written, value: &Value, depth: usize) -> Result<(), Error> {
    if depth > DEPTH_MAX {
        return Err(invalid(format!("more than {DEPTH_MAX} values inside each other to print")));
    }
    match value.kind() {
        ValueKind::Undefined => out.push("Undefined"),
        ValueKind::None => out.push("None"),
        ValueKind::Bool => out.push(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => match f64::try_from(value.clone()) {
            Ok(number) if !value.is_integer() => out.push(&float(number)),
            _ => out.push(&value.to_string()),
        },
        ValueKind::String => push_quoted(out, value.as_str().unwrap_or_default()),
        _ if is_list(value) => {
            let tuple = value.downcast_object_ref::<Tuple>().is_some();
            out.push(if tuple { "(" } else { "[" })?;
            let mut count = 0_usize;
            for item in value.try_iter()? {
                if count > 0 {
                    out.push(", ")?;
                }
                count += 1;
                push_repr(out, &item, depth + 1)?;
            }
            out.push(match (tuple, count) {
                (true, 1) => ",)",
                (true, _) => ")",
                (false, _) => "]",
            })
        }
        ValueKind::Map => {
            out.push("{")?;
            for (index, key) in value.try_iter()?.enumerate() {
                if index > 0 {
                    out.push(", ")?;
                }
                push_repr(out, &key, depth + 1)?;
                out.push(": ")?;
                push_repr(out, &value.get_item(&key)?, depth + 1)?;
            }
            out.push("}")
        }
        ValueKind::Invalid => Err(invalid(value.to_string())),
        // Python would print a generator's address, or the name of a view.
        other => Err(invalid(format!(
            "printing a value of kind \"{other}\"; make it a list first (`| list`)"
        ))),
    }
}

/// Whether a value is a list or a tuple in Python, a sum of lists included. (The engine's other
/// iterators do not say what they are.)
pub(crate) fn is_list(value: &Value) -> bool {
    let sum = || value.as_object().is_some_and(|object| object.type_name().ends_with("MergeSeq"));
    match value.kind() {
        ValueKind::Seq => true,
        ValueKind::Iterable => sum(),
        _ => false,
    }
}

/// A string as Python's `repr` quotes it.
fn push_quoted(out: &mut Written, text: &str) -> Result<(), Error> {
    let quote = if text.contains('\'') && !text.contains('"') { "\"" } else { "'" };
    out.push(quote)?;
    for c in text.chars() {
        match c {
            ' '..='~' if !matches!(c, '\'' | '\\') => out.push(c.encode_utf8(&mut [0; 4]))?,
            '\\' => out.push("\\\\")?,
            '\n' => out.push("\\n")?,
            '\r' => out.push("\\r")?,
            '\t' => out.push("\\t")?,
            '\'' if quote == "'" => out.push("\\'")?,
            _ if is_printable(c) => out.push(c.encode_utf8(&mut [0; 4]))?,
            _ => match c as u32 {
                code @ ..=0xff => out.push(&format!("\\x{code:02x}"))?,
                code @ ..=0xffff => out.push(&format!("\\u{code:04x}"))?,
                code => out.push(&format!("\\U{code:08x}"))?,
            },
        }
    }
    out.push(quote)
}

/// Python's `str.isprintable` of one character: the standard library escapes the same categories
/// in a string's debug form, quotes and backslashes aside. (After another character, as it also
/// escapes marks that begin a string.)
fn is_printable(c: char) -> bool {
    matches!(c, '"' | '\'' | '\\') || format!("a{c}").escape_debug().eq(['a', c])
}

/// A number as Python's `repr` writes it: shortest digits, and an exponent of at least two digits
/// if it is below -4 or above 15.
pub(crate) fn float(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    let scientific = format!("{value:e}");
    match scientific.split_once('e').and_then(|(digits, e)| Some((digits, e.parse().ok()?))) {
        Some((digits, exponent @ (..-4 | 16..))) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", i32::abs(exponent))
        }
        _ => format!("{value:?}"),
    }
}

/// `left % right`: the rest of a division, or a string's own format.
pub(crate) fn percent(left: &Value, right: &Value) -> Result<Value, Error> {
    if let Some(pattern) = left.as_str() {
        let tuple = right.downcast_object_ref::<Tuple>();
        let mapping = right.kind() == ValueKind::Map && pattern.contains("%(");
        let args: Vec<Value> = match tuple {
            Some(_) => right.try_iter()?.collect(),
            None => vec![right.clone()],
        };
        return if mapping {
            printf(pattern, &args, None)
        } else {
            printf(pattern, &args, Some(args.len()))
        };
    }
    if left.is_integer() && right.is_integer() {
        let whole = |value: &Value| i128::try_from(value.clone()).ok();
        let rest = whole(left).zip(whole(right)).and_then(|(a, b)| {
            let rest = a.checked_rem(b)?;
            // The sign is the divisor's.
            if rest != 0 && (rest < 0) != (b < 0) { rest.checked_add(b) } else { Some(rest) }
        });
        let rest = rest.ok_or_else(|| invalid(format!("{left} % {right} has no value")))?;
        return Ok(i64::try_from(rest).map_or_else(|_| Value::from(rest), Value::from));
    }
    let number = |value: &Value| match value.kind() {
        ValueKind::Number => f64::try_from(value.clone()).ok(),
        ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        _ => None,
    };
    match (number(left), number(right)) {
        (Some(a), Some(b)) if b != 0.0 => {
            let rest = a % b;
            let rest = if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest };
            Ok(Value::from(rest))
        }
        (Some(_), Some(_)) => Err(invalid("division by zero".into())),
        _ => Err(invalid(format!("{} % {} has no value", left.kind(), right.kind()))),
    }
}

/// `pattern % args`. `count` is the number of arguments that must be used, if that is checked.
pub(crate) fn printf(pattern: &str, args: &[Value], count: Option<usize>) -> Result<Value, Error> {
    let conversions = conversions(pattern)?;
    if count.is_some_and(|count| count > conversions.len()) {
        return Err(invalid("not all arguments were used by the format".into()));
    }
    let mut shown = Vec::with_capacity(args.len());
    let mut pattern = pattern.to_owned();
    for (index, value) in args.iter().enumerate() {
        let conversion = conversions.get(index).copied();
        shown.push(match conversion {
            Some((_, 's')) if value.kind() != ValueKind::Map || count.is_some() => {
                Value::from(text(value)?)
            }
            Some((at, 'r')) if count.is_some() => {
                pattern.replace_range(at..=at, "s");
                Value::from(repr(value)?)
            }
            _ => value.clone(),
        });
    }
    format_text(FormatStyle::Printf, &pattern, &shown).map(Value::from)
}

/// The conversions of a printf pattern that take an argument: where their letters are, and which.
fn conversions(pattern: &str) -> Result<Vec<(usize, char)>, Error> {
    let mut found = Vec::new();
    let mut chars = pattern.char_indices();
    while let Some((_, c)) = chars.next() {
        if c != '%' {
            continue;
        }
        let (mut name, mut digits) = (false, 0_usize);
        for (at, c) in chars.by_ref() {
            match c {
                '(' => name = true,
                ')' => name = false,
                _ if name => {}
                '0'..='9' => digits += 1,
                '*' => return Err(invalid("a width of * in a format".into())),
                '#' | '-' | ' ' | '+' | '.' | 'h' | 'l' | 'L' => digits = 0,
                '%' => break,
                letter => {
                    found.push((at, letter));
                    break;
                }
            }
            // No text of this width is a prompt.
            if digits > 6 {
                return Err(invalid("a width of more than 999999 in a format".into()));
            }
        }
    }
    Ok(found)
}

/// `left ~ right ~ ...`.
pub(crate) fn concat(values: &[Value]) -> Result<Value, Error> {
    let mut out = Written::default();
    for value in values {
        push_text(&mut out, value)?;
    }
    Ok(Value::from(String::from(out)))
}

/// The filter `join`.
pub(crate) fn join(
    state: &State,
    values: &Value,
    separator: &str,
    attribute: Option<&str>,
) -> Result<Value, Error> {
    let mut out = Written::default();
    for (index, value) in values.try_iter()?.enumerate() {
        // As the engine charges its own filters for what they visit.
        state.consume_fuel(1)?;
        if index > 0 {
            out.push(separator)?;
        }
        match attribute {
            Some(name) => push_text(&mut out, &value.get_attr(name)?)?,
            None => push_text(&mut out, &value)?,
        }
    }
    Ok(Value::from(String::from(out)))
}

/// `str.partition`, and `str.rpartition` where `last`.
pub(crate) fn partition(text: &str, separator: &str, last: bool) -> Result<Value, Error> {
    if separator.is_empty() {
        return Err(invalid("partition with an empty separator".into()));
    }
    let split = if last { text.rsplit_once(separator) } else { text.split_once(separator) };
    let parts = match split {
        Some((before, after)) => [before, separator, after],
        None if last => ["", "", text],
        None => [text, "", ""],
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from))))
}

/// The items of a loop: for a string its characters, so that their number is known.
pub(crate) fn items(value: &Value) -> Value {
    match value.as_str() {
        Some(text) => text.chars().map(Value::from).collect(),
        None => value.clone(),
    }
}

/// A mistake of the template.
pub(crate) fn invalid(reason: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
}
