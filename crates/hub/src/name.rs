//! Checks untrusted names before they become part of a path or an address.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// A repository: `organisation/name`, or only `name`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RepoId(String);

impl RepoId {
    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The repository's folder in the cache.
    pub(crate) fn folder(&self) -> String {
        format!("models--{}", self.0.replace('/', "--"))
    }
}

impl fmt::Display for RepoId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for RepoId {
    type Err = Error;

    /// The hub's own rules: at most two parts of 1 to 96 letters, digits, `-`, `_` or `.`, none
    /// starting or ending with `-` or `.`, no `--` or `..`, no `.git` at the end.
    fn from_str(text: &str) -> Result<Self, Error> {
        let part_is_valid = |part: &str| {
            (1..=96).contains(&part.len())
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
                && !part.starts_with(['-', '.'])
                && !part.ends_with(['-', '.'])
        };
        let valid = text.split('/').count() <= 2
            && text.split('/').all(part_is_valid)
            && !text.contains("--")
            && !text.contains("..")
            && !text.ends_with(".git");
        if valid {
            return Ok(Self(text.to_owned()));
        }
        Err(Error::Invalid {
            what: "repository",
            text: text.to_owned(),
            reason: "expected organisation/name in letters, digits, '-', '_' and '.'",
        })
    }
}

/// A branch, a tag, or a commit by its 40 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Revision(String);

impl Revision {
    /// As it was written; a commit in lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether this is a commit, which never changes.
    #[must_use]
    pub fn is_commit(&self) -> bool {
        is_commit(&self.0)
    }
}

impl Default for Revision {
    /// The branch `main`.
    fn default() -> Self {
        Self("main".to_owned())
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Revision {
    type Err = Error;

    /// Git's rules for the name of a reference, which also keep it inside a folder.
    fn from_str(text: &str) -> Result<Self, Error> {
        let part_is_valid =
            |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
        let valid = text.len() <= 255
            && text.split('/').all(part_is_valid)
            && !text.starts_with('-')
            && !text.ends_with('.')
            && !text.contains("..")
            && !text.contains("@{")
            && !text
                .contains(|c: char| c.is_control() || c.is_whitespace() || "~^:?*[\\".contains(c));
        if !valid {
            return Err(Error::Invalid {
                what: "revision",
                text: text.to_owned(),
                reason: "expected a branch, a tag or a 40-digit commit",
            });
        }
        let lower = text.to_ascii_lowercase();
        Ok(Self(if is_commit(&lower) { lower } else { text.to_owned() }))
    }
}

/// Returns whether `text` is a full commit id as the hub writes it.
pub(crate) fn is_commit(text: &str) -> bool {
    text.len() == 40 && is_lower_hex(text)
}

pub(crate) fn is_lower_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Checks a file's path inside a repository: it must stay inside.
pub(crate) fn check_file_name(text: &str) -> Result<(), Error> {
    let valid = text.len() <= 1024
        && text
            .split('/')
            .all(|part| (1..=255).contains(&part.len()) && part != "." && part != "..")
        && !text.contains(|c: char| c.is_control() || c == '\\');
    if valid {
        return Ok(());
    }
    Err(Error::Invalid {
        what: "file name",
        text: text.to_owned(),
        reason: "expected a path inside the repository, parts separated by '/'",
    })
}

#[cfg(test)]
mod tests {
    use std::path::{Component, Path};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn repositories() {
        for text in ["Qwen/Qwen3-0.6B", "gpt2", "a/b_c.d-e", &"x".repeat(96)] {
            assert_eq!(text.parse::<RepoId>().unwrap().as_str(), text);
        }
        assert_eq!(
            "Qwen/Qwen3-0.6B".parse::<RepoId>().unwrap().folder(),
            "models--Qwen--Qwen3-0.6B"
        );
        for text in [
            "",
            "/",
            "a/",
            "/a",
            "a/b/c",
            "..",
            "../a",
            "a/..",
            ".a/b",
            "a./b",
            "-a",
            "a--b",
            "a b",
            "a%2fb",
            "é",
            "a/b.git",
            "a\\b",
            "a\nb",
            "https://x/y",
            &"x".repeat(97),
        ] {
            assert!(text.parse::<RepoId>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn revisions() {
        for text in ["main", "v1.0", "refs/pr/1", "feature/x_y", "c1899de"] {
            let revision: Revision = text.parse().unwrap();
            assert_eq!((revision.as_str(), revision.is_commit()), (text, false));
        }
        let commit: Revision = "C1899DE289A04D12100DB370D81485CDF75E47CA".parse().unwrap();
        assert!(commit.is_commit());
        assert_eq!(commit.as_str(), "c1899de289a04d12100db370d81485cdf75e47ca");
        for text in [
            "",
            "/",
            "a/",
            "/a",
            "a//b",
            "..",
            "../x",
            "a/../b",
            ".x",
            "a/.b",
            "x.",
            "a.lock",
            "a b",
            "a\tb",
            "a\0b",
            "a~1",
            "a^",
            "a:b",
            "a?b",
            "a*",
            "[a",
            "a\\b",
            "-x",
            "@{0}",
            &"x".repeat(256),
        ] {
            assert!(text.parse::<Revision>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn file_names() {
        for text in ["config.json", "a/b/c.safetensors", "..a", "a..", "..."] {
            check_file_name(text).unwrap();
        }
        for text in [
            "",
            "/",
            "/etc/passwd",
            "../x",
            "../../x",
            "a/../../x",
            "a/./b",
            "a//b",
            "a/",
            "..",
            "a\\..\\b",
            "a\0b",
            "a\nb",
        ] {
            assert!(check_file_name(text).is_err(), "{text:?}");
        }
    }

    /// Joined to a folder, the path has nothing but plain parts after it.
    fn stays_inside(relative: &str) -> bool {
        Path::new(relative).components().all(|part| matches!(part, Component::Normal(_)))
    }

    proptest! {
        #[test]
        fn accepted_names_stay_inside_the_cache(text in "([.]{1,3}|/|\\\\|[a-z]|\\PC|\0){0,12}") {
            if let Ok(repo) = text.parse::<RepoId>() {
                prop_assert!(stays_inside(&repo.folder()));
                prop_assert_eq!(Path::new(&repo.folder()).components().count(), 1);
            }
            if let Ok(revision) = text.parse::<Revision>() {
                prop_assert!(stays_inside(revision.as_str()));
            }
            if check_file_name(&text).is_ok() {
                prop_assert!(stays_inside(&text));
            }
        }

        #[test]
        fn ordinary_names_are_accepted(
            repo in "[a-z][a-z0-9]{0,9}/[A-Z][a-z0-9]{0,9}(-[a-z0-9.]{0,5}[a-z])?",
            tag in "v[0-9]{1,3}(\\.[0-9]{1,3}){0,2}",
        ) {
            prop_assume!(!repo.contains(".."));
            prop_assert!(repo.parse::<RepoId>().is_ok());
            prop_assert!(tag.parse::<Revision>().is_ok());
        }
    }
}
