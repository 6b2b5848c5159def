//! The records by which the nodes of a fleet announce themselves. `docs/reference/fleet-messages.md` describes them.

use std::time::Duration;

use edgeward_balance::{NodeGroup, WEIGHT_MAX};
use serde::{Deserialize, Serialize};

/// The settings of a node that the other nodes need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeProfile {
    /// The name, which no other node has.
    pub name: Box<str>,
    /// The URL by which the other nodes ask the node.
    pub url: Box<str>,
    /// The group.
    pub group: NodeGroup,
    /// The share of keys, in relation to the weights of the other nodes of the group.
    pub weight: u32,
}

/// The state that a node announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AnnouncedState {
    /// The node may still lack purges of the fleet. It owns no key.
    Joining,
    /// The node owns keys by its weight.
    Serving,
    /// The node is about to leave. It owns no key.
    Draining,
}

/// A heartbeat of a node: the value of its key in the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The settings of the node.
    pub profile: NodeProfile,
    /// The state.
    pub state: AnnouncedState,
    /// A random number of the process, by which a node recognises its own records.
    pub instance: u64,
    /// The number of heartbeats that the process has sent. If two nodes have one name, the node with more keeps it.
    pub beat: u64,
    /// The time for which the record is valid after a node has received it.
    pub lasts: Duration,
}

/// The reason why a node ignores a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The record cannot be parsed, or a value is out of its range.
    #[error("it is no record of a node: {0}")]
    Corrupt(String),
    /// The version is unknown.
    #[error("its version is {0}, and only {VERSION} is known")]
    Version(u32),
    /// This node cannot ask the other one, for example because its URL has another scheme.
    #[error("this node cannot ask it: {0}")]
    Unusable(String),
    /// Another node has the name of this one.
    #[error("it has the name of this node, and another URL: {url}")]
    Duplicate {
        /// The URL of the other node.
        url: Box<str>,
    },
    /// The fleet has too many nodes.
    #[error("the fleet has {MEMBERS_MAX} nodes already")]
    Full,
}

impl RecordError {
    /// The names of all variants, for metrics, in the order of [`index`](Self::index).
    pub const NAMES: [&'static str; 5] = ["corrupt", "version", "unusable", "duplicate", "full"];

    /// Returns the index of the variant's name.
    pub fn index(&self) -> usize {
        match self {
            Self::Corrupt(_) => 0,
            Self::Version(_) => 1,
            Self::Unusable(_) => 2,
            Self::Duplicate { .. } => 3,
            Self::Full => 4,
        }
    }
}

/// A record as JSON. A later version may add members, which this version ignores.
#[derive(Deserialize, Serialize)]
struct Body {
    version: u32,
    name: Box<str>,
    url: Box<str>,
    group: GroupWord,
    weight: u32,
    state: AnnouncedState,
    instance: u64,
    beat: u64,
    lasts_ms: u64,
}

#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum GroupWord {
    Edge,
    Shield,
}

/// The version alone, which is read first.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl Announcement {
    /// Parses the value of a key.
    pub fn parse(key: &str, value: &[u8]) -> Result<Self, RecordError> {
        let corrupt = |reason: &str| RecordError::Corrupt(reason.to_owned());
        if value.len() > RECORD_BYTES_MAX {
            return Err(corrupt("it is too long"));
        }
        let unreadable = |error: serde_json::Error| RecordError::Corrupt(error.to_string());
        let Versioned { version } = serde_json::from_slice(value).map_err(unreadable)?;
        if version != VERSION {
            return Err(RecordError::Version(version));
        }
        let body: Body = serde_json::from_slice(value).map_err(unreadable)?;
        if !(1..=NAME_BYTES_MAX).contains(&body.name.len()) || key_of(&body.name) != key {
            return Err(corrupt("its name does not fit its key"));
        }
        if !(1..=WEIGHT_MAX).contains(&body.weight) {
            return Err(corrupt("its weight is out of range"));
        }
        let lasts = Duration::from_millis(body.lasts_ms);
        if !(LASTS_MIN..=LASTS_MAX).contains(&lasts) {
            return Err(corrupt("the time for which it lasts is out of range"));
        }
        Ok(Self {
            profile: NodeProfile {
                name: body.name,
                url: body.url,
                group: match body.group {
                    GroupWord::Edge => NodeGroup::Edge,
                    GroupWord::Shield => NodeGroup::Shield,
                },
                weight: body.weight,
            },
            state: body.state,
            instance: body.instance,
            beat: body.beat,
            lasts,
        })
    }

    /// Returns the value of the key.
    pub fn encode(&self) -> Vec<u8> {
        let body = Body {
            version: VERSION,
            name: self.profile.name.clone(),
            url: self.profile.url.clone(),
            group: match self.profile.group {
                NodeGroup::Edge => GroupWord::Edge,
                NodeGroup::Shield => GroupWord::Shield,
            },
            weight: self.profile.weight,
            state: self.state,
            instance: self.instance,
            beat: self.beat,
            lasts_ms: u64::try_from(self.lasts.as_millis()).unwrap_or(u64::MAX),
        };
        serde_json::to_vec(&body).expect("texts and numbers are JSON")
    }
}

