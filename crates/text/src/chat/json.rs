//! JSON as Python's `json.dumps(value, ensure_ascii=False)` writes it: what models saw in
//! training, down to the spaces.

use std::io::{self, Write};
use std::str::FromStr;

use minijinja::Value;
use serde::{Deserialize, Serialize};
use serde_json::ser::Formatter;

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

/// Serializes `value`; `indent` is the number of spaces a level, `None` for one line.
pub(crate) fn python_json(
    value: &impl Serialize,
    indent: Option<usize>,
) -> Result<String, serde_json::Error> {
    let mut out = Vec::new();
    let formatter = PythonFormatter { indent, depth: 0, empty: true };
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, formatter))?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

struct PythonFormatter {
    indent: Option<usize>,
    depth: usize,
    /// Whether the container being written has no entry yet.
    empty: bool,
}

impl PythonFormatter {
    fn new_line<W: ?Sized + Write>(&self, writer: &mut W) -> io::Result<()> {
        match self.indent {
            Some(width) => write!(writer, "\n{:1$}", "", width * self.depth),
            None => Ok(()),
        }
    }

    fn open<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.empty = true;
        writer.write_all(bracket)
    }

    fn close<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if !self.empty {
            self.new_line(writer)?;
        }
        self.empty = false;
        writer.write_all(bracket)
    }

    fn separate<W: ?Sized + Write>(&self, writer: &mut W, first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(if self.indent.is_some() { b"," } else { b", " })?;
        }
        self.new_line(writer)
    }
}

impl Formatter for PythonFormatter {
    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(python_float(value).as_bytes())
    }

    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.separate(writer, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.empty = false;
        Ok(())
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.separate(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.empty = false;
        Ok(())
    }
}

/// A finite number as Python's `repr` writes it: shortest digits, an exponent of at least two
/// digits where it is below -4 or above 15.
pub(crate) fn python_float(value: f64) -> String {
    let scientific = format!("{value:e}");
    match scientific.split_once('e').and_then(|(digits, e)| Some((digits, e.parse().ok()?))) {
        Some((digits, exponent @ (..-4 | 16..))) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", i32::abs(exponent))
        }
        _ => format!("{value:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(json: &str, indent: Option<usize>) -> String {
        python_json(&json.parse::<Json>().unwrap(), indent).unwrap()
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
}
