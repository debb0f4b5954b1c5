//! RoPE in `config.json`: one base, in up to three places, and no scaling.

use super::Reader;
use crate::ModelError;
use serde_json::{Map, Value};

/// The objects that describe RoPE, besides the top level: transformers 5 writes the second, earlier
/// versions the first.
const OBJECTS: [&str; 2] = ["rope_scaling", "rope_parameters"];

impl Reader<'_> {
    /// Returns RoPE's base, from every place that states it.
    ///
    /// # Errors
    /// No base, a base that is not a positive number, two bases that differ (transformers 4 would
    /// use one of them and transformers 5 the other), or a RoPE variant.
    pub(super) fn rope_theta(&self) -> Result<f64, ModelError> {
        let mut found: Option<(String, f64)> = None;
        let mut add = |place: String, value: &Value| {
            let theta = self.positive(&place, Some(value))?;
            match &found {
                Some((first, other)) if *other != theta => Err(self.wrong(format!(
                    "{first} is {other} and {place} is {theta}: two different bases of RoPE, of \
                     which programs take one or the other; keep one"
                ))),
                _ => {
                    found = Some((place, theta));
                    Ok(())
                }
            }
        };
        if let Some(value) = self.get("rope_theta") {
            add("rope_theta".into(), value)?;
        }
        for name in OBJECTS {
            let Some(value) = self.get(name) else { continue };
            let Value::Object(rope) = value else {
                return Err(self.wrong(format!("{name} is {value}; expected an object or null")));
            };
            self.refuse_scaling(name, rope)?;
            if let Some(value) = rope.get("rope_theta").filter(|value| !value.is_null()) {
                add(format!("{name}.rope_theta"), value)?;
            }
        }
        match found {
            Some((_, theta)) => Ok(theta),
            None => Err(self.wrong("rope_theta is missing".into())),
        }
    }

    /// Refuses, by name, RoPE variants with other angles.
    fn refuse_scaling(&self, name: &str, rope: &Map<String, Value>) -> Result<(), ModelError> {
        // Checks the type first, since the other keys depend on it.
        let is_type = |key: &str| matches!(key, "rope_type" | "type");
        let (types, others): (Vec<_>, Vec<_>) =
            rope.iter().filter(|(_, value)| !value.is_null()).partition(|(key, _)| is_type(key));
        for (key, value) in types.into_iter().chain(others) {
            let place = format!("{name}.{}", key.escape_debug());
            match (key.as_str(), value) {
                ("rope_theta", _) => {}
                (key, kind) if is_type(key) && kind.as_str() == Some("default") => {}
                ("partial_rotary_factor", factor) if factor.as_f64() == Some(1.0) => {}
                (_, Value::Object(inner)) => {
                    let kind = inner.get("rope_type").or(inner.get("type"));
                    let kind = kind.map_or(String::new(), |kind| format!(" (rope_type {kind})"));
                    return Err(self.unsupported(format!(
                        "{place}{kind}: RoPE that depends on the layer type (only one base \
                         for all layers is supported)"
                    )));
                }
                _ => {
                    let what =
                        format!("{place} {value} (only plain RoPE without scaling is supported)");
                    return Err(self.unsupported(what));
                }
            }
        }
        Ok(())
    }

    /// The same at the top level, where older configurations have them.
    pub(super) fn refuse_partial_rope(&self) -> Result<(), ModelError> {
        match self.get("partial_rotary_factor") {
            Some(factor) if factor.as_f64() != Some(1.0) => {
                Err(self
                    .unsupported(format!("partial_rotary_factor {factor} (only 1 is supported)")))
            }
            _ => Ok(()),
        }
    }
}
