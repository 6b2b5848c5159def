//! Purges: requests to purge objects, and the verdict on each response that a lookup finds.

use std::sync::Arc;
use std::time::Duration;

use edgeward_fleet::PublishError;
use edgeward_purge::{Limits, Purge, PurgeTable, Scope, Stamp, Verdict};
use edgeward_semantics::{Target, encode_delimiters};
use edgeward_store::purges::PurgeError;
use http::{HeaderMap, StatusCode};
use tokio::sync::oneshot;

use super::disk::head::{self, DiskHead};
use super::disk::{DiskEntry, Durable};
use super::key_parts::{coding_of_key, primary_of, url_of};
use super::stored::{Stored, StoredKind, push_fields};
use super::successor::ForwardedChange;
use super::tiers::Cache;
use crate::config::PurgeConfig;

/// The reason why a request to purge fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RejectedPurge {
    #[error("`{0}` is not a URL that a client can request")]
    Url(Scope),
    #[error(transparent)]
    Log(#[from] PurgeError),
    #[error(
        "the purge applies now, but it is not durable: the disk cache did not write it in time"
    )]
    NotDurable,
    #[error(
        "a new process replaces this one, and the purge may not have reached it or the disk; send the purge again"
    )]
    NotAtSuccessor,
    #[error("the stored objects could not be counted; send the purge again")]
    Uncountable,
    #[error(transparent)]
    Fleet(#[from] PublishError),
}

impl RejectedPurge {
    /// Returns the status of the response.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Url(_) => StatusCode::BAD_REQUEST,
            Self::Log(PurgeError::NoLog | PurgeError::Busy)
            | Self::NotAtSuccessor
            | Self::Fleet(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Log(_) | Self::NotDurable | Self::Uncountable => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }
}

impl Cache {
    /// Returns the purge with its URL in the form of a cache key, for example without the default port and with encoded
    /// quotes.
    pub(super) fn canonical(&self, purge: Purge) -> Result<Purge, RejectedPurge> {
        let Purge { scope, soft } = purge;
        let url = match &scope {
            Scope::Url(url) => url,
            Scope::Prefix(prefix) => {
                let scope = Scope::Prefix(encode_delimiters(prefix).into());
                return Ok(Purge { scope, soft });
            }
            _ => return Ok(Purge { scope, soft }),
        };
        let key = url.split_once("://").and_then(|(scheme, rest)| {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let mut key = Vec::new();
            Target::new(scheme, authority, &encode_delimiters(path))
                .ok()?
                .write_key(&mut key);
            String::from_utf8(self.without_ignored_parameters(key)).ok()
        });
        match key {
            Some(key) => {
                let scope = Scope::Url(key.into());
                Ok(Purge { scope, soft })
            }
            None => Err(RejectedPurge::Url(scope)),
        }
    }

    /// Returns the URL with the canonical query if a response for `target` is stored under the rule of its path.
    fn url_under_rule(&self, target: &[u8]) -> Option<Box<str>> {
        let key = self.key_under_rule(target)?;
        let url = String::from_utf8(url_of(&key).to_vec()).ok()?;
        Some(url.into())
    }

    /// Returns the verdict on a response in memory. If no purge is newer than the response's stamp, this costs one
    /// comparison.
    #[inline]
    pub(crate) fn verdict(&self, primary: &[u8], stored: &Stored) -> Verdict {
        if stored.stamp() == self.purges.latest() {
            return Verdict::Current;
        }
        let head = &stored.response().head;
        let (verdict, checked) = self.purges.verdict(url_of(primary), head, stored.stamp());
        if verdict == Verdict::Current {
            stored.set_stamp(checked);
        }
        verdict
    }

    /// Returns true if a hard purge after `since` covers a response with these fields.
    pub(crate) fn is_purged(&self, primary: &[u8], headers: &HeaderMap, since: Stamp) -> bool {
        if since == self.purges.latest() {
            return false;
        }
        let mut head = Vec::new();
        push_fields(headers, &mut head);
        self.purges.verdict(url_of(primary), &head, since).0 == Verdict::Hard
    }

