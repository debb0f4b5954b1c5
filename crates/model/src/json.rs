//! JSON without duplicate keys.
//!
//! Parsers differ in which of two values they use, so two programs could run different models.

use serde::de::{DeserializeOwned, DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use std::collections::HashSet;
use std::fmt;

/// Parses untrusted JSON text.
///
/// # Errors
/// serde_json's error, or the duplicate key of an object.
pub fn parse<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    check(text)?;
    serde_json::from_slice(text)
}

/// Checks that text is JSON without duplicate keys.
///
/// # Errors
/// Those of [`parse`].
pub fn check(text: &[u8]) -> serde_json::Result<()> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    UniqueKeys.deserialize(&mut deserializer)?;
    deserializer.end()
}

/// Reads a value and discards it. serde_json bounds the depth.
struct UniqueKeys;

impl<'de> DeserializeSeed<'de> for UniqueKeys {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(UniqueKeys)
    }
}

impl<'de> Visitor<'de> for UniqueKeys {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if !seen.insert(key.clone()) {
                return Err(A::Error::custom(format_args!("the key {key:?} is there twice")));
            }
            map.next_value_seed(UniqueKeys)?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(UniqueKeys)?.is_some() {}
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    #[test]
    fn a_key_that_is_there_twice_is_named_at_any_depth() {
        for text in [
            r#"{"a": 1, "b": 2, "a": 1}"#,
            r#"{"b": {"a": 1, "a": 2}}"#,
            r#"[1, {"x": [{"a": null, "a": []}]}]"#,
            // The same key, spelt with an escape.
            r#"{"a": 1, "\u0061": 2}"#,
        ] {
            let error = parse::<Value>(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(r#"the key "a" is there twice"#), "{error}");
        }
        let same_name_elsewhere = br#"{"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}]}"#;
        parse::<Value>(same_name_elsewhere).unwrap();
    }

    proptest! {
        #[test]
        fn takes_and_refuses_what_serde_json_does(text in r#"[\[\]{}:,"a0-9e.\\ \-+tru]{0,20}"#) {
            let strict = parse::<Value>(text.as_bytes());
            match serde_json::from_str::<Value>(&text) {
                Ok(value) => match strict {
                    Ok(seen) => prop_assert_eq!(seen, value),
                    Err(error) => prop_assert!(error.to_string().contains("there twice")),
                },
                Err(_) => prop_assert!(strict.is_err()),
            }
        }
    }
}
