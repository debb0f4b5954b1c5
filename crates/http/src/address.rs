//! Addresses: a service's own, and where its redirects lead.

use std::fmt;
use std::str::FromStr;

use ureq::http::Uri;

/// The address of a service, without a slash at its end: `https://host`, perhaps with a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint(String);

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a text is no endpoint. It does not hold the text, which may hold a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadEndpoint {
    /// It holds a user name or a password.
    #[error("credentials do not belong in an address")]
    Credentials,
    /// It is not an `http` or `https` address, or has a query.
    #[error("expected http://host or https://host")]
    NoAddress,
}

impl FromStr for Endpoint {
    type Err = BadEndpoint;

    /// An `http` or `https` address, perhaps with a path, and nothing else in it.
    fn from_str(text: &str) -> Result<Self, BadEndpoint> {
        if text.contains('@') {
            return Err(BadEndpoint::Credentials);
        }
        let trimmed = text.trim_end_matches('/');
        let usable = origin(trimmed).is_some() && !trimmed.contains(['?', '#']);
        if usable { Ok(Self(trimmed.to_owned())) } else { Err(BadEndpoint::NoAddress) }
    }
}

/// The identity of a server: scheme, host and port.
#[derive(Debug, PartialEq, Eq)]
pub struct Origin {
    /// Whether it is reached by `https`.
    pub https: bool,
    host: String,
    port: u16,
}

/// The server of an `http` or `https` address; `None` for anything else.
#[must_use]
pub fn origin(url: &str) -> Option<Origin> {
    let uri: Uri = url.parse().ok()?;
    let https = match uri.scheme_str()? {
        "https" => true,
        "http" => false,
        _ => return None,
    };
    let host = uri.host().filter(|host| !host.is_empty())?.to_ascii_lowercase();
    let port = uri.port_u16().unwrap_or(if https { 443 } else { 80 });
    Some(Origin { https, host, port })
}

/// Resolves `location` from an answer of `url`; `None` if it is not a web address.
#[must_use]
pub fn redirect_target(url: &str, location: &str) -> Option<String> {
    let scheme_end = url.find("://")?;
    let path_start = url[scheme_end + 3..].find('/').map_or(url.len(), |at| scheme_end + 3 + at);
    let target = if location.contains("://") {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{}:{location}", &url[..scheme_end])
    } else if location.starts_with('/') {
        format!("{}{location}", &url[..path_start])
    } else {
        let path = without_query(url);
        let folder = path.rfind('/').filter(|&at| at >= path_start).unwrap_or(path.len());
        format!("{}/{location}", &path[..folder])
    };
    origin(&target).is_some().then_some(target)
}

/// Returns the server of an address, as an address: `https://host` or `https://host:port`.
#[must_use]
pub fn server(url: &str) -> Option<String> {
    let Origin { https, host, port } = origin(url)?;
    let (scheme, usual) = if https { ("https", 443) } else { ("http", 80) };
    let port = if port == usual { String::new() } else { format!(":{port}") };
    Some(format!("{scheme}://{host}{port}"))
}

/// Returns the address for display: without its query, where a CDN puts a signature, and without
/// the user name and password that a redirect may hold.
#[must_use]
pub fn shown(url: &str) -> String {
    let url = without_query(url);
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let end = rest.find('/').unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => url.to_owned(),
    }
}

fn without_query(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or_default()
}

/// Percent-encodes everything but unreserved characters, and `/` if `keep_slash`.
#[must_use]
pub fn percent_encoded(text: &str, keep_slash: bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(byte.into());
            }
            b'/' if keep_slash => encoded.push('/'),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        for (text, expected) in [
            ("https://hub.example/", "https://hub.example"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("https://hub.example/a/b//", "https://hub.example/a/b"),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), expected);
        }
        for text in ["", "hub.example", "ftp://x", "https://", "https://x?y", "file:///etc"] {
            assert!(text.parse::<Endpoint>().is_err(), "{text:?}");
        }
        let error = "https://me:hf_secret@hub.example".parse::<Endpoint>().unwrap_err();
        assert_eq!(error, BadEndpoint::Credentials);
    }

    #[test]
    fn origins_differ_by_scheme_host_or_port() {
        let hub = origin("https://Hub.example/a");
        assert_eq!(hub, origin("https://hub.example:443/b?c"));
        for other in ["http://hub.example", "https://hub.example:444", "https://cdn.hub.example"] {
            assert_ne!(hub, origin(other));
        }
        assert_eq!(origin("/path"), None);
    }

    #[test]
    fn redirects() {
        let url = "https://hub.example:1/a/b?q=/x";
        for (location, expected) in [
            ("http://cdn.example/y?z", "http://cdn.example/y?z"),
            ("//cdn.example/y", "https://cdn.example/y"),
            ("/api/y", "https://hub.example:1/api/y"),
            ("y", "https://hub.example:1/a/y"),
        ] {
            assert_eq!(redirect_target(url, location).as_deref(), Some(expected));
        }
        assert_eq!(redirect_target(url, "ftp://cdn.example/y"), None);
        assert_eq!(
            redirect_target("https://hub.example", "y").as_deref(),
            Some("https://hub.example/y")
        );
    }

    #[test]
    fn addresses_are_shown_without_secrets() {
        for (url, expected) in [
            ("https://hub.example/a?sig=x#y", "https://hub.example/a"),
            ("https://me:pw@hub.example/a@b?c", "https://hub.example/a@b"),
            ("https://me@hub.example", "https://hub.example"),
        ] {
            assert_eq!(shown(url), expected);
        }
        for (url, expected) in [
            ("https://me:pw@Hub.example:443/a", "https://hub.example"),
            ("http://hub.example:81/a", "http://hub.example:81"),
        ] {
            assert_eq!(server(url).as_deref(), Some(expected));
        }
    }

    #[test]
    fn encoding() {
        assert_eq!(percent_encoded("refs/pr/1", false), "refs%2Fpr%2F1");
        assert_eq!(percent_encoded("a b/é?.json", true), "a%20b/%C3%A9%3F.json");
    }
}
