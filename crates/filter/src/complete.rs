//! Computes up to which time a publisher's ids are complete, and which snapshots a client needs for that.
//!
//! The publisher states: *all ids committed by time `c` are in a snapshot of epoch `epoch_min` or
//! later, together with the journal up to `head`*. A scan that is published changes `c` and
//! `epoch_min`, not `head`: a client that holds an older snapshot learns nothing from it. A feed that
//! cannot continue leaves ids in neither the journal nor an older snapshot; the first scan that begins
//! after the new feed has them, so its epoch is the new `epoch_min`.
//!
//! Pure: times are those of the publisher's monotonic clock.

use std::time::Duration;

/// The source from which the publisher knows that it has all ids committed up to some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// A scan covers all ids committed before it began. Posted ids are published earlier, but extend no
    /// guarantee.
    Scans,
    /// Writers post each id and wait for the answer *before* they commit it. Then no committed id is
    /// ever missing.
    Posts,
    /// A feed of the database's changes covers the ids up to the time that each batch states, once a
    /// scan that began after the feed is published.
    Feed,
}

/// The time up to which all committed ids are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Covers {
    /// Unknown: the publisher states nothing.
    Unknown,
    /// Up to a time of the monotonic clock.
    At(Duration),
    /// Up to now, at any time.
    Always,
}

/// The statements that a publisher may make about its completeness.
#[derive(Clone, Debug)]
pub struct Completeness {
    by: Coverage,
    covers: Covers,
    /// Epoch of the oldest snapshot that suffices. `None`: no snapshot does.
    sufficient: Option<u64>,
    /// Before this time writers may commit ids whose acknowledgement this publisher no longer has.
    lost_until: Option<Duration>,
    feed_began: Option<Duration>,
    /// Epoch of the oldest snapshot that has, together with the feed, every id.
    feed_sufficient: Option<u64>,
}

impl Completeness {
    /// Creates the state of a publisher that starts.
    ///
    /// `kept` is the epoch of the snapshot in the state folder. With `lost_until` acknowledged ids may
    /// be missing from the state (it was damaged, or restored from a backup), and their writers commit
    /// them before that time. Posts are relied on once a scan that began then is published.
    pub fn start(by: Coverage, kept: Option<u64>, lost_until: Option<Duration>) -> Self {
        let continues = by == Coverage::Posts && lost_until.is_none() && kept.is_some();
        Self {
            by,
            // Ids posted before the restart were journaled before they were acknowledged; ids posted
            // during the restart were not acknowledged, so they were not committed.
            covers: if continues {
                Covers::Always
            } else {
                Covers::Unknown
            },
            sufficient: kept.filter(|_| continues),
            lost_until,
            feed_began: None,
            feed_sufficient: None,
        }
    }

    /// The time up to which all committed ids are published.
    pub const fn covers(&self) -> Covers {
        self.covers
    }

    /// Epoch of the oldest snapshot that suffices. `None` if no snapshot does yet.
    pub const fn epoch_min(&self) -> Option<u64> {
        match self.by {
            Coverage::Feed => self.feed_sufficient,
            Coverage::Scans | Coverage::Posts => self.sufficient,
        }
    }

    /// A feed of changes begins at `now`. If it continues at its last position, the snapshot `kept` and
    /// the journal have all ids committed before that position.
    pub fn feed_begins(&mut self, now: Duration, continues: Option<u64>) {
        self.feed_began = Some(now);
        self.feed_sufficient = continues;
        if self.by == Coverage::Feed {
            self.covers = Covers::Unknown;
        }
    }

    /// True if the snapshots and the feed together miss no id: the feed continued, or a scan that began
    /// after the feed is published.
    pub const fn feed_is_whole(&self) -> bool {
        self.feed_sufficient.is_some()
    }

    /// The feed has brought all ids committed before `complete`.
    pub fn fed(&mut self, complete: Duration) {
        if self.by == Coverage::Feed && self.feed_is_whole() {
            let before = match self.covers {
                Covers::At(before) => before,
                _ => Duration::ZERO,
            };
            self.covers = Covers::At(complete.max(before));
        }
    }

    /// A snapshot is published whose scan began at `began`.
    pub fn published(&mut self, began: Duration, epoch: u64) {
        if self.lost_until.is_some_and(|until| until <= began) {
            self.lost_until = None;
        }
        let follows = self.feed_began.is_some_and(|feed| feed <= began);
        if follows && self.feed_sufficient.is_none() {
            self.feed_sufficient = Some(epoch);
        }
        match self.by {
            // The feed's next batch states up to when it is complete.
            Coverage::Feed => {}
            Coverage::Scans => (self.covers, self.sufficient) = (Covers::At(began), Some(epoch)),
            Coverage::Posts if self.covers == Covers::Always => {}
            Coverage::Posts => {
                self.covers = match self.lost_until {
                    None => Covers::Always,
                    Some(_) => Covers::At(began),
                };
                self.sufficient = Some(epoch);
            }
        }
    }

    /// True while acknowledged ids may be missing. The state folder keeps it over a restart.
    pub fn may_miss_posts(&self) -> bool {
        self.lost_until.is_some()
    }

    /// The earliest time at which a scan must begin so that posts can be relied on again. `None` if no scan is
    /// needed.
    pub fn scan_wanted_at(&self) -> Option<Duration> {
        self.lost_until.filter(|_| self.by == Coverage::Posts)
    }
}
