//! The table of alerts. `edgeward generate alerts` writes it as rules of Prometheus, and as a page of the
//! documentation.
//!
//! The expressions name metrics of the tables of metrics. A test (`tests/whole_cli/monitoring`) compares metrics,
//! labels and the values of labels with these tables, makes each alert fire by promtool, and some of them by a real
//! edge.

/// A condition that an operator must hear of.
#[derive(Debug)]
pub(super) struct Alert {
    /// The name, without its prefix `Edgeward`.
    pub(super) name: &'static str,
    pub(super) severity: Severity,
    /// For how long the expression must have a result before the alert fires: a duration of Prometheus.
    pub(super) wait: &'static str,
    /// An expression in PromQL. Each series of its result is an alert.
    pub(super) expr: &'static str,
    /// One line with the object and the value, as a template of Prometheus.
    pub(super) summary: &'static str,
    /// The effect, and then the steps of the operator.
    pub(super) action: &'static str,
    /// The page below `docs` with more about it, and its section.
    pub(super) page: &'static str,
}

/// How soon an operator must act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    /// Clients get errors or wrong content, or will soon: call a person.
    Critical,
    /// Something is worse than it should be: within a day.
    Warning,
}

impl Severity {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
        }
    }
}

use Severity::{Critical, Warning};

/// The alerts by the name of their group.
///
/// Shares have no lower bound of traffic where a window of five minutes and the wait already exclude a single event.
pub(super) const GROUPS: [(&str, &[Alert]); 3] = [
    ("edgeward", EDGE),
    ("edgeward-link", LINK),
    ("edgeward-publisher", PUBLISHER),
];

