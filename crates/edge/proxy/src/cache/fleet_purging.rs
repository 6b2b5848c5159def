//! Purges of a fleet: they are sent to the stream of the fleet, and applied when the stream delivers them.
//!
//! A hard purge of one URL gets an entry in the table, too: another node may send the purged object after the purge,
//! and only the table shows that the object is older.

use std::sync::{Arc, Weak};

use edgeward_fleet::{Applied, ApplyDone, FollowingCache, PublishError};
use edgeward_purge::{Purge, Stamp};
use edgeward_store::purges::PurgeError;
use tokio::sync::oneshot;

use super::disk::Durable;
use super::successor::ForwardedChange;
use super::tiers::Cache;
use crate::config::FleetPurges;

impl Cache {
    /// Sends purges to the fleet. Returns when all later requests to this node see their effect. The other nodes apply
    /// them within milliseconds, or when they return.
    pub(super) async fn purge_fleet(
        &self,
        fleet: &FleetPurges,
        purges: Vec<Purge>,
        from: &str,
    ) -> Result<(), PublishError> {
        let (soft, hard): (Vec<_>, Vec<_>) = purges.into_iter().partition(|purge| purge.soft);
        for (purges, is_soft) in [(hard, false), (soft, true)] {
            if purges.is_empty() {
                continue;
            }
            let scopes = purges.into_iter().map(|purge| purge.scope).collect();
            let (done, published) = oneshot::channel();
            let done = Box::new(move |result| _ = done.send(result));
            fleet.stream.publish(scopes, is_soft, from, done);
            // A client of the stream that has ended drops the function.
            published.await.unwrap_or(Err(PublishError::Disconnected))?;
        }
        Ok(())
    }

    /// Returns the stamp of an object for another node. The nodes of a fleet share the numbers of its stream.
    pub(crate) fn stated_stamp(&self, own: Stamp) -> Stamp {
        match &self.fleet {
            Some(_) => self.purges.stated_stamp(own),
            None => own,
        }
    }

    /// Returns the stamp with which this node stores an object that another node has sent. Without a stream, the stamps
    /// of different nodes have no order; the operator then purges shields first.
    pub(crate) fn received_stamp(&self, stated: Stamp, asked_at: Stamp) -> Stamp {
        match &self.fleet {
            Some(_) => self.purges.received_stamp(stated, asked_at),
            None => asked_at,
        }
    }

    /// Begins to apply the purges of the fleet, if there is one.
    pub(crate) fn follow_fleet(self: &Arc<Self>) {
        if let Some(fleet) = &self.fleet {
            fleet
                .stream
                .follow(Arc::new(WeakCache(Arc::downgrade(self))));
        }
    }

    /// Applies purges that the stream has delivered, and persists them with the position.
    fn apply_fleet_purges(
        self: &Arc<Self>,
        purges: Vec<Purge>,
        position: Stamp,
        writes: bool,
        done: ApplyDone,
    ) {
        let mut for_table = Vec::new();
        let mut durable = Vec::new();
        for purge in purges {
            match self.canonical(purge) {
                Ok(purge) => {
                    self.accepted_purges
                        .record(&purge.scope, purge.soft, "the fleet");
                    durable.extend(self.table_purges(purge, &mut for_table));
                }
                // The node that published the purge has another version, which understands it.
                Err(error) => {
                    tracing::error!(%error, "a purge of the fleet is not understood: all objects count as purged");
                    for_table.push(Purge::all());
                }
            }
        }
        if durable.is_empty() {
            return self.persist_fleet_purges(for_table, position, writes, done);
        }
        let cache = Arc::clone(self);
        tokio::spawn(async move {
            if !cache.wait_durable(durable).await {
                tracing::error!(
                    "the disk does not confirm the removal of a purge of the fleet: all objects count as purged"
                );
                for_table.push(Purge::all());
            }
            cache.persist_fleet_purges(for_table, position, writes, done);
        });
    }

    fn persist_fleet_purges(
        &self,
        purges: Vec<Purge>,
        position: Stamp,
        writes: bool,
        done: ApplyDone,
    ) {
        if !purges.is_empty() {
            // The process that replaces this one begins at the position in the log, and may apply these purges again.
            let at_successor = self
                .successor
                .send(|| ForwardedChange::Purges(purges.clone()));
            drop::<Vec<Durable>>(at_successor);
        }
        let persisted = move |result: Result<Stamp, PurgeError>| {
            done(match result {
                Ok(_) => Applied::Persisted,
                Err(PurgeError::NotDurable(_)) => Applied::InMemory,
                Err(_) => Applied::Failed,
            });
        };
        self.purges.purge_up_to(position, purges, writes, persisted);
    }
}

/// The cache as the stream sees it. It ends with the edge.
struct WeakCache(Weak<Cache>);

impl FollowingCache for WeakCache {
    fn position(&self) -> Option<Stamp> {
        self.0.upgrade()?.purges.position()
    }

    fn apply(&self, purges: Vec<Purge>, position: Stamp, writes: bool, done: ApplyDone) {
        match self.0.upgrade() {
            Some(cache) => cache.apply_fleet_purges(purges, position, writes, done),
            None => done(Applied::Failed),
        }
    }
}
