//! Errors by cause, with what to do about each. The counts are those of metrics.

use serde_json::{Value, json};

use super::minutes::Minutes;
use super::tables::FAILED_CLASS;
use crate::observe::counters;
use crate::observe::origin_counters::STATUS_CLASSES;
use crate::path::worker::Shared;

/// A series whose growth is an error, and what to do about it.
struct Cause {
    metric: &'static str,
    /// The value of the label, or `""` for a metric without labels.
    label: &'static str,
    what: &'static str,
    hint: &'static str,
}

/// The counts of [`CAUSES`].
pub(super) type CauseSums = Vec<u64>;

/// Returns the counts. `failed_responses`: the responses of all origins with a status 5xx.
pub(super) fn sums(shared: &Shared, failed_responses: u64) -> CauseSums {
    let values = CAUSES.iter().map(|cause| {
        if cause.metric == RESPONSES {
            return failed_responses;
        }
        let metric = counters::METRICS.metric(cause.metric);
        let mut series = metric.iter().flat_map(|metric| metric.series);
        let found = series.find(|series| series.label.unwrap_or_default() == cause.label);
        found.map_or(0, |series| series.value_of(&shared.counters) as u64)
    });
    values.collect()
}

/// Returns the causes that occurred in the last hour, those of the last five minutes first.
pub(super) fn to_json(
    now: &CauseSums,
    minutes: &Minutes<CauseSums>,
    uptime: std::time::Duration,
) -> Value {
    let grown = |window: usize, at: usize| {
        let (_, before) = minutes.before(window, uptime);
        now[at].saturating_sub(before.get(at).copied().unwrap_or_default())
    };
    let mut rows = Vec::new();
    for (at, cause) in CAUSES.iter().enumerate() {
        let (recent, hour) = (grown(5, at), grown(60, at));
        if hour == 0 {
            continue;
        }
        let row = json!({
            "metric": cause.metric,
            "label": cause.label,
            "what": cause.what,
            "hint": cause.hint,
            "five_minutes": recent,
            "hour": hour,
            "since_start": now[at],
        });
        rows.push((recent, hour, row));
    }
    rows.sort_by_key(|(recent, hour, _)| std::cmp::Reverse((*recent, *hour)));
    rows.into_iter().map(|(_, _, row)| row).collect()
}

const fn cause(
    metric: &'static str,
    label: &'static str,
    what: &'static str,
    hint: &'static str,
) -> Cause {
    Cause {
        metric,
        label,
        what,
        hint,
    }
}

const ORIGIN: &str = "edgeward_origin_errors_total";
const RESPONSES: &str = "edgeward_origin_responses_total";
const REFUSED: &str = "edgeward_requests_refused_total";
const CLOSED: &str = "edgeward_client_connections_closed_total";
const SHED: &str = "edgeward_shed_total";
const NOT_STORED: &str = "edgeward_not_stored_total";

/// The page adds which resource it was.
const OVERLOAD: &str =
    "A resource exceeded its bound, so work is shed (refused): limit the load, or add more of it.";

