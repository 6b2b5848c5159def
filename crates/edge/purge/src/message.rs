//! The messages by which the nodes of a fleet learn of purges. `docs/reference/fleet-messages.md` describes them.
//!
//! A message has the texts of its scopes, because the log of purges has only hashes with a secret seed of its node. It
//! is JSON, and nearly the body of a request to the purge API, so that tools of NATS show it.

use serde::{Deserialize, Serialize};

use crate::request::SCOPES_MAX;
use crate::scope::{Purge, Scope, ScopeError, TEXT_BYTES_MAX};

/// Purges that a node has accepted for the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeMessage {
    /// The scopes, at least one.
    pub scopes: Vec<Scope>,
    /// True if the objects become stale; false if they must not be used again.
    pub soft: bool,
    /// The client that has requested the purges, and its node, for logs.
    pub from: Box<str>,
}

/// The reason why bytes are not a message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The message is longer than a node sends.
    #[error("a message has at most {MESSAGE_BYTES_MAX} bytes, and this one has {0}")]
    Length(usize),
    /// The message is not JSON of the expected form.
    #[error("the message is not a purge: {0}")]
    Json(#[from] serde_json::Error),
    /// The version is unknown.
    #[error("its version is {0}, and only {VERSION} is known")]
    Version(u32),
    /// A scope is not valid.
    #[error("{0}")]
    Scope(#[from] ScopeError),
    /// The message has no scope, or too many.
    #[error("a message has 1 to {SCOPES_MAX} scopes, and this one has {0}")]
    Count(usize),
}

/// A later version has another number, even if it only adds a member: a node that ignored the member would purge too
/// little.
#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct Body {
    version: u32,
    from: Box<str>,
    soft: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    urls: Vec<Box<str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hosts: Vec<Box<str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<Box<str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    prefixes: Vec<Box<str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    patterns: Vec<Box<str>>,
    /// Cache groups: pairs of origin and name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<(Box<str>, Box<str>)>,
}

impl PurgeMessage {
    /// Parses a message.
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(MessageError::Length(bytes.len()));
        }
        let body: Body = serde_json::from_slice(bytes)?;
        if body.version != VERSION {
            return Err(MessageError::Version(body.version));
        }
        let mut scopes = Vec::new();
        let mut add = |texts: &[Box<str>], scope: fn(&str) -> Result<Scope, ScopeError>| {
            for text in texts {
                scopes.push(scope(text)?);
            }
            Ok::<_, ScopeError>(())
        };
        add(&body.urls, Scope::url)?;
        add(&body.hosts, Scope::host)?;
        add(&body.tags, Scope::tag)?;
        add(&body.prefixes, Scope::prefix)?;
        add(&body.patterns, Scope::pattern)?;
        for (origin, group) in body.groups {
            let bytes = origin.len().max(group.len());
            if bytes > TEXT_BYTES_MAX {
                let kind = "group";
                return Err(ScopeError::Length { kind, bytes }.into());
            }
            scopes.push(Scope::Group { origin, group });
        }
        if !(1..=SCOPES_MAX).contains(&scopes.len()) {
            return Err(MessageError::Count(scopes.len()));
        }
        Ok(Self {
            scopes,
            soft: body.soft,
            from: body.from,
        })
    }

    /// Returns the encoded messages for these scopes. Several, if one would be too long.
    pub fn encode(scopes: Vec<Scope>, soft: bool, from: &str) -> Vec<Vec<u8>> {
        let from: Box<str> = from.chars().take(FROM_CHARS_MAX).collect();
        let new = || Body {
            version: VERSION,
            from: from.clone(),
            soft,
            ..Body::default()
        };
        let bytes = |body: &Body| serde_json::to_vec(body).expect("texts are JSON");
        let mut messages = Vec::new();
        let (mut body, mut count, mut size) = (new(), 0, 0);
        for scope in scopes {
            // JSON writes a control character with six bytes. `SCOPE_BYTES` covers the quotes, commas and brackets.
            let more = 6 * scope.to_string().len() + SCOPE_BYTES;
            if count == SCOPES_MAX || (count > 0 && size + more > MESSAGE_BYTES_MAX / 2) {
                messages.push(bytes(&std::mem::replace(&mut body, new())));
                (count, size) = (0, 0);
            }
            (count, size) = (count + 1, size + more);
            match scope {
                Scope::Url(text) => body.urls.push(text),
                Scope::Host(text) => body.hosts.push(text),
                Scope::Tag(text) => body.tags.push(text),
                Scope::Prefix(text) => body.prefixes.push(text),
                Scope::Pattern(pattern) => body.patterns.push(pattern.as_str().into()),
                Scope::Group { origin, group } => body.groups.push((origin, group)),
            }
        }
        if count > 0 {
            messages.push(bytes(&body));
        }
        messages
    }

    /// Returns the purges of the message.
    pub fn purges(self) -> impl Iterator<Item = Purge> {
        let soft = self.soft;
        self.scopes
            .into_iter()
            .map(move |scope| Purge { scope, soft })
    }
}

