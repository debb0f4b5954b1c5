use std::path::PathBuf;
use std::time::Duration;

/// Why a pull failed. Messages name the file or the repository and, if there is one, the cure.
/// No message contains the token or the query of a URL (where CDNs put their signatures).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An invalid repository, revision, file or endpoint.
    #[error("{what} {text:?} is not valid: {reason}")]
    Invalid {
        /// Which kind of name.
        what: &'static str,
        /// The name.
        text: String,
        /// The rule it breaks.
        reason: &'static str,
    },
    /// No folder for the cache: none of the variables that place it is set.
    #[error(
        "no place for the model cache: HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME and HOME are all \
         unset; set HF_HUB_CACHE to a folder"
    )]
    NoCacheDir,
    /// The token cannot be used.
    #[error("the token in {place} is unusable: {reason}")]
    BadToken {
        /// The variable or file that holds it.
        place: String,
        /// The fault, without the token's text.
        reason: String,
    },
    /// The hub refused access (401 or 403).
    #[error("access to {repo} was denied (HTTP {status}): {}", denied_cure(token))]
    Denied {
        /// The repository.
        repo: String,
        /// 401 or 403.
        status: u16,
        /// Which token was sent, or why none.
        token: TokenUse,
    },
    /// The hub has no such repository.
    #[error("repository {repo} was not found; check its name, or set HF_TOKEN if it is private")]
    RepoNotFound {
        /// The repository.
        repo: String,
    },
    /// The repository has no such branch, tag or commit.
    #[error("{repo} has no revision {revision:?}")]
    RevisionNotFound {
        /// The repository.
        repo: String,
        /// The revision asked for.
        revision: String,
    },
    /// The revision has no such file.
    #[error("{repo} at {revision} has no file {file}")]
    FileNotFound {
        /// The repository.
        repo: String,
        /// The revision looked in.
        revision: String,
        /// The file.
        file: String,
    },
    /// The hub answered 429 to every attempt, or asked for a longer pause than is sensible.
    #[error("the hub limits the rate of requests (HTTP 429); {}", rate_cure(*.retry_after))]
    RateLimited {
        /// How long the hub asked to wait.
        retry_after: Option<Duration>,
    },
    /// A file is not in the cache, and the program is offline.
    #[error(
        "offline, and {file} of {repo} at {revision} is not in {}; pull it once without \
         HF_HUB_OFFLINE, or set HF_HUB_CACHE to a cache that has it", cache.display()
    )]
    NotCached {
        /// The repository.
        repo: String,
        /// The revision asked for.
        revision: String,
        /// The first missing file.
        file: String,
        /// The cache looked in.
        cache: PathBuf,
    },
    /// A whole file does not have the announced checksum. It was deleted.
    #[error("{file}: checksum mismatch: expected {expected}, got {got}; deleted, pull again")]
    Checksum {
        /// The file.
        file: String,
        /// Checksum announced by the hub.
        expected: String,
        /// Checksum of the file that arrived.
        got: String,
    },
    /// A file is larger than the hub announced. It was deleted.
    #[error("{file}: longer than the announced {size_bytes} bytes; deleted, pull again")]
    TooLong {
        /// The file.
        file: String,
        /// Size announced by the hub.
        size_bytes: u64,
    },
    /// The hub announced no checksum or size to check a file against.
    #[error("{file}: {}", unverifiable(.missing, from, redirect))]
    Unverifiable {
        /// The file.
        file: String,
        /// What is missing.
        missing: Missing,
        /// The address that was asked, without its query.
        from: String,
        /// The address that it redirected to, if any.
        redirect: Option<String>,
    },
    /// The server's certificate is not valid.
    #[error("{url}: {reason}{}", certificate_cure(*.unknown_authority))]
    Certificate {
        /// The address, without its query.
        url: String,
        /// What is wrong with the certificate.
        reason: String,
        /// Whether the fault is an unknown authority.
        unknown_authority: bool,
    },
    /// `SSL_CERT_FILE` or `SSL_CERT_DIR` names something without certificates.
    #[error("{variable}: {}: {reason}", path.display())]
    Authorities {
        /// The variable.
        variable: &'static str,
        /// The path that it names.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// Reading or writing the cache failed.
    #[error("{}: {source}", path.display())]
    Disk {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The hub could not be reached, or the connection broke, at every attempt.
    #[error("{url}: {reason}; if the model is in the cache, HF_HUB_OFFLINE=1 uses it")]
    Network {
        /// The address, without its query.
        url: String,
        /// What happened.
        reason: String,
    },
    /// Data arrived too slowly, at every attempt.
    #[error("{url}: {reason}; the partial file is kept, and the same command resumes it")]
    TooSlow {
        /// The address, without its query.
        url: String,
        /// How slow.
        reason: String,
    },
    /// A server answered with a server error at every attempt.
    #[error("{url}: HTTP {status}")]
    Server {
        /// The address, without its query.
        url: String,
        /// The status.
        status: u16,
    },
    /// A server's answer makes no sense.
    #[error("{url}: unexpected answer: {reason}")]
    BadReply {
        /// The address, without its query.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Which token a refused request carried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenUse {
    /// The token of the environment.
    Sent,
    /// The environment has none.
    None,
    /// The environment has one, but `HF_HUB_DISABLE_IMPLICIT_TOKEN` withholds it.
    Withheld,
    /// The hub redirected to this other server, which gets no token.
    Redirected(String),
}

/// The information on a file that a server did not give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// A checksum. With the `ETag` that the server sent, if it sent one.
    Checksum(Option<String>),
    /// A size.
    Size,
}

fn denied_cure(token: &TokenUse) -> String {
    match token {
        TokenUse::Sent => "the token is wrong, expired or not allowed to read it; for a gated \
                           model, accept its terms on its page with the same account"
            .to_owned(),
        TokenUse::None => "it does not exist, or is private or gated; set HF_TOKEN to a token \
                           that may read it (token files, such as the one of `hf auth login`, \
                           are not read)"
            .to_owned(),
        TokenUse::Withheld => "it does not exist, or is private or gated; the token was not sent, \
                               since HF_HUB_DISABLE_IMPLICIT_TOKEN is set"
            .to_owned(),
        TokenUse::Redirected(server) => format!(
            "the hub redirected to {server}, which gets no token; set HF_ENDPOINT={server} if \
             you trust it with the token"
        ),
    }
}

fn unverifiable(missing: &Missing, from: &str, redirect: &Option<String>) -> String {
    let to = match redirect {
        Some(target) => format!(" (which redirects to {target})"),
        None => String::new(),
    };
    match missing {
        Missing::Size => {
            format!("{from}{to} does not say its size, so it was not downloaded; {MIRROR_CURE}")
        }
        Missing::Checksum(etag) => {
            let etag = match etag {
                Some(etag) => format!("its ETag, {etag:?}, is neither a SHA-256 nor a git id"),
                None => "it sends no ETag".to_owned(),
            };
            format!(
                "{from}{to} gives no checksum to check it by ({etag}), so it was not downloaded; \
                 {MIRROR_CURE}"
            )
        }
    }
}

const MIRROR_CURE: &str = "a mirror has to pass on the hub's X-Linked-ETag, X-Linked-Size and \
                           ETag; without HF_ENDPOINT, https://huggingface.co is used";

fn certificate_cure(unknown_authority: bool) -> &'static str {
    if unknown_authority {
        "; if a proxy or a mirror has a certificate authority of its own, add that to the \
         system's, or set SSL_CERT_FILE to its certificate (PEM)"
    } else {
        ""
    }
}

fn rate_cure(retry_after: Option<Duration>) -> String {
    match retry_after {
        Some(wait) => format!("try again in {} s", wait.as_secs()),
        None => "try again later, or set HF_TOKEN for a higher limit".to_owned(),
    }
}
