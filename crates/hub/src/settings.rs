use std::path::{Path, PathBuf};

use crate::{Endpoint, Error, Retry, Token};

/// Where to download from and to, and as whom.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The cache: `models--*` folders lie directly in it.
    pub cache_dir: PathBuf,
    /// The hub.
    pub endpoint: Endpoint,
    /// Sent to the hub and to nobody else.
    pub token: Option<Token>,
    /// Whether to use the cache alone, without any connection.
    pub offline: bool,
    /// Patience with a failing network.
    pub retry: Retry,
}

impl Settings {
    /// The variables of the hub's Python tools, with their meaning and order:
    ///
    /// - cache: `HF_HUB_CACHE`, else `hub` in `HF_HOME`, else in `huggingface` in
    ///   `XDG_CACHE_HOME`, else in `~/.cache`;
    /// - token: `HF_TOKEN`, else the file `HF_TOKEN_PATH`, else the file `token` in `HF_HOME`;
    /// - hub: `HF_ENDPOINT`;
    /// - offline: `HF_HUB_OFFLINE` is `1`, `true`, `yes` or `on`.
    ///
    /// `lookup` is `|name| std::env::var(name).ok()`, or a test's own table. An empty variable
    /// counts as unset, and `~/` at the start of a path is the home folder.
    ///
    /// # Errors
    /// [`Error::NoCacheDir`], [`Error::Invalid`] for the endpoint, [`Error::BadToken`] if the
    /// token cannot be one, [`Error::Disk`] if the file in `HF_TOKEN_PATH` cannot be read.
    pub fn from_env(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let variable = |name: &str| lookup(name).filter(|value| !value.trim().is_empty());
        let home = variable("HOME").map(PathBuf::from);
        let path = |name: &str| variable(name).map(|value| expanded(&value, home.as_deref()));

        let hf_home = path("HF_HOME")
            .or_else(|| Some(path("XDG_CACHE_HOME")?.join("huggingface")))
            .or_else(|| Some(home.as_deref()?.join(".cache/huggingface")));
        let cache_dir = path("HF_HUB_CACHE")
            .or_else(|| Some(hf_home.as_deref()?.join("hub")))
            .ok_or(Error::NoCacheDir)?;
        let token = match (variable("HF_TOKEN"), path("HF_TOKEN_PATH")) {
            (Some(text), _) => Some(usable_token(&text, "HF_TOKEN")?),
            (None, Some(file)) => token_in(&file, true)?,
            (None, None) => match hf_home {
                Some(folder) => token_in(&folder.join("token"), false)?,
                None => None,
            },
        };
        let endpoint = match variable("HF_ENDPOINT") {
            Some(text) => text.trim().parse()?,
            None => Endpoint::default(),
        };
        let offline = variable("HF_HUB_OFFLINE").is_some_and(|value| is_true(&value));
        Ok(Self { cache_dir, endpoint, token, offline, retry: Retry::default() })
    }
}

fn is_true(value: &str) -> bool {
    ["1", "on", "yes", "true"].contains(&&*value.trim().to_ascii_lowercase())
}

fn expanded(value: &str, home: Option<&Path>) -> PathBuf {
    match (value.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(value),
    }
}

/// The token in a file. One that was named must be readable; the usual one may be missing.
fn token_in(file: &Path, named: bool) -> Result<Option<Token>, Error> {
    match std::fs::read_to_string(file) {
        Ok(text) if text.trim().is_empty() => Ok(None),
        Ok(text) => usable_token(&text, &file.display().to_string()).map(Some),
        Err(_) if !named => Ok(None),
        Err(source) => Err(Error::Disk { path: file.to_owned(), source }),
    }
}

fn usable_token(text: &str, place: &str) -> Result<Token, Error> {
    Token::new(text).ok_or_else(|| Error::BadToken {
        place: place.to_owned(),
        reason: "it has characters that no token has".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)]) -> Result<Settings, Error> {
        Settings::from_env(|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_cache_is_placed_as_by_the_python_tools() {
        let all = [
            ("HF_HUB_CACHE", "/cache"),
            ("HF_HOME", "~/hf"),
            ("XDG_CACHE_HOME", "/xdg"),
            ("HOME", "/home/me"),
        ];
        let expected = [
            "/cache",
            "/home/me/hf/hub",
            "/xdg/huggingface/hub",
            "/home/me/.cache/huggingface/hub",
        ];
        for (unset, expected) in expected.iter().enumerate() {
            let settings = from(&all[unset..]).unwrap();
            assert_eq!(settings.cache_dir, Path::new(expected));
        }
        // A variable that is empty is one that is not there.
        assert_eq!(from(&[("HF_HOME", ""), all[3]]).unwrap().cache_dir, Path::new(expected[3]));
    }

    #[test]
    fn without_a_home_there_is_an_error_that_helps() {
        let error = from(&[("HF_ENDPOINT", "https://hub.example")]).unwrap_err();
        assert!(matches!(error, Error::NoCacheDir));
        assert!(error.to_string().contains("set HF_HUB_CACHE"));
        assert!(from(&[("HF_HUB_CACHE", "/cache")]).is_ok());
    }

    #[test]
    fn tokens_come_from_variable_then_file_then_home() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().to_str().unwrap();
        let file = dir.path().join("mine");
        let (path, usual) = (file.to_str().unwrap(), dir.path().join("token"));
        let token = |variables: &[(&str, &str)]| from(variables).unwrap().token;
        let is = |text| Token::new(text);

        assert_eq!(token(&[("HF_HOME", home)]), None);
        std::fs::write(&usual, "\n").unwrap();
        assert_eq!(token(&[("HF_HOME", home)]), None);
        std::fs::write(&usual, "usual\n").unwrap();
        assert_eq!(token(&[("HF_HOME", home)]), is("usual"));
        std::fs::write(&file, "named").unwrap();
        assert_eq!(token(&[("HF_HOME", home), ("HF_TOKEN_PATH", path)]), is("named"));
        let all = [("HF_HOME", home), ("HF_TOKEN_PATH", path), ("HF_TOKEN", "direct")];
        assert_eq!(token(&all), is("direct"));
    }

    #[test]
    fn unusable_tokens_are_reported_without_their_text() {
        let error = from(&[("HOME", "/h"), ("HF_TOKEN", "hf_se cret")]).unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains("HF_TOKEN is unusable") && !text.contains("cret"), "{text}");

        let error = from(&[("HOME", "/h"), ("HF_TOKEN_PATH", "/no/such")]).unwrap_err();
        assert!(error.to_string().starts_with("/no/such: "), "{error}");
    }

    #[test]
    fn endpoint_and_offline() {
        let home = ("HOME", "/h");
        let settings = from(&[home]).unwrap();
        assert_eq!(settings.endpoint, Endpoint::default());
        assert!(!settings.offline);
        let settings = from(&[home, ("HF_ENDPOINT", "http://mirror:8/")]).unwrap();
        assert_eq!(settings.endpoint.to_string(), "http://mirror:8");
        for (value, offline) in
            [("1", true), ("True", true), ("ON", true), ("0", false), ("x", false)]
        {
            assert_eq!(from(&[home, ("HF_HUB_OFFLINE", value)]).unwrap().offline, offline);
        }
        assert!(from(&[home, ("HF_ENDPOINT", "nonsense")]).is_err());
    }

    #[test]
    fn debug_output_hides_the_token() {
        let settings = from(&[("HOME", "/h"), ("HF_TOKEN", "hf_secret")]).unwrap();
        assert!(!format!("{settings:?}").contains("hf_secret"));
    }
}
