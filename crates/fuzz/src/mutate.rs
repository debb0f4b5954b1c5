//! Mutations: of an input's bytes and, if the input is JSON, of its values.

use crate::random::Random;
use serde_json::{Map, Value};

/// Longest input that a mutation may make.
const MAX_BYTES: usize = 1 << 20;
/// Boundary values of types and checks.
const NUMBERS: [&str; 32] = [
    "0",
    "-0",
    "1",
    "-1",
    "2",
    "127",
    "128",
    "255",
    "256",
    "32767",
    "65534",
    "65535",
    "65536",
    "2147483647",
    "-2147483648",
    "4294967295",
    "4294967296",
    "9007199254740991",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "3600000000000",
    "1e308",
    "-1e308",
    "1e400",
    "5e-324",
    "0.1",
    "-0.0",
    "1e15",
    "0.5",
    "1000000000",
];
/// Texts with a special meaning somewhere: escapes, paths, templates, odd Unicode.
const TEXTS: [&str; 20] = [
    "",
    " ",
    "\u{0}",
    "\u{1b}[31m\u{7}",
    "\u{9b}2J",
    "a\nb",
    "\u{202e}",
    "é",
    "e\u{301}",
    "\u{feff}",
    "../../x",
    "/etc/passwd",
    "NaN",
    "null",
    "{{ x }}",
    "{% for",
    "<|im_start|>",
    "💥",
    "%s%n",
    "..",
];

/// The input, changed once or a few times.
pub fn mutated(input: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = input.to_vec();
    // Some inputs stay unchanged, so that the code behind the parser runs too.
    let times = [0, 1, 1, 1, 2, 3, 8][random.below(7)];
    for _ in 0..times {
        let value = if random.below(4) > 0 { serde_json::from_slice(&bytes).ok() } else { None };
        bytes = match value {
            Some(value) => json(value, random),
            None => raw(bytes, other, random),
        };
        bytes.truncate(MAX_BYTES);
    }
    bytes
}

fn raw(mut bytes: Vec<u8>, other: &[u8], random: &mut Random) -> Vec<u8> {
    if bytes.is_empty() {
        return vec![random.next() as u8];
    }
    let at = random.below(bytes.len());
    let end = at + random.below(bytes.len() - at + 1).min(64);
    match random.below(9) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.next() as u8,
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(at..end)),
        4 => {
            let piece = bytes[at..end].to_vec();
            let times = 1 + random.below(8);
            bytes.splice(at..at, piece.repeat(times));
        }
        5 if !other.is_empty() => {
            let from = random.below(other.len());
            let to = from + random.below(other.len() - from + 1).min(256);
            bytes.splice(at..end, other[from..to].iter().copied());
        }
        6 => number(&mut bytes, at, random),
        7 => {
            let text = random.pick(&TEXTS).as_bytes();
            bytes.splice(at..end, text.iter().copied());
        }
        _ => {
            let word = random.pick(&NUMBERS).as_bytes();
            bytes.splice(at..at, word.iter().copied());
        }
    }
    bytes
}

/// Replaces the next number in a text, or eight bytes by a little-endian number.
fn number(bytes: &mut Vec<u8>, at: usize, random: &mut Random) {
    let digit = |byte: &u8| byte.is_ascii_digit();
    match bytes[at..].iter().position(digit) {
        Some(offset) if random.below(2) == 0 => {
            let begin = at + offset;
            let length = bytes[begin..].iter().take_while(|byte| digit(byte)).count();
            let word = random.pick(&NUMBERS).as_bytes();
            bytes.splice(begin..begin + length, word.iter().copied());
        }
        _ => {
            let value = [0, 1, u64::MAX, u64::from(u32::MAX), 1 << 63, random.next()];
            let value = random.pick(&value).to_le_bytes();
            let end = (at + [1, 2, 4, 8][random.below(4)]).min(bytes.len());
            bytes[at..end].copy_from_slice(&value[..end - at]);
        }
    }
}

/// Changes a value of the document; now and then writes a key twice.
fn json(mut value: Value, random: &mut Random) -> Vec<u8> {
    let mut places = Vec::new();
    list(&value, &mut Vec::new(), &mut places);
    let from = random.pick(&places).clone();
    let borrowed = at(&mut value, &from).clone();
    let to = random.pick(&places).clone();
    let raw_number = change(at(&mut value, &to), borrowed, random);
    let mut text = Vec::new();
    let twice = random.one_in(8).then(|| random.below(64));
    write(&value, twice, &mut 0, &mut text);
    match raw_number {
        // A `Value` cannot hold this number, so a mark in the text is replaced by the number.
        Some(number) => {
            let text = String::from_utf8_lossy(&text);
            text.replacen(&format!("\"{MARK}\""), number, 1).into_bytes()
        }
        None => text,
    }
}

const MARK: &str = "@number@";