const EDGE: &[Alert] = &[
    Alert {
        name: "Down",
        severity: Critical,
        wait: "2m",
        expr: r#"up{job=~".*edgeward.*"} == 0"#,
        summary: "{{ $labels.instance }} does not answer Prometheus.",
        action: "The process has ended, or its admin address is not reachable or refuses the scrape. See \
                 `systemctl status edgeward` and the log. A scrape with 421 needs the name in `admin.hosts`, one with \
                 401 a token.",
        page: "how-to/logs-and-metrics.md#admin-server",
    },
    Alert {
        name: "Absent",
        severity: Critical,
        wait: "5m",
        expr: r#"absent(up{job=~".*edgeward.*"})"#,
        summary: "Prometheus scrapes no edge.",
        action: "No target has a job whose name contains `edgeward`. Check `scrape_configs` or the ServiceMonitor; the \
                 other alerts cannot fire.",
        page: "how-to/monitoring.md#prometheus",
    },
    Alert {
        name: "RestartsOften",
        severity: Warning,
        wait: "0m",
        expr: "changes(process_start_time_seconds[30m]) > 3 and on (job, instance) edgeward_build_info",
        summary: "{{ $labels.instance }} has started {{ $value }} times in 30 minutes.",
        action: "The end of the log has the reason: an error at the start, a kill for memory, or the watchdog. An edge \
                 that restarts loses its connections, and without a disk its cache.",
        page: "how-to/systemd.md#start-it",
    },
    Alert {
        name: "Panicked",
        severity: Warning,
        wait: "0m",
        expr: "increase(edgeward_panics_total[15m]) > 0",
        summary: "{{ $labels.instance }} caught a panic in a {{ $labels.task }}.",
        action: "A panic is a defect of the program, and ended one connection or one fetch. The log has `panic:` with \
                 file and line. Please report it.",
        page: "how-to/overload.md#panics",
    },
    Alert {
        name: "HitRatioFell",
        severity: Warning,
        wait: "30m",
        expr: r#"(
  sum by (job, instance) (rate(edgeward_requests_total{outcome=~"hit|hit-stale"}[30m]))
    / sum by (job, instance) (rate(edgeward_requests_total[30m]))
) < 0.8 * (
  sum by (job, instance) (rate(edgeward_requests_total{outcome=~"hit|hit-stale"}[1d] offset 30m))
    / sum by (job, instance) (rate(edgeward_requests_total[1d] offset 30m))
)
and sum by (job, instance) (rate(edgeward_requests_total[30m])) > 1"#,
        summary: "The hit ratio of {{ $labels.instance }} fell to {{ $value | humanizePercentage }}, a fifth below \
                 that \
                  of the day before.",
        action: "After a restart without a warm cache or after a large purge this ends by itself. Otherwise compare \
                 misses by site on the dashboard, and ask `edgeward explain URL` why a URL that should be a hit is \
                 not: \
                 often a deployment has changed `Cache-Control`, `Vary`, `Set-Cookie` or the URLs.",
        page: "how-to/inspect.md#usual-causes",
    },
    Alert {
        name: "OriginDown",
        severity: Critical,
        wait: "1m",
        expr: "edgeward_origin_up == 0",
        summary: "All servers of the origin {{ $labels.origin }} fail, seen by {{ $labels.instance }}.",
        action: "Misses get 502 or, if `stale-if-error` allows it, a stale response. Check the servers and the network \
                 between them and the edge; `edgeward status` has the error of each server. The alert ends by itself \
                 when one of them answers.",
        page: "how-to/origins.md#servers-that-fail",
    },
    Alert {
        name: "OriginServerDown",
        severity: Warning,
        wait: "5m",
        expr: "edgeward_origin_server_up == 0 unless on (job, instance, origin) edgeward_origin_up == 0",
        summary: "The server {{ $labels.server }} of the origin {{ $labels.origin }} gets no requests from \
                  {{ $labels.instance }}.",
        action: "The other servers get its requests. Check it: it failed several requests in succession or its health \
                 checks.",
        page: "how-to/origins.md#servers-that-fail",
    },
    Alert {
        name: "OriginErrors",
        severity: Critical,
        wait: "10m",
        expr: "sum by (job, instance) (rate(edgeward_origin_errors_total[5m]))
  / sum by (job, instance) (rate(edgeward_origin_requests_total[5m])) > 0.05",
        summary: "{{ $value | humanizePercentage }} of the requests of {{ $labels.instance }} to origins have no \
                  complete response.",
        action: "`edgeward_origin_errors_total` has the causes: `connect` and `no-server` are servers that are down, \
                 timeouts are slow ones, `head-invalid` and `incomplete` are faulty responses. The log names the \
                 server.",
        page: "how-to/origins.md#watching",
    },
    Alert {
        name: "OriginAnswersErrors",
        severity: Warning,
        wait: "10m",
        expr: r#"sum by (job, instance, origin) (rate(edgeward_origin_responses_total{status="5xx"}[5m]))
  / sum by (job, instance, origin) (rate(edgeward_origin_responses_total[5m])) > 0.05"#,
        summary: "{{ $value | humanizePercentage }} of the responses of the origin {{ $labels.origin }} to \
                  {{ $labels.instance }} are 5xx.",
        action: "The origin is reachable and fails. Its own log has the reason; the access log of the edge has the \
                 URLs.",
        page: "how-to/origins.md#watching",
    },
    Alert {
        name: "OriginConnectionsUsedUp",
        severity: Warning,
        wait: "5m",
        expr: r#"edgeward_origin_waiting > 100 or rate(edgeward_requests_refused_total{status="503"}[5m]) > 0"#,
        summary: "Requests of {{ $labels.instance }} wait for a connection to the origin, or were answered with 503.",
        action: "The origin is slower than its share of requests, or `origin.connections_per_worker_max` is too low. \
                 `edgeward_origin_waits_total` and `edgeward_shed_total` tell waiting from overload.",
        page: "how-to/origins.md#watching",
    },
    Alert {
        name: "Overloaded",
        severity: Critical,
        wait: "1m",
        expr: "edgeward_overload_level > 0",
        summary: "{{ $labels.instance }} sheds load at level {{ $value }}.",
        action: "1 closes new connections, 2 also refuses requests that bypass the cache, 3 also misses, 4 all \
                 requests. \
                 `edgeward_overload_used_ratio` names the resource: give it more, or move traffic to another edge.",
        page: "how-to/overload.md#what-the-edge-sheds",
    },
    Alert {
        name: "NearOverload",
        severity: Warning,
        wait: "10m",
        expr: r#"edgeward_overload_used_ratio{resource=~"memory|descriptors"} > 0.9"#,
        summary: "{{ $labels.instance }} uses {{ $value | humanizePercentage }} of its bound of {{ $labels.resource \
                 }}.",
        action: "Above 100 % it sheds load. For memory, compare `edgeward_memory_bytes` with the sum of the budgets, \
                 and \
                 lower `hot.capacity` or raise `overload.memory_max`. For descriptors, raise the limit of open files.",
        page: "how-to/overload.md#the-bounds",
    },
    Alert {
        name: "WorkerStuck",
        severity: Critical,
        wait: "30s",
        expr: "edgeward_workers_stuck > 0",
        summary: "{{ $value }} workers of {{ $labels.instance }} have stopped to report.",
        action: "Their connections get no answer. The log has the last activity of each worker and the state of its \
                 thread: D waits for a disk. Restart the process, and set `watchdog.abort` so that it ends by itself.",
        page: "how-to/overload.md#stuck-workers",
    },
    Alert {
        name: "ClientConnectionsFull",
        severity: Warning,
        wait: "5m",
        expr: "edgeward_client_connections > 0.9 * edgeward_client_connections_max",
        summary: "{{ $labels.instance }} has {{ $value }} client connections, 90 % of its limit.",
        action: "At the limit idle connections are closed, then new ones. Raise `limits.connections_max` together with \
                 the limit of open files, or find the clients that open so many.",
        page: "how-to/overload.md#how-you-notice",
    },
    Alert {
        name: "ClientConnectionsDropped",
        severity: Critical,
        wait: "5m",
        expr: r#"sum by (job, instance, cause) (
  rate(edgeward_client_connections_closed_total{cause=~"connection-limit|connection-memory"}[5m])
) > 0"#,
        summary: "{{ $labels.instance }} closes {{ $value | humanize }} connections per second at a limit: \
                  {{ $labels.cause }}.",
        action: "`connection-limit`: no idle connection was left to close for a new one; raise \
                 `limits.connections_max`. \
                 `connection-memory`: connections hold too much memory; the log names an address.",
        page: "how-to/overload.md#how-you-notice",
    },
    Alert {
        name: "AcceptFails",
        severity: Critical,
        wait: "2m",
        expr: "rate(edgeward_accept_errors_total[5m]) > 0",
        summary: "{{ $labels.instance }} cannot accept connections.",
        action: "Usually the process has no free file descriptor: raise the limit of open files (`LimitNOFILE`).",
        page: "how-to/overload.md#the-bounds",
    },
    Alert {
        name: "MemoryPinned",
        severity: Warning,
        wait: "5m",
        expr: "edgeward_hot_pinned_bytes > 0.9 * edgeward_hot_pinned_bytes_max",
        summary: "Slow clients of {{ $labels.instance }} keep {{ $value | humanize1024 }}B of evicted objects in \
                 memory.",
        action: "Above the bound nothing is admitted to memory, and the slowest clients are disconnected. Raise \
                 `hot.capacity`, or the minimum rate of clients.",
        page: "explanation/memory.md",
    },
    Alert {
        name: "DiskOutOfService",
        severity: Critical,
        wait: "1m",
        expr: r#"edgeward_disk_state{state!="in-service"} == 1"#,
        summary: "The disk cache {{ $labels.device }} of {{ $labels.instance }} is {{ $labels.state }}.",
        action: "The device failed too often. The log has its error. Replace the device, then restart the edge; until \
                 then its objects are misses.",
        page: "how-to/disk-cache.md#when-something-is-wrong",
    },
    Alert {
        name: "DiskErrors",
        severity: Warning,
        wait: "0m",
        expr: "rate(edgeward_disk_write_errors_total[5m]) + rate(edgeward_disk_read_errors_total[5m]) > 0",
        summary: "The disk cache {{ $labels.device }} of {{ $labels.instance }} fails reads or writes.",
        action: "Each error costs a miss. Check the device (`dmesg`, `smartctl`) before it is taken out of service.",
        page: "how-to/disk-cache.md#when-something-is-wrong",
    },
    Alert {
        name: "DiskCorrupt",
        severity: Warning,
        wait: "0m",
        expr: "increase(edgeward_disk_checksum_failures_total[1h]) > 0 or edgeward_disk_devices_damaged > 0",
        summary: "Records or stores on a disk of {{ $labels.instance }} are corrupt.",
        action: "A corrupt record is a miss, and a damaged store is not used. `edgeward store` inspects it while the \
                 edge \
                 is stopped; records that become corrupt again and again show a failing device.",
        page: "how-to/disk-cache.md#when-something-is-wrong",
    },
    Alert {
        name: "DiskTooSlow",
        severity: Warning,
        wait: "15m",
        expr: r#"rate(edgeward_disk_fills_total{end="dropped"}[5m]) > 0"#,
        summary: "A disk of {{ $labels.instance }} is too slow for what is written to it.",
        action: "Objects are dropped because the writer's queue is full. Let fewer objects in (`disk.admission`), or \
                 use \
                 a faster device or several.",
        page: "how-to/disk-cache.md#choose-what-is-written",
    },
    Alert {
        name: "FleetCutOff",
        severity: Warning,
        wait: "2m",
        expr: "edgeward_fleet_cut_off == 1",
        summary: "{{ $labels.instance }} may lack purges of its fleet.",
        action: "The node cannot reach NATS, or cannot persist purges; the log has the reason. It refuses purges. By \
                 `fleet.nats.when_cut_off`, it serves, validates or refuses stored responses. Start NATS, or repair \
                 the network; the node then applies the purges that it lacks.",
        page: "how-to/fleet.md#share-purges",
    },
    Alert {
        name: "FleetUnreadable",
        severity: Warning,
        wait: "0m",
        expr: "increase(edgeward_fleet_unreadable_total[15m]) > 0",
        summary: "{{ $labels.instance }} cannot read messages of its fleet and has purged all its objects.",
        action: "Another node has a later version, or another program writes to the stream. Upgrade all nodes to one \
                 version, and let only nodes publish.",
        page: "how-to/fleet.md#share-purges",
    },
    Alert {
        name: "FleetDuplicateName",
        severity: Warning,
        wait: "2m",
        expr: "edgeward_fleet_duplicate_name == 1",
        summary: "{{ $labels.instance }} stays out of its fleet because another node has its name.",
        action: "Give one of both nodes another `fleet.name`; `duplicate_of` in `/status` has the URL of the other \
                 one. This node serves its clients alone until then.",
        page: "how-to/fleet.md#let-the-nodes-announce-themselves",
    },
    Alert {
        name: "CertificateExpires",
        severity: Warning,
        wait: "0m",
        expr: "(
  edgeward_certificate_expiry_timestamp_seconds
    unless on (job, instance) edgeward_certificate_expiry_timestamp_seconds
      == on (job, instance) min by (job, instance) (edgeward_acme_certificate_expiry_timestamp_seconds)
) - time() < 7 * 86400",
        summary: "A certificate file of {{ $labels.instance }} expires in {{ $value | humanizeDuration }}.",
        action: "Renew it; the edge notices the new file. `/status` has the end of each certificate. Certificates that \
                 the edge renews itself have the alert EdgewardCertificateNotRenewed.",
        page: "how-to/without-restart.md#renew-certificates",
    },
    Alert {
        name: "CertificateExpiresToday",
        severity: Critical,
        wait: "0m",
        expr: "edgeward_certificate_expiry_timestamp_seconds - time() < 86400",
        summary: "A certificate of {{ $labels.instance }} expires in {{ $value | humanizeDuration }}.",
        action: "Browsers then refuse the site. Renew it now: the file, or `edgeward acme renew NAME`. `/status` has \
                 the \
                 end of each certificate.",
        page: "how-to/certificates.md#watch-it",
    },
    Alert {
        name: "CertificateNotRenewed",
        severity: Warning,
        wait: "1h",
        expr: "edgeward_acme_consecutive_failures >= 3",
        summary: "{{ $labels.instance }} failed {{ $value }} times to renew the certificate of {{ $labels.name }}.",
        action: "`edgeward acme status` has the issuer's reason and the time of the next order. The usual causes are a \
                 name that leads elsewhere, a closed port 80, and a CAA record.",
        page: "how-to/certificates.md#watch-it",
    },
    Alert {
        name: "CertificateRefused",
        severity: Warning,
        wait: "0m",
        expr: r#"increase(edgeward_certificate_reads_total{result="refused"}[1h]) > 0"#,
        summary: "{{ $labels.instance }} refused a changed certificate file and keeps the old certificate.",
        action: "Certificate and key do not belong together, or a file cannot be read by the user of the process. The \
                 log names the file.",
        page: "how-to/without-restart.md#renew-certificates",
    },
    Alert {
        name: "OcspResponseExpires",
        severity: Warning,
        wait: "0m",
        expr: "edgeward_ocsp_expiry_timestamp_seconds - time() < 86400",
        summary: "An OCSP response of {{ $labels.instance }} expires in {{ $value | humanizeDuration }}.",
        action: "After its end it is not sent. Check the job that fetches it. A certificate with must-staple then \
                 fails.",
        page: "how-to/tls.md#ocsp-responses",
    },
    Alert {
        name: "ReloadRefused",
        severity: Warning,
        wait: "0m",
        expr: r#"increase(edgeward_reloads_total{result="refused"}[15m]) > 0"#,
        summary: "{{ $labels.instance }} refused a new configuration and keeps the old one.",
        action: "`edgeward check-config FILE` prints the errors with file and line.",
        page: "how-to/without-restart.md#reload-the-configuration",
    },
    Alert {
        name: "CredentialsRefused",
        severity: Warning,
        wait: "0m",
        expr: r#"increase(edgeward_credential_reads_total{result="refused"}[1h]) > 0"#,
        summary: "{{ $labels.instance }} refused a changed file of credentials and keeps the old ones.",
        action: "The bucket refuses requests as soon as the old credentials end. The log names the file and the fault.",
        page: "how-to/origins.md#a-bucket-of-s3",
    },
    Alert {
        name: "UpgradeFailed",
        severity: Warning,
        wait: "0m",
        expr: r#"increase(edgeward_process_upgrades_total{result="failed"}[15m]) > 0"#,
        summary: "{{ $labels.instance }} could not start its new program and carries on.",
        action: "The log has the error of the new process. The old program serves all requests.",
        page: "how-to/without-restart.md#upgrade-the-program",
    },
    Alert {
        name: "FilterStale",
        severity: Warning,
        wait: "5m",
        expr: "edgeward_negative_fresh == 0",
        summary: "The id filter of {{ $labels.path }} at {{ $labels.instance }} is too old to answer.",
        action: "All requests of the rule go to the origin. Check that the publisher runs and is reachable, and that \
                 its \
                 polls succeed; the log has the reason.",
        page: "how-to/negative-lookups.md#let-the-edge-answer",
    },
    Alert {
        name: "FilterRefused",
        severity: Warning,
        wait: "0m",
        expr: "increase(edgeward_negative_refused_total[1h]) > 0",
        summary: "{{ $labels.instance }} refused files of the id filter of {{ $labels.path }}.",
        action: "A signature, an epoch or a checksum is wrong: another key, a restored publisher, or changed bytes. \
                 The \
                 log has the reason.",
        page: "how-to/negative-lookups.md#back-up-and-restore-the-publisher",
    },
    Alert {
        name: "AccessLogLost",
        severity: Warning,
        wait: "5m",
        expr: "rate(edgeward_access_log_dropped_total[5m]) + rate(edgeward_access_log_lost_total[5m]) > 0",
        summary: "{{ $labels.instance }} loses {{ $value | humanize }} lines of the access log per second.",
        action: "The disk of the log is full or too slow, or the daemon does not listen. Requests are not affected.",
        page: "how-to/logs-and-metrics.md#access-log",
    },
    Alert {
        name: "PurgeFails",
        severity: Critical,
        wait: "0m",
        expr: "increase(edgeward_purge_failures_total[15m]) + \
                 increase(edgeward_invalidations_not_durable_total[15m]) > 0
  or increase(edgeward_disk_purges_not_durable_total[15m]) > 0
  or edgeward_purge_log_damaged > 0",
        summary: "{{ $labels.instance }} cannot persist purges, or found their log damaged.",
        action: "A purge that is not durable is forgotten by a restart, and old content returns. Check the disk of the \
                 log of purges and repeat the purges that failed. A damaged log counts all objects on disk as purged.",
        page: "how-to/purge.md#watch",
    },
];

