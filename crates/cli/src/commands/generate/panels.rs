//! The table of panels of the dashboard: which metrics each panel shows. `dashboard` makes queries, units, legends and
//! descriptions of them, by the tables of metrics.

/// The panels under one heading.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) title: &'static str,
    pub(super) panels: &'static [Panel],
}

/// A plot over time.
#[derive(Debug)]
pub(super) struct Panel {
    pub(super) title: &'static str,
    pub(super) curves: &'static [Curves],
}

/// The curves of one metric. An instance has curves of its own.
#[derive(Debug)]
pub(super) enum Curves {
    /// The sum by labels: of a counter its rate, of a gauge its value.
    Sum(&'static str, &'static [&'static str]),
    /// The sum by labels of the series that a matcher selects.
    Part(&'static str, &'static str, &'static [&'static str]),
    /// The rate of the series that the matcher selects, divided by the rate of all series, by labels.
    Share(&'static str, &'static str, &'static [&'static str]),
    /// The first metric divided by the second.
    Ratio(&'static str, &'static str),
    /// The median and the 99th percentile of a histogram, by labels.
    Quantiles(&'static str, &'static [&'static str]),
    /// The time until a time in seconds since 1970.
    Until(&'static str, &'static [&'static str]),
}

use Curves::{Part, Quantiles, Ratio, Share, Sum, Until};

const HITS: &str = r#"outcome=~"hit|hit-stale""#;

pub(super) const ROWS: &[Row] = &[
    Row {
        title: "Traffic",
        panels: &[
            Panel {
                title: "Hit ratio",
                curves: &[Share("edgeward_requests_total", HITS, &[])],
            },
            Panel {
                title: "Requests by outcome",
                curves: &[Sum("edgeward_requests_total", &["outcome"])],
            },
            Panel {
                title: "Bytes to clients and from origins",
                curves: &[
                    Sum("edgeward_response_bytes_total", &[]),
                    Sum("edgeward_origin_bytes_total", &[]),
                ],
            },
            Panel {
                title: "Responses by status",
                curves: &[Sum("edgeward_responses_total", &["status"])],
            },
            Panel {
                title: "Time until a response has ended",
                curves: &[Quantiles("edgeward_request_duration_seconds", &["outcome"])],
            },
            Panel {
                title: "Errors that the edge generated",
                curves: &[Sum("edgeward_requests_refused_total", &["status"])],
            },
            Panel {
                title: "Client connections",
                curves: &[
                    Sum("edgeward_client_connections", &[]),
                    Sum("edgeward_client_connections_max", &[]),
                ],
            },
            Panel {
                title: "Connections closed by the edge",
                curves: &[Sum("edgeward_client_connections_closed_total", &["cause"])],
            },
        ],
    },
    Row {
        title: "Sites",
        panels: &[
            Panel {
                title: "Requests by site",
                curves: &[Sum("edgeward_responses_total", &["site"])],
            },
            Panel {
                title: "Misses by cause",
                curves: &[Sum("edgeward_site_misses_total", &["cause"])],
            },
            Panel {
                title: "Share of bytes from the cache by site",
                curves: &[Share("edgeward_response_body_bytes_total", HITS, &["site"])],
            },
            Panel {
                title: "Bytes of misses by site",
                curves: &[Part(
                    "edgeward_response_body_bytes_total",
                    r#"outcome="miss""#,
                    &["site"],
                )],
            },
        ],
    },
    Row {
        title: "Origins",
        panels: &[
            Panel {
                title: "Origins that answer",
                curves: &[Sum("edgeward_origin_up", &["origin"])],
            },
            Panel {
                title: "Latency of origins",
                curves: &[Quantiles("edgeward_origin_latency_seconds", &["origin"])],
            },
            Panel {
                title: "Share of 5xx by origin",
                curves: &[Share(
                    "edgeward_origin_responses_total",
                    r#"status="5xx""#,
                    &["origin"],
                )],
            },
            Panel {
                title: "Requests without a complete response",
                curves: &[Sum("edgeward_origin_errors_total", &["cause"])],
            },
            Panel {
                title: "Requests by server",
                curves: &[Sum(
                    "edgeward_origin_server_requests_total",
                    &["origin", "server"],
                )],
            },
            Panel {
                title: "Connections and waiting requests",
                curves: &[
                    Sum("edgeward_origin_connections", &[]),
                    Sum("edgeward_origin_waiting", &[]),
                ],
            },
        ],
    },
    Row {
        title: "Cache",
        panels: &[
            Panel {
                title: "Memory tier",
                curves: &[
                    Sum("edgeward_hot_used_bytes", &[]),
                    Sum("edgeward_hot_capacity_bytes", &[]),
                    Sum("edgeward_hot_pinned_bytes", &[]),
                ],
            },
            Panel {
                title: "Admitted, evicted and not admitted",
                curves: &[
                    Sum("edgeward_hot_admitted_total", &[]),
                    Sum("edgeward_hot_evicted_total", &[]),
                    Sum("edgeward_hot_refused_total", &["reason"]),
                ],
            },
            Panel {
                title: "Disk used",
                curves: &[
                    Sum("edgeward_disk_used_bytes", &["device"]),
                    Sum("edgeward_disk_capacity_bytes", &["device"]),
                ],
            },
            Panel {
                title: "Bytes written to and read from disk",
                curves: &[
                    Sum("edgeward_disk_written_bytes_total", &["device"]),
                    Sum("edgeward_disk_read_bytes_total", &["device"]),
                ],
            },
            Panel {
                title: "Lookups on disk",
                curves: &[Sum("edgeward_disk_lookups_total", &["result"])],
            },
            Panel {
                title: "Responses that were not stored",
                curves: &[Sum("edgeward_not_stored_total", &["reason"])],
            },
            Panel {
                title: "Purges",
                curves: &[
                    Sum("edgeward_purges_total", &["scope"]),
                    Sum("edgeward_purge_failures_total", &[]),
                ],
            },
        ],
    },
    Row {
        title: "Process",
        panels: &[
            Panel {
                title: "Processor",
                curves: &[Sum("process_cpu_seconds_total", &[])],
            },
            Panel {
                title: "Memory",
                curves: &[
                    Sum("edgeward_memory_bytes", &[]),
                    Sum("process_resident_memory_bytes", &[]),
                ],
            },
            Panel {
                title: "Use of the bounds of overload",
                curves: &[Sum("edgeward_overload_used_ratio", &["resource"])],
            },
            Panel {
                title: "Level of overload, stuck workers",
                curves: &[
                    Sum("edgeward_overload_level", &[]),
                    Sum("edgeward_workers_stuck", &[]),
                ],
            },
            Panel {
                title: "Open files",
                curves: &[Ratio("process_open_fds", "process_max_fds")],
            },
            Panel {
                title: "Lost lines of the access log",
                curves: &[
                    Sum("edgeward_access_log_dropped_total", &[]),
                    Sum("edgeward_access_log_lost_total", &[]),
                ],
            },
            Panel {
                title: "Time until certificates expire",
                curves: &[
                    Until("edgeward_certificate_expiry_timestamp_seconds", &[]),
                    Until(
                        "edgeward_acme_certificate_expiry_timestamp_seconds",
                        &["name"],
                    ),
                ],
            },
            Panel {
                title: "Answers of id filters",
                curves: &[Sum("edgeward_negative_asked_total", &["path", "answer"])],
            },
        ],
    },
    #[cfg(feature = "link")]
    Row {
        title: "Link",
        panels: &[
            Panel {
                title: "Bytes of bodies, and bytes on the link",
                curves: &[
                    Sum("edgeward_link_body_bytes_total", &["direction"]),
                    Sum("edgeward_link_wire_bytes_total", &["direction"]),
                ],
            },
            Panel {
                title: "Connections and streams",
                curves: &[
                    Sum("edgeward_link_connections", &["peer"]),
                    Sum("edgeward_link_streams", &["peer"]),
                ],
            },
            Panel {
                title: "Bytes sent twice, and lost bodies",
                curves: &[
                    Sum("edgeward_link_resent_bytes_total", &["peer"]),
                    Sum("edgeward_link_lost_bodies_total", &["peer"]),
                ],
            },
            Panel {
                title: "Chunk store",
                curves: &[
                    Sum("edgeward_link_store_bytes", &[]),
                    Sum("edgeward_link_store_bytes_max", &[]),
                ],
            },
        ],
    },
];
