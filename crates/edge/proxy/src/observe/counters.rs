//! The counters of a worker. Each counter is declared once, with its help text, in the table below; a metric with a set
//! of [`labels`](super::labels) has a counter for each value of the set. A scrape adds the counters of all workers and
//! other threads. Metrics read from the state of the cache are in `edge/metrics.rs`.

use std::sync::Arc;

use edgeward_metrics::{Kind, Metric, Series, Table};
use edgeward_overload::Work;
use edgeward_semantics::content_coding::Coding;
use http::StatusCode;

use super::causes::{
    CloseReason, CopyResult, Excess, KeyExchange, OfferResult, RefusedStatus, TunnelEnd,
};
pub(crate) use super::counter::Counter;
use super::labels::{Label, PerLabel};
use super::outcome::{ClientProtocol, RequestOutcome};

macro_rules! counters {
    ($( $kind:ident $metric:literal $help:literal {
        $( $field:ident $( = $label:literal $value:literal )? $( : $set:ident by $set_label:literal )? ),+ $(,)?
    } )+) => {
        /// The counters of one worker, on cache lines of their own.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct Counters {
            $( $( pub(crate) $field: counters!(@type $( $set )?), )+ )+
        }

        impl Counters {
            /// Returns counters that several threads may change at the same time.
            pub(crate) fn shared() -> Self {
                Self { $( $( $field: <counters!(@type $( $set )?)>::shared(), )+ )+ }
            }
        }

        /// All counters as metrics of an edge. A value is the sum over all workers and the other threads.
        pub(crate) const METRICS: Table<[Arc<Counters>]> = Table {
            labels: &[],
            metrics: &[ $( Metric {
                name: $metric,
                kind: Kind::$kind,
                help: $help,
                label: [ $( counters!(@optional $( $label )? $( $set_label )?) ),+ ][0],
                series: counters!(@series $( $field [ $( $value )? ] [ $( $set )? ] )+),
            }, )+ ],
        };
    };
    (@type) => { Counter };
    (@type $set:ident) => { PerLabel<$set, { <$set as Label>::LABELS.len() }> };
    (@optional) => { None };
    (@optional $text:literal) => { Some($text) };
    (@series $field:ident [] [ $set:ident ]) => {
        &series_of::<{ <$set as Label>::LABELS.len() }>(<$set as Label>::LABELS, |workers, index| {
            sum(workers, |counters| counters.$field.all()[index].value()) as f64
        })
    };
    (@series $( $field:ident [ $( $value:literal )? ] [] )+) => {
        &[ $( Series {
            label: counters!(@optional $( $value )?),
            index: 0,
            value: |workers, _| sum(workers, |counters| counters.$field.value()) as f64,
        } ),+ ]
    };
}

