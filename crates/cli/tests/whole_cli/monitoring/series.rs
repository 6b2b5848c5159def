//! The series that make each alert fire, and series on the other side of its bound, in the notation of promtool:
//! `5+2x3` is 5, 7, 9, 11, one value per minute.

use std::fmt::Write as _;

/// A test of an alert.
pub(super) struct Case {
    /// The name of the alert, without its prefix.
    pub(super) alert: &'static str,
    /// Another alert that fires too.
    also: Option<&'static str>,
    minutes: u32,
    series: &'static [Series],
}

/// The name and labels of a series, its values that fire, and those that do not.
type Series = (&'static str, &'static str, &'static str);

const ZERO: &str = "0+0x120";
const ONE: &str = "1+0x120";
/// One event per second.
const RISES: &str = "0+60x120";
const ABSENT: &str = "_x120";

const fn case(alert: &'static str, series: &'static [Series]) -> Case {
    Case {
        alert,
        also: None,
        minutes: 70,
        series,
    }
}

pub(super) const CASES: &[Case] = &[
    case("Down", &[("up", ZERO, ONE)]),
    case("Absent", &[("up", ABSENT, ONE)]),
    case(
        "RestartsOften",
        &[
            ("process_start_time_seconds", RISES, ONE),
            ("edgeward_build_info", ONE, ONE),
        ],
    ),
    case(
        "Panicked",
        &[(r#"edgeward_panics_total{task="fetch"}"#, RISES, ZERO)],
    ),
    // 90 % hits for 26 hours, then 30 %; or 80 %, which is not yet a fifth less.
    Case {
        alert: "HitRatioFell",
        also: None,
        minutes: 26 * 60 + 100,
        series: &[
            (
                r#"edgeward_requests_total{outcome="hit"}"#,
                "0+90x1560 140430+30x120",
                "0+90x1560 140480+80x120",
            ),
            (
                r#"edgeward_requests_total{outcome="uri-miss"}"#,
                "0+10x1560 15670+70x120",
                "0+10x1560 15620+20x120",
            ),
        ],
    },
    // The alert about its server keeps silent.
    case(
        "OriginDown",
        &[
            (r#"edgeward_origin_up{origin="o"}"#, ZERO, ONE),
            (
                r#"edgeward_origin_server_up{origin="o",server="s"}"#,
                ZERO,
                ONE,
            ),
        ],
    ),
    case(
        "OriginServerDown",
        &[
            (r#"edgeward_origin_up{origin="o"}"#, ONE, ONE),
            (
                r#"edgeward_origin_server_up{origin="o",server="s"}"#,
                ZERO,
                ONE,
            ),
        ],
    ),
    case(
        "OriginErrors",
        &[
            (
                r#"edgeward_origin_errors_total{cause="connect"}"#,
                "0+6x120",
                "0+2x120",
            ),
            ("edgeward_origin_requests_total", RISES, RISES),
        ],
    ),
    case(
        "OriginAnswersErrors",
        &[
            (
                r#"edgeward_origin_responses_total{origin="o",status="5xx"}"#,
                "0+6x120",
                "0+2x120",
            ),
            (
                r#"edgeward_origin_responses_total{origin="o",status="2xx"}"#,
                RISES,
                RISES,
            ),
        ],
    ),
    case(
        "OriginConnectionsUsedUp",
        &[("edgeward_origin_waiting", "101+0x120", "100+0x120")],
    ),
    case("Overloaded", &[("edgeward_overload_level", ONE, ZERO)]),
    case(
        "NearOverload",
        &[
            (
                r#"edgeward_overload_used_ratio{resource="memory"}"#,
                "0.95+0x120",
                "0.9+0x120",
            ),
            (
                r#"edgeward_overload_used_ratio{resource="lag"}"#,
                "0.95+0x120",
                "0.95+0x120",
            ),
        ],
    ),
    case("WorkerStuck", &[("edgeward_workers_stuck", ONE, ZERO)]),
    case(
        "ClientConnectionsFull",
        &[
            ("edgeward_client_connections", "91+0x120", "90+0x120"),
            ("edgeward_client_connections_max", "100+0x120", "100+0x120"),
        ],
    ),
    case(
        "ClientConnectionsDropped",
        &[
            (
                r#"edgeward_client_connections_closed_total{cause="connection-limit"}"#,
                RISES,
                ZERO,
            ),
            (
                r#"edgeward_client_connections_closed_total{cause="idle"}"#,
                RISES,
                RISES,
            ),
        ],
    ),
    case(
        "AcceptFails",
        &[("edgeward_accept_errors_total", RISES, ZERO)],
    ),
    case(
        "MemoryPinned",
        &[
            ("edgeward_hot_pinned_bytes", "91+0x120", "90+0x120"),
            ("edgeward_hot_pinned_bytes_max", "100+0x120", "100+0x120"),
        ],
    ),
    case(
        "DiskOutOfService",
        &[
            (
                r#"edgeward_disk_state{device="d",state="read-only"}"#,
                ONE,
                ZERO,
            ),
            (
                r#"edgeward_disk_state{device="d",state="in-service"}"#,
                ZERO,
                ONE,
            ),
        ],
    ),
    case(
        "DiskErrors",
        &[
            (
                r#"edgeward_disk_write_errors_total{device="d"}"#,
                RISES,
                ZERO,
            ),
            (r#"edgeward_disk_read_errors_total{device="d"}"#, ZERO, ZERO),
        ],
    ),
    case(
        "DiskCorrupt",
        &[
            (
                r#"edgeward_disk_checksum_failures_total{device="d"}"#,
                ZERO,
                ZERO,
            ),
            ("edgeward_disk_devices_damaged", ONE, ZERO),
        ],
    ),
    case(
        "DiskTooSlow",
        &[(r#"edgeward_disk_fills_total{end="dropped"}"#, RISES, ZERO)],
    ),
    case("FleetCutOff", &[("edgeward_fleet_cut_off", ONE, ZERO)]),
    case(
        "FleetUnreadable",
        &[("edgeward_fleet_unreadable_total", RISES, ZERO)],
    ),
    case(
        "FleetDuplicateName",
        &[("edgeward_fleet_duplicate_name", ONE, ZERO)],
    ),
    // The tests begin at 1970.
    case(
        "CertificateExpires",
        &[(
            "edgeward_certificate_expiry_timestamp_seconds",
            "518400+0x120",
            "864000+0x120",
        )],
    ),
    Case {
        also: Some("CertificateExpires"),
        ..case(
            "CertificateExpiresToday",
            &[(
                "edgeward_certificate_expiry_timestamp_seconds",
                "80000+0x120",
                "864000+0x120",
            )],
        )
    },
    // A certificate for six days that is renewed expires soon, which is no fault.
    case(
        "CertificateNotRenewed",
        &[
            (
                r#"edgeward_acme_consecutive_failures{name="a"}"#,
                "3+0x120",
                "2+0x120",
            ),
            (
                "edgeward_certificate_expiry_timestamp_seconds",
                "260000+0x120",
                "260000+0x120",
            ),
            (
                r#"edgeward_acme_certificate_expiry_timestamp_seconds{name="a"}"#,
                "260000+0x120",
                "260000+0x120",
            ),
        ],
    ),
    case(
        "CertificateRefused",
        &[(
            r#"edgeward_certificate_reads_total{result="refused"}"#,
            RISES,
            ZERO,
        )],
    ),
    case(
        "OcspResponseExpires",
        &[(
            "edgeward_ocsp_expiry_timestamp_seconds",
            "80000+0x120",
            "864000+0x120",
        )],
    ),
    case(
        "ReloadRefused",
        &[(r#"edgeward_reloads_total{result="refused"}"#, RISES, ZERO)],
    ),
    case(
        "CredentialsRefused",
        &[(
            r#"edgeward_credential_reads_total{result="refused"}"#,
            RISES,
            ZERO,
        )],
    ),
    case(
        "UpgradeFailed",
        &[(
            r#"edgeward_process_upgrades_total{result="failed"}"#,
            RISES,
            ZERO,
        )],
    ),
    case(
        "FilterStale",
        &[(r#"edgeward_negative_fresh{path="/o/{id}"}"#, ZERO, ONE)],
    ),
    case(
        "FilterRefused",
        &[(
            r#"edgeward_negative_refused_total{path="/o/{id}"}"#,
            RISES,
            ZERO,
        )],
    ),
    case(
        "AccessLogLost",
        &[
            ("edgeward_access_log_dropped_total", RISES, ZERO),
            ("edgeward_access_log_lost_total", ZERO, ZERO),
        ],
    ),
    case(
        "PurgeFails",
        &[
            ("edgeward_purge_failures_total", ZERO, ZERO),
            ("edgeward_invalidations_not_durable_total", RISES, ZERO),
            ("edgeward_purge_log_damaged", ZERO, ZERO),
        ],
    ),
    // A gateway keeps the peers that have left.
    case(
        "LinkDown",
        &[
            (r#"edgeward_link_connections{peer="g"}"#, ZERO, ZERO),
            ("edgeward_link_accepted_total", ABSENT, ONE),
        ],
    ),
    case(
        "LinkDegraded",
        &[
            (
                r#"edgeward_link_resent_bytes_total{peer="g"}"#,
                "0+6x120",
                "0+2x120",
            ),
            (
                r#"edgeward_link_wire_bytes_total{peer="g",direction="sent"}"#,
                RISES,
                RISES,
            ),
        ],
    ),
    case(
        "LinkStoreFails",
        &[
            ("edgeward_link_store_errors_total", ZERO, ZERO),
            ("edgeward_link_store_corrupt_chunks_total", RISES, ZERO),
        ],
    ),
    case(
        "LinkCertificateExpires",
        &[(
            r#"edgeward_link_certificate_days_left{endpoint="e"}"#,
            "13+0x120",
            "14+0x120",
        )],
    ),
    case(
        "PublisherLags",
        &[("edgeward_publish_lag_seconds", "301+0x120", "300+0x120")],
    ),
    case(
        "PublisherDatabaseFails",
        &[("edgeward_publish_scans_failed_total", RISES, ZERO)],
    ),
    case(
        "PublisherJournalFails",
        &[("edgeward_publish_journal_errors_total", RISES, ZERO)],
    ),
];

impl Case {
    /// Writes a test of promtool with the values that fire, or with the others.
    pub(super) fn write_test(&self, fires: bool, tests: &mut String) {
        _ = write!(
            tests,
            "  - interval: 1m\n    name: {}, {fires}\n    input_series:\n",
            self.alert
        );
        let is_scraped = ("up", "1+0x1800", "1+0x1800");
        let scraped = (!self.series.iter().any(|series| series.0 == "up")).then_some(&is_scraped);
        for (series, firing, quiet) in self.series.iter().chain(scraped) {
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let values = if fires { firing } else { quiet };
            _ = write!(
                tests,
                "      - series: '{name}{{job=\"edgeward\",instance=\"a:9900\",{labels}'\n        values: '{values}'\n"
            );
        }
        let (minutes, alerts) = (self.minutes, [Some(self.alert), self.also]);
        let alerts = alerts.into_iter().flatten().filter(|_| fires);
        let expected = alerts.map(|alert| {
            format!(
                "{{labels: '{{alertname=\"Edgeward{alert}\",alertstate=\"firing\"}}', value: 1}}"
            )
        });
        let expected: Vec<String> = expected.collect();
        _ = write!(
            tests,
            "    promql_expr_test:\n      - expr: count by (alertname, alertstate) (ALERTS)\n        eval_time: {minutes}m\n        \
             exp_samples: [{}]\n",
            expected.join(", ")
        );
    }
}
