//! The settings of `[access_log]` and `[tracing]`.

use std::path::{Path, PathBuf};

use edgeward_proxy::config::{JOURNALD_SOCKET, LogDestination};

use super::row::{Key, rows};
use crate::config::draft::{ConfigDraft, Part as _};
use crate::config::value::{Count, Log, OutputFile, Share, Switch, Syslog, Unset, Url, Word};

pub(super) static ROWS: &[Key] = rows! {
    /// The file of the access log, which is created or appended to, or `"-"` for stdout. If neither this nor another
    /// destination is set, requests are not logged.
    "access_log.path" live,
        flag "--access-log FILE" "File of the access log; - for stdout": OutputFile,
        get: |draft, _| match &draft.access_log.destination {
            LogDestination::Stdout => draft.access_log_given.then(|| PathBuf::from("-")),
            LogDestination::File(path) => Some(path.clone()),
            LogDestination::Syslog(_) | LogDestination::Journald(_) => None,
        },
        set: |draft, _, value: PathBuf| {
            draft.access_log_given = true;
            draft.access_log.destination = match value == Path::new("-") {
                true => LogDestination::Stdout,
                false => LogDestination::File(value),
            };
        };

    /// Sends each line to a syslog server (RFC 5424, facility local7, severity informational): `"unix:/dev/log"`, or by
    /// UDP `"udp:192.0.2.1:514"`. Replaces `path`.
    "access_log.syslog" live: Syslog,
        get: |draft, _| match &draft.access_log.destination {
            LogDestination::Syslog(server) => Some(server.clone()),
            _ => None,
        },
        set: |draft, _, value| {
            draft.access_log_given = true;
            draft.access_log.destination = LogDestination::Syslog(value);
        };

    /// If true, sends each line to systemd's journal, with its values as fields. Replaces `path`. See
    /// [access-log.md](access-log.md#journald).
    "access_log.journald" live: Switch,
        get: |draft, _| Some(matches!(draft.access_log.destination, LogDestination::Journald(_))),
        set: |draft, _, value| {
            if value {
                draft.access_log_given = true;
                draft.access_log.destination = LogDestination::Journald(JOURNALD_SOCKET.into());
            }
        };

    /// `"json"`: one JSON object per line. `"combined"`: the NCSA combined format. `"combined-cache"`: the combined
    /// format with the cache status appended. Any other value is a format string with the variables of nginx's
    /// `log_format`, such as `'$remote_addr [$time_local] "$request" $status'`. [access-log.md](access-log.md) explains
    /// the fields and variables.
    "access_log.format" live,
        hidden_flag "--access-log-format FORM" "Format of the access log: json, combined or combined-cache":
        Log => ConfigDraft.access_log.format;

    /// The maximum of log lines per worker that wait to be written. Further lines are dropped and counted, so a slow
    /// disk or daemon does not delay requests.
    "access_log.queue_lines_max" live: Count::of(1, 1 << 20) => ConfigDraft.access_log.queue_lines_max;

    /// The collector that gets the spans by OTLP over HTTP in JSON, at the path `/v1/traces`. Without it, no request is
    /// traced, and `traceparent` is forwarded like any other field.
    "tracing.endpoint" live: Unset(Url) => ConfigDraft.tracing_endpoint;

    /// The share of requests that is sampled, from 0 to 1.
    "tracing.sample" live: Share => ConfigDraft.tracing.sample;

    /// The clients whose `traceparent` decides by its sampled flag whether a request is sampled:
    /// `forwarding.trusted_proxies`, all clients, or none. In each case a sampled request continues the trace of a
    /// valid `traceparent`.
    "tracing.sampled_flag" live: Word::OF => ConfigDraft.tracing.sampled_flag;

    /// The maximum of sampled requests per worker that wait for the export. Further ones are dropped and counted, so a
    /// slow collector does not delay requests.
    "tracing.queue_requests_max" live: Count::of(1, 1 << 20) => ConfigDraft.tracing.queue_requests_max;
};
