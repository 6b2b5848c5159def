//! Metrics and status of the purges that the edge shares with its fleet.

use edgeward_fleet::StreamFacts;
use edgeward_metrics::{Definition, Family, metrics};
use serde_json::{Value, json};

use crate::path::worker::Shared;

metrics! {
    /// The stream of purges.
    const STREAM: StreamFacts = |facts| {
        Gauge "edgeward_fleet_stream_connected"
            "1 if the node is connected to the stream of its fleet's purges." { u64::from(facts.is_connected) }
        Counter "edgeward_fleet_stream_connections_total"
            "Connections to the stream that were established." { facts.connections }
        Gauge "edgeward_fleet_cut_off"
            "1 if the node may lack purges that were acknowledged longer than `fleet.nats.lag_max` ago." {
            u64::from(!facts.is_current)
        }
        Gauge "edgeward_fleet_lag_seconds"
            "Time since the node had all purges of the stream; 0 before it ever had." {
            facts.lag.unwrap_or_default().as_secs_f64()
        }
        Gauge "edgeward_fleet_lag_messages"
            "Messages of the stream that the node has not applied, as far as it knows." { facts.behind.unwrap_or(0) }
        Gauge "edgeward_fleet_position"
            "Sequence number of the stream up to which the node has applied all purges." {
            facts.position.unwrap_or(0)
        }
        Counter "edgeward_fleet_applied_total" "Messages of the stream that the node has applied." {
            facts.counts.applied
        }
        Counter "edgeward_fleet_repeated_total" "Messages that were delivered again and ignored." {
            facts.counts.repeated
        }
        Counter "edgeward_fleet_resubscribed_total"
            "Subscriptions that began again, because messages were missing or the subscription ended." {
            facts.counts.resubscribed
        }
        Counter "edgeward_fleet_purged_all_total"
            "Purges of all objects of the node, because it has joined or could not know which purges it lacks." {
            facts.counts.purged_all
        }
        Counter "edgeward_fleet_unreadable_total"
            "Messages that could not be read, for each of which all objects of the node were purged." {
            facts.unreadable
        }
        Gauge "edgeward_fleet_purges_unwritten"
            "1 if purges of the stream apply in memory only, because the log of purges cannot be written." {
            u64::from(facts.has_failed_write)
        }
        Gauge "edgeward_fleet_pending" "Messages of this node that wait for the stream." { facts.pending }
        Gauge "edgeward_fleet_pending_max" "Bound of the messages that wait for the stream." { facts.pending_max }
        Gauge "edgeward_fleet_pending_bytes" "Bytes of the messages of this node that wait for the stream." {
            facts.pending_bytes
        }
        Gauge "edgeward_fleet_queued_bytes" "Bytes of messages of the stream that the node has not applied yet." {
            facts.queued_bytes
        }
        Gauge "edgeward_fleet_buffer_bytes_max"
            "Bound of the pending bytes and of the queued bytes, `fleet.nats.buffer_bytes_max`." {
            facts.buffer_bytes_max
        }
    }
}

metrics! {
    /// The refused purges of one cause.
    const REFUSED: u64 ["cause"] = |count| {
        Counter "edgeward_fleet_purges_refused_total"
            "Requests to purge that the fleet did not acknowledge, by cause: `disconnected` from the stream, `busy`: \
             too many waited, `unanswered` by the stream in time, `not-applied` by this node in time." { *count }
    }
}

/// Returns the definitions of the metrics.
pub(super) fn definitions() -> Vec<Definition> {
    let mut definitions = STREAM.definitions();
    definitions.extend(REFUSED.definitions());
    definitions
}

/// Returns the metrics. None without a fleet.
pub(super) fn families(shared: &Shared) -> Vec<Family> {
    let Some(fleet) = &shared.cache.fleet else {
        return Vec::new();
    };
    let facts = fleet.stream.facts();
    let mut families = STREAM.of(&facts);
    let refused = facts.refused.iter();
    let rows: Vec<_> = refused
        .map(|(cause, count)| (vec![*cause], count))
        .collect();
    families.extend(REFUSED.families(&rows));
    families
}

/// Returns the status. Null without a fleet.
pub(super) fn status(shared: &Shared) -> Value {
    let Some(fleet) = &shared.cache.fleet else {
        return Value::Null;
    };
    let facts = fleet.stream.facts();
    json!({
        "connected": facts.is_connected,
        "cut_off": !facts.is_current,
        "lag_seconds": facts.lag.map(|lag| lag.as_secs_f64()),
        "lag_messages": facts.behind,
        "position": facts.position,
        "applied": facts.counts.applied,
        "purged_all": facts.counts.purged_all,
        "unreadable": facts.unreadable,
        "log_unwritable": facts.has_failed_write,
        "pending": facts.pending,
        "refused": facts.refused.iter().map(|(cause, count)| (cause.to_string(), json!(count)))
            .collect::<serde_json::Map<_, _>>(),
    })
}
