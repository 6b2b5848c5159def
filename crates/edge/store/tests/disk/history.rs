//! Records the changes of each key, and checks that a cache returns only objects that are allowed after these
//! changes.
//!
//! The property: a cache may lose any object, but an object that it serves was stored under this key, byte for
//! byte, and is not older than the key's last change that was known to be durable.

use std::collections::BTreeMap;

use bytes::Bytes;
use edgeward_store::disk::{DiskCache, DiskObject, Miss};
use edgeward_types::{KeyHash, mix64};

/// The changes of one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyHistory {
    changes: Vec<Change>,
}

#[derive(Clone, Debug)]
struct Change {
    kind: ChangeKind,
    /// False for a write that the cache may have dropped. The previous object may then still be served.
    certain: bool,
    /// The boundary (the number of operations of the disk) at which the change was known to be durable.
    durable_at: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ChangeKind {
    Stored(Version),
    Purged,
}

/// A version of an object. It determines all bytes of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) key: u64,
    /// The number of the body: each write of a new body gets the next number.
    pub(crate) body: u32,
    /// The length of the body in bytes.
    pub(crate) length: u32,
    /// How often the head was replaced since the body was written.
    pub(crate) head: u32,
}

impl Version {
    /// Returns the full key of the object.
    pub(crate) fn full_key(key: u64) -> Vec<u8> {
        format!("https://example.com/{key}").into_bytes()
    }

    pub(crate) fn head_bytes(self) -> Bytes {
        let Self {
            key,
            body,
            length,
            head,
        } = self;
        format!("{key} {body} {length} {head}").into_bytes().into()
    }

    /// Returns the version that a head describes, or `None` if the head was not written by these tests.
    fn parse(head: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(head).ok()?;
        let mut fields = text.split(' ').map(str::parse::<u64>);
        let mut next = || fields.next()?.ok();
        let (key, body, length, head) = (next()?, next()?, next()?, next()?);
        let [body, length, head] = [body, length, head].map(u32::try_from);
        Some(Self {
            key,
            body: body.ok()?,
            length: length.ok()?,
            head: head.ok()?,
        })
    }

    /// Returns the body: a part of [`noise`]. The offset of the part depends on the key and the number of the body.
    pub(crate) fn body_bytes(self) -> Bytes {
        let start = (self.key * 7919 + u64::from(self.body) * 104_729) % (NOISE_BYTES / 2);
        let start = usize::try_from(start).expect("the number is small");
        noise().slice(start..start + self.length as usize)
    }
}

/// The changes of all keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    keys: BTreeMap<u64, KeyHistory>,
    /// The number of the last body.
    bodies: u32,
}

impl History {
    /// Returns the version of an object with a new body, whose head was not replaced yet.
    pub(crate) fn next_version(&mut self, key: u64, length: u32) -> Version {
        self.bodies += 1;
        Version {
            key,
            body: self.bodies,
            length,
            head: 0,
        }
    }

    /// Records that the write of this version began. The version may be served until a later change is certain and
    /// durable.
    pub(crate) fn record_offer(&mut self, version: Version) {
        self.add(version.key, ChangeKind::Stored(version), false);
    }

    /// Records that the cache accepted the last offered version of the key completely.
    pub(crate) fn record_acceptance(&mut self, key: u64) {
        let key = self.keys.get_mut(&key).expect("the key was offered");
        key.changes.last_mut().expect("the key was offered").certain = true;
    }

    pub(crate) fn record_purge(&mut self, key: u64) {
        self.add(key, ChangeKind::Purged, true);
    }

    fn add(&mut self, key: u64, kind: ChangeKind, certain: bool) {
        let changes = &mut self.keys.entry(key).or_default().changes;
        changes.push(Change {
            kind,
            certain,
            durable_at: None,
        });
    }

    /// Returns the number of changes of a key so far.
    pub(crate) fn changes(&self, key: u64) -> usize {
        self.keys.get(&key).map_or(0, |key| key.changes.len())
    }