/// Returns the series of a metric whose counters are a [`PerLabel`].
const fn series_of<const N: usize>(
    labels: &[&'static str],
    value: fn(&[Arc<Counters>], usize) -> f64,
) -> [Series<[Arc<Counters>]>; N] {
    let (label, mut index) = (None, 0);
    let mut series = [Series {
        label,
        index,
        value,
    }; N];
    while index < N {
        series[index].label = Some(labels[index]);
        series[index].index = index;
        index += 1;
    }
    series
}

/// Returns the sum of a counter over all workers.
pub(crate) fn sum(workers: &[Arc<Counters>], counter: impl Fn(&Counters) -> u64) -> u64 {
    // A gauge of one worker may have wrapped below zero, but the sum over all workers has not.
    workers
        .iter()
        .fold(0, |sum, counters| sum.wrapping_add(counter(counters)))
}

counters! {
    Counter "edgeward_requests_total"
        "Requests, by outcome: a hit, or the reason for forwarding the request, as in RFC 9211 and as `cache` in the access log." {
        requests: RequestOutcome by "outcome",
    }
    Counter "edgeward_client_requests_total"
        "Requests of clients and of other nodes of the fleet, by protocol." { client_requests: ClientProtocol by "protocol" }
    Counter "edgeward_requests_collapsed_total" "Requests that were answered by the fetch of another request." {
        collapsed,
    }
    Counter "edgeward_invalidations_not_durable_total"
        "Responses to unsafe methods that were released although their invalidation was not durable on disk." {
        invalidations_not_durable,
    }
    Counter "edgeward_changes_dropped_total"
        "Changes of stored objects that were dropped because their key had a newer version, by kind of change." {
        dropped_insert = "change" "insert",
        dropped_refresh = "change" "refresh",
        dropped_promotion = "change" "promotion",
        dropped_removal = "change" "removal",
    }
    Counter "edgeward_requests_revalidated_total"
        "Requests answered by a stored response that the origin validated with 304." { revalidated }
    Counter "edgeward_requests_stale_on_error_total"
        "Requests answered by a stored response because the origin failed (RFC 5861) or could not be reached (RFC 9111)." {
        stale_on_error,
    }
    Counter "edgeward_background_revalidations_total"
        "Stale responses that were served while the edge validated them at the origin (RFC 5861, stale-while-revalidate)." {
        background_revalidations,
    }
    Counter "edgeward_response_bytes_total"
        "Body bytes sent to clients, and bytes that tunnels have sent to them, counted when they are written to the socket or, with HTTP/2, to the connection's buffer of up to 540 KB: when all requests have ended, the sum of `bytes` in the access log." {
        response_bytes,
    }
    Counter "edgeward_request_bytes_total" "Body bytes received from clients." { request_bytes }
    Counter "edgeward_responses_aborted_total" "Responses that ended early, by the side that failed." {
        aborted_origin = "by" "origin",
        aborted_client = "by" "client",
    }
    Counter "edgeward_requests_refused_total" "Requests answered with an error that the edge generated, by status." {
        refused: RefusedStatus by "status",
    }
    Counter "edgeward_request_bodies_too_large_total"
        "Request bodies larger than `request_body_max` or `limits.request_body_bytes_max`, by the time of the refusal." {
        bodies_declared_too_large = "refused" "declared", // by Content-Length, before the origin gets the request
        bodies_streamed_too_large = "refused" "streamed", // when the body exceeds the limit
    }
    Counter "edgeward_rule_answers_total"
        "Requests answered by a rule of their site without the cache and the origin, by answer." {
        denied = "answer" "deny",
        redirected = "answer" "redirect",
        answered = "answer" "page",
        rate_limited = "answer" "rate-limit",
    }
    Counter "edgeward_reloads_total" "Reloads of the configuration, by result." {
        reloads = "result" "applied",
        reloads_refused = "result" "refused", // the configuration is invalid, so nothing has changed
    }
    Counter "edgeward_admin_requests_refused_total"
        "Requests to the admin server that were refused because of their token, by reason." {
        admin_no_token = "reason" "no-token",
        admin_unknown_token = "reason" "unknown-token",
        admin_missing_role = "reason" "missing-role",
    }
    Counter "edgeward_shed_total" "Work that was shed because of overload, by class of work." {
        shed: Work by "work",
    }
    Counter "edgeward_shed_stale_total"
        "Requests answered by a stale response during an overload that sheds misses." { shed_stale }
    Counter "edgeward_panics_total"
        "Panics that were caught, by the part that has ended: a connection or HTTP/2 stream, a fetch, or one check of the limits." {
        panics_connection = "task" "connection",
        panics_fetch = "task" "fetch",
        panics_sweep = "task" "sweep",
    }
    Counter "edgeward_certificate_reads_total"
        "Changes of the files of certificates that the edge noticed, by result." {
        certificates_read = "result" "applied",
        certificates_refused = "result" "refused", // certificate and key do not belong together, or cannot be read
    }
    Counter "edgeward_credential_reads_total"
        "Changes of the files of credentials of buckets that the edge noticed, by result." {
        credentials_read = "result" "applied",
        credentials_refused = "result" "refused", // the file cannot be read or has no usable credentials
    }
    Counter "edgeward_process_upgrades_total"
        "Upgrades of the program: whether this process was started by one, and those that failed here." {
        process_upgrades = "result" "applied", // 1 in a process that has replaced another
        process_upgrades_failed = "result" "failed", // the new process did not start, so this process carries on
    }
    Gauge "edgeward_client_connections" "Client connections open." { connections }
    Counter "edgeward_client_connections_total" "Client connections accepted, by protocol." {
        accepted_h1 = "protocol" "http/1.1",
        accepted_h2 = "protocol" "h2",
        accepted_h3 = "protocol" "h3",
    }
    Counter "edgeward_client_tls_handshakes_total" "TLS handshakes of clients, also by QUIC, by the key exchange."
        { client_key_exchanges: KeyExchange by "key_exchange" }
    Counter "edgeward_client_connections_closed_total" "Client connections closed by the edge, by cause."
        { closed: CloseReason by "cause" }
    Counter "edgeward_proxy_headers_refused_total"
        "Connections closed because of their PROXY header (listener.proxy_protocol_from), by reason." {
        proxy_header_untrusted = "reason" "untrusted", // the peer is not one of the proxies
        proxy_header_missing = "reason" "missing",
        proxy_header_malformed = "reason" "malformed",
        proxy_header_too_long = "reason" "too-long",
        proxy_header_late = "reason" "late",
    }
    Counter "edgeward_h2_floods_total"
        "HTTP/2 connections closed with ENHANCE_YOUR_CALM, by the frames that exceeded their bound." {
        floods: Excess by "frames",
    }
    Counter "edgeward_h2_requests_refused_total"
        "HTTP/2 requests refused before they were served, by the bound that was reached." {
        h2_refused_fields = "bound" "headers-max", // too many header fields
        h2_refused_heads = "bound" "head-memory",
        h2_refused_memory = "bound" "connection-memory",
        h2_refused_orphans = "bound" "orphaned-fetches",
    }
    Counter "edgeward_h3_requests_refused_total"
        "HTTP/3 requests refused before they were served, by the bound that was reached." {
        h3_refused_streams = "bound" "streams", // too many requests under way
        h3_refused_fields = "bound" "head", // too many header fields, or too many bytes of them
        h3_refused_heads = "bound" "head-memory",
        h3_refused_memory = "bound" "connection-memory",
        h3_refused_orphans = "bound" "orphaned-fetches",
    }
    Gauge "edgeward_quic_handshakes" "QUIC handshakes under way." { quic_handshakes }
    Counter "edgeward_quic_attempts_total"
        "Attempts to open a QUIC connection that were not accepted, by the answer." {
        quic_retries = "answer" "retry", // the client must prove its address first
        quic_refused = "answer" "refused",
        quic_ignored = "answer" "none", // the address is not proven, so nothing is sent
    }
    Counter "edgeward_quic_datagrams_forwarded_total"
        "QUIC datagrams that reached another endpoint than that of their connection and were passed on to it, by its place." {
        quic_to_worker = "to" "worker", quic_to_process = "to" "process", // a process before an upgrade
    }
    Counter "edgeward_quic_datagrams_dropped_total"
        "QUIC datagrams that were not passed on because the queue of their endpoint was full." { quic_dropped }
    Counter "edgeward_slow_clients_total"
        "Requests and responses ended because the client was slower than the minimum rate." {
        slow_uploads = "direction" "upload",
        slow_responses = "direction" "response",
    }
    Counter "edgeward_uploads_kept_total"
        "Uploads that stayed buffered because too many other uploads held origin connections before their bodies had arrived." {
        uploads_kept,
    }
    Counter "edgeward_expectations_total"
        "Forwarded requests with `Expect: 100-continue`, by the origin's reaction before `origin.expect_timeout`." {
        expectations_continued = "end" "continued",
        expectations_refused = "end" "refused",
        expectations_timeout = "end" "timeout",
    }
    Counter "edgeward_read_ahead_total"
        "Responses that the edge read from the origin into memory while the client accepted no bytes." { read_ahead }
    Counter "edgeward_read_ahead_waits_total"
        "Times that reading ahead of a client was delayed by `limits.read_ahead_rate_max`." { read_ahead_waits }
    Counter "edgeward_accept_errors_total" "Failures to accept a connection, usually because of too many open files." {
        accept_errors,
    }
    Counter "edgeward_origin_requests_total" "Requests sent to the origin." { origin_requests }
    Counter "edgeward_origin_retries_total" "Requests sent again because the origin had closed the pooled connection." {
        origin_retries,
    }
    Counter "edgeward_origin_failovers_total" "Requests sent again to another server of the origin." {
        origin_failovers,
    }
    Counter "edgeward_origin_retries_denied_total"
        "Requests not sent to another server because the retry budget was used up." { origin_retries_denied }
    Counter "edgeward_origin_connects_total" "Connections opened to the origin." { origin_connects }
    Counter "edgeward_origin_tls_handshakes_total" "TLS handshakes with the origin, by the key exchange."
        { origin_key_exchanges: KeyExchange by "key_exchange" }
    Gauge "edgeward_origin_connections" "Connections to the origin, busy or idle." { origin_connections }
    Gauge "edgeward_origin_waiting" "Requests that wait for a connection to the origin." { origin_waiting }
    Counter "edgeward_origin_waits_total"
        "Requests that had to wait for a connection to the origin, by the end of the wait." {
        origin_waits_served = "end" "served",
        origin_waits_timeout = "end" "timeout",
        origin_waits_full = "end" "queue-full", // not queued, or removed from the full queue for another request
        origin_waits_given_up = "end" "given-up", // the request ended while it waited
    }
    Counter "edgeward_fetches_cancelled_total"
        "Exchanges with the origin whose clients had left, cancelled because a request waited for a connection or no response began within limits.abandoned_wait." {
        fetches_cancelled,
    }
    Counter "edgeward_origin_bytes_total" "Body bytes received from the origin." { origin_bytes }
    Counter "edgeward_origin_errors_total" "Requests that the origin did not answer completely, by cause." {
        origin_connect_failed = "cause" "connect",
        origin_connect_timeout = "cause" "connect-timeout",
        origin_busy = "cause" "connection-limit",
        origin_no_server = "cause" "no-server",
        origin_first_byte_timeout = "cause" "first-byte-timeout",
        origin_read_timeout = "cause" "read-timeout",
        origin_head_invalid = "cause" "head-invalid",
        origin_head_too_large = "cause" "head-too-large",
        origin_incomplete = "cause" "incomplete",
        origin_upgrade_failed = "cause" "upgrade",
    }
    Gauge "edgeward_tunnels" "Tunnels open: connections that have switched to WebSocket or another protocol." {
        tunnels,
    }
    Counter "edgeward_upgrades_total" "Requests for another protocol that were to be sent to the origin, by result." {
        upgrades_switched = "result" "switched",
        upgrades_answered = "result" "answered", // with an ordinary response
        upgrades_failed = "result" "failed", // no response, or a 101 for another protocol
        upgrades_limit = "result" "limit", // limits.tunnels_max
    }
    Counter "edgeward_tunnels_ended_total" "Tunnels that have ended, by cause."
        { tunnels_ended: TunnelEnd by "cause" }
    Counter "edgeward_tunnel_bytes_total" "Bytes that tunnels have forwarded, by direction." {
        tunnel_bytes_to_origin = "to" "origin",
        tunnel_bytes_to_client = "to" "client",
    }
    Counter "edgeward_encoded_responses_total" "Responses in a coding that the edge applied, by coding."
        { encoded: Coding by "coding" }
    Counter "edgeward_encodings_total" "Bodies to compress, by result." {
        encodings_made = "result" "made",
        encodings_no_gain = "result" "no-gain", // the coding saves too little
        encodings_busy = "result" "busy", // `compression.pending_bytes_max` was reached
        encodings_failed = "result" "failed", // the body could not be read from disk
    }
    Counter "edgeward_encoding_bytes_total"
        "Bytes of compressed bodies, before and after the compression, once for each coding." {
        encoding_input_bytes = "side" "input",
        encoding_output_bytes = "side" "output",
    }
    Counter "edgeward_dictionary_offers_total" "Offers of dictionaries for stored responses, by result."
        { dictionary_offers: OfferResult by "result" }
    Counter "edgeward_dictionary_saved_bytes_total" "Bytes by which deltas are shorter." { dictionary_saved_bytes }
    Counter "edgeward_extension_mismatches_total"
        "Responses that are not stored because their media type contradicts the extension of the path." {
        extension_mismatches,
    }
    Counter "edgeward_slices_read_total" "Slices that clients began to read, by source." {
        slices_from_memory = "source" "memory",
        slices_from_disk = "source" "disk",
        slices_from_origin = "source" "origin", // also the fetch of another request
    }
    Counter "edgeward_slice_fetches_total" "Fetches of slices, by result." {
        slices_fetched = "result" "slice",
        slices_changed = "result" "changed", // the origin has another version
        slices_ignored = "result" "ignored", // the origin sent no such part
        slices_failed = "result" "failed",
    }
    Counter "edgeward_slices_changed_total"
        "Responses for which the representation changed at the origin, by their end: sent again from the start, or broken." {
        slices_changed_restarted = "end" "restarted",
        slices_changed_broken = "end" "broken",
    }
    Counter "edgeward_ranges_passed_total"
        "Requests for a range without a stored response that were passed to the origin unchanged, by reason." {
        ranges_passed_form = "reason" "form", // slices are disabled, or several ranges, or HEAD
        ranges_passed_marked = "reason" "marked", // the target's last range could not be sliced
        ranges_passed_unusable = "reason" "unusable", // the origin's response cannot be sliced
        ranges_passed_fill = "reason" "fill", // a fetch of the whole response is under way, but far from the range
    }
    Gauge "edgeward_fills" "Fetches in progress that other requests may share." { fills }
    Counter "edgeward_fills_total" "Completed fetches that other requests could share, by end." {
        fills_stored = "end" "stored", // in memory or on disk
        fills_shared = "end" "shared", // complete, but in neither tier
        fills_released = "end" "released", // given to the leader alone
        fills_failed = "end" "failed",
        fills_freshened = "end" "freshened", // a 304 freshened the stored response
    }
    Counter "edgeward_not_stored_total" "Fetched responses that were not stored, by reason, without passed responses." {
        not_stored_semantics = "reason" "not-storable",
        not_stored_admission = "reason" "admission",
        not_stored_size = "reason" "object-size",
        not_stored_rule = "reason" "memory-rule",
        not_stored_fleet = "reason" "other-owner",
        not_stored_fill_memory = "reason" "fill-memory",
        not_stored_incomplete = "reason" "incomplete",
        not_stored_pinned = "reason" "pinned-memory",
    }
    Counter "edgeward_fleet_requests_total" "Requests to other nodes of the fleet, by result." {
        fleet_hits = "result" "hit",
        fleet_misses = "result" "miss",
        fleet_slow = "result" "slow", // no byte within fleet.wait, so the origin is asked
        fleet_failed = "result" "failed",
        fleet_purged = "result" "purged", // the node lacks a purge of its object, so the origin is asked
        fleet_refused = "result" "refused", // the node has answered with an error of its own
        fleet_invalidated = "result" "invalidated",
        fleet_not_invalidated = "result" "not-invalidated", // the node has not confirmed an invalidation
    }
    Counter "edgeward_fleet_waits_total"
        "Requests that waited for another node longer than `fleet.wait`, because the budget of fallbacks was used up." {
        fleet_waits,
    }
    Counter "edgeward_fleet_moved_total"
        "Requests for which another node stands in for the owner, because the owner's load has reached the bound." {
        fleet_moved,
    }
    Counter "edgeward_fleet_copies_total" "Answers of owners that this node could keep as copies, by result."
        { fleet_copies: CopyResult by "result" }
    Counter "edgeward_fleet_copy_hits_total" "Hits on copies of objects that another node owns." { fleet_copy_hits }
    Counter "edgeward_fleet_received_total" "Requests of other nodes of the fleet, by result." {
        fleet_received = "result" "accepted",
        fleet_unsigned = "result" "unsigned", // not signed with the key of the fleet
        fleet_loops = "result" "loop", // has passed through this node before
    }
    Counter "edgeward_collapse_timeouts_total"
        "Requests that were not collapsed because the head of the shared response did not arrive within `caching.collapse_wait_max`." {
        collapse_timeouts,
    }
    Counter "edgeward_collapse_full_total"
        "Fetches that began beside another fetch for the same key, because that one had `caching.collapse_followers_max` followers." {
        collapse_full,
    }
    Counter "edgeward_key_collisions_total" "Lookups that found another key with the same hash." { key_collisions }
    Counter "edgeward_variants_stored_total"
        "Responses that vary and were fetched for a new combination of the request fields that `Vary` names." {
        variants_new,
    }
    Counter "edgeward_variants_full_total"
        "Times that a URL had caching.variants_max variants and began again with a new one." { variants_full }
    Counter "edgeward_variants_shared_total"
        "Lookups that found a stored variant of another value of `Accept-Encoding` or `Accept` that answers the request." {
        variants_shared,
    }
    Counter "edgeward_head_fetches_total"
        "HEAD requests that were fetched with GET, so that later requests are hits." { head_fetches }
    Counter "edgeward_early_links_total"
        "Fetched responses with `Link` in a 103 before them, by the result: all links were kept with the response, or some were left out because of caching.early_links_bytes_max." {
        early_links_kept = "result" "kept",
        early_links_cut = "result" "cut",
    }
    Counter "edgeward_replaced_bodies_total"
        "Responses of the origin to whose bodies a rule's `replace` applies, by result: the strings are replaced, or the body is left as it is because the origin sent it with a coding or sent only a part of it." {
        bodies_replaced = "result" "replaced",
        bodies_kept_coded = "result" "coded",
        bodies_kept_partial = "result" "partial",
    }
    Counter "edgeward_invalidations_total" "Stored responses that were invalidated by an unsafe method." {
        invalidations,
    }
    Counter "edgeward_purged_found_total"
        "Lookups that found a purged response: not used after a hard purge, served and validated after a soft purge." {
        purged_hard = "purge" "hard",
        purged_soft = "purge" "soft",
    }
    Counter "edgeward_purges_uncounted_total"
        "Requests with PURGE or BAN whose objects were not counted, because more than `purge.count_objects_max` were stored." {
        purges_uncounted,
    }
    Counter "edgeward_path_rules_total"
        "Rules for the query of a path that `No-Vary-Search` set or changed, by whether memory stored the rule." {
        path_rules_set = "result" "stored",
        path_rules_refused = "result" "refused",
    }
    Counter "edgeward_path_rule_lookups_total" "Lookups that found a rule for the query of their path." {
        path_rule_lookups,
    }
    Counter "edgeward_disk_lookups_total" "Lookups on disk, by result." {
        disk_hit = "result" "hit",
        disk_stale = "result" "stale", // found, but not usable without the origin
        disk_absent = "result" "absent",
        disk_unreadable = "result" "unreadable", // in the index, but the record could not be read
        disk_busy = "result" "busy", // too many reads waited for the device
    }
    Counter "edgeward_disk_response_bytes_total" "Body bytes read from disk for clients." { disk_response_bytes }
    Counter "edgeward_disk_waits_total"
        "Reads that waited for the device on a separate thread, by part of the object." {
        disk_waited_heads = "of" "head",
        disk_waited_bodies = "of" "body",
    }
    Counter "edgeward_disk_admission_total" "Responses that could be stored, by the verdict of admission to disk." {
        disk_admitted = "verdict" "write",
        disk_refused_requests = "verdict" "too-few-requests",
        disk_refused_size = "verdict" "too-large",
        disk_refused_rule = "verdict" "rule",
    }
    Counter "edgeward_disk_fills_total" "Responses that were to be written to disk, by end." {
        disk_fills_written = "end" "written",
        disk_fills_refused = "end" "refused", // by the store, before the first byte
        disk_fills_dropped = "end" "dropped", // by the store, during the body
        disk_fills_aborted = "end" "aborted", // the body ended early or was invalidated
    }
    Counter "edgeward_disk_evicted_from_memory_total"
        "Objects with hits in memory that were written to disk when they were evicted from memory." { disk_evicted }
    Counter "edgeward_disk_promoted_total" "Objects that were promoted from disk to memory." { disk_promoted }
    Counter "edgeward_disk_bodies_broken_total"
        "Bodies whose remainder could not be read from disk, by how they ended: completed from the origin, or cut." {
        disk_body_resumed = "end" "resumed",
        disk_body_cut = "end" "cut",
    }
    Counter "edgeward_traces_dropped_total"
        "Sampled requests whose spans were not exported because a worker's queue was full." { traces_dropped }
    Counter "edgeward_access_log_dropped_total" "Lines missing from the access log because a worker's queue was full." {
        access_log_dropped,
    }
}

impl Counters {
    /// Counts a response with an error that the edge generated.
    pub(crate) fn count_refusal(&self, status: StatusCode) {
        self.refused[RefusedStatus::of(status)].increment();
    }
}
