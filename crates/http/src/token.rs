//! A secret that is sent and never shown.

use std::fmt;

/// An access token. Nothing prints it: not `Debug`, not an error.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Takes the token out of a variable or a file; surrounding white space is not part of it.
    /// `None` if nothing is left, or if it cannot be sent in a header.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        let sendable = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        sendable.then(|| Self(text.to_owned()))
    }

    /// Returns the header value with the token. Nothing else reveals the token.
    #[must_use]
    pub fn authorization(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_trimmed_and_never_shown() {
        let token = Token::new(" hf_secret\n").unwrap();
        assert_eq!(token.authorization(), "Bearer hf_secret");
        assert_eq!(format!("{token:?} {:?}", Some(&token)), "Token(secret) Some(Token(secret))");
    }

    #[test]
    fn what_cannot_be_sent_is_no_token() {
        for text in ["", " \n", "a b", "a\r\nX-Evil: 1", "é"] {
            assert_eq!(Token::new(text), None);
        }
    }
}