const CAUSES: &[Cause] = &[
    cause(
        RESPONSES,
        STATUS_CLASSES[FAILED_CLASS],
        "The origin answered with a status 5xx",
        "See the column 5xx under Origins, and the log of that origin. Stale responses can help: stale_if_error of a \
         rule.",
    ),
    cause(
        ORIGIN,
        "connect",
        "The origin refused connections",
        "Check that the server runs and that the address and port of the origin are right.",
    ),
    cause(
        ORIGIN,
        "connect-timeout",
        "Connections to the origin timed out",
        "Check the network and firewalls on the way; origin.connect_timeout is the limit.",
    ),
    cause(
        ORIGIN,
        "connection-limit",
        "Requests waited too long for a connection to the origin",
        "The origin is slow or has too few connections: see its latency, then raise origin.connections_per_worker_max.",
    ),
    cause(
        ORIGIN,
        "no-server",
        "All servers of the origin are down",
        "See the states under Origins; health checks or failures have taken each server out.",
    ),
    cause(
        ORIGIN,
        "first-byte-timeout",
        "The origin did not begin its response in time",
        "Find the slow URLs in the origin's log; origin.first_byte_timeout is the limit.",
    ),
    cause(
        ORIGIN,
        "read-timeout",
        "The origin stopped sending within a response",
        "Look for stuck or restarted processes at the origin.",
    ),
    cause(
        ORIGIN,
        "head-invalid",
        "The origin sent a malformed response head",
        "The log of the edge has the reason; the page Malformed messages lists the rules.",
    ),
    cause(
        ORIGIN,
        "head-too-large",
        "The origin sent a response head above the limit",
        "Often too many cookies or very long policies in its fields.",
    ),
    cause(
        ORIGIN,
        "incomplete",
        "The origin ended responses before their length",
        "Look for crashes or timeouts of the application, or of a proxy before it.",
    ),
    cause(
        ORIGIN,
        "upgrade",
        "The origin failed to switch protocols",
        "WebSocket or another upgrade failed: see the origin's log.",
    ),
    cause(
        REFUSED,
        "400",
        "Malformed requests were refused",
        "Usually scanners. The access log has the clients and the detail.",
    ),
    cause(
        REFUSED,
        "408",
        "Clients did not send their requests in time",
        "Slow networks or attacks that hold connections; limits.request_head_timeout is the limit.",
    ),
    cause(
        REFUSED,
        "413",
        "Request bodies were too large",
        "If they are legitimate, raise limits.request_body_bytes_max or request_body_max of the site.",
    ),
    cause(
        REFUSED,
        "421",
        "Requests named a host that no site has",
        "Add the host to a site, or point its DNS elsewhere. The access log has the names.",
    ),
    cause(
        REFUSED,
        "431",
        "Request heads were too large",
        "Often too many cookies of one domain; limits.head_bytes_max is the limit.",
    ),
    cause(
        REFUSED,
        "502",
        "Clients got 502: the origin failed",
        "The rows about the origin on this page have the cause.",
    ),
    cause(
        REFUSED,
        "503",
        "Clients got 503: overload, or no server",
        "The rows about shed work and about the origin have the cause.",
    ),
    cause(
        REFUSED,
        "504",
        "Clients got 504: the origin was too slow",
        "See the latency under Origins. Stale responses can help: stale_if_error of a rule.",
    ),
    cause(
        REFUSED,
        "508",
        "Clients got 508: requests returned to this edge",
        "An origin, or a server behind it, leads back to this edge. Correct its URL.",
    ),
    cause(
        "edgeward_responses_aborted_total",
        "origin",
        "Responses ended early because the origin failed",
        "Clients saw a cut body. See the origin's log.",
    ),
    cause(
        CLOSED,
        "connection-limit",
        "New connections were closed at the limit",
        "Raise limits.connections_max if the machine has memory and descriptors for it.",
    ),
    cause(
        CLOSED,
        "crowded",
        "Idle connections were closed because all places were taken",
        "Raise limits.connections_max if the machine has memory and descriptors for it.",
    ),
    cause(
        CLOSED,
        "slow-response",
        "Clients read too slowly and were disconnected",
        "Slow networks or attacks; the minimum rate is a limit of the configuration.",
    ),
    cause(
        CLOSED,
        "tls-handshake",
        "TLS handshakes failed",
        "Scanners, old clients, or a certificate without the requested name.",
    ),
    cause(
        CLOSED,
        "pinned-memory",
        "Slow clients held too much memory of evicted objects",
        "See the page Slow clients; hot.pinned_bytes_max is the limit.",
    ),
    cause(
        CLOSED,
        "connection-memory",
        "Connections held too much memory",
        "limits.connections_bytes_max is the limit.",
    ),
    cause(
        CLOSED,
        "h2-flood",
        "HTTP/2 clients exceeded a bound of frames",
        "Usually an attack. The log has the addresses.",
    ),
    cause(
        SHED,
        "connection",
        "Connections were shed because of overload",
        OVERLOAD,
    ),
    cause(
        SHED,
        "miss",
        "Misses were shed because of overload",
        OVERLOAD,
    ),
    cause(
        SHED,
        "pass",
        "Requests that bypass the cache were shed because of overload",
        OVERLOAD,
    ),
    cause(SHED, "hit", "Hits were shed because of overload", OVERLOAD),
    cause(
        NOT_STORED,
        "fill-memory",
        "Responses were not stored because fills took too much memory",
        "Raise limits.fill_bytes_max, or let large objects pass by memory.",
    ),
    cause(
        "edgeward_origin_retries_denied_total",
        "",
        "Failed requests were not sent to another server: the retry budget is used up",
        "Many servers fail at once. See the states under Origins.",
    ),
    cause(
        "edgeward_reloads_total",
        "refused",
        "A reload was refused: the configuration is invalid",
        "edgeward check-config FILE shows the line.",
    ),
    cause(
        "edgeward_certificate_reads_total",
        "refused",
        "A changed certificate could not be used",
        "Certificate and key do not belong together, or cannot be read; the log has the file.",
    ),
    cause(
        "edgeward_credential_reads_total",
        "refused",
        "A changed file of bucket credentials could not be used",
        "The log has the file and the reason.",
    ),
    cause(
        "edgeward_process_upgrades_total",
        "failed",
        "An upgrade of the program failed",
        "The new process did not start; the log has its message.",
    ),
    cause(
        "edgeward_admin_requests_refused_total",
        "unknown-token",
        "Requests to the admin server had an unknown token",
        "A client has an old token, or guesses tokens.",
    ),
    cause(
        "edgeward_panics_total",
        "connection",
        "A connection ended by a panic",
        "A fault of the program: please report the lines of the log.",
    ),
    cause(
        "edgeward_panics_total",
        "fetch",
        "A fetch ended by a panic",
        "A fault of the program: please report the lines of the log.",
    ),
    cause(
        "edgeward_accept_errors_total",
        "",
        "Connections could not be accepted",
        "Usually too many open files: raise the hard limit (LimitNOFILE= in a systemd unit).",
    ),
    cause(
        "edgeward_disk_lookups_total",
        "unreadable",
        "Records on disk could not be read",
        "Check the device (dmesg, smartctl). The edge answered from the origin.",
    ),
    cause(
        "edgeward_disk_lookups_total",
        "busy",
        "The disk was too slow for the reads",
        "Add a device, or store fewer objects on disk by its admission.",
    ),
    cause(
        "edgeward_disk_bodies_broken_total",
        "cut",
        "Bodies were cut because the disk failed",
        "Check the device (dmesg, smartctl).",
    ),
    cause(
        "edgeward_access_log_dropped_total",
        "",
        "Lines of the access log were lost",
        "The log's destination is slower than the traffic.",
    ),
    cause(
        "edgeward_invalidations_not_durable_total",
        "",
        "Invalidations were not durable on disk in time",
        "The device of the log of purges is slow.",
    ),
];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_cause_is_a_series_of_the_metrics() {
        let of_workers = CAUSES.iter().filter(|cause| cause.metric != RESPONSES);
        for cause in of_workers {
            let metric = counters::METRICS.metric(cause.metric);
            let mut series = metric.iter().flat_map(|metric| metric.series);
            let is_found = series.any(|series| series.label.unwrap_or_default() == cause.label);
            assert!(is_found, "{} {}", cause.metric, cause.label);
        }
    }

    #[test]
    fn a_cause_is_listed_for_an_hour() {
        let mut minutes = Minutes::new(60);
        let mut counts = vec![0; CAUSES.len()];
        let at = |minute: u64| Duration::from_secs(60 * minute);
        for minute in 1..200 {
            if minute == 100 {
                counts[3] = 7;
            }
            minutes.add(at(minute), || counts.clone());
            let rows = to_json(&counts, &minutes, at(minute));
            let hour = rows[0]["hour"].as_u64();
            let is_listed = (100..160).contains(&minute);
            assert_eq!(hour, is_listed.then_some(7), "{minute}");
            let recent = rows[0]["five_minutes"].as_u64();
            let is_recent = (100..105).contains(&minute);
            assert_eq!(recent.is_some_and(|n| n == 7), is_recent, "{minute}");
        }
    }
}