const LINK: &[Alert] = &[
    Alert {
        name: "LinkDown",
        severity: Critical,
        wait: "1m",
        expr: "max by (job, instance) (edgeward_link_connections unless on (job, instance) edgeward_link_accepted_total)
  == 0",
        summary: "{{ $labels.instance }} has no connection to its gateway.",
        action: "Misses fail, or go past the link if it is so configured. `edgeward link status` has the reason of the \
                 last attempt: the network, the gateway, or a certificate.",
        page: "how-to/link.md#when-it-does-not-work",
    },
    Alert {
        name: "LinkDegraded",
        severity: Warning,
        wait: "10m",
        expr: r#"rate(edgeward_link_resent_bytes_total[5m])
  / on (job, instance, peer) rate(edgeward_link_wire_bytes_total{direction="sent"}[5m]) > 0.05
or rate(edgeward_link_lost_bodies_total[5m]) > 0"#,
        summary: "The link of {{ $labels.instance }} to {{ $labels.peer }} sends bytes twice or resets bodies.",
        action: "The peer lost chunks that were referenced, or connections break. Compare the stores: one that is too \
                 small or failing forgets chunks.",
        page: "how-to/link.md#when-it-does-not-work",
    },
    Alert {
        name: "LinkStoreFails",
        severity: Warning,
        wait: "0m",
        expr: "increase(edgeward_link_store_errors_total[15m]) + \
                 increase(edgeward_link_store_corrupt_chunks_total[15m]) > 0",
        summary: "The chunk store of {{ $labels.instance }} has errors or corrupt chunks.",
        action: "Bodies stay correct, and more bytes are sent. Check the device of the store.",
        page: "how-to/link.md#when-it-does-not-work",
    },
    Alert {
        name: "LinkCertificateExpires",
        severity: Warning,
        wait: "0m",
        expr: "edgeward_link_certificate_days_left < 14",
        summary: "The certificate of {{ $labels.endpoint }} for the link ends in {{ $value }} days, seen by \
                  {{ $labels.instance }}.",
        action: "The gateway closes connections of a certificate that has expired. Create a new one with \
                 `edgeward link keygen`.",
        page: "how-to/link.md#keys",
    },
];

