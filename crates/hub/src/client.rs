//! Sends requests: decides where the token goes, which redirects to follow, what a failure means.

use monolith_http::{Origin, asked_pause, origin, redirect_target, server, shown};
use ureq::http::header::{ACCEPT_ENCODING, AUTHORIZATION, LOCATION, RANGE};
use ureq::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use ureq::tls::TlsConfig;
use ureq::{Agent, Body};

use crate::limits::Limits;
use crate::{Endpoint, Error, Progress, RepoId, Retry, Settings, Token, TokenUse};

/// Redirects followed for one request.
const REDIRECTS_MAX: usize = 10;

/// A failed request to a hub, and whether to repeat it.
pub(crate) type Failure = monolith_http::Failure<Error>;

/// An HTTP client for one hub.
pub(crate) struct Client {
    agent: Agent,
    endpoint: Endpoint,
    origin: Option<Origin>,
    token: Option<Token>,
    token_withheld: bool,
    pub retry: Retry,
    pub limits: Limits,
}

/// The answers of the servers on the way to a file.
pub(crate) struct Head {
    /// The last answer's headers, and `X-Linked-*` of the answers before it.
    pub headers: HeaderMap,
    /// Whether the last answer was a success, not an unfollowed redirect.
    pub is_contents: bool,
    /// The other server to which the redirects led or would lead next, if any.
    pub redirect: Option<String>,
}

/// The subject of a request, for its error.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub repo: &'a RepoId,
    pub revision: &'a str,
    pub file: Option<&'a str>,
}

