//! The hub's own address.

use std::fmt;
use std::str::FromStr;

use monolith_http::BadEndpoint;

use crate::Error;

/// The address of a hub, such as `https://huggingface.co`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint(monolith_http::Endpoint);

impl Default for Endpoint {
    fn default() -> Self {
        Self("https://huggingface.co".parse().expect("it is an address"))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Endpoint {
    type Err = Error;

    /// An `http` or `https` address, perhaps with a path, and nothing else in it.
    fn from_str(text: &str) -> Result<Self, Error> {
        let (text, reason) = match text.parse() {
            Ok(endpoint) => return Ok(Self(endpoint)),
            // It may hold a password, so the message does not repeat it.
            Err(BadEndpoint::Credentials) => {
                ("***@***", "credentials do not belong in it, set HF_TOKEN")
            }
            Err(BadEndpoint::NoAddress) => (text, "expected http://host or https://host"),
        };
        Err(Error::Invalid { what: "hub endpoint", text: text.to_owned(), reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_an_address() {
        assert_eq!(Endpoint::default().to_string(), "https://huggingface.co");
    }

    #[test]
    fn what_is_no_endpoint_is_named_unless_it_holds_a_secret() {
        let error = "ftp://x".parse::<Endpoint>().unwrap_err().to_string();
        assert!(error.contains("hub endpoint \"ftp://x\"") && error.contains("expected http"));
        let error = "https://me:hf_secret@hub.example".parse::<Endpoint>().unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hf_secret"));
        assert!(error.to_string().contains("HF_TOKEN"));
    }
}
