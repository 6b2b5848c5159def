//! The settings of `[access_log]`: where requests are logged, and in which form.

use std::path::Path;

use edgeward_proxy::config::{JOURNALD_SOCKET, LogDestination, LogFormat};

use super::super::draft::path_text;
use super::super::kind::{Value, ValueKind};
use super::Key;

pub(super) const PATH: Key = Key {
    path: "access_log.path",
    flag: Some("--access-log"),
    kind: ValueKind::OutputFile,
    doc: "The file of the access log, which is created or appended to, or `\"-\"` for stdout. If neither this nor \
          another destination is set, requests are not logged.",
    set: |draft, _, value| {
        let path = value.file();
        draft.access_log_given = true;
        draft.access_log.destination = if path == Path::new("-") {
            LogDestination::Stdout
        } else {
            LogDestination::File(path)
        };
    },
    show: |draft, _| {
        let destination = draft
            .access_log_given
            .then_some(&draft.access_log.destination)?;
        match destination {
            LogDestination::Stdout => Some("-".to_owned()),
            LogDestination::File(path) => Some(path_text(path)),
            LogDestination::Syslog(_) | LogDestination::Journald(_) => None,
        }
    },
};

pub(super) const SYSLOG: Key = Key {
    path: "access_log.syslog",
    flag: None,
    kind: ValueKind::SyslogServer,
    doc: "Sends each line to a syslog server (RFC 5424, facility local7, severity informational): \
          `\"unix:/dev/log\"`, or by UDP `\"udp:192.0.2.1:514\"`. Replaces `path`.",
    set: |draft, _, value| {
        draft.access_log_given = true;
        draft.access_log.destination = match value {
            Value::SyslogServer(server) => LogDestination::Syslog(server),
            other => other.wrong_variant(),
        };
    },
    show: |draft, _| match &draft.access_log.destination {
        LogDestination::Syslog(server) => Some(server.to_string()),
        _ => None,
    },
};

pub(super) const JOURNALD: Key = Key {
    path: "access_log.journald",
    flag: None,
    kind: ValueKind::Switch,
    doc: "If true, sends each line to systemd's journal, with its values as fields. Replaces `path`. See \
          [access-log.md](access-log.md#journald).",
    set: |draft, _, value| {
        if value.switch() {
            draft.access_log_given = true;
            draft.access_log.destination = LogDestination::Journald(JOURNALD_SOCKET.into());
        }
    },
    show: |draft, _| {
        let is_journald = matches!(draft.access_log.destination, LogDestination::Journald(_));
        Some(is_journald.to_string())
    },
};

pub(super) const FORMAT: Key = Key {
    path: "access_log.format",
    flag: Some("--access-log-format"),
    kind: ValueKind::LogFormat,
    doc: "`\"json\"`: one JSON object per line. `\"combined\"`: the NCSA combined format. `\"combined-cache\"`: the \
          combined format with the cache status appended. Any other value is a format string with the variables of \
          nginx's `log_format`, such as `'$remote_addr [$time_local] \"$request\" $status'`. \
          [access-log.md](access-log.md) explains the fields and variables.",
    set: |draft, _, value| {
        draft.access_log.format = match value {
            Value::LogFormat(format) => format,
            other => other.wrong_variant(),
        };
    },
    show: |draft, _| {
        Some(match &draft.access_log.format {
            LogFormat::Json => "json".to_owned(),
            LogFormat::Combined => "combined".to_owned(),
            LogFormat::CombinedCache => "combined-cache".to_owned(),
            LogFormat::Template(template) => template.as_str().to_owned(),
        })
    },
};

pub(super) const QUEUE_LINES_MAX: Key = Key {
    path: "access_log.queue_lines_max",
    flag: None,
    kind: ValueKind::Count {
        min: 1,
        max: 1 << 20,
    },
    doc: "The maximum of log lines per worker that wait to be written. Further lines are dropped and counted, so a \
          slow disk or daemon does not delay requests.",
    set: |draft, _, value| draft.access_log.queue_lines_max = value.nonzero(),
    show: |draft, _| Some(draft.access_log.queue_lines_max.to_string()),
};
