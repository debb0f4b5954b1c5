//! Writes JSON as Python's `json.dumps(value, ensure_ascii=False)` does, as models saw it in
//! training, including the spaces.

use std::str::FromStr;

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};
use serde::{Deserialize, Serialize};

use super::python::{DEPTH_MAX, Written, float};

/// Any JSON value, its objects' keys in the order they were written.
///
/// A tool's schema is shown to the model as it was given; sorting its keys would make it a
/// different prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Json(pub(crate) Value);

impl FromStr for Json {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        serde_json::from_str(text)
    }
}

impl From<&str> for Json {
    /// A JSON string.
    fn from(text: &str) -> Self {
        Self(Value::from(text))
    }
}

/// The arguments of `json.dumps` that the filter `tojson` takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Style {
    /// The indentation of a level; `None` for one line.
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub ascii: bool,
    pub sort_keys: bool,
}

impl Style {
    /// Python's defaults: with an indentation there is no space at a line's end.
    pub fn new(indent: Option<String>) -> Self {
        let item_separator = if indent.is_some() { "," } else { ", " }.to_owned();
        Self { indent, item_separator, key_separator: ": ".into(), ascii: false, sort_keys: false }
    }
}

/// Writes `value` as JSON.
pub(crate) fn python_json(value: &Value, style: &Style) -> Result<String, Error> {
    let mut writer = Writer { style, out: Written::default(), depth: 0 };
    writer.value(value)?;
    Ok(writer.out.into())
}

struct Writer<'a> {
    style: &'a Style,
    out: Written,
    depth: usize,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => self.out.push("null"),
            ValueKind::Bool => self.out.push(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push(&number(value)),
            ValueKind::String => self.text(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => self.array(value),
            ValueKind::Map => self.object(value),
            other => Err(Error::new(
                ErrorKind::BadSerialization,
                format!("tojson: a value of kind \"{other}\" is no JSON"),
            )),
        }
    }

    fn array(&mut self, value: &Value) -> Result<(), Error> {
        self.open("[")?;
        let mut empty = true;
        for item in value.try_iter()? {
            self.separate(empty)?;
            empty = false;
            self.value(&item)?;
        }
        self.close("]", empty)
    }

    fn object(&mut self, value: &Value) -> Result<(), Error> {
        let mut entries = Vec::new();
        for key in value.try_iter()? {
            entries.push((key_text(&key)?, value.get_item(&key)?));
        }
        if self.style.sort_keys {
            entries.sort_by(|a, b| a.0.cmp(&b.0));
        }
        self.open("{")?;
        let mut empty = true;
        for (key, item) in &entries {
            self.separate(empty)?;
            empty = false;
            self.text(key)?;
            self.out.push(&self.style.key_separator)?;
            self.value(item)?;
        }
        self.close("}", empty)
    }

    fn open(&mut self, bracket: &str) -> Result<(), Error> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            let reason = format!("tojson: more than {DEPTH_MAX} values inside each other");
            return Err(Error::new(ErrorKind::BadSerialization, reason));
        }
        self.out.push(bracket)
    }

    fn close(&mut self, bracket: &str, empty: bool) -> Result<(), Error> {
        self.depth -= 1;
        if !empty {
            self.new_line()?;
        }
        self.out.push(bracket)
    }

    fn separate(&mut self, first: bool) -> Result<(), Error> {
        if !first {
            self.out.push(&self.style.item_separator)?;
        }
        self.new_line()
    }

    fn new_line(&mut self) -> Result<(), Error> {
        let Some(indent) = &self.style.indent else { return Ok(()) };
        self.out.push("\n")?;
        self.out.repeat(indent, self.depth)
    }

    fn text(&mut self, text: &str) -> Result<(), Error> {
        // Python's escapes are those of serde_json.
        let quoted = serde_json::to_string(text)
            .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
        if !self.style.ascii || quoted.is_ascii() && !quoted.contains('\u{7f}') {
            return self.out.push(&quoted);
        }
        for c in quoted.chars() {
            if c.is_ascii() && c != '\u{7f}' {
                self.out.push(c.encode_utf8(&mut [0; 4]))?;
            } else {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    self.out.push(&format!("\\u{unit:04x}"))?;
                }
            }
        }
        Ok(())
    }
}

fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(number) if number.is_nan() => "NaN".into(),
        Ok(number) if number.is_infinite() && number > 0.0 => "Infinity".into(),
        Ok(number) if number.is_infinite() => "-Infinity".into(),
        Ok(number) => float(number),
        Err(_) => value.to_string(),
    }
}

/// A key of an object, which is a string in JSON whatever it is in Python.
fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.into()),
        ValueKind::None => Ok("null".into()),
        ValueKind::Number => Ok(number(key)),
        other => Err(Error::new(
            ErrorKind::BadSerialization,
            format!("tojson: a key of kind \"{other}\" is none of JSON"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(json: &str, indent: Option<usize>) -> String {
        let style = Style::new(indent.map(|width| " ".repeat(width)));
        python_json(&json.parse::<Json>().unwrap().0, &style).unwrap()
    }

    /// Expected values: CPython 3.11, `json.dumps(json.loads(s), ensure_ascii=False)`.
    #[test]
    fn one_line() {
        for (json, expected) in [
            (
                r#"{"b":1,"a":[1,2.0,"x"],"c":{},"d":[]}"#,
                r#"{"b": 1, "a": [1, 2.0, "x"], "c": {}, "d": []}"#,
            ),
            (r#"[null,true,false,-3]"#, "[null, true, false, -3]"),
            (
                r#"["<a href='x'>&</a>","é\u2028\u0007\n\u007f"]"#,
                "[\"<a href='x'>&</a>\", \"é\u{2028}\\u0007\\n\u{7f}\"]",
            ),
            (
                "[1e16,1e15,0.0001,0.00001,1.5e-7,1e300,0.1]",
                "[1e+16, 1000000000000000.0, 0.0001, 1e-05, 1.5e-07, 1e+300, 0.1]",
            ),
            (
                "[18446744073709551615,-9223372036854775808,-0.0]",
                "[18446744073709551615, -9223372036854775808, -0.0]",
            ),
        ] {
            assert_eq!(dump(json, None), expected);
        }
    }

    /// Expected values: the same with `indent=2`.
    #[test]
    fn indented() {
        assert_eq!(
            dump(r#"{"b":[1,{}],"a":[]}"#, Some(2)),
            "{\n  \"b\": [\n    1,\n    {}\n  ],\n  \"a\": []\n}"
        );
        assert_eq!(dump("[]", Some(2)), "[]");
        assert_eq!(dump("[[]]", Some(0)), "[\n[]\n]");
    }

    #[test]
    fn an_indentation_is_bounded_by_the_text_it_makes() {
        let nested = "[[1]]".parse::<Json>().unwrap().0;
        let wide = Style::new(Some(" ".repeat(1 << 20)));
        assert_eq!(python_json(&nested, &wide).unwrap().len(), 4 * (1 << 20) + 9);
        let wider = Style::new(Some(" ".repeat(20 << 20)));
        let error = python_json(&nested, &wider).unwrap_err().to_string();
        assert!(error.contains("more than 32 MiB of text"), "{error}");
    }
}
