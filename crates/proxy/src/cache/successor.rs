//! Purges and invalidations for the process that replaces this one.
//!
//! After an upgrade, the earlier process finishes its requests while the new one serves from a cache of its own. An
//! unsafe request that ends in the earlier process must invalidate the responses of both.

use std::sync::OnceLock;

use edgeward_purge::{Purge, Scope};
use edgeward_types::Pattern;
use serde_json::{Value, json};

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
            Self::Target(key) => json!({ "target": key }),
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

type Send = Box<dyn Fn(ForwardedChange) + std::marker::Send + Sync>;

/// The process that replaces this one, if there is one.
#[derive(Default)]
pub(crate) struct Successor(OnceLock<Send>);

impl Successor {
    /// Sets the function that sends changes. Only the first call counts.
    pub(crate) fn set(&self, send: impl Fn(ForwardedChange) + std::marker::Send + Sync + 'static) {
        _ = self.0.set(Box::new(send));
    }

    pub(crate) fn send(&self, change: impl FnOnce() -> ForwardedChange) {
        if let Some(send) = self.0.get() {
            send(change());
        }
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
}
