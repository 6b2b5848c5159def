//! The table of purges, which decides whether an object is purged.
//!
//! | purge | stored in | cost of checking an object |
//! |---|---|---|
//! | URL, host, tag, group | two hash tables: hash to newest stamps | two lookups for the URL, the host and each tag |
//! | prefix, pattern | a list, newest last | one comparison for each purge newer than the object |
//!
//! Both are bounded. If a bound is exceeded, the oldest purges are dropped. The stamp of the newest dropped purge is
//! the *floor*: all objects with an older stamp count as purged. A purge is therefore never lost; the price is a miss.

use std::collections::VecDeque;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::log::{RECORD_BYTES_MIN, Record};
use crate::positions::Positions;
use crate::scope::{
    Purge, Stamp, authority_of, hash_group, hash_host, hash_tag, hash_url, origin_of,
};
use crate::tags::{head_fields, visit_groups, visit_tags};

/// The effect on an object of the purges that are newer than its stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// No purge covers the object.
    Current,
    /// A soft purge covers the object: it may be used while it is revalidated.
    Soft,
    /// A hard purge covers the object, or purges that could cover it are unknown: it must not be used.
    Hard,
}

/// The bounds of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of URLs, hosts and tags. Each takes at most 56 bytes.
    pub entries_max: usize,
    /// The maximum number of prefixes and patterns.
    pub patterns_max: usize,
}

/// The content of a table, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableSize {
    /// The number of URLs, hosts and tags.
    pub entries: usize,
    /// The number of prefixes and patterns.
    pub patterns: usize,
    /// How often purges were dropped because of a bound, which raises the floor.
    pub floor_raises: u64,
}

/// The purges with which lookups compare the stamps of objects.
#[derive(Clone, Debug)]
pub struct PurgeTable {
    limits: Limits,
    hash_seed: u64,
    latest: Stamp,
    /// The stamp of the newest dropped purge. Objects with an older stamp count as purged.
    floor: Stamp,
    young: Generation,
    old: Generation,
    patterns: VecDeque<(Stamp, Purge)>,
    floor_raises: u64,
    positions: Positions,
}

/// Purges of URLs, hosts and tags, by the hash of the text. New purges go to the young generation. When it is full, it
/// becomes the old generation, and the purges of the old one are dropped.
#[derive(Clone, Debug, Default)]
struct Generation {
    purges: HashMap<u64, Newest>,
    /// The newest stamp in `purges`.
    newest: Stamp,
}

/// The stamps of the newest hard and soft purge of one URL, host or tag.
#[derive(Clone, Copy, Debug, Default)]
struct Newest {
    hard: Stamp,
    soft: Stamp,
}

impl Stamp {
    /// The stamp that is older than all purges, of an object whose newest purge is unknown. For example, the edge had
    /// no log of purges when the object was stored.
    pub const NONE: Self = Self(0);

    /// Returns the stamp before the first purge of an epoch. Only the low 24 bits of `epoch` are used, and 0
    /// becomes 1.
    pub fn start_of(epoch: u64) -> Self {
        Self((epoch % (1 << EPOCH_BITS)).max(1) << SEQUENCE_BITS)
    }

    /// Returns the stamp with a sequence number of an epoch.
    pub fn at(epoch: u64, sequence: u64) -> Self {
        Self(Self::start_of(epoch).0 + sequence % (1 << SEQUENCE_BITS))
    }

    /// Returns the sequence number.
    pub fn sequence(self) -> u64 {
        self.0 % (1 << SEQUENCE_BITS)
    }

    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Returns the epoch.
    pub fn epoch(self) -> u64 {
        self.0 >> SEQUENCE_BITS
    }
}

impl Default for Stamp {
    fn default() -> Self {
        Self::NONE
    }
}

impl PurgeTable {
    /// Returns a table without purges. `start` is the stamp of objects that are fetched before the first purge.
    pub fn new(limits: Limits, start: Stamp, hash_seed: u64) -> Self {
        Self {
            limits,
            hash_seed,
            latest: start,
            floor: Stamp::NONE,
            young: Generation::default(),
            old: Generation::default(),
            patterns: VecDeque::new(),
            floor_raises: 0,
            positions: Positions::default(),
        }
    }

