use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{Error, file};

/// The ids that end a generation, as the model's own files declare them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StopTokens {
    ids: Vec<u32>,
    source: Option<PathBuf>,
}

impl StopTokens {
    /// Reads `eos_token_id`, an integer or a list of integers, from `generation_config.json`. If
    /// that file is absent or has no such field, reads it from `config.json`, as `transformers`
    /// does. If neither file has the field, there are no stop tokens.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a file is not JSON or the field is of another type;
    /// [`Error::Unreadable`].
    pub fn load(dir: &Path) -> Result<Self, Error> {
        for name in ["generation_config.json", "config.json"] {
            let path = dir.join(name);
            let Some(config) = file::read_json::<Value>(&path)? else { continue };
            if let Some(stop) = Self::from_json(&config, &path)? {
                return Ok(stop);
            }
        }
        Ok(Self::default())
    }

    /// The ids that one file's JSON declares, if it declares any.
    pub(crate) fn from_json(config: &Value, path: &Path) -> Result<Option<Self>, Error> {
        let corrupt = |reason| Error::Corrupt { path: path.to_owned(), reason };
        let object = config
            .as_object()
            .ok_or_else(|| corrupt(format!("expected an object, found {}", kind(config))))?;
        match object.get("eos_token_id") {
            None | Some(Value::Null) => Ok(None),
            Some(field) => {
                let ids = ids_from_json(field).map_err(corrupt)?;
                Ok(Some(Self { ids, source: Some(path.to_owned()) }))
            }
        }
    }

    /// Whether `id` ends the generation.
    #[must_use]
    pub fn contains(&self, id: u32) -> bool {
        self.ids.contains(&id)
    }

    /// The ids, in the file's order, without repeats.
    #[must_use]
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The file that declared them.
    #[must_use]
    pub fn source(&self) -> Option<&Path> {
        self.source.as_deref()
    }
}

impl FromIterator<u32> for StopTokens {
    /// Stop tokens chosen by the caller.
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        let mut stop = Self::default();
        for id in ids {
            if !stop.contains(id) {
                stop.ids.push(id);
            }
        }
        stop
    }
}

fn ids_from_json(field: &Value) -> Result<Vec<u32>, String> {
    let values = match field {
        Value::Array(values) => values.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut ids = Vec::with_capacity(values.len());
    for value in values {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(|| {
            format!(
                "eos_token_id must be a token id or a list of token ids, found {} ({value})",
                kind(value)
            )
        })?;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    Ok(ids)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number that is no token id",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(files: &[(&str, &str)]) -> Result<StopTokens, String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        StopTokens::load(dir.path()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_generation_config_wins() {
        let stop = load(&[
            ("generation_config.json", r#"{"eos_token_id": [151645, 151643, 151645]}"#),
            ("config.json", r#"{"eos_token_id": 7}"#),
        ])
        .unwrap();
        assert_eq!(stop.ids(), [151_645, 151_643]);
        assert!(stop.contains(151_643) && !stop.contains(7));
        assert!(stop.source().unwrap().ends_with("generation_config.json"));
    }

    #[test]
    fn a_silent_generation_config_falls_back() {
        for silent in [r#"{"top_k": 20}"#, r#"{"eos_token_id": null}"#] {
            let stop = load(&[
                ("generation_config.json", silent),
                ("config.json", r#"{"eos_token_id": 7}"#),
            ]);
            assert_eq!(stop.unwrap().ids(), [7]);
        }
    }

    #[test]
    fn no_declaration_is_no_error() {
        assert_eq!(load(&[]).unwrap(), StopTokens::default());
    }

    #[test]
    fn wrong_types_name_the_file_and_what_was_found() {
        for (json, found) in [
            (r#""151645""#, "a string"),
            ("true", "a boolean"),
            ("-1", "a number that is no token id"),
            ("1.5", "a number that is no token id"),
            ("4294967296", "a number that is no token id"),
            (r#"[1, "2"]"#, "a string"),
            ("[null]", "null"),
            ("{}", "an object"),
        ] {
            let config = format!(r#"{{"eos_token_id": {json}}}"#);
            let error = load(&[("config.json", &config)]).unwrap_err();
            assert!(error.contains("config.json: eos_token_id must be"), "{error}");
            assert!(error.contains(found), "{error}");
        }
        let error = load(&[("config.json", "[]")]).unwrap_err();
        assert!(error.ends_with("config.json: expected an object, found a list"), "{error}");
    }

    #[test]
    fn chosen_ids_keep_their_order() {
        assert_eq!([3, 1, 3].into_iter().collect::<StopTokens>().ids(), [3, 1]);
    }
}