    /// Records that all changes so far are durable at this boundary.
    pub(crate) fn record_sync(&mut self, boundary: usize) {
        for change in self.keys.values_mut().flat_map(|key| &mut key.changes) {
            change.durable_at.get_or_insert(boundary);
        }
    }

    /// Like [`record_sync`](Self::record_sync), for one key.
    pub(crate) fn record_key_sync(&mut self, key: u64, boundary: usize) {
        for change in &mut self.keys.entry(key).or_default().changes {
            change.durable_at.get_or_insert(boundary);
        }
    }

    /// Returns the history for a new disk that begins with the bytes after a crash at `boundary`.
    pub(crate) fn continued_after(&self, boundary: usize) -> Self {
        let mut history = self.clone();
        for change in history.keys.values_mut().flat_map(|key| &mut key.changes) {
            let durable = change.durable_at.is_some_and(|at| at <= boundary);
            change.durable_at = durable.then_some(0);
            // A change that was not durable may have been lost in the crash. A later sync does not change this.
            change.certain &= durable;
        }
        history
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = u64> + '_ {
        self.keys.keys().copied()
    }

    /// Reads and verifies the object of `key`, and returns its version. Returns `None` for a miss.
    ///
    /// # Panics
    ///
    /// Panics if the object may not be served after a crash at `boundary`. `context` describes the earlier
    /// operations for the message.
    pub(crate) fn check(
        &self,
        cache: &DiskCache,
        key: u64,
        boundary: usize,
        context: &str,
    ) -> Option<Version> {
        let served = read(cache, key, context)?;
        let changes = self.keys.get(&key).map_or(&[][..], |key| &key.changes);
        let since = changes
            .iter()
            .rposition(|change| {
                change.certain && change.durable_at.is_some_and(|at| at <= boundary)
            })
            .unwrap_or(0);
        let allowed = changes[since..]
            .iter()
            .any(|change| change.kind == ChangeKind::Stored(served));
        assert!(
            allowed,
            "{context}: {served:?} was served; since the last durable change there were {:?}",
            &changes[since..]
        );
        Some(served)
    }
}

/// Reads the object of `key`, and compares every byte with the version in its head. Returns `None` for a miss
/// of any kind.
pub(crate) fn read(cache: &DiskCache, key: u64, context: &str) -> Option<Version> {
    let object = open(cache, key)?.ok()?;
    let version =
        Version::parse(object.head()).unwrap_or_else(|| panic!("{context}: an unknown head"));
    assert_eq!(version.key, key, "{context}: another key's object");
    assert_eq!(object.head(), &version.head_bytes(), "{context}");
    assert_eq!(object.length(), u64::from(version.length), "{context}");
    let expected = version.body_bytes();
    let mut at = 0;
    while at < object.length() {
        // A body that ends early counts as a miss.
        let piece = object.read(at..object.length()).ok()?;
        assert!(
            !piece.is_empty(),
            "{context}: a read returns at least one byte"
        );
        let start = usize::try_from(at).expect("the number is small");
        assert!(
            piece == expected[start..start + piece.len()],
            "{context}: wrong bytes after {at} of {version:?}"
        );
        at += piece.len() as u64;
    }
    Some(version)
}

pub(crate) fn open(cache: &DiskCache, key: u64) -> Option<Result<DiskObject, Miss>> {
    let candidate = cache.lookup(KeyHash(key))?;
    Some(cache.read_head(&candidate, &Version::full_key(key)))
}

/// Returns 8 MiB of pseudo-random bytes.
fn noise() -> &'static Bytes {
    static NOISE: std::sync::OnceLock<Bytes> = std::sync::OnceLock::new();
    NOISE.get_or_init(|| {
        let words = (1..=NOISE_BYTES / 8).flat_map(|n| mix64(n).to_le_bytes());
        words.collect::<Vec<u8>>().into()
    })
}

const NOISE_BYTES: u64 = 8 << 20;
