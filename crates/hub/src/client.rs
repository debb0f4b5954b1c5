//! Requests: who gets the token, where redirects may lead, what a failure means.

use std::time::Duration;

use ureq::http::header::{ACCEPT_ENCODING, AUTHORIZATION, LOCATION, RANGE, RETRY_AFTER};
use ureq::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use ureq::{Agent, Body};

use crate::endpoint::{Origin, origin, redirect_target, without_query};
use crate::retry::{Attempts, Failure};
use crate::{Endpoint, Error, Progress, RepoId, Retry, Settings, Token};

/// Redirects followed for one request.
const REDIRECTS_MAX: usize = 10;
/// Silence after which a connection counts as broken.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Speaks to one hub.
pub(crate) struct Client {
    agent: Agent,
    endpoint: Endpoint,
    origin: Option<Origin>,
    token: Option<Token>,
    pub retry: Retry,
}

/// What a request is about, for its error.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub repo: &'a RepoId,
    pub revision: &'a str,
    pub file: Option<&'a str>,
}

impl Client {
    pub fn new(settings: &Settings) -> Self {
        let config = Agent::config_builder()
            .user_agent(concat!("monolith/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            // Followed here instead: the token must stay, and some answers that redirect matter.
            .max_redirects(0)
            .timeout_resolve(Some(SILENCE_MAX))
            .timeout_connect(Some(SILENCE_MAX))
            .timeout_recv_response(Some(SILENCE_MAX))
            .timeout_per_read(Some(SILENCE_MAX))
            .build();
        Self {
            agent: config.into(),
            origin: origin(&settings.endpoint.to_string()),
            endpoint: settings.endpoint.clone(),
            token: settings.token.clone(),
            retry: settings.retry,
        }
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Does `request` until it works, or until trying again is pointless.
    pub fn retrying<T>(
        &self,
        progress: &mut dyn Progress,
        mut request: impl FnMut() -> Result<T, Failure>,
    ) -> Result<T, Error> {
        let mut attempts = Attempts::new(self.retry);
        loop {
            match request() {
                Ok(value) => return Ok(value),
                Err(failure) => pause(&mut attempts, failure, progress)?,
            }
        }
    }

    /// The contents of `url` from byte `start` on, wherever redirects lead. The status is one of
    /// success, or 416 if there is no such byte.
    pub fn get(
        &self,
        url: &str,
        start: u64,
        subject: Subject<'_>,
    ) -> Result<Response<Body>, Failure> {
        let mut url = url.to_owned();
        for _ in 0..=REDIRECTS_MAX {
            let response = self.send(Method::GET, &url, start)?;
            match self.next(&url, &response, subject)? {
                Some(target) => url = target,
                None => return Ok(response),
            }
        }
        Err(too_many_redirects(&url))
    }

    /// What the hub itself says about `url`: whether its last answer was a success (and not a
    /// redirect to another server), and that answer's headers. `X-Linked-*`, which describe the
    /// file behind a redirect, may be from an answer before it.
    pub fn head(&self, url: &str, subject: Subject<'_>) -> Result<(bool, HeaderMap), Failure> {
        let mut url = url.to_owned();
        let mut linked = HeaderMap::new();
        for _ in 0..=REDIRECTS_MAX {
            let response = self.send(Method::HEAD, &url, 0)?;
            let target = self.next(&url, &response, subject)?;
            for name in ["x-linked-etag", "x-linked-size"] {
                if let Some(value) = response.headers().get(name) {
                    linked.insert(name, value.clone());
                }
            }
            match target {
                Some(target) if self.is_hub(&target) => url = target,
                target => {
                    let mut headers = response.into_parts().0.headers;
                    headers.extend(linked);
                    return Ok((target.is_none(), headers));
                }
            }
        }
        Err(too_many_redirects(&url))
    }

    fn is_hub(&self, url: &str) -> bool {
        self.origin.is_some() && origin(url) == self.origin
    }

    fn send(&self, method: Method, url: &str, start: u64) -> Result<Response<Body>, Failure> {
        let mut request =
            Request::builder().method(method).uri(url).header(ACCEPT_ENCODING, "identity");
        if start > 0 {
            request = request.header(RANGE, format!("bytes={start}-"));
        }
        // The one place where the token leaves, and the one rule about where to.
        if let Some(token) = self.token.as_ref().filter(|_| self.is_hub(url))
            && let Ok(mut value) = HeaderValue::try_from(token.authorization())
        {
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        let request = request.body(()).map_err(|_| bad_reply(url, "an address that is none"))?;
        self.agent.run(request).map_err(|error| broken(url, &error))
    }

    /// Where a redirect leads, or `None` if the answer is the contents.
    fn next(
        &self,
        url: &str,
        response: &Response<Body>,
        subject: Subject<'_>,
    ) -> Result<Option<String>, Failure> {
        let status = response.status();
        if status.is_success() || status == StatusCode::RANGE_NOT_SATISFIABLE {
            return Ok(None);
        }
        if !status.is_redirection() {
            return Err(self.failure(url, status, response.headers(), subject));
        }
        let location = header(response.headers(), LOCATION.as_str())
            .ok_or_else(|| bad_reply(url, "a redirect to nowhere"))?;
        let target = redirect_target(url, location)
            .ok_or_else(|| bad_reply(url, "a redirect to something other than a web address"))?;
        Ok(Some(target))
    }

    fn failure(
        &self,
        url: &str,
        status: StatusCode,
        headers: &HeaderMap,
        subject: Subject<'_>,
    ) -> Failure {
        let server =
            || Error::Server { url: without_query(url).to_owned(), status: status.as_u16() };
        if status == StatusCode::TOO_MANY_REQUESTS {
            let wait = asked_pause(headers);
            return Failure::Transient { error: Error::RateLimited { retry_after: wait }, wait };
        }
        // A CDN refuses a signed address that has expired; the hub will give a new one.
        let may_pass = status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT;
        if may_pass || !self.is_hub(url) {
            return Failure::Transient { error: server(), wait: asked_pause(headers) };
        }
        let code = header(headers, "x-error-code").unwrap_or_default();
        Failure::Final(match status.as_u16() {
            status @ (401 | 403) => {
                let repo = subject.repo.to_string();
                Error::Denied { repo, status, token_sent: self.token.is_some() }
            }
            404 => not_found(code, subject),
            _ => server(),
        })
    }
}

/// Waits before another attempt, or gives up with the failure's error.
pub(crate) fn pause(
    attempts: &mut Attempts,
    failure: Failure,
    progress: &mut dyn Progress,
) -> Result<(), Error> {
    let (pause, error) = attempts.pause_after(failure)?;
    progress.retrying(&error, pause);
    std::thread::sleep(pause);
    Ok(())
}

fn not_found(code: &str, subject: Subject<'_>) -> Error {
    let repo = subject.repo.to_string();
    let revision = subject.revision.to_owned();
    match (code, subject.file) {
        ("RevisionNotFound", _) => Error::RevisionNotFound { repo, revision },
        ("RepoNotFound", _) | (_, None) => Error::RepoNotFound { repo },
        (_, Some(file)) => Error::FileNotFound { repo, revision, file: file.to_owned() },
    }
}

/// The pause that a server asks for, in `Retry-After` (seconds) or the `t` of `RateLimit`, which
/// is what the hub sends. A date in `Retry-After` counts as nothing asked.
fn asked_pause(headers: &HeaderMap) -> Option<Duration> {
    let after = || header(headers, RETRY_AFTER.as_str())?.trim().parse().ok();
    let reset = || {
        let fields = header(headers, "ratelimit")?.split(';');
        fields.filter_map(|field| field.trim().strip_prefix("t=")?.parse().ok()).next()
    };
    after().or_else(reset).map(Duration::from_secs)
}

pub(crate) fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

pub(crate) fn bad_reply(url: &str, reason: impl Into<String>) -> Failure {
    Error::BadReply { url: without_query(url).to_owned(), reason: reason.into() }.into()
}

fn too_many_redirects(url: &str) -> Failure {
    bad_reply(url, "redirects without end")
}

/// A connection that failed or ended early.
pub(crate) fn broken(url: &str, reason: &impl ToString) -> Failure {
    let error = Error::Network { url: without_query(url).to_owned(), reason: reason.to_string() };
    Failure::Transient { error, wait: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_read_from_either_header() {
        let pause = |name: &'static str, value: &'static str| {
            let headers = HeaderMap::from_iter([(
                ureq::http::HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )]);
            asked_pause(&headers).map(|pause| pause.as_secs())
        };
        assert_eq!(pause("retry-after", " 7"), Some(7));
        assert_eq!(pause("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT"), None);
        assert_eq!(pause("ratelimit", "\"api\";r=0;t=55"), Some(55));
        assert_eq!(pause("ratelimit", "nonsense"), None);
    }
}
