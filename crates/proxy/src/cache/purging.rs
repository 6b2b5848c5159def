//! Purges: requests to purge objects, and the verdict on each response that a lookup finds.

use std::sync::Arc;

use edgeward_purge::{Limits, Purge, PurgeRequest, PurgeTable, Scope, Stamp, Verdict};
use edgeward_semantics::Target;
use edgeward_store::purges::PurgeError;
use http::{HeaderMap, StatusCode};
use tokio::sync::oneshot;

use super::disk::head::{self, DiskHead};
use super::key_parts::coding_of_key;
use super::key_parts::{primary_of, url_of};
use super::stored::{Stored, StoredKind, push_fields};
use super::successor::ForwardedChange;
use super::tiers::Cache;
use crate::base::config::PurgeConfig;

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
}

impl RejectedPurge {
    /// Returns the status of the response.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Url(_) => StatusCode::BAD_REQUEST,
            Self::Log(PurgeError::NoLog | PurgeError::Busy) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Log(_) | Self::NotDurable => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl Cache {
    /// Returns the purge with its URL in the form of a cache key, for example without the default port.
    fn canonical(&self, purge: Purge) -> Result<Purge, RejectedPurge> {
        let Purge { scope, soft } = purge;
        let Scope::Url(url) = &scope else {
            return Ok(Purge { scope, soft });
        };
        let key = url.split_once("://").and_then(|(scheme, rest)| {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let mut key = Vec::new();
            Target::new(scheme, authority, path)
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

    /// Accepts purges. Returns when they apply to all later requests, also after a crash. `from` is the client's
    /// address for the log message.
    pub(crate) async fn accept_purges(
        self: Arc<Self>,
        purges: Vec<Purge>,
        from: String,
    ) -> Result<(), RejectedPurge> {
        let mut for_table = Vec::new();
        let mut durable = Vec::new();
        let mut keys = Vec::new();
        // A rejected request must not be logged or counted in part.
        let purges: Result<Vec<Purge>, RejectedPurge> = purges
            .into_iter()
            .map(|purge| self.canonical(purge))
            .collect();
        for Purge { scope, soft } in purges? {
            tracing::info!(kind = scope.kind(), %scope, soft, from, "purge");
            self.accepted_purges.increment(&scope);
            match scope {
                // A purge of one URL needs no entry in the table: its object is removed. With classes, the URL may have
                // several objects.
                Scope::Url(url)
                    if !soft
                        && !self.live.config().site_urls.has_classes
                        && !self.disk.is_lost() =>
                {
                    keys.push(url);
                }
                Scope::Url(url) => {
                    let url_under_rule = self.url_under_rule(url.as_bytes());
                    durable.extend(self.purge_unread_rule(url.as_bytes()));
                    for url in std::iter::once(url).chain(url_under_rule) {
                        let scope = Scope::Url(url);
                        for_table.push(Purge { scope, soft });
                    }
                }
                scope => for_table.push(Purge { scope, soft }),
            }
        }
        for key in keys {
            durable.extend(self.purge_target(key.as_bytes()).1);
        }
        if !for_table.is_empty() {
            let (sender, accepted) = oneshot::channel();
            self.purge_scopes(for_table, move |result| {
                // The client may have disconnected.
                _ = sender.send(result);
            });
            accepted.await.unwrap_or(Err(PurgeError::Busy))?;
        }
        let Some(disk) = self.disk() else {
            return Ok(());
        };
        let all = async {
            for durable in durable {
                match durable.await {
                    Ok(Ok(())) => {}
                    _ => return false,
                }
            }
            true
        };
        match tokio::time::timeout(disk.invalidation_wait_max, all).await {
            Ok(true) => Ok(()),
            _ => Err(RejectedPurge::NotDurable),
        }
    }

    /// Adds purges to the table. Calls `done` when they apply and are durable, or with the error.
    pub(crate) fn purge_scopes(
        &self,
        purges: Vec<Purge>,
        done: impl FnOnce(Result<Stamp, PurgeError>) + Send + 'static,
    ) {
        self.successor
            .send(|| ForwardedChange::Purges(purges.clone()));
        self.purges.purge(purges, done);
    }

    /// Applies a change that the process before this one has accepted after this one was started.
    pub(crate) fn apply_forwarded(&self, change: ForwardedChange) {
        match change {
            ForwardedChange::Target(target) => drop(self.purge_target(&target)),
            // The process before this one waits for no result.
            ForwardedChange::Purges(purges) => self.purge_scopes(purges, |_| ()),
        }
    }

    /// Returns the numbers of responses in memory and on disk that the purges of a request would cover. Reads the heads
    /// of all objects, which takes seconds per million objects.
    pub(crate) fn count_covered(&self, request: &PurgeRequest) -> Result<[u64; 2], RejectedPurge> {
        let limits = Limits {
            entries_max: 4 * request.scopes.len(), // a URL may have a second one, under the rule of its path
            patterns_max: request.scopes.len(),
        };
        let before = Stamp::start_of(1);
        let mut table = PurgeTable::new(limits, before, 0);
        for purge in request.purges() {
            let Purge { scope, soft } = self.canonical(purge)?;
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
        let [mut in_memory, mut on_disk] = [0; 2];
        self.hot.for_each(|stored| {
            if let StoredKind::Response(response) = &stored.kind
                && !is_part(stored.key(), response.status)
            {
                let is_covered = is_covered(stored.key(), &response.head, stored.stamp());
                in_memory += u64::from(is_covered);
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
                {
                    on_disk += u64::from(is_covered(key, &fields, stamp));
                }
            });
        }
        Ok([in_memory, on_disk])
    }
}

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
