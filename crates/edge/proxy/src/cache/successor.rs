//! Purges and invalidations for the process that replaces this one.
//!
//! After an upgrade, the earlier process finishes its requests while the new one serves from a cache of its own. An
//! unsafe request that ends in the earlier process must invalidate the responses of both.
//!
//! **The rule**: a purge or invalidation is acknowledged after the socket to the new process has taken it. If the
//! socket does not take it, the client gets an error. A change that is too long for one message is split.

use std::sync::OnceLock;

use edgeward_purge::{Purge, Scope};
use edgeward_types::Pattern;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::disk::Durable;

/// A change of the cache that a process sends to its successor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForwardedChange {
    /// The responses of a target were removed. The bytes are the target's cache key.
    Target(Vec<u8>),
    /// Purges were added to the table.
    Purges(Vec<Purge>),
}

impl ForwardedChange {
    /// Returns the change as JSON, for a message between two processes.
    pub fn to_json(&self) -> Value {
        match self {
            // A list of bytes is what earlier versions read. It is four times as long as text.
            Self::Target(key) => match std::str::from_utf8(key) {
                Ok(text) if key.len() > LISTED_BYTES_MAX => json!({ "target": text }),
                _ => json!({ "target": key }),
            },
            Self::Purges(purges) => {
                let purges = purges.iter().map(|purge| {
                    let [kind, text, origin] = match &purge.scope {
                        Scope::Url(url) => ["url", url, ""],
                        Scope::Host(host) => ["host", host, ""],
                        Scope::Tag(tag) => ["tag", tag, ""],
                        Scope::Group { origin, group } => ["group", group, origin],
                        Scope::Prefix(prefix) => ["prefix", prefix, ""],
                        Scope::Pattern(pattern) => ["pattern", pattern.as_str(), ""],
                    };
                    json!([kind, text, origin, purge.soft])
                });
                json!({ "purges": purges.collect::<Vec<_>>() })
            }
        }
    }

    /// Parses the JSON of [`to_json`](Self::to_json). Returns `None` for other JSON.
    pub fn from_json(value: &Value) -> Option<Self> {
        if let Some(text) = value.get("target").and_then(Value::as_str) {
            return Some(Self::Target(text.into()));
        }
        if let Some(key) = value.get("target") {
            return serde_json::from_value(key.clone()).ok().map(Self::Target);
        }
        let purges: Vec<(String, Box<str>, Box<str>, bool)> =
            serde_json::from_value(value.get("purges")?.clone()).ok()?;
        let purges = purges.into_iter().map(|(kind, text, origin, soft)| {
            let scope = match &*kind {
                "url" => Scope::Url(text),
                "host" => Scope::Host(text),
                "tag" => Scope::Tag(text),
                "group" => Scope::Group {
                    origin,
                    group: text,
                },
                "prefix" => Scope::Prefix(text),
                "pattern" => Scope::Pattern(Pattern::new(&text)),
                _ => return None,
            };
            Some(Purge { scope, soft })
        });
        purges.collect::<Option<_>>().map(Self::Purges)
    }
}

/// Gets the result of a transfer: true if the socket to the new process has taken the change. A receipt that is
/// dropped means that it has not.
pub type Receipt = Box<dyn FnOnce(bool) + Send>;

impl ForwardedChange {
    /// Returns the changes that have the same effect, and whose messages have at most [`MESSAGE_BYTES`] unless one
    /// scope alone is longer.
    fn split(self) -> Vec<Self> {
        let Self::Purges(purges) = self else {
            return vec![self];
        };
        let mut parts = Vec::new();
        let mut part = Vec::new();
        let mut bytes = 0;
        for purge in purges {
            // Each byte may be escaped by another one. The rest of the entry has less than 40 bytes.
            let more = 2 * purge.scope.to_string().len() + 40;
            if bytes + more > MESSAGE_BYTES && !part.is_empty() {
                parts.push(Self::Purges(std::mem::take(&mut part)));
                bytes = 0;
            }
            bytes += more;
            part.push(purge);
        }
        parts.push(Self::Purges(part));
        parts
    }
}

/// The length of a message with purges in bytes. A socket takes 208 KiB by default.
const MESSAGE_BYTES: usize = 64 << 10;