    /// Returns true if a purge is of one URL, and the key of its object follows from the URL. With classes, the URL may
    /// have several objects.
    fn has_one_key(&self, purge: &Purge) -> bool {
        matches!(purge.scope, Scope::Url(_)) && !self.live.config().site_urls.has_classes
    }

    /// Returns true if a purge removes its object at once: a hard purge of one URL. In a fleet, another node may still
    /// send the object.
    fn is_removal(&self, purge: &Purge) -> bool {
        self.has_one_key(purge) && !purge.soft && !self.disk.is_lost() && self.fleet.is_none()
    }

    /// Accepts purges and returns the number of stored objects that they cover, or `None` if more than `objects_max`
    /// are stored and the purges are not all of single URLs. A URL is counted by a lookup, as one object with all its
    /// variants.
    pub(crate) async fn purge_counted(
        self: Arc<Self>,
        purges: Vec<Purge>,
        objects_max: u64,
        from: String,
    ) -> Result<Option<u64>, RejectedPurge> {
        if purges.iter().all(|purge| self.is_removal(purge)) {
            return self.accept_purges(purges, from).await.map(Some);
        }
        let have_keys = purges.iter().all(|purge| self.has_one_key(purge));
        let counted = match have_keys || self.objects() <= objects_max {
            true => {
                let (cache, purges) = (Arc::clone(&self), purges.clone());
                let counted = tokio::task::spawn_blocking(move || match have_keys {
                    true => cache.count_by_keys(&purges),
                    false => cache.count_covered(&purges).map(|covered| covered.objects),
                });
                Some(counted.await.map_err(|_| RejectedPurge::Uncountable)??)
            }
            false => None,
        };
        self.accept_purges(purges, from).await?;
        Ok(counted)
    }

    /// Returns the number of URLs that have a stored response. May wait for the disk.
    fn count_by_keys(&self, purges: &[Purge]) -> Result<u64, RejectedPurge> {
        let mut count = 0;
        for purge in purges {
            if let Scope::Url(url) = self.canonical(purge.clone())?.scope {
                let under_rule = self.key_under_rule(url.as_bytes());
                let is_stored = self.has_unpurged(url.as_bytes())
                    || under_rule.is_some_and(|key| self.has_unpurged(&key));
                count += u64::from(is_stored);
            }
        }
        Ok(count)
    }

    /// Returns true if a tier has, under a primary key, a response that no hard purge covers, or the marker of
    /// variants. A marker stays when a purge covers its variants, so its stamp decides, if it has one.
    fn has_unpurged(&self, primary: &[u8]) -> bool {
        let is_unpurged = |fields: &[u8], stamp| {
            let (verdict, _) = self.purges.verdict(url_of(primary), fields, stamp);
            verdict != Verdict::Hard
        };
        let is_counted = |stored: &Stored| match &stored.kind {
            StoredKind::Response(response) => is_unpurged(&response.head, stored.stamp()),
            StoredKind::Varies(_) => {
                stored.stamp() == Stamp::NONE || is_unpurged(&[], stored.stamp())
            }
        };
        let hash = self.hash(primary);
        let in_memory = self.hot.peek(hash).filter(|stored| stored.has_key(primary));
        if in_memory.is_some_and(|stored| is_counted(&stored)) {
            return true;
        }
        match self.disk().map(|disk| disk.peek(hash, primary)) {
            Some(DiskEntry::Response(hit)) => is_unpurged(&hit.fields, hit.stamp),
            Some(DiskEntry::Marker(stored) | DiskEntry::Sliced(stored)) => is_counted(&stored),
            Some(DiskEntry::Absent | DiskEntry::Pending(_)) | None => false,
        }
    }

    /// Returns the number of stored objects. An object in both tiers counts twice.
    fn objects(&self) -> u64 {
        let on_disk = self.disk().map_or(0, |disk| {
            let counters = disk.cache.counters();
            counters.total(|device| device.objects)
        });
        self.hot.stats().objects + on_disk
    }

