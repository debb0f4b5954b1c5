use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::{Authorities, Endpoint, Error, Limits, Retry, Token};

/// The hub, the cache and the token of a download.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The cache, which holds the `models--*` folders.
    pub cache_dir: PathBuf,
    /// The hub.
    pub endpoint: Endpoint,
    /// The token. Only the endpoint's own server receives it.
    pub token: Option<Token>,
    /// Whether the environment has a token that `HF_HUB_DISABLE_IMPLICIT_TOKEN` withholds.
    pub token_withheld: bool,
    /// Whether to use only the cache, without any connection.
    pub offline: bool,
    /// The trusted certificate authorities.
    pub authorities: Authorities,
    /// How often a failed request is repeated.
    pub retry: Retry,
    /// The limits for slow connections.
    pub limits: Limits,
}

impl Settings {
    /// Reads the variables that `huggingface_hub` 2.4 reads, with its meaning and order:
    ///
    /// - cache: `HF_HUB_CACHE`, else `HUGGINGFACE_HUB_CACHE`, else `hub` in `HF_HOME`, else in
    ///   `huggingface` in `XDG_CACHE_HOME`, else in `~/.cache`. In each of them a `~` at the start
    ///   is the home folder, then `$NAME` and `${NAME}` are replaced once; an unset name stays;
    /// - token: `HF_TOKEN`, else `HUGGING_FACE_HUB_TOKEN`; neither is sent if
    ///   `HF_HUB_DISABLE_IMPLICIT_TOKEN` is true;
    /// - hub: `HF_ENDPOINT`;
    /// - offline: `HF_HUB_OFFLINE`, else `TRANSFORMERS_OFFLINE`, is true;
    /// - certificate authorities: `SSL_CERT_FILE`, `SSL_CERT_DIR`, else the system's.
    ///
    /// True is `1`, `on`, `yes` or `true`, in any case. One difference: the token comes only from
    /// the environment, so the files of `HF_TOKEN_PATH` and `HF_HOME` are not read.
    ///
    /// `lookup` is `|name| std::env::var(name).ok()`, or a test's own table. An empty variable
    /// counts as unset.
    ///
    /// # Errors
    /// [`Error::NoCacheDir`], [`Error::Invalid`] for the endpoint or a folder of another user,
    /// [`Error::BadToken`] if the token is malformed.
    pub fn from_env(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let variable = |name: &str| lookup(name).filter(|value| !value.trim().is_empty());
        let is_true = |name: &str| variable(name).is_some_and(|value| is_true(&value));
        let (token, token_withheld) = match token(&variable)? {
            token if is_true("HF_HUB_DISABLE_IMPLICIT_TOKEN") => (None, token.is_some()),
            token => (token, false),
        };
        let endpoint = match variable("HF_ENDPOINT") {
            Some(text) => text.trim().parse()?,
            None => Endpoint::default(),
        };
        let offline = variable("HF_HUB_OFFLINE").or_else(|| variable("TRANSFORMERS_OFFLINE"));
        Ok(Self {
            cache_dir: cache_dir(&variable)?,
            endpoint,
            token,
            token_withheld,
            offline: offline.is_some_and(|value| self::is_true(&value)),
            authorities: Authorities {
                file: variable("SSL_CERT_FILE").map(PathBuf::from),
                dirs: variable("SSL_CERT_DIR").map(OsString::from),
            },
            retry: Retry::default(),
            limits: Limits::default(),
        })
    }
}

fn is_true(value: &str) -> bool {
    ["1", "on", "yes", "true"].contains(&&*value.to_ascii_lowercase())
}

fn cache_dir(variable: &impl Fn(&str) -> Option<String>) -> Result<PathBuf, Error> {
    let path = |name: &str| variable(name).map(|value| expanded(&value, variable)).transpose();
    if let Some(cache) = path("HF_HUB_CACHE")? {
        return Ok(cache);
    }
    if let Some(cache) = path("HUGGINGFACE_HUB_CACHE")? {
        return Ok(cache);
    }
    let home = match (path("HF_HOME")?, path("XDG_CACHE_HOME")?) {
        (Some(home), _) => home,
        (None, Some(caches)) => caches.join("huggingface"),
        (None, None) => {
            let home = variable("HOME").ok_or(Error::NoCacheDir)?;
            Path::new(&home).join(".cache/huggingface")
        }
    };
    Ok(home.join("hub"))
}

fn token(variable: &impl Fn(&str) -> Option<String>) -> Result<Option<Token>, Error> {
    for name in ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"] {
        if let Some(text) = variable(name) {
            let reason = "it has characters that no token has".to_owned();
            let bad = || Error::BadToken { place: name.to_owned(), reason };
            return Token::new(&text).ok_or_else(bad).map(Some);
        }
    }
    Ok(None)
}

/// Python's `expandvars(expanduser(value))`.
fn expanded(value: &str, variable: &impl Fn(&str) -> Option<String>) -> Result<PathBuf, Error> {
    let rest = value.strip_prefix('~');
    let text = match (rest, variable("HOME")) {
        (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
            format!("{}{rest}", home.trim_end_matches('/'))
        }
        (Some(rest), _) if !rest.is_empty() && !rest.starts_with('/') => {
            return Err(Error::Invalid {
                what: "folder",
                text: value.to_owned(),
                reason: "the home folder of another user is not looked up: write it out",
            });
        }
        _ => value.to_owned(),
    };
    Ok(PathBuf::from(with_variables(&text, variable)))
}

/// Python's `os.path.expandvars`: a variable's value is not expanded again.
fn with_variables(text: &str, variable: &impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let (name, length) = name_at(after);
        match name.and_then(variable) {
            Some(value) => out.push_str(&value),
            None => out.push_str(&rest[at..at + 1 + length]),
        }
        rest = &after[length..];
    }
    out + rest
}

