//! The users of a proxy.

use std::collections::HashMap;

use aws_lc_rs::{constant_time, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use thiserror::Error;

/// The users that may use a proxy, with the SHA-256 digests of their passwords.
#[derive(Clone, Debug)]
pub struct ProxyUsers(HashMap<Vec<u8>, digest::Digest>);

/// Why a list of users is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UsersError {
    /// A line is not a user and a password.
    #[error("line {0} is not NAME:PASSWORD, each of 1 to 255 bytes")]
    Line(usize),
    /// Two lines have the same user.
    #[error("line {0} has a user of an earlier line")]
    Repeated(usize),
    /// The list has no user, so no client could use the proxy.
    #[error("the list has no user")]
    Empty,
}

impl ProxyUsers {
    /// Parses a list with one `NAME:PASSWORD` on each line. Empty lines and lines that begin with `#` are skipped.
    pub fn parse(text: &str) -> Result<Self, UsersError> {
        let mut users = HashMap::new();
        for (nth, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let number = nth + 1;
            let (name, password) = line.split_once(':').ok_or(UsersError::Line(number))?;
            // RFC 1929, section 2, has one byte for each length.
            if [name, password]
                .iter()
                .any(|text| !(1..=255).contains(&text.len()))
            {
                return Err(UsersError::Line(number));
            }
            let password = digest::digest(&digest::SHA256, password.as_bytes());
            if users.insert(name.as_bytes().to_vec(), password).is_some() {
                return Err(UsersError::Repeated(number));
            }
        }
        if users.is_empty() {
            return Err(UsersError::Empty);
        }
        Ok(Self(users))
    }

    /// Returns true if a user has this password. The time does not depend on the password.
    pub(super) fn contains(&self, name: &[u8], password: &[u8]) -> bool {
        let given = digest::digest(&digest::SHA256, password);
        self.0.get(name).is_some_and(|known| {
            constant_time::verify_slices_are_equal(known.as_ref(), given.as_ref()).is_ok()
        })
    }

    /// Returns true if the head of a CONNECT request has the field `Proxy-Authorization` of a user, with the scheme
    /// Basic (RFC 7617, section 2).
    pub(super) fn permits_head(&self, head: &[u8]) -> bool {
        let fields = std::str::from_utf8(head).unwrap_or_default().split("\r\n");
        let credentials = fields.skip(1).find_map(|field| {
            let (name, value) = field.split_once(':')?;
            if !name.eq_ignore_ascii_case("proxy-authorization") {
                return None;
            }
            let (scheme, token) = value.trim().split_once(' ')?;
            let is_basic = scheme.eq_ignore_ascii_case("basic");
            STANDARD.decode(token.trim()).ok().filter(|_| is_basic)
        });
        let Some(credentials) = credentials else {
            return false;
        };
        let colon = credentials.iter().position(|byte| *byte == b':');
        colon.is_some_and(|at| self.contains(&credentials[..at], &credentials[at + 1..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_a_user_and_a_password_on_each_line() {
        let users = ProxyUsers::parse("# staff\n\nann:a:b \nbob:#\n").expect("the list is valid");
        for (name, password, is_known) in [
            ("ann", "a:b ", true),
            ("ann", "a:b", false),
            ("bob", "#", true),
            ("# staff", "", false),
            ("", "", false),
        ] {
            assert_eq!(
                users.contains(name.as_bytes(), password.as_bytes()),
                is_known,
                "{name}"
            );
        }
        let long = "x".repeat(256);
        for (text, error) in [
            ("", UsersError::Empty),
            ("#a:b\n", UsersError::Empty),
            ("ann\n", UsersError::Line(1)),
            ("\nann:\n", UsersError::Line(2)),
            (":b\n", UsersError::Line(1)),
            (&format!("a:{long}\n"), UsersError::Line(1)),
            ("a:b\na:c\n", UsersError::Repeated(2)),
        ] {
            assert_eq!(ProxyUsers::parse(text).map(|_| ()), Err(error), "{text}");
        }
    }
}