    /// Accepts purges. Returns when they apply to all later requests, also after a crash: the number of objects that
    /// were removed at once. `from` is the client's address for the log message.
    pub(crate) async fn accept_purges(
        self: Arc<Self>,
        purges: Vec<Purge>,
        from: String,
    ) -> Result<u64, RejectedPurge> {
        // A rejected request must not be logged or counted in part.
        let purges: Result<Vec<Purge>, RejectedPurge> = purges
            .into_iter()
            .map(|purge| self.canonical(purge))
            .collect();
        let purges = purges?;
        for Purge { scope, soft } in &purges {
            tracing::info!(kind = scope.kind(), %scope, soft, from, "purge");
        }
        if let Some(fleet) = &self.fleet {
            match self.purge_fleet(fleet, purges.clone(), &from).await {
                Ok(()) => return Ok(0),
                Err(PublishError::Disconnected) if fleet.purges_alone => {
                    tracing::warn!(
                        "the fleet cannot be reached: the other nodes do not learn of the purge"
                    );
                }
                Err(error) => return Err(error.into()),
            }
        }
        let mut for_table = Vec::new();
        let mut durable = Vec::new();
        let mut keys = Vec::new();
        for purge in purges {
            self.accepted_purges.record(&purge.scope, purge.soft, &from);
            let is_removal = self.is_removal(&purge);
            match purge.scope {
                // Such a purge needs no entry in the table.
                Scope::Url(url) if is_removal => keys.push(url),
                scope => {
                    let soft = purge.soft;
                    durable.extend(self.table_purges(Purge { scope, soft }, &mut for_table));
                }
            }
        }
        let mut removed = 0;
        for key in keys {
            let (found, more) = self.purge_target(key.as_bytes());
            self.remove_dictionaries(key.as_bytes());
            removed += u64::from(found);
            durable.extend(more);
        }
        if !for_table.is_empty() {
            let (sender, accepted) = oneshot::channel();
            durable.extend(self.purge_scopes(for_table, move |result| {
                // The client may have disconnected.
                _ = sender.send(result);
            }));
            accepted.await.unwrap_or(Err(PurgeError::Busy))?;
        }
        match self.wait_durable(durable).await {
            true => Ok(removed),
            false if self.successor.is_set() => Err(RejectedPurge::NotAtSuccessor),
            false => Err(RejectedPurge::NotDurable),
        }
    }

    /// Removes the dictionaries of a URL that is purged. An invalidation keeps them: clients may still use their
    /// copies.
    fn remove_dictionaries(&self, target: &[u8]) {
        self.dictionaries.remove_url(target);
        if let Some(url) = self.url_under_rule(target) {
            self.dictionaries.remove_url(url.as_bytes());
        }
    }

    /// Adds the purges that the table gets for a purge. Returns the removals that must be durable, too.
    pub(super) fn table_purges(&self, purge: Purge, table: &mut Vec<Purge>) -> Option<Durable> {
        let Purge { scope, soft } = purge;
        let Scope::Url(url) = scope else {
            table.push(Purge { scope, soft });
            return None;
        };
        let url_under_rule = self.url_under_rule(url.as_bytes());
        let durable = self.purge_unread_rule(url.as_bytes());
        for url in std::iter::once(url).chain(url_under_rule) {
            let scope = Scope::Url(url);
            table.push(Purge { scope, soft });
        }
        durable
    }

    /// Waits until changes are durable, for a bounded time. Returns false if one of them is not.
    pub(super) async fn wait_durable(&self, changes: Vec<Durable>) -> bool {
        let all = async {
            for change in changes {
                match change.await {
                    Ok(Ok(())) => {}
                    _ => return false,
                }
            }
            true
        };
        let waited = tokio::time::timeout(self.invalidation_wait_max(), all).await;
        waited.unwrap_or(false)
    }

    /// Returns the longest wait for a purge or invalidation to become durable.
    pub(crate) fn invalidation_wait_max(&self) -> Duration {
        // Without a disk, only the process that replaces this one is waited for.
        let disk = self.disk();
        disk.map_or(WAIT_MAX, |disk| disk.invalidation_wait_max)
    }