/// The maximum length of a message in bytes: half of what a NATS server accepts by default.
pub const MESSAGE_BYTES_MAX: usize = 512 << 10;

const VERSION: u32 = 1;

/// The maximum length of the client's name: an address and the name of a token.
const FROM_CHARS_MAX: usize = 512;

/// The bytes of a scope in a message, without its texts.
const SCOPE_BYTES: usize = 8;

// A message with one scope has at most this length.
const _: () = assert!(6 * (2 * TEXT_BYTES_MAX + FROM_CHARS_MAX) + 1024 < MESSAGE_BYTES_MAX);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scopes() -> impl Strategy<Value = Vec<Scope>> {
        let host = "[a-z]{1,8}\\.example(:[0-9]{2,4})?";
        let path = "/[a-zA-Z0-9\"\\\\%&=?~üß*-]{0,40}";
        let text = (host, path).prop_map(|(host, path)| format!("{host}{path}"));
        let checked = |scope: Result<Scope, ScopeError>| scope.expect("the scope is valid");
        let scope = prop_oneof![
            text.clone()
                .prop_map(move |t| checked(Scope::url(&format!("http://{t}")))),
            host.prop_map(move |t| checked(Scope::host(&t))),
            "[a-zA-Z\"\\\\ü][a-z ]{0,5}x".prop_map(move |t| checked(Scope::tag(&t))),
            text.clone().prop_map(move |t| checked(Scope::prefix(&t))),
            text.prop_map(move |t| checked(Scope::pattern(&t))),
            "[ -~]{0,9}".prop_map(|group| {
                let origin = "http://a.example".into();
                let group = group.into();
                Scope::Group { origin, group }
            }),
        ];
        prop::collection::vec(scope, 1..30)
    }

    proptest! {
        /// Messages keep the kinds and texts of scopes. The order of the kinds has no effect.
        #[test]
        fn a_message_parses_to_its_scopes(scopes in scopes(), soft: bool) {
            let messages = PurgeMessage::encode(scopes.clone(), soft, "a \"client\"");
            prop_assert_eq!(messages.len(), 1);
            let parsed = PurgeMessage::parse(&messages[0]).expect("the message parses");
            prop_assert_eq!(parsed.soft, soft);
            prop_assert_eq!(&*parsed.from, "a \"client\"");
            let sorted = |scopes: &[Scope]| {
                let mut scopes: Vec<_> = scopes.iter().map(|s| (s.kind(), s.to_string())).collect();
                scopes.sort();
                scopes
            };
            prop_assert_eq!(sorted(&parsed.scopes), sorted(&scopes));
        }
    }

    /// The longest request of the purge API becomes several messages that a server accepts.
    #[test]
    fn scopes_that_are_longer_than_a_message_are_split_and_none_is_lost() {
        let tag = |n| Scope::tag(&format!("{n:\"<8192}")).expect("a tag");
        let scopes: Vec<_> = (0..SCOPES_MAX).map(tag).collect();
        let messages = PurgeMessage::encode(scopes.clone(), true, "x");
        assert!(messages.len() > 1);
        let parsed = messages.iter().flat_map(|bytes| {
            PurgeMessage::parse(bytes)
                .expect("the message parses")
                .scopes
        });
        assert_eq!(parsed.collect::<Vec<_>>(), scopes);
    }

    #[test]
    fn a_message_of_another_version_or_with_an_unknown_member_is_an_error() {
        let parse = |text: &str| PurgeMessage::parse(text.as_bytes());
        assert!(parse(r#"{"version": 1, "tags": ["a"]}"#).is_ok());
        assert!(matches!(
            parse(r#"{"version": 2, "tags": ["a"]}"#),
            Err(MessageError::Version(2))
        ));
        assert!(matches!(
            parse(r#"{"tags": ["a"]}"#),
            Err(MessageError::Version(0))
        ));
        assert!(matches!(
            parse(r#"{"version": 1, "tags": ["a"], "regexes": ["b"]}"#),
            Err(MessageError::Json(_))
        ));
        assert!(matches!(
            parse(r#"{"version": 1}"#),
            Err(MessageError::Count(0))
        ));
        assert!(matches!(
            parse(r#"{"version": 1, "urls": ["a"]}"#),
            Err(MessageError::Scope(_))
        ));
        let long = vec![b' '; MESSAGE_BYTES_MAX + 1];
        assert!(matches!(
            PurgeMessage::parse(&long),
            Err(MessageError::Length(_))
        ));
    }
}
