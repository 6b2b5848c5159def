//! Computes up to which time a publisher's ids are complete, and which snapshots a client needs for that.
//!
//! The publisher states: *all ids committed by time `c` are in a snapshot of epoch `epoch_min` or later, together with
//! the journal up to `head`*. The journal is the numbered list of added ids; `head` is its newest number. A client that
//! has all these ids may answer *absent* until `c + max_staleness`. Publishing a scan advances `c` and `epoch_min`, but
//! not `head`. A client with a snapshot older than `epoch_min` may lack ids of the scan, so the new `c` does not apply
//! to this client.
//!
//! A feed polls the changes of a database and sends their ids to the journal. If it cannot continue at its last
//! position, some ids are in neither the journal nor an older snapshot. The first scan that begins after the new feed
//! contains these ids, so the epoch of this scan is the new `epoch_min`.
//!
//! The module reads no clock. All times are those of the publisher's monotonic clock.

use std::time::Duration;

/// The source from which the publisher knows that it has all ids committed up to some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// A scan has all ids committed before it began. Posted ids are published before the next scan, but do
    /// not extend the time up to which ids are complete.
    Scans,
    /// Writers post each id and wait for the answer *before* they commit it. Then no committed id is
    /// missing at any time.
    Posts,
    /// A feed of the database's changes: each batch may state the time up to which the feed has sent all ids. The
    /// statement counts only if the feed continued at its last position, or if a scan that began after the feed is
    /// published.
    Feed,
}

/// The time up to which all committed ids are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoveredUntil {
    /// Unknown; the publisher makes no statement.
    Unknown,
    /// Up to a time of the monotonic clock.
    At(Duration),
    /// Up to now, at any time.
    Always,
}

/// The statements that a publisher may make about its completeness.
#[derive(Clone, Debug)]
pub struct Completeness {
    coverage: Coverage,
    /// The time up to which all committed ids are published.
    covers: CoveredUntil,
    /// The epoch of the oldest snapshot for which `covers` holds. `None` if no snapshot exists for it.
    epoch_min: Option<u64>,
    /// Until this time writers may commit ids that the publisher acknowledged and then lost.
    lost_until: Option<Duration>,
    /// The start of the feed of changes. `None` without a feed.
    feed_began: Option<Duration>,
    /// The epoch of the oldest snapshot that has, together with the feed, every id. `None` while no snapshot has.
    feed_epoch_min: Option<u64>,
}

impl Completeness {
    /// Creates the state of a publisher that starts.
    ///
    /// `stored_epoch` is the epoch of the snapshot in the state folder. `lost_until` is set if acknowledged ids
    /// may be missing from the state, because the state was damaged or restored from a backup. The writers of
    /// these ids commit them before `lost_until`. The publisher relies on posts again after it has published a
    /// scan that began at or after `lost_until`.
    pub fn start(
        coverage: Coverage,
        stored_epoch: Option<u64>,
        lost_until: Option<Duration>,
    ) -> Self {
        let continues =
            coverage == Coverage::Posts && lost_until.is_none() && stored_epoch.is_some();
        Self {
            coverage,
            // Ids posted before the restart were journaled before they were acknowledged; ids posted
            // during the restart were not acknowledged, so they were not committed.
            covers: if continues {
                CoveredUntil::Always
            } else {
                CoveredUntil::Unknown
            },
            epoch_min: stored_epoch.filter(|_| continues),
            lost_until,
            feed_began: None,
            feed_epoch_min: None,
        }
    }

    /// The time up to which all committed ids are published.
    pub const fn covers(&self) -> CoveredUntil {
        self.covers
    }

    /// The epoch of the oldest snapshot for which [`Self::covers`] holds. `None` if there is no such snapshot yet.
    pub const fn epoch_min(&self) -> Option<u64> {
        match self.coverage {
            Coverage::Feed => self.feed_epoch_min,
            Coverage::Scans | Coverage::Posts => self.epoch_min,
        }
    }

    /// Records that a feed of changes begins at `now`. If the feed continues at its last position, `continues` is
    /// the epoch of the snapshot that has, together with the journal, all ids committed before that position.
    pub fn record_feed_start(&mut self, now: Duration, continues: Option<u64>) {
        self.feed_began = Some(now);
        self.feed_epoch_min = continues;
        if self.coverage == Coverage::Feed {
            self.covers = CoveredUntil::Unknown;
        }
    }

    /// Returns true if the snapshots and the feed together have every id. This holds if the feed continued at its
    /// last position, or if a scan that began after the feed is published.
    pub const fn feed_has_every_id(&self) -> bool {
        self.feed_epoch_min.is_some()
    }

    /// Records that the feed has delivered all ids committed before `complete`.
    pub fn record_feed_progress(&mut self, complete: Duration) {
        if self.coverage == Coverage::Feed && self.feed_has_every_id() {
            let before = match self.covers {
                CoveredUntil::At(before) => before,
                _ => Duration::ZERO,
            };
            self.covers = CoveredUntil::At(complete.max(before));
        }
    }

    /// Records a published snapshot whose scan began at `began`.
    pub fn published(&mut self, began: Duration, epoch: u64) {
        if self.lost_until.is_some_and(|until| until <= began) {
            self.lost_until = None;
        }
        let began_after_feed = self.feed_began.is_some_and(|feed| feed <= began);
        if began_after_feed && self.feed_epoch_min.is_none() {
            self.feed_epoch_min = Some(epoch);
        }
        match self.coverage {
            // The feed's next batch states the time up to which it has all ids.
            Coverage::Feed => {}
            Coverage::Scans => {
                (self.covers, self.epoch_min) = (CoveredUntil::At(began), Some(epoch));
            }
            Coverage::Posts if self.covers == CoveredUntil::Always => {}
            Coverage::Posts => {
                self.covers = match self.lost_until {
                    None => CoveredUntil::Always,
                    Some(_) => CoveredUntil::At(began),
                };
                self.epoch_min = Some(epoch);
            }
        }
    }

    /// Returns true while acknowledged ids may be missing. The caller stores this flag in the state folder, so that
    /// it survives a restart.
    pub fn may_miss_acknowledged_ids(&self) -> bool {
        self.lost_until.is_some()
    }

    /// The earliest start of a scan after which the publisher relies on posts again. `None` if no acknowledged ids can
    /// be missing, or if the coverage is not [`Coverage::Posts`].
    pub fn scan_due_at(&self) -> Option<Duration> {
        self.lost_until.filter(|_| self.coverage == Coverage::Posts)
    }
}