/// The name after a `$`, and how long it is with its braces.
fn name_at(text: &str) -> (Option<&str>, usize) {
    if let Some(braced) = text.strip_prefix('{') {
        return match braced.find('}') {
            Some(end) => (Some(&braced[..end]), end + 2),
            None => (None, 0),
        };
    }
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let length = text.bytes().take_while(is_part).count();
    ((length > 0).then(|| &text[..length]), length)
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
            ("HUGGINGFACE_HUB_CACHE", "/old"),
            ("HF_HOME", "~/hf"),
            ("XDG_CACHE_HOME", "/xdg"),
            ("HOME", "/home/me"),
        ];
        let expected = [
            "/cache",
            "/old",
            "/home/me/hf/hub",
            "/xdg/huggingface/hub",
            "/home/me/.cache/huggingface/hub",
        ];
        for (unset, expected) in expected.iter().enumerate() {
            let settings = from(&all[unset..]).unwrap();
            assert_eq!(settings.cache_dir, Path::new(expected));
        }
        // A variable that is empty is one that is not there.
        assert_eq!(from(&[("HF_HOME", ""), all[4]]).unwrap().cache_dir, Path::new(expected[4]));
    }

    #[test]
    fn without_a_home_there_is_an_error_that_helps() {
        let error = from(&[("HF_ENDPOINT", "https://hub.example")]).unwrap_err();
        assert!(matches!(error, Error::NoCacheDir));
        assert!(error.to_string().contains("set HF_HUB_CACHE"));
        assert!(from(&[("HF_HUB_CACHE", "/cache")]).is_ok());
    }

    #[test]
    fn paths_are_expanded_as_pythons_expandvars_and_expanduser_do() {
        let set = [("HOME", "/home/me"), ("FOO", "/foo"), ("A", "a"), ("TILDE", "~/x")];
        for (text, expected) in [
            ("$FOO", "/foo"),
            ("${FOO}/b", "/foo/b"),
            ("/x/$A$A/${A}b", "/x/aa/ab"),
            ("~", "/home/me"),
            ("~/hf", "/home/me/hf"),
            ("/x~/y", "/x~/y"),
            // As Python leaves them: unset, not a name, no end, and what a variable brings.
            ("/$UNSET/${UNSET}", "/$UNSET/${UNSET}"),
            ("/a$/b$-c/${A", "/a$/b$-c/${A"),
            ("/é$Aé", "/éaé"),
            ("$TILDE", "~/x"),
        ] {
            for name in ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"] {
                let settings = from(&[&set[..], &[(name, text)]].concat()).unwrap();
                assert_eq!(settings.cache_dir, Path::new(expected), "{name}={text}");
            }
            for (name, tail) in [("HF_HOME", "hub"), ("XDG_CACHE_HOME", "huggingface/hub")] {
                let settings = from(&[&set[..], &[(name, text)]].concat()).unwrap();
                assert_eq!(settings.cache_dir, Path::new(expected).join(tail), "{name}={text}");
            }
        }
        let error = from(&[("HF_HOME", "~you/hf")]).unwrap_err();
        assert!(error.to_string().contains("~you/hf"), "{error}");
    }

    #[test]
    fn tokens_come_from_the_environment_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (home, file) = (dir.path().to_str().unwrap(), dir.path().join("token"));
        std::fs::write(&file, "of-a-file").unwrap();
        let files = [("HF_HOME", home), ("HF_TOKEN_PATH", file.to_str().unwrap())];
        let is = |variables: &[(&str, &str)], expected: Option<&str>, withheld: bool| {
            let settings = from(&[&files[..], variables].concat()).unwrap();
            assert_eq!(settings.token, expected.and_then(Token::new), "{variables:?}");
            assert_eq!(settings.token_withheld, withheld, "{variables:?}");
        };
        is(&[], None, false);
        is(&[("HF_TOKEN", " \n")], None, false);
        is(&[("HUGGING_FACE_HUB_TOKEN", "old\n")], Some("old"), false);
        let both = [("HF_TOKEN", "new"), ("HUGGING_FACE_HUB_TOKEN", "old")];
        is(&both, Some("new"), false);
        is(&[both[1], ("HF_TOKEN", "")], Some("old"), false);
        is(&[both[0], ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")], None, true);
        is(&[("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")], None, false);
        is(&[both[0], ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "0")], Some("new"), false);
    }

    #[test]
    fn unusable_tokens_are_reported_without_their_text() {
        let error = from(&[("HOME", "/h"), ("HF_TOKEN", "hf_se cret")]).unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains("HF_TOKEN is unusable") && !text.contains("cret"), "{text}");
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
            for name in ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"] {
                assert_eq!(
                    from(&[home, (name, value)]).unwrap().offline,
                    offline,
                    "{name}={value}"
                );
            }
        }
        // The first that is set decides.
        for (hub, transformers, offline) in [("0", "1", false), ("", "1", true), ("1", "0", true)] {
            let both = [("HF_HUB_OFFLINE", hub), ("TRANSFORMERS_OFFLINE", transformers)];
            assert_eq!(from(&[home, both[0], both[1]]).unwrap().offline, offline, "{both:?}");
        }
        assert!(from(&[home, ("HF_ENDPOINT", "nonsense")]).is_err());
    }

    #[test]
    fn debug_output_hides_the_token() {
        let settings = from(&[("HOME", "/h"), ("HF_TOKEN", "hf_secret")]).unwrap();
        assert!(!format!("{settings:?}").contains("hf_secret"));
    }
}
