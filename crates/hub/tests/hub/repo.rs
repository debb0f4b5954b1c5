//! A repository to serve, and the settings and requests to pull it with.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use monolith_hub::{
    Authorities, Error, Files, Limits, Progress, PullRequest, Retry, Settings, Snapshot, Token,
    pull,
};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::server::{Reply, Request};

pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
pub const TOKEN: &str = "hf_TheSecretToken";

/// Files by name, as bytes.
#[derive(Clone)]
pub struct Repo(pub BTreeMap<&'static str, Vec<u8>>);

impl Default for Repo {
    fn default() -> Self {
        let weights: Vec<u8> =
            (0..300_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        Self(BTreeMap::from([
            ("README.md", b"hello".to_vec()),
            ("config.json", b"{}".to_vec()),
            ("tokenizer.json", b"{\"version\": \"1.0\"}".to_vec()),
            ("model.safetensors", weights),
            ("sub/extra.bin", b"extra".to_vec()),
            ("empty.txt", Vec::new()),
        ]))
    }
}

impl Repo {
    pub fn file(&self, request: &Request) -> Option<(&'static str, &[u8])> {
        let name = request.path.strip_prefix(&format!("/org/model/resolve/{COMMIT}/"))?;
        self.0.get_key_value(name).map(|(name, bytes)| (*name, &**bytes))
    }

    /// What a hub in order answers: large files by SHA-256, others by git's id.
    pub fn answer(&self, request: &Request) -> Reply {
        if request.path.starts_with("/api/models/org/model/revision/") {
            return self.listing();
        }
        match self.file(request) {
            Some((name, bytes)) => Reply::ranged(bytes, request).header("ETag", etag(name, bytes)),
            None => Reply::new(404).header("X-Error-Code", "EntryNotFound"),
        }
    }

    pub fn listing(&self) -> Reply {
        let files: Vec<_> =
            self.0.keys().map(|name| serde_json::json!({ "rfilename": name })).collect();
        Reply::ok(serde_json::json!({ "sha": COMMIT, "siblings": files }).to_string())
    }
}

pub fn etag(name: &str, bytes: &[u8]) -> String {
    if name.ends_with(".safetensors") {
        format!("\"{}\"", hex(&Sha256::digest(bytes)))
    } else {
        let git = Sha1::new().chain_update(format!("blob {}\0", bytes.len())).chain_update(bytes);
        format!("\"{}\"", hex(&git.finalize()))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// With a token, and short pauses.
pub fn settings(cache: &Path, url: &str) -> Settings {
    Settings {
        cache_dir: cache.to_owned(),
        endpoint: url.parse().unwrap(),
        token: Token::new(TOKEN),
        token_withheld: false,
        offline: false,
        authorities: Authorities::default(),
        limits: Limits::default(),
        retry: Retry {
            attempts_max: 3,
            pause_min: Duration::from_millis(1),
            pause_max: Duration::from_secs(2),
        },
    }
}

pub fn request(revision: &str, files: Files) -> PullRequest {
    PullRequest { repo: "org/model".parse().unwrap(), revision: revision.parse().unwrap(), files }
}

pub fn named(names: &[&str]) -> Files {
    Files::Named(names.iter().map(|name| (*name).to_owned()).collect())
}

pub fn pull_named(settings: &Settings, names: &[&str]) -> Result<Snapshot, Error> {
    checked(pull(&request("main", named(names)), settings, &mut ()))
}

pub fn pull_model(settings: &Settings) -> Result<Snapshot, Error> {
    checked(pull(&request("main", Files::Model), settings, &mut ()))
}

/// No error may hold the token, in any form of output.
pub fn checked<T>(result: Result<T, Error>) -> Result<T, Error> {
    if let Err(error) = &result {
        let text = format!("{error} {error:?} {error:#?}");
        assert!(!text.contains(TOKEN), "the token is in {text}");
    }
    result
}

/// Everything that a pull reports.
#[derive(Default)]
pub struct Log {
    pub planned: Vec<(usize, u64)>,
    pub advanced: Vec<(String, u64, u64)>,
    pub pauses: Vec<Duration>,
}

impl Progress for Log {
    fn planned(&mut self, files: usize, bytes: u64) {
        self.planned.push((files, bytes));
    }

    fn advanced(&mut self, file: &str, done: u64, total: u64) {
        self.advanced.push((file.to_owned(), done, total));
    }

    fn retrying(&mut self, error: &Error, pause: Duration) {
        assert!(!format!("{error} {error:?}").contains(TOKEN));
        self.pauses.push(pause);
    }
}

/// Paths in a folder and below, relative, sorted; folders end with `/` only where empty.
pub fn tree(dir: &Path) -> Vec<String> {
    fn walk(dir: &Path, base: &Path, out: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, base, out);
            } else {
                out.push(path.strip_prefix(base).unwrap().display().to_string());
            }
        }
    }
    let mut out = Vec::new();
    walk(dir, dir, &mut out);
    out.sort();
    out
}