fn change(place: &mut Value, borrowed: Value, random: &mut Random) -> Option<&'static str> {
    match (random.below(9), &mut *place) {
        (0 | 1, Value::Number(_)) | (2, _) => {
            let number = *random.pick(&NUMBERS);
            match serde_json::from_str(number) {
                Ok(value) => *place = value,
                Err(_) => {
                    *place = Value::String(MARK.to_owned());
                    return Some(number);
                }
            }
        }
        (0 | 1 | 3, Value::String(text)) => text_changed(text, random),
        (0 | 1 | 3, Value::Array(list)) => list_changed(list, borrowed, random),
        (0 | 1 | 3, Value::Object(map)) => map_changed(map, borrowed, random),
        (4, _) => *place = Value::Null,
        (5, _) => *place = Value::Bool(random.one_in(2)),
        (6, _) => *place = Value::String((*random.pick(&TEXTS)).to_owned()),
        (7, _) => *place = deep(random),
        _ => *place = borrowed,
    }
    None
}

fn text_changed(text: &mut String, random: &mut Random) {
    let chars: Vec<char> = text.chars().collect();
    let at = random.below(chars.len() + 1);
    let (before, after): (String, String) =
        (chars[..at].iter().collect(), chars[at..].iter().collect());
    *text = match random.below(5) {
        0 => format!("{before}{}{after}", random.pick(&TEXTS)),
        1 => before,
        2 => after,
        3 => text.repeat(1 + random.below(20)),
        _ => random.pick(&TEXTS).repeat(1 + random.below(300)),
    };
}

fn list_changed(list: &mut Vec<Value>, borrowed: Value, random: &mut Random) {
    let at = random.below(list.len() + 1);
    match random.below(5) {
        0 => list.insert(at, borrowed),
        1 if at < list.len() => drop(list.remove(at)),
        2 => list.truncate(at),
        3 if at < list.len() => {
            let times = random.below(300);
            list.extend(std::iter::repeat_n(list[at].clone(), times));
        }
        _ => list.reverse(),
    }
}

fn map_changed(map: &mut Map<String, Value>, borrowed: Value, random: &mut Random) {
    let keys: Vec<String> = map.keys().cloned().collect();
    let key = if keys.is_empty() { String::new() } else { random.pick(&keys).clone() };
    match random.below(4) {
        0 => drop(map.remove(&key)),
        1 => drop(map.insert((*random.pick(&TEXTS)).to_owned(), borrowed)),
        2 => {
            let value = map.remove(&key).unwrap_or_default();
            map.insert(format!("{key}x"), value);
        }
        _ => drop(map.insert(key, borrowed)),
    }
}

/// A list in a list in a list.
fn deep(random: &mut Random) -> Value {
    let mut value = Value::Null;
    for _ in 0..random.below(100) {
        value = Value::Array(vec![value]);
    }
    value
}

/// One step into a document.
#[derive(Clone, Debug)]
enum Step {
    Key(String),
    Index(usize),
}

/// Most places to list: the first rows of a long list stand for the rest.
const PLACES_MAX: usize = 2000;

fn list(value: &Value, path: &mut Vec<Step>, places: &mut Vec<Vec<Step>>) {
    if places.len() >= PLACES_MAX {
        return;
    }
    places.push(path.clone());
    match value {
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate().take(40) {
                path.push(Step::Index(index));
                list(value, path, places);
                path.pop();
            }
        }
        Value::Object(map) => {
            for (key, value) in map {
                path.push(Step::Key(key.clone()));
                list(value, path, places);
                path.pop();
            }
        }
        _ => {}
    }
}

fn at<'a>(value: &'a mut Value, path: &[Step]) -> &'a mut Value {
    path.iter().fold(value, |value, step| match step {
        Step::Key(key) => &mut value[key.as_str()],
        Step::Index(index) => &mut value[index],
    })
}

/// Serializes a document, and writes the first key of object number `twice` twice.
fn write(value: &Value, twice: Option<usize>, objects: &mut usize, text: &mut Vec<u8>) {
    match value {
        Value::Array(values) => {
            text.push(b'[');
            for (index, value) in values.iter().enumerate() {
                if index > 0 {
                    text.push(b',');
                }
                write(value, twice, objects, text);
            }
            text.push(b']');
        }
        Value::Object(map) => {
            let is_twice = twice == Some(*objects);
            *objects += 1;
            text.push(b'{');
            let again = map.iter().take(usize::from(is_twice));
            for (index, (key, value)) in map.iter().chain(again).enumerate() {
                if index > 0 {
                    text.push(b',');
                }
                text.extend(Value::from(key.as_str()).to_string().bytes());
                text.push(b':');
                write(value, twice, objects, text);
            }
            text.push(b'}');
        }
        other => text.extend(other.to_string().bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_follows_from_its_number() {
        let input = br#"{"a": [1, 2, {"b": "c"}], "d": 1.5}"#;
        let one = |number| mutated(input, b"other", &mut Random::of(7, "x", number));
        let all: Vec<Vec<u8>> = (0..500).map(one).collect();
        assert_eq!(all, (0..500).map(one).collect::<Vec<_>>());
        let mut different = all.clone();
        different.sort();
        different.dedup();
        assert!(different.len() > 200, "{}", different.len());
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        let all: Vec<String> = all.iter().map(text).collect();
        assert!(all.iter().any(|text| text.matches("\"a\":").count() == 2), "no key twice");
        assert!(all.iter().any(|text| text.contains("1e400")), "no number beyond f64");
        assert!(all.iter().any(|text| text.as_bytes() == input), "none as it was");
    }
}