impl Client {
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        let silence = Some(settings.limits.silence);
        let tls = TlsConfig::builder().root_certs(settings.authorities.load()?).build();
        let config = Agent::config_builder()
            .user_agent(concat!("monolith/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            // We follow redirects ourselves: the token must not leave the hub, and we need the
            // headers of redirecting answers.
            .max_redirects(0)
            .timeout_resolve(silence)
            .timeout_connect(silence)
            .timeout_recv_response(silence)
            .timeout_per_read(silence)
            .tls_config(tls)
            .build();
        Ok(Self {
            agent: config.into(),
            origin: origin(&settings.endpoint.to_string()),
            endpoint: settings.endpoint.clone(),
            token: settings.token.clone(),
            token_withheld: settings.token_withheld,
            retry: settings.retry,
            limits: settings.limits,
        })
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Repeats `request` until it succeeds or fails permanently.
    pub fn retrying<T>(
        &self,
        progress: &mut dyn Progress,
        request: impl FnMut() -> Result<T, Failure>,
    ) -> Result<T, Error> {
        self.retry.run(|error, pause| progress.retrying(error, pause), request)
    }

    /// Requests the contents of `url` from byte `start` on, following redirects. The status is a
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

    /// Requests the headers of `url` without its contents. It follows redirects to another server
    /// (which gets no token) only until `complete` says that the headers are enough: a hub
    /// describes a large file completely in the answer that redirects to its storage.
    pub fn head(
        &self,
        url: &str,
        subject: Subject<'_>,
        complete: impl Fn(&HeaderMap) -> bool,
    ) -> Result<Head, Failure> {
        let mut url = url.to_owned();
        let mut linked = HeaderMap::new();
        let mut redirect = None;
        for _ in 0..=REDIRECTS_MAX {
            let response = self.send(Method::HEAD, &url, 0)?;
            if !self.is_hub(&url) && is_refused(&response) {
                // Such addresses are mostly signed for GET only: no further headers are available.
                return Ok(Head { headers: linked, is_contents: false, redirect });
            }
            let target = self.next(&url, &response, subject)?;
            for name in ["x-linked-etag", "x-linked-size"] {
                if let Some(value) = response.headers().get(name) {
                    linked.insert(name, value.clone());
                }
            }
            let mut headers = response.into_parts().0.headers;
            headers.extend(linked.clone());
            let Some(target) = target else {
                return Ok(Head { headers, is_contents: true, redirect });
            };
            if !self.is_hub(&target) {
                redirect = Some(shown(&target));
                // A checksum that arrived unencrypted proves nothing.
                if complete(&headers) || is_downgrade(&url, &target) {
                    return Ok(Head { headers, is_contents: false, redirect });
                }
            }
            url = target;
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
        // The only place that sends the token, and only to the hub's own server.
        if let Some(token) = self.token.as_ref().filter(|_| self.is_hub(url))
            && let Ok(mut value) = HeaderValue::try_from(token.authorization())
        {
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        let request = request.body(()).map_err(|_| bad_reply(url, "not a web address"))?;
        self.agent.run(request).map_err(|error| unanswered(url, &error))
    }

    /// Returns where a redirect leads, or `None` if the answer is not a redirect.
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
        let target = redirect_target(url, location).ok_or_else(|| {
            bad_reply(url, format!("a redirect to {location:?}, which is no web address"))
        })?;
        Ok(Some(target))
    }

    fn failure(
        &self,
        url: &str,
        status: StatusCode,
        headers: &HeaderMap,
        subject: Subject<'_>,
    ) -> Failure {
        let server_failed = || Error::Server { url: shown(url), status: status.as_u16() };
        if status == StatusCode::TOO_MANY_REQUESTS {
            let wait = asked_pause(|name| header(headers, name));
            return Failure::Transient { error: Error::RateLimited { retry_after: wait }, wait };
        }
        let code = header(headers, "x-error-code").unwrap_or_default();
        let may_pass = status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT;
        // A CDN refuses an expired signed address, for which the hub gives a new one. But a hub to
        // which another hub redirects refuses permanently.
        let is_cdn = !self.is_hub(url) && code.is_empty() && subject.file.is_some();
        if may_pass || is_cdn {
            let wait = asked_pause(|name| header(headers, name));
            return Failure::Transient { error: server_failed(), wait };
        }
        Failure::Final(match status.as_u16() {
            status @ (401 | 403) => {
                let repo = subject.repo.to_string();
                Error::Denied { repo, status, token: self.token_use(url) }
            }
            404 => not_found(code, subject),
            _ => server_failed(),
        })
    }

    /// Returns which token a request to `url` carried.
    fn token_use(&self, url: &str) -> TokenUse {
        match (&self.token, self.token_withheld) {
            (None, true) => TokenUse::Withheld,
            (None, false) => TokenUse::None,
            (Some(_), _) if self.is_hub(url) => TokenUse::Sent,
            (Some(_), _) => TokenUse::Redirected(server(url).unwrap_or_else(|| shown(url))),
        }
    }
}

/// Returns whether a file server, not a hub, refuses to answer.
fn is_refused(response: &Response<Body>) -> bool {
    let status = response.status();
    let passes = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status)
        || status == StatusCode::RANGE_NOT_SATISFIABLE;
    status.is_client_error() && !passes && !response.headers().contains_key("x-error-code")
}

/// Returns whether a redirect leads from https to http.
fn is_downgrade(from: &str, to: &str) -> bool {
    let https = |url| origin(url).is_some_and(|origin| origin.https);
    https(from) && !https(to)
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

pub(crate) fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

pub(crate) fn bad_reply(url: &str, reason: impl Into<String>) -> Failure {
    Error::BadReply { url: shown(url), reason: reason.into() }.into()
}

fn too_many_redirects(url: &str) -> Failure {
    bad_reply(url, "redirects without end")
}

/// A connection that failed or ended early.
pub(crate) fn broken(url: &str, reason: &impl ToString) -> Failure {
    let error = Error::Network { url: shown(url), reason: reason.to_string() };
    Failure::Transient { error, wait: None }
}

/// The error of a request without an answer. A bad certificate is not retried.
fn unanswered(url: &str, error: &ureq::Error) -> Failure {
    let tls = match error {
        ureq::Error::Rustls(tls) => Some(tls),
        ureq::Error::Io(io) => io.get_ref().and_then(|inner| inner.downcast_ref()),
        _ => None,
    };
    let Some(rustls::Error::InvalidCertificate(bad)) = tls else { return broken(url, error) };
    // A bad signature is from another authority of the same name, mostly an older one.
    let unknown_authority = matches!(
        bad,
        rustls::CertificateError::UnknownIssuer | rustls::CertificateError::BadSignature
    );
    let reason = if unknown_authority {
        "no trusted authority signed its certificate".to_owned()
    } else {
        format!("its certificate is not good: {bad}")
    };
    Error::Certificate { url: shown(url), reason, unknown_authority }.into()
}