    /// Returns the stamp of an object whose request is sent to the origin now.
    pub fn latest(&self) -> Stamp {
        self.latest
    }

    /// Returns the record of a new purge, for the log. Does not change the table; [`apply`](Self::apply) does.
    /// `earlier` is the number of earlier purges whose records are not applied yet.
    pub fn record(&self, purge: &Purge, earlier: u64) -> Record {
        let stamp = Stamp(self.latest.0 + earlier).next();
        match purge.scope.hash(self.hash_seed) {
            Some(hash) => Record::Hashed {
                stamp,
                soft: purge.soft,
                hash,
            },
            None => Record::Compared {
                stamp,
                purge: purge.clone(),
            },
        }
    }

    /// Applies a record of a new purge, or of a log that is being restored.
    pub fn apply(&mut self, record: Record) {
        match record {
            Record::Hashed { stamp, soft, hash } => {
                self.latest = self.latest.max(stamp);
                self.insert(stamp, soft, hash);
            }
            Record::Compared { stamp, purge } => {
                self.latest = self.latest.max(stamp);
                // A repeated purge replaces the earlier one.
                self.patterns.retain(|(_, known)| *known != purge);
                self.patterns.push_back((stamp, purge));
                if self.patterns.len() > self.limits.patterns_max
                    && let Some((dropped, _)) = self.patterns.pop_front()
                {
                    self.raise_floor(dropped);
                }
            }
            Record::State { latest, floor } => {
                self.latest = self.latest.max(latest);
                self.floor = self.floor.max(floor);
            }
            Record::Position { stamp, position } => {
                self.latest = self.latest.max(stamp);
                self.positions.add(stamp, position);
            }
        }
    }

    /// Returns the record of a new position in the stream of the fleet, for the log. `earlier` is the number of purges
    /// before it whose records are not applied yet.
    pub fn position_record(&self, position: Stamp, earlier: u64) -> Record {
        Record::Position {
            stamp: Stamp(self.latest.0 + earlier),
            position,
        }
    }

    /// Returns the positions in the stream of the fleet.
    pub fn positions(&self) -> &Positions {
        &self.positions
    }