/// The longest target that is sent as a list of bytes.
const LISTED_BYTES_MAX: usize = 16 << 10;

type SendChange = Box<dyn Fn(ForwardedChange, Receipt) + Send + Sync>;

/// The process that replaces this one, if there is one.
#[derive(Default)]
pub(crate) struct Successor(OnceLock<SendChange>);

impl Successor {
    /// Sets the function that sends changes. Only the first call counts.
    pub(crate) fn set(&self, send: impl Fn(ForwardedChange, Receipt) + Send + Sync + 'static) {
        _ = self.0.set(Box::new(send));
    }

    /// Returns true if another process replaces this one.
    pub(crate) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    /// Sends a change. Returns a receiver for each message that resolves when the socket has taken the message, and
    /// fails if the socket has not.
    pub(crate) fn send(&self, change: impl FnOnce() -> ForwardedChange) -> Vec<Durable> {
        let Some(send) = self.0.get() else {
            return Vec::new();
        };
        let parts = change().split().into_iter();
        let sent = parts.map(|part| {
            let (taken, receiver) = oneshot::channel();
            let receipt = move |is_taken| {
                if is_taken {
                    _ = taken.send(Ok(())); // the client may have left
                }
            };
            send(part, Box::new(receipt));
            receiver
        });
        sent.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forwarded_change_is_parsed_to_the_same_change() {
        let scope = |scope: Result<Scope, _>| scope.expect("a scope");
        let scopes = [
            scope(Scope::url("http://a.example/x?y=1")),
            scope(Scope::host("a.example:81")),
            scope(Scope::tag("a tag \"quoted\"")),
            Scope::Group {
                origin: "http://a.example".into(),
                group: "g".into(),
            },
            scope(Scope::prefix("a.example/p")),
            scope(Scope::pattern("https://*.example/*.css")),
        ];
        let purges = scopes.into_iter().zip([false, true].into_iter().cycle());
        let purges = purges.map(|(scope, soft)| Purge { scope, soft });
        for change in [
            ForwardedChange::Target(b"http://a/\n\xff".to_vec()),
            ForwardedChange::Target(vec![b'a'; 100_000]),
            ForwardedChange::Purges(purges.collect()),
        ] {
            let text = change.to_json().to_string();
            let value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(ForwardedChange::from_json(&value), Some(change));
        }
        assert_eq!(
            ForwardedChange::from_json(&json!({"purges": [["x", "y", "", true]]})),
            None
        );
    }

    /// Method: 1,000 tags of 4 KiB, in which each byte is escaped in JSON.
    #[test]
    fn purges_that_are_longer_than_a_message_are_split_and_none_is_lost() {
        let tag = |n| Scope::tag(&format!("{}{n}", "\"".repeat(4096))).expect("a tag");
        let purge = |n| Purge {
            scope: tag(n),
            soft: n % 2 == 0,
        };
        let purges: Vec<Purge> = (0..1000).map(purge).collect();
        let parts = ForwardedChange::Purges(purges.clone()).split();
        assert!(parts.len() > 100);
        let mut together = Vec::new();
        for part in parts {
            assert!(part.to_json().to_string().len() <= MESSAGE_BYTES);
            let ForwardedChange::Purges(some) = part else {
                panic!("a part has purges");
            };
            together.extend(some);
        }
        assert_eq!(together, purges);
        let one = ForwardedChange::Purges(purges[..1].to_vec());
        assert_eq!(one.clone().split(), [one]);
    }

    /// Method: the function that sends reports the first message as sent, the second as refused, and drops the third.
    #[test]
    fn a_message_counts_as_sent_only_if_the_socket_takes_it() {
        let successor = Successor::default();
        assert!(
            successor
                .send(|| unreachable!("no process gets the change"))
                .is_empty()
        );
        let sent = std::sync::atomic::AtomicUsize::new(0);
        successor.set(move |_, receipt| {
            match sent.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                0 => receipt(true),
                1 => receipt(false),
                _ => drop(receipt),
            }
        });
        let results = [(); 3].map(|()| {
            let mut sent = successor.send(|| ForwardedChange::Target(b"a".to_vec()));
            sent.pop().expect("one message").try_recv().is_ok()
        });
        assert_eq!(results, [true, false, false]);
    }
}
