//! The words for each kind of value in the reference and in messages, and the text form of the values.

use std::time::Duration;

use edgeward_types::ByteSize;

use super::ValueKind;

impl ValueKind {
    /// The name of the kind in the reference.
    pub(in crate::config) fn name(self) -> String {
        match self {
            Self::Size { .. } => "size".to_owned(),
            Self::SizeOrNone { .. } => "size or `\"none\"`".to_owned(),
            Self::Duration { .. } => "duration".to_owned(),
            Self::Count { .. } => "number".to_owned(),
            Self::CountOrNone { .. } => "number or `\"none\"`".to_owned(),
            Self::Seed | Self::Share => "number".to_owned(),
            Self::SeedOrNone => "number or `\"none\"`".to_owned(),
            Self::Switch => "boolean".to_owned(),
            Self::LogFormat => {
                "`\"json\"` or `\"combined\"` or `\"combined-cache\"` or a format string".to_owned()
            }
            Self::SyslogServer => "address of a syslog server".to_owned(),
            Self::Choice(words) => words
                .iter()
                .map(|word| format!("`\"{word}\"`"))
                .collect::<Vec<_>>()
                .join(" or "),
            Self::ListenAddress => "address".to_owned(),
            Self::AddressOrNone | Self::ListenAddressOrNone => "address or `\"none\"`".to_owned(),
            Self::Url => "URL".to_owned(),
            Self::Urls => "list of URLs".to_owned(),
            Self::NameServers => "list of addresses".to_owned(),
            Self::TargetOrNone => "path or `\"none\"`".to_owned(),
            Self::InputFile | Self::OutputFile => "file".to_owned(),
            Self::Path => "path".to_owned(),
            Self::DiskAdmission | Self::Reinsertion => "rule".to_owned(),
            Self::Host([]) => "host".to_owned(),
            Self::HostPattern => "host or `\"*.DOMAIN\"`".to_owned(),
            Self::Host(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("`\"{word}\"`")).collect();
                format!("{} or a host", words.join(", "))
            }
            Self::HostPort => "host and port".to_owned(),
            Self::Token => "name".to_owned(),
            Self::Bucket => "name of a bucket".to_owned(),
            Self::Pattern => "path with `{id}`".to_owned(),
            Self::Filter => "file or URL".to_owned(),
            Self::PublicKeys => "list of public keys".to_owned(),
            Self::Networks => "list of networks, or `\"none\"`".to_owned(),
            Self::FieldNames => "list of field names, or `\"none\"`".to_owned(),
            Self::PathForms => "list of forms, or `\"none\"`".to_owned(),
            Self::Parameters => "list of parameter names, or `\"none\"`".to_owned(),
            Self::Upgrades => "list of protocols, or `\"any\"` or `\"none\"`".to_owned(),
            Self::MediaTypes => "list of media types".to_owned(),
            Self::Codings => "list of codings".to_owned(),
            Self::Hosts => "list of host names".to_owned(),
            Self::Roles => "list of `\"read\"`, `\"purge\"` and `\"reload\"`".to_owned(),
            Self::Policy => "policy".to_owned(),
        }
    }

    /// The minimum and the maximum, as text.
    pub(in crate::config) fn bounds(self) -> Option<(String, String)> {
        match self {
            Self::Size { min, max } | Self::SizeOrNone { min, max } => {
                Some((size_text(min), size_text(max)))
            }
            Self::Duration { min, max } => Some((duration_text(min), duration_text(max))),
            Self::Count { min, max } | Self::CountOrNone { min, max } => {
                Some((min.to_string(), max.to_string()))
            }
            _ => None,
        }
    }

    /// Returns true if the configuration file needs quotes around the value.
    pub(in crate::config) fn is_quoted(self) -> bool {
        !matches!(
            self,
            Self::Count { .. }
                | Self::CountOrNone { .. }
                | Self::Seed
                | Self::SeedOrNone
                | Self::Share
                | Self::Switch
        )
    }

    /// The name of the kind with its article, for messages such as "is not a size".
    pub(super) fn noun_phrase(self) -> &'static str {
        match self {
            Self::Size { .. } | Self::SizeOrNone { .. } => "a size",
            Self::Duration { .. } => "a duration",
            Self::Count { .. } | Self::CountOrNone { .. } | Self::Seed | Self::SeedOrNone => {
                "a whole number"
            }
            Self::Share => "a number from 0 to 1",
            Self::Switch => "a boolean",
            Self::LogFormat => "a format of the access log",
            Self::SyslogServer => "the address of a syslog server",
            Self::Choice(_) => "one of the allowed words",
            Self::AddressOrNone | Self::ListenAddress | Self::ListenAddressOrNone => "an address",
            Self::Url => "a URL",
            Self::Urls => "a list of URLs",
            Self::NameServers => "a list of addresses of DNS servers",
            Self::TargetOrNone => "a path of a URL",
            Self::InputFile | Self::OutputFile => "the path of a file",
            Self::Path => "the path of a directory, file or device",
            Self::DiskAdmission => "a rule of admission to disk",
            Self::Reinsertion => "a rule of reinsertion",
            Self::Host(_) | Self::HostPattern => "a host",
            Self::HostPort => "a host and port",
            Self::Token => "a name",
            Self::Bucket => "the name of a bucket",
            Self::Pattern => "a path with {id}",
            Self::Filter => "a file or a URL",
            Self::PublicKeys => "a public key",
            Self::Networks => "a list of networks",
            Self::FieldNames => "a list of field names",
            Self::PathForms => "a list of forms",
            Self::Parameters => "a list of parameter names",
            Self::MediaTypes => "a list of media types",
            Self::Codings => "a list of codings",
            Self::Upgrades => "a list of protocols",
            Self::Hosts => "a list of host names",
            Self::Roles => "a list of roles",
            Self::Policy => "a policy",
        }
    }

    /// An example or a description of a valid value, for hints such as "write \"64MiB\"" or "write true or false".
    pub(super) fn example(self) -> String {
        match self {
            Self::Size { .. } | Self::SizeOrNone { .. } => "\"64MiB\"".to_owned(),
            Self::Duration { .. } => "\"30s\"".to_owned(),
            Self::Count { min, .. } | Self::CountOrNone { min, .. } => {
                format!("a number such as {}", min.max(8))
            }
            Self::Seed | Self::SeedOrNone => "a number such as 42".to_owned(),
            Self::Share => "a number such as 0.01".to_owned(),
            Self::Switch => "true or false".to_owned(),
            Self::LogFormat => {
                "\"json\", \"combined\", \"combined-cache\", or variables such as '$status $request_uri'"
                    .to_owned()
            }
            Self::SyslogServer => "\"unix:/dev/log\" or \"udp:192.0.2.1:514\"".to_owned(),
            Self::Choice(words) => alternatives(words),
            Self::AddressOrNone | Self::ListenAddress | Self::ListenAddressOrNone => "\"127.0.0.1:8080\"".to_owned(),
            Self::Url => "\"http://HOST:PORT\"".to_owned(),
            Self::NameServers => "[\"10.0.0.2\", \"[fd00::2]:5353\"]".to_owned(),
            Self::Urls => "[\"http://10.0.0.7:9000\", \"http://10.0.0.8:9000\"]".to_owned(),
            Self::TargetOrNone => "\"/health\"".to_owned(),
            Self::InputFile | Self::OutputFile => "its path in quotes".to_owned(),
            Self::Path => "\"/var/cache/edgeward\"".to_owned(),
            Self::DiskAdmission => "\"second-hit\"".to_owned(),
            Self::Reinsertion => "\"fifo-reinsertion\"".to_owned(),
            Self::Host(_) | Self::HostPattern => "\"www.example.com\"".to_owned(),
            Self::HostPort => "\"gateway.example:7443\"".to_owned(),
            Self::Token => "\"edge-1\"".to_owned(),
            Self::Bucket => "\"media\"".to_owned(),
            Self::Pattern => "\"/resource/{id}\"".to_owned(),
            Self::Filter => "\"resource.ids\" or \"https://HOST/sets/NAME\"".to_owned(),
            Self::PublicKeys => "its 64 hex digits in quotes".to_owned(),
            Self::MediaTypes => "\"text/*, application/json, *+xml\"".to_owned(),
            Self::Codings => "\"br, zstd, gzip\"".to_owned(),
            Self::Upgrades => "\"websocket\"".to_owned(),
            Self::Hosts => "\"edge-1.example,edge-1\"".to_owned(),
            Self::Roles => "[\"read\", \"purge\", \"reload\"]".to_owned(),
            Self::Policy => "\"density\"".to_owned(),
            Self::Networks => "\"10.0.0.0/8, 2001:db8::/32\"".to_owned(),
            Self::FieldNames => "\"x-original-url, x-rewrite-url\"".to_owned(),
            Self::PathForms => "\"encoded-slash, dot-segment\"".to_owned(),
            Self::Parameters => "\"utm_*, gclid\"".to_owned(),
        }
    }
}

/// Formats a duration in the form that a user would write, in the largest unit that represents it exactly.
pub(in crate::config) fn duration_text(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let fits = |unit: u64| millis.is_multiple_of(unit) && millis >= unit;
    let (name, unit) = DURATION_UNITS
        .iter()
        .rev()
        .find(|(_, unit)| fits(*unit))
        .copied()
        .unwrap_or(("ms", 1));
    format!("{}{name}", millis / unit)
}

/// Formats a size in the form that a user would write. If a form with a unit would round the size, the result is the
/// number of bytes.
pub(in crate::config) fn size_text(size: ByteSize) -> String {
    let text = size.to_string().replace(' ', "");
    if text.parse() == Ok(size) {
        text
    } else {
        size.bytes().to_string()
    }
}

pub(super) fn alternatives(words: &[&str]) -> String {
    words.join(" or ")
}

/// The units of durations and their lengths in milliseconds. Each length is a multiple of the previous one.
pub(in crate::config) const DURATION_UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1000),
    ("min", 60 * 1000),
    ("h", 60 * 60 * 1000),
    ("d", 24 * 60 * 60 * 1000),
];