    fn insert(&mut self, stamp: Stamp, soft: bool, hash: u64) {
        // Each generation has at most half of the entries. The old one is dropped as a whole, in constant time.
        let half = (self.limits.entries_max / 2).max(1);
        if self.young.purges.len() >= half && !self.young.purges.contains_key(&hash) {
            let dropped = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
            if dropped.newest > Stamp::NONE {
                self.raise_floor(dropped.newest);
            }
        }
        if self.young.purges.is_empty() {
            // Without this, the table would later grow and move all its entries while a purge waits.
            self.young.purges.reserve(half);
        }
        let newest = match self.young.purges.entry(hash) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(Newest::default()),
        };
        let newest = if soft {
            &mut newest.soft
        } else {
            &mut newest.hard
        };
        *newest = (*newest).max(stamp);
        self.young.newest = self.young.newest.max(stamp);
    }

    fn raise_floor(&mut self, dropped: Stamp) {
        self.floor = self.floor.max(dropped);
        self.floor_raises += 1;
    }

    /// Begins to check an object with this URL and stamp.
    pub fn check<'t>(&'t self, url: &[u8], since: Stamp) -> Check<'t> {
        let is_known_epoch = since == Stamp::NONE || since.epoch() == self.latest.epoch();
        let mut check = Check {
            table: self,
            since,
            verdict: Verdict::Current,
        };
        if !is_known_epoch || since < self.floor {
            // The table does not have all purges since the object's stamp.
            check.verdict = Verdict::Hard;
            return check;
        }
        if since >= self.latest {
            return check;
        }
        if check.has_hashed() {
            check.hash(hash_url(url, self.hash_seed));
            if let Some(host) = authority_of(url) {
                check.hash(hash_host(host, self.hash_seed));
            }
        }
        let newer = self
            .patterns
            .iter()
            .rev()
            .take_while(|(stamp, _)| *stamp > since);
        for (_, purge) in newer {
            let verdict = if purge.soft {
                Verdict::Soft
            } else {
                Verdict::Hard
            };
            if verdict > check.verdict && purge.scope.contains(url, &[]) {
                check.verdict = verdict;
            }
        }
        check
    }

    /// Returns the numbers of purges in the table.
    pub fn size(&self) -> TableSize {
        TableSize {
            entries: self.young.purges.len() + self.old.purges.len(),
            patterns: self.patterns.len(),
            floor_raises: self.floor_raises,
        }
    }

    /// Returns the records of a new log that restores this table.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let hashed = [&self.old, &self.young].into_iter().flat_map(|generation| {
            generation.purges.iter().flat_map(|(&hash, newest)| {
                let both = [(newest.hard, false), (newest.soft, true)];
                both.into_iter()
                    .filter(|(stamp, _)| *stamp > Stamp::NONE)
                    .map(move |(stamp, soft)| Record::Hashed { stamp, soft, hash })
            })
        });
        let compared = self.patterns.iter().map(|(stamp, purge)| Record::Compared {
            stamp: *stamp,
            purge: purge.clone(),
        });
        let state = Record::State {
            latest: self.latest,
            floor: self.floor,
        };
        let position = self.positions.newest();
        let position = position.map(|(stamp, position)| Record::Position { stamp, position });
        [state]
            .into_iter()
            .chain(hashed)
            .chain(compared)
            .chain(position)
    }

    /// Returns an upper bound of the bytes of [`records`](Self::records) in a log, without its header. It has two records
    /// for each URL, host or tag: a hard and a soft purge. Two more are the state and the position.
    pub fn records_bytes_max(&self) -> u64 {
        let size = self.size();
        let patterns: usize = self
            .patterns
            .iter()
            .map(|(_, purge)| purge.scope.to_string().len())
            .sum();
        let hashed = (2 + 2 * size.entries) * (RECORD_BYTES_MIN + 8);
        (hashed + size.patterns * RECORD_BYTES_MIN + patterns) as u64
    }
}

/// The check of one object, which begins with its URL and continues with its tags.
#[derive(Debug)]
pub struct Check<'t> {
    table: &'t PurgeTable,
    since: Stamp,
    verdict: Verdict,
}

impl Check<'_> {
    /// Checks one tag of the object.
    pub fn tag(&mut self, tag: &[u8]) {
        if self.verdict < Verdict::Hard && self.has_hashed() {
            self.hash(hash_tag(tag, self.table.hash_seed));
        }
    }

    /// Checks the tags and the cache groups in an object's head. `url` is the object's URL.
    pub fn head(&mut self, url: &[u8], head: &[u8]) {
        if self.verdict == Verdict::Hard || !self.has_hashed() {
            return;
        }
        let seed = self.table.hash_seed;
        let origin = origin_of(url).unwrap_or_default();
        for (name, value) in head_fields(head) {
            visit_tags(name, value, |tag| self.tag(tag));
            visit_groups(name, value, |group| {
                self.hash(hash_group(origin, group, seed));
            });
        }
    }

    /// Returns the verdict from the object's URL and the tags that were checked.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Returns true if any URL, host or tag was purged since the object's stamp. Otherwise no hash need be computed.
    fn has_hashed(&self) -> bool {
        self.table.young.newest > self.since || self.table.old.newest > self.since
    }

    /// Adds the purges with a hash to the verdict.
    fn hash(&mut self, hash: u64) {
        for generation in [&self.table.young, &self.table.old] {
            if let Some(newest) = generation.purges.get(&hash) {
                if newest.hard > self.since {
                    self.verdict = Verdict::Hard;
                } else if newest.soft > self.since {
                    self.verdict = self.verdict.max(Verdict::Soft);
                }
            }
        }
    }
}

/// The number of bits of an epoch: two logs have the same epoch with a probability of 6e-8.
const EPOCH_BITS: u32 = 24;

/// The number of bits of a sequence number: they suffice for 34 years at a thousand purges per second.
const SEQUENCE_BITS: u32 = 64 - EPOCH_BITS;

#[cfg(test)]
mod tests;