const PUBLISHER: &[Alert] = &[
    Alert {
        name: "PublisherLags",
        severity: Warning,
        wait: "5m",
        expr: "edgeward_publish_lag_seconds > 300",
        summary: "The publisher {{ $labels.instance }} has not published ids for {{ $value | humanizeDuration }}.",
        action: "Filters become stale after `max_staleness`, and edges then ask the origin for all ids. Polls or \
                 scans of \
                 the database fail or take too long; the log has the error.",
        page: "how-to/negative-lookups.md#choose-max_staleness",
    },
    Alert {
        name: "PublisherDatabaseFails",
        severity: Warning,
        wait: "5m",
        expr: "increase(edgeward_publish_scans_failed_total[1h]) > 0 or \
                 increase(edgeward_publish_changes_failed_total[5m]) > 0",
        summary: "The publisher {{ $labels.instance }} cannot read ids from its database.",
        action: "The log has the error of the scan or of the changes query. New ids are not published meanwhile.",
        page: "how-to/negative-lookups.md#build-from-a-database",
    },
    Alert {
        name: "PublisherJournalFails",
        severity: Critical,
        wait: "0m",
        expr: "increase(edgeward_publish_journal_errors_total[15m]) > 0",
        summary: "The publisher {{ $labels.instance }} cannot write its journal or state.",
        action: "Posted ids are refused, so that writers must repeat them. Check the free space and the device.",
        page: "how-to/negative-lookups.md#back-up-and-restore-the-publisher",
    },
];
