//! The secret that a client sends to change the state of a server: to post ids, or to purge.

use std::fmt;

/// A bearer token (RFC 6750 §2.1).
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Returns the token in `text`, for example the first line of a file. A token needs at least 16 visible
    /// characters, so that it cannot be guessed.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        if text.len() < CHARACTERS_MIN || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError);
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns true if both tokens are equal. For the check of a configuration: the time of the comparison is not
    /// constant.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// Returns true if an `Authorization` field has this token. The time of the comparison does not depend on the
    /// position of the first difference, so that an attacker cannot guess the token byte by byte.
    pub fn matches_authorization(&self, authorization: &[u8]) -> bool {
        let Some((scheme, sent)) = authorization.split_at_checked(SCHEME.len()) else {
            return false;
        };
        let same_length = sent.len() == self.0.len();
        let differing = sent
            .iter()
            .zip(self.0.as_bytes().iter().cycle())
            .fold(0, |all, (a, b)| all | (a ^ b));
        scheme.eq_ignore_ascii_case(SCHEME) && same_length && differing == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The text is not a valid token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid token: it must have at least {CHARACTERS_MIN} visible ASCII characters and no spaces"
)]
pub struct TokenError;

const SCHEME: &[u8] = b"Bearer ";
const CHARACTERS_MIN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_token_is_accepted() {
        let token = Token::new("0123456789abcdef\n").expect("the token is long enough");
        for (field, is_accepted) in [
            ("Bearer 0123456789abcdef", true),
            ("bearer 0123456789abcdef", true),
            ("Bearer 0123456789abcdeg", false),
            ("Bearer 0123456789abcde", false),
            ("Bearer 0123456789abcdef0123456789abcdef", false),
            ("Bearer ", false),
            ("Basic  0123456789abcdef", false),
            ("", false),
        ] {
            assert_eq!(
                token.matches_authorization(field.as_bytes()),
                is_accepted,
                "{field}"
            );
        }
        assert!(Token::new("too short").is_err());
        assert!(Token::new("0123456789 abcdef").is_err());
    }
}