/// Returns the key of a node in the bucket: its name, with `=` and two hexadecimal digits for each byte that a key may
/// not have.
pub fn key_of(name: &str) -> String {
    use std::fmt::Write as _;
    let mut key = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => key.push(char::from(byte)),
            _ => _ = write!(key, "={byte:02x}"),
        }
    }
    key
}

/// The maximum number of nodes of a fleet, all groups together.
pub const MEMBERS_MAX: usize = edgeward_balance::NODES_MAX;

/// The shortest time for which a record may last: a heartbeat each half second.
pub const LASTS_MIN: Duration = Duration::from_secs(2);

/// The longest time for which a record may last.
pub const LASTS_MAX: Duration = Duration::from_secs(300);

/// The maximum length of a record in bytes. A typical one has 200.
pub const RECORD_BYTES_MAX: usize = 4096;

/// The maximum length of a name in bytes.
const NAME_BYTES_MAX: usize = 255;

/// The version of the records.
const VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Announcement {
        Announcement {
            profile: NodeProfile {
                name: "edge.1".into(),
                url: "https://10.0.0.1:7443".into(),
                group: NodeGroup::Shield,
                weight: 50,
            },
            state: AnnouncedState::Draining,
            instance: u64::MAX,
            beat: 7,
            lasts: Duration::from_secs(10),
        }
    }

    #[test]
    fn a_record_is_parsed_as_it_was_encoded_and_later_members_are_ignored() {
        let record = record();
        let text = String::from_utf8(record.encode()).expect("JSON");
        assert_eq!(
            text,
            "{\"version\":1,\"name\":\"edge.1\",\"url\":\"https://10.0.0.1:7443\",\"group\":\"shield\",\"weight\":50,\
             \"state\":\"draining\",\"instance\":18446744073709551615,\"beat\":7,\"lasts_ms\":10000}"
        );
        assert_eq!(key_of(&record.profile.name), "edge=2e1");
        let more = text.replace("{\"version\"", "{\"later\":[1],\"version\"");
        for text in [text, more] {
            let parsed = Announcement::parse("edge=2e1", text.as_bytes());
            assert_eq!(parsed, Ok(record.clone()));
        }
    }

    #[test]
    fn a_record_of_another_version_or_with_values_out_of_range_is_refused() {
        let text = String::from_utf8(record().encode()).expect("JSON");
        let long = format!("{text}{}", " ".repeat(RECORD_BYTES_MAX));
        let refused = |key: &str, text: &str| {
            let error = Announcement::parse(key, text.as_bytes()).expect_err(text);
            RecordError::NAMES[error.index()]
        };
        let other = text.replace("\"version\":1", "\"version\":2");
        assert_eq!(refused("edge=2e1", &other), "version");
        // The other members of a later version need not be known.
        assert_eq!(refused("edge=2e1", "{\"version\":2}"), "version");
        assert_eq!(refused("edge-1", &text), "corrupt");
        assert_eq!(refused("edge=2e1", &long), "corrupt");
        for (known, wrong) in [
            ("\"weight\":50", "\"weight\":0"),
            ("\"weight\":50", "\"weight\":4294967295"),
            ("10000", "1999"),
            ("10000", "300001"),
            ("draining", "asleep"),
            ("shield", "origin"),
            ("\"beat\":7", "\"beat\":-7"),
            ("}", ""),
        ] {
            let text = text.replace(known, wrong);
            assert_eq!(refused("edge=2e1", &text), "corrupt", "{wrong}");
        }
    }

    #[test]
    fn names_have_different_keys_of_allowed_characters() {
        let names = [
            "a", "A", "a.b", "a=2eb", "*", ">", "é", "a b", "..", "a-b_c",
        ];
        let keys = names.map(key_of);
        for (at, key) in keys.iter().enumerate() {
            let is_allowed =
                |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'=');
            assert!(key.bytes().all(is_allowed), "{key}");
            assert!(!keys[..at].contains(key), "{key}");
        }
    }
}