    /// Adds purges to the table. Calls `done` when they apply and are durable, or with the error. Returns receivers
    /// that resolve when the process that replaces this one has the purges.
    pub(crate) fn purge_scopes(
        &self,
        purges: Vec<Purge>,
        done: impl FnOnce(Result<Stamp, PurgeError>) + Send + 'static,
    ) -> Vec<Durable> {
        let at_successor = self
            .successor
            .send(|| ForwardedChange::Purges(purges.clone()));
        self.purges.purge(purges, done);
        at_successor
    }

    /// Applies a change that the process before this one has accepted after this one was started.
    pub(crate) fn apply_forwarded(&self, change: ForwardedChange) {
        match change {
            ForwardedChange::Target(target) => {
                drop(self.purge_target(&target));
                self.remove_dictionaries(&target);
            }
            // The process before this one waits for no result.
            ForwardedChange::Purges(purges) => drop(self.purge_scopes(purges, |result| {
                if let Err(error) = result {
                    tracing::error!(%error, "a purge of the process before this one is lost");
                }
            })),
        }
    }

    /// Returns the numbers of responses that purges would cover. Reads the heads of all objects, which takes seconds
    /// per million objects.
    pub(crate) fn count_covered(&self, purges: &[Purge]) -> Result<Covered, RejectedPurge> {
        let limits = Limits {
            entries_max: 4 * purges.len(), // a URL may have a second one, under the rule of its path
            patterns_max: purges.len(),
        };
        let before = Stamp::start_of(1);
        let mut table = PurgeTable::new(limits, before, 0);
        for purge in purges {
            let Purge { scope, soft } = self.canonical(purge.clone())?;
            let under_rule = match &scope {
                Scope::Url(url) => self.url_under_rule(url.as_bytes()).map(Scope::Url),
                _ => None,
            };
            for scope in std::iter::once(scope).chain(under_rule) {
                let record = table.record(&Purge { scope, soft }, 0);
                table.apply(record);
            }
        }
        let is_covered = |key: &[u8], head: &[u8], stamp: Stamp| {
            let url = url_of(primary_of(key));
            let mut check = table.check(url, before);
            check.head(url, head);
            check.verdict() != Verdict::Current
                && self.purges.verdict(url, head, stamp).0 != Verdict::Hard
        };
        let mut covered = Covered::default();
        self.hot.for_each(|stored| {
            if let StoredKind::Response(response) = &stored.kind
                && !is_part(stored.key(), response.status)
            {
                let is_covered = is_covered(stored.key(), &response.head, stored.stamp());
                covered.in_memory += u64::from(is_covered);
                covered.objects += u64::from(is_covered);
            }
        });
        if let Some(disk) = self.disk() {
            disk.cache.for_each_head(|key, head| {
                if let Ok(DiskHead::Response {
                    status,
                    stamp,
                    fields,
                    ..
                }) = head::parse(head)
                    && !is_part(key, status)
                    && is_covered(key, &fields, stamp)
                {
                    covered.on_disk += 1;
                    let in_memory = self.hot.peek(self.hash(key));
                    let is_in_memory = in_memory.is_some_and(|stored| stored.has_key(key));
                    covered.objects += u64::from(!is_in_memory);
                }
            });
        }
        Ok(covered)
    }
}

/// The numbers of responses that purges cover.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Covered {
    pub(crate) in_memory: u64,
    pub(crate) on_disk: u64,
    /// The responses in any tier. One that is in both tiers counts once.
    pub(crate) objects: u64,
}

/// The longest wait for the process that replaces this one, in an edge without a disk.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Returns true for slices, which have the status 206, and for encodings. Their response counts once, by its entry.
fn is_part(key: &[u8], status: StatusCode) -> bool {
    status == StatusCode::PARTIAL_CONTENT || coding_of_key(key).is_some()
}

impl PurgeConfig {
    /// Returns the bounds of the table of purges.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            entries_max: self.entries_max.get(),
            patterns_max: self.patterns_max.get(),
        }
    }
}
