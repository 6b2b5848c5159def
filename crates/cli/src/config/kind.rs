//! The types of settings: how a value is written, its bounds, and how it is parsed.

mod words;

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use edgeward_filter::PublicKey;
use edgeward_policy::log::Reinsertion;
use edgeward_policy::{DiskAdmissionSpec, ParsePolicyError, PolicySpec};
use edgeward_proxy::config::{
    FieldNames, InvalidListenAddress, ListenAddress, LogFormat, LogTemplateError, Networks,
    OriginUrl, ParseListError, Roles, SyslogServer,
};
use edgeward_proxy::negative::PathPattern;
use edgeward_semantics::content_coding::{Coding, CompressibleTypes};
use edgeward_semantics::upgrade::Upgrades;
use edgeward_semantics::{IgnoredParameters, InvalidParameterName};
use edgeward_sites::{HostPattern, ParsePathFormsError, PathForms};
use edgeward_types::ByteSize;

use crate::diagnostic::absolute;
use crate::negative::FilterLocation;
use words::{DURATION_UNITS, alternatives};
pub(super) use words::{duration_text, size_text};

/// The type of a setting. The comments show how a user writes the value.
#[derive(Clone, Copy, Debug)]
pub(super) enum ValueKind {
    /// `"64MiB"`, or a number of bytes.
    Size { min: ByteSize, max: ByteSize },
    /// A size, or `"none"`.
    SizeOrNone { min: ByteSize, max: ByteSize },
    /// `"30s"`.
    Duration { min: Duration, max: Duration },
    /// A whole number.
    Count { min: u64, max: u64 },
    /// A whole number, or `"none"`.
    CountOrNone { min: u64, max: u64 },
    /// A whole number of 64 bits, or `"none"` for a random one at each start.
    SeedOrNone,
    /// A whole number of 64 bits.
    Seed,
    /// A number from 0 to 1.
    Share,
    /// `true` or `false`.
    Switch,
    /// `"json"`, `"combined"`, `"combined-cache"`, or a format string of the access log.
    LogFormat,
    /// `"unix:/dev/log"` or `"udp:192.0.2.1:514"`.
    SyslogServer,
    /// One of the given words.
    Choice(&'static [&'static str]),
    /// An address and port, or `"none"`.
    AddressOrNone,
    /// `"127.0.0.1:8080"` or `"unix:/run/edgeward.sock"`.
    ListenAddress,
    /// Such an address, or `"none"`.
    ListenAddressOrNone,
    /// `"http://HOST:PORT"`.
    Url,
    /// URLs of servers, separated by commas.
    Urls,
    /// Addresses of DNS servers, separated by commas. The default port is 53.
    NameServers,
    /// A path of a URL, with or without a query, or `"none"`.
    TargetOrNone,
    /// An existing, readable file.
    InputFile,
    /// A file to write, or `"-"` for stdout.
    OutputFile,
    /// A file, directory or device that need not exist.
    Path,
    /// A host name or address, with or without a port, or one of the given words.
    Host(&'static [&'static str]),
    /// A host name, or `"*.DOMAIN"` for all hosts below a domain.
    HostPattern,
    /// `"gateway.example:7443"`.
    HostPort,
    /// The name of the edge in header fields.
    Token,
    /// The name of a bucket of S3.
    Bucket,
    /// A path with one `{id}` in it.
    Pattern,
    /// A filter's file, or the URL of a published filter.
    Filter,
    /// Public keys in hex, separated by commas.
    PublicKeys,
    /// Networks in CIDR notation, separated by commas, or `"none"`.
    Networks,
    /// Names of header fields, separated by commas, or `"none"`.
    FieldNames,
    /// Forms of paths, separated by commas, or `"none"`.
    PathForms,
    /// Names of query parameters, separated by commas, or `"none"`.
    Parameters,
    /// Media types or patterns for them, separated by commas.
    MediaTypes,
    /// Content codings, separated by commas.
    Codings,
    /// Protocols of `Upgrade`, separated by commas, or `"any"` or `"none"`.
    Upgrades,
    /// Host names, separated by commas.
    Hosts,
    /// Roles of a token, separated by commas.
    Roles,
    /// The name of a policy.
    Policy,
    /// The name of a rule of admission to disk.
    DiskAdmission,
    /// The name of a rule of reinsertion.
    Reinsertion,
}

/// A value before it is parsed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Raw {
    /// The value of a flag.
    Flag(String),
    /// A string in the file.
    Text(String),
    /// A whole number in the file, as written.
    Number(String),
    /// `true` or `false` in the file.
    Switch(bool),
    /// A list of strings in the file. `source` is its text.
    List { items: Vec<String>, source: String },
    /// A value of another TOML type in the file. `kind` is the name of the type with its article ("a list"), `source`
    /// is the text in the file.
    Other { kind: &'static str, source: String },
}

/// Writes the value as the user wrote it.
impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(text) => write!(f, "{}", text.escape_debug()),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Number(text)
            | Self::List { source: text, .. }
            | Self::Other { source: text, .. } => f.write_str(text),
            Self::Switch(on) => write!(f, "{on}"),
        }
    }
}

/// A parsed value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    None,
    Size(ByteSize),
    Duration(Duration),
    Number(u64),
    Switch(bool),
    Share(f64),
    Text(String),
    LogFormat(LogFormat),
    SyslogServer(SyslogServer),
    Address(SocketAddr),
    ListenAddress(ListenAddress),
    Url(OriginUrl),
    Urls(Vec<OriginUrl>),
    NameServers(Vec<SocketAddr>),
    File(PathBuf),
    Pattern(PathPattern),
    Filter(FilterLocation),
    PublicKeys(Vec<PublicKey>),
    Networks(Networks),
    FieldNames(FieldNames),
    PathForms(PathForms),
    Parameters(IgnoredParameters),
    MediaTypes(CompressibleTypes),
    Codings(Vec<Coding>),
    Upgrades(Upgrades),
    Hosts(Vec<String>),
    Roles(Roles),
    Policy(PolicySpec),
    DiskAdmission(DiskAdmissionSpec),
    HostPattern(HostPattern),
    Reinsertion(Reinsertion),
}

/// The reason why a value is rejected. It completes a sentence that begins with `KEY = VALUE`, for example "is too
/// small".
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ValueError {
    pub(super) reason: String,
    pub(super) hint: Option<String>,
}

impl ValueKind {
    /// Parses and checks a value. Relative paths start at `folder`.
    pub(super) fn read(self, raw: &Raw, folder: &Path) -> Result<Value, ValueError> {
        if let (Raw::List { items, .. }, true) = (raw, self.is_list()) {
            if let Some(item) = items.iter().find(|item| item.contains(',')) {
                let reason = format!("has a comma in the item {item:?}");
                return Err(ValueError::new(reason).hint("write each member as an item of its own"));
            }
            return self.read(&Raw::Text(items.join(",")), folder);
        }
        match self {
            Self::SizeOrNone { .. }
            | Self::CountOrNone { .. }
            | Self::AddressOrNone
            | Self::ListenAddressOrNone
            | Self::SeedOrNone
            | Self::Networks
            | Self::FieldNames
            | Self::PathForms
            | Self::Parameters
            | Self::TargetOrNone
                if raw.text() == Some(NONE) =>
            {
                Ok(Value::None)
            }
            Self::Size { min, max } | Self::SizeOrNone { min, max } => {
                let size: ByteSize = match raw {
                    Raw::Flag(text) | Raw::Text(text) | Raw::Number(text) => {
                        text.parse().map_err(|error| to_value_error(text, &error))?
                    }
                    _ => return Err(self.wrong_type_error(raw)),
                };
                check_bounds(size, min, max, size_text).map(Value::Size)
            }
            Self::Duration { min, max } => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                let duration = parse_duration(text)?;
                check_bounds(duration, min, max, duration_text).map(Value::Duration)
            }
            Self::Count { min, max } | Self::CountOrNone { min, max } => {
                let number = self.number(raw)?;
                check_bounds(number, min, max, |n| n.to_string()).map(Value::Number)
            }
            Self::Seed | Self::SeedOrNone => self.number(raw).map(Value::Number),
            Self::Share => {
                let (Raw::Flag(text) | Raw::Number(text) | Raw::Other { source: text, .. }) = raw
                else {
                    return Err(self.wrong_type_error(raw));
                };
                let share = text.parse().ok().filter(|share: &f64| share.is_finite());
                let share = share.ok_or_else(|| self.wrong_type_error(raw))?;
                check_bounds(share, 0.0, 1.0, |n| n.to_string()).map(Value::Share)
            }
            Self::Switch => match raw {
                Raw::Switch(on) => Ok(Value::Switch(*on)),
                Raw::Flag(text) if text == "true" => Ok(Value::Switch(true)),
                Raw::Flag(text) if text == "false" => Ok(Value::Switch(false)),
                _ => Err(self.wrong_type_error(raw)),
            },
            Self::Choice(words) => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                if words.contains(&text) {
                    Ok(Value::Text(text.to_owned()))
                } else {
                    Err(ValueError::new("is not known")
                        .hint(format!("use {}", alternatives(words))))
                }
            }
            Self::LogFormat => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                let format =
                    match text {
                        "json" => Ok(LogFormat::Json),
                        "combined" => Ok(LogFormat::Combined),
                        "combined-cache" => Ok(LogFormat::CombinedCache),
                        _ if text.contains('$') => text
                            .parse()
                            .map(LogFormat::Template)
                            .map_err(|error: LogTemplateError| error_of_sentence(&error)),
                        _ => Err(ValueError::new("is not known")
                            .hint(format!("write {}", self.example()))),
                    };
                format.map(Value::LogFormat)
            }
            Self::SyslogServer => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                let server: Result<SyslogServer, _> = text.parse();
                server
                    .map(Value::SyslogServer)
                    .map_err(|error| error_of_sentence(&error))
            }
            Self::AddressOrNone => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                let addr = text.parse().map(Value::Address);
                addr.map_err(|_| ValueError::new("is not an address and port").hint(ADDRESSES))
            }
            Self::ListenAddress | Self::ListenAddressOrNone => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                let addr = text.parse().map(Value::ListenAddress);
                addr.map_err(|error: InvalidListenAddress| {
                    ValueError::new(error.to_string()).hint(match error {
                        InvalidListenAddress::NoAddress => ADDRESSES,
                        _ => "write unix:/run/edgeward.sock",
                    })
                })
            }
            Self::Url => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                text.parse().map(Value::Url).map_err(
                    |error: edgeward_proxy::config::ParseOriginUrlError| {
                        to_value_error(text, &error)
                    },
                )
            }
            Self::Urls => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                let urls = text.split(',').map(|url| url.trim().parse());
                let urls: Result<Vec<OriginUrl>, edgeward_proxy::config::ParseOriginUrlError> =
                    urls.collect();
                urls.map(Value::Urls)
                    .map_err(|error| to_value_error(text, &error))
            }
            Self::NameServers => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                let servers = text.split(',').map(|server| {
                    let server = server.trim();
                    let with_port = || Some((server.parse::<IpAddr>().ok()?, 53).into());
                    server.parse().ok().or_else(with_port)
                });
                let servers: Option<Vec<SocketAddr>> = servers.collect();
                servers.map(Value::NameServers).ok_or_else(|| {
                    ValueError::new("has an item that is not an IP address")
                        .hint(format!("write {}", self.example()))
                })
            }
            Self::TargetOrNone => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                let is_target = text.starts_with('/')
                    && text
                        .bytes()
                        .all(|byte| byte.is_ascii_graphic() && byte != b'#');
                if is_target {
                    Ok(Value::Text(text.to_owned()))
                } else {
                    Err(ValueError::new("is not a path of a URL")
                        .hint(format!("write {}", self.example())))
                }
            }
            Self::InputFile => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                let path = folder.join(text);
                let opened = fs::File::open(&path).and_then(|file| file.metadata());
                match opened {
                    Ok(metadata) if metadata.is_dir() => {
                        Err(ValueError::new("is a folder, not a file"))
                    }
                    Ok(_) => Ok(Value::File(path)),
                    Err(error) => Err(ValueError::new(read_error_text(&error))
                        .hint(format!("the full path is {}", absolute(&path)))),
                }
            }
            Self::OutputFile => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                if text == "-" {
                    return Ok(Value::File(PathBuf::from(text)));
                }
                let path = folder.join(text);
                if text.is_empty() || path.is_dir() {
                    Err(ValueError::new("is not a file").hint("give a file, or - for stdout"))
                } else {
                    check_folder(path)
                }
            }
            Self::Path => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                if text.is_empty() {
                    Err(ValueError::new("is not a path").hint(format!("write {}", self.example())))
                } else {
                    check_folder(folder.join(text))
                }
            }
            Self::DiskAdmission => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                let rule: Result<DiskAdmissionSpec, _> = text.parse();
                rule.map(Value::DiskAdmission)
                    .map_err(|error| to_value_error(text, &error))
            }
            Self::Reinsertion => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                let rule: Result<Reinsertion, _> = text.parse();
                rule.map(Value::Reinsertion)
                    .map_err(|error| to_value_error(text, &error))
            }
            Self::Host(words) => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                let is_valid = !text.is_empty()
                    && text.len() <= 255 + ":65535".len()
                    && text
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b));
                if is_valid || words.contains(&text) {
                    Ok(Value::Text(text.to_owned()))
                } else {
                    Err(ValueError::new("is not a host name").hint("write HOST or HOST:PORT"))
                }
            }
            Self::HostPattern => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                text.parse().map(Value::HostPattern).map_err(|_| {
                    ValueError::new("is not a host name").hint(
                        "write www.example.com, or *.example.com for all hosts below a domain",
                    )
                })
            }
            Self::HostPort => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                let host_port: Result<crate::link_settings::HostPort, _> = text.parse();
                host_port
                    .map(|host_port| Value::Text(host_port.to_string()))
                    .map_err(|_| {
                        ValueError::new("is not HOST:PORT").hint("write \"gateway.example:7443\"")
                    })
            }
            Self::Token => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                // The accepted names are tokens both for `Via` (RFC 9110 §5.6.2) and for `Cache-Status` (RFC 9651
                // §3.3.4). Both RFCs allow more punctuation.
                let is_valid = text.len() <= 64
                    && text.starts_with(|first: char| first.is_ascii_alphabetic())
                    && text
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
                if is_valid {
                    Ok(Value::Text(text.to_owned()))
                } else {
                    Err(ValueError::new("is not a valid name")
                        .hint("use up to 64 letters, digits, -, _ and ., starting with a letter"))
                }
            }
            Self::Bucket => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                // Older buckets may have upper case and `_`. A name is put into a path unchanged, so it has no others.
                let is_valid = (3..=255).contains(&text.len())
                    && text
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
                    && !text.starts_with('.');
                if is_valid {
                    Ok(Value::Text(text.to_owned()))
                } else {
                    Err(ValueError::new("is not the name of a bucket")
                        .hint("use at least three letters, digits, -, . and _"))
                }
            }
            Self::Pattern => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                let pattern: Result<PathPattern, _> = text.parse();
                pattern
                    .map(Value::Pattern)
                    .map_err(|error| to_value_error(text, &error))
            }
            Self::Filter => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                if text.starts_with("http://") || text.starts_with("https://") {
                    return text
                        .parse()
                        .map(|url| Value::Filter(FilterLocation::Publisher(url)))
                        .map_err(|error: edgeward_filter_client::ParseUrlError| {
                            ValueError::new("is not the URL of a published filter")
                                .hint(error.to_string())
                        });
                }
                match Self::InputFile.read(raw, folder)? {
                    Value::File(path) => Ok(Value::Filter(FilterLocation::File(path))),
                    _ => unreachable!("an input file is parsed to a file"),
                }
            }
            Self::Upgrades => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                let upgrades: Result<Upgrades, _> = text.parse();
                upgrades.map(Value::Upgrades).map_err(|error| {
                    ValueError::new("is not a list of protocols").hint(error.to_string())
                })
            }
            Self::Hosts => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                let hosts: Vec<String> =
                    text.split(',').map(|host| host.trim().to_owned()).collect();
                let is_host = |host: &String| {
                    !host.is_empty()
                        && host.len() <= 255
                        && host
                            .bytes()
                            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
                };
                if hosts.iter().all(is_host) {
                    Ok(Value::Hosts(hosts))
                } else {
                    Err(ValueError::new("is not a list of host names")
                        .hint(format!("write {}", self.example())))
                }
            }
            Self::Roles => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                let roles: Result<Roles, _> = text.parse();
                roles
                    .map(Value::Roles)
                    .map_err(|error| error_of_sentence(&error))
            }
            Self::PublicKeys => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                let keys = text.split(',').map(|key| key.trim().parse());
                let keys: Result<Vec<PublicKey>, _> = keys.collect();
                keys.map(Value::PublicKeys).map_err(|_| {
                    ValueError::new("is not a public key of 64 hex digits").hint(
                        "`edgeward filter keygen --public FILE` prints the key of a publisher",
                    )
                })
            }
            Self::Networks => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                text.parse()
                    .map(Value::Networks)
                    .map_err(|error: ParseListError| to_value_error(text, &error))
            }
            Self::FieldNames => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                text.parse()
                    .map(Value::FieldNames)
                    .map_err(|error: ParseListError| to_value_error(text, &error))
            }
            Self::PathForms => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                text.parse()
                    .map(Value::PathForms)
                    .map_err(|error: ParsePathFormsError| to_value_error(text, &error))
            }
            Self::Parameters => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                text.parse()
                    .map(Value::Parameters)
                    .map_err(|error: InvalidParameterName| to_value_error(text, &error))
            }
            Self::MediaTypes => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                CompressibleTypes::parse(text.split(',').map(str::trim))
                    .map(Value::MediaTypes)
                    .map_err(|error| to_value_error(text, &error))
            }
            Self::Codings => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                let codings = text
                    .split(',')
                    .map(|name| Coding::from_name(name.trim().as_bytes()));
                let codings: Option<Vec<Coding>> = codings.collect();
                codings.map(Value::Codings).ok_or_else(|| {
                    ValueError::new("is not a list of codings that the edge can apply")
                        .hint(format!("write {}", self.example()))
                })
            }
            Self::Policy => {
                let text = raw.text().ok_or_else(|| self.wrong_type_error(raw))?;
                text.parse()
                    .map(Value::Policy)
                    .map_err(|error: ParsePolicyError| {
                        let mut value_error = to_value_error(text, &error);
                        if let ParsePolicyError::Unknown(_) = error {
                            value_error.reason = "is not a policy".to_owned();
                        }
                        if let Some(cause) = std::error::Error::source(&error) {
                            value_error.reason = format!("{}: {cause}", value_error.reason);
                        }
                        value_error
                    })
            }
        }
    }

    /// Returns true if the value is a list: text with commas, or a TOML array of strings.
    pub(super) const fn is_list(self) -> bool {
        matches!(
            self,
            Self::Urls
                | Self::NameServers
                | Self::PublicKeys
                | Self::Networks
                | Self::FieldNames
                | Self::PathForms
                | Self::Parameters
                | Self::Hosts
                | Self::Roles
        )
    }

    fn number(self, raw: &Raw) -> Result<u64, ValueError> {
        let (Raw::Flag(text) | Raw::Number(text)) = raw else {
            return Err(self.wrong_type_error(raw));
        };
        let digits = text.replace('_', "");
        let parsed = match digits.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => digits.parse(),
        };
        parsed.map_err(|error| match error.kind() {
            std::num::IntErrorKind::PosOverflow => ValueError::new("does not fit in 64 bits"),
            _ if digits.starts_with('-') => {
                ValueError::new("is negative").hint(format!("write {}", self.example()))
            }
            _ => ValueError::new(format!("is not {}", self.noun_phrase()))
                .hint(format!("write {}", self.example())),
        })
    }

    fn wrong_type_error(self, raw: &Raw) -> ValueError {
        let raw_type = match raw {
            Raw::Flag(_) => {
                return ValueError::new(format!("is not {}", self.noun_phrase()))
                    .hint(format!("write {}", self.example()));
            }
            Raw::Text(_) => "a string",
            Raw::Number(_) => "a number",
            Raw::Switch(_) => "a boolean",
            Raw::List { .. } => "a list",
            Raw::Other { kind, .. } => kind,
        };
        let hint = match (self, raw) {
            (Self::Switch, Raw::Text(text)) if text == "true" || text == "false" => {
                format!("write {text} without quotes")
            }
            (
                Self::Count { .. } | Self::CountOrNone { .. } | Self::Seed | Self::SeedOrNone,
                Raw::Text(text),
            ) if text.parse::<u64>().is_ok() => {
                format!("write {text} without quotes")
            }
            (Self::Duration { .. }, Raw::Number(text)) => {
                format!("add a unit: write \"{text}s\" or \"{text}ms\"")
            }
            _ => format!("write {}", self.example()),
        };
        ValueError::new(format!("is {raw_type}, not {}", self.noun_phrase())).hint(hint)
    }
}

impl Raw {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Flag(text) | Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl ValueError {
    fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            hint: None,
        }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Converts an error of another crate to a reason and a hint. The error's message has the form "`text` is wrong; do
/// this".
pub(super) fn to_value_error(text: &str, error: &dyn fmt::Display) -> ValueError {
    let message = error.to_string();
    let (reason, hint) = match message.split_once("; ") {
        Some((reason, hint)) => (reason, Some(hint.to_owned())),
        None => (message.as_str(), None),
    };
    let prefix = format!("`{text}` ");
    let reason = match reason.strip_prefix(&prefix) {
        Some(rest) => rest.to_owned(),
        None => format!("is invalid: {reason}"),
    };
    ValueError { reason, hint }
}

/// Converts an error of another crate whose message completes "VALUE …", with the hint after a semicolon.
fn error_of_sentence(error: &dyn fmt::Display) -> ValueError {
    let message = error.to_string();
    match message.split_once("; ") {
        Some((reason, hint)) => ValueError::new(reason).hint(hint),
        None => ValueError::new(message),
    }
}

/// Returns `value` if it is between `min` and `max`. `text` formats a bound for the hint of the error.
fn check_bounds<T: PartialOrd>(
    value: T,
    min: T,
    max: T,
    text: fn(T) -> String,
) -> Result<T, ValueError> {
    let reason = if value < min {
        "is too small"
    } else if value > max {
        "is too large"
    } else {
        return Ok(value);
    };
    Err(ValueError::new(reason).hint(format!("use {} to {}", text(min), text(max))))
}

/// Parses a duration such as `"30s"`.
fn parse_duration(text: &str) -> Result<Duration, ValueError> {
    if text.starts_with('-') {
        let hint = "write a whole number and ms, s, min, h or d, such as 30s";
        return Err(ValueError::new("is negative").hint(hint));
    }
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let hint = "write a whole number and ms, s, min, h or d, such as 30s";
    if number.is_empty() {
        return Err(ValueError::new("does not start with a number").hint(hint));
    }
    let unit = unit.trim_start();
    let Some(&(_, millis)) = DURATION_UNITS.iter().find(|(name, _)| *name == unit) else {
        let reason = if unit.is_empty() {
            "has no unit"
        } else {
            "has an unknown unit"
        };
        return Err(ValueError::new(reason).hint(hint));
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(millis))
        .map(Duration::from_millis)
        .ok_or_else(|| ValueError::new("is too long").hint(hint))
}

/// Describes an error of reading a file. The texts of the usual errors omit the system's error number.
pub(super) fn read_error_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "does not exist".to_owned(),
        io::ErrorKind::PermissionDenied => "cannot be read: permission denied".to_owned(),
        _ => format!("cannot be read: {error}"),
    }
}

/// Checks that the folder of `path` exists. The path itself need not exist.
fn check_folder(path: PathBuf) -> Result<Value, ValueError> {
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    if parent.is_some_and(|parent| !parent.is_dir()) {
        return Err(ValueError::new("is in a folder that does not exist")
            .hint(format!("create the folder of {}", absolute(&path))));
    }
    Ok(Value::File(path))
}

/// The value of an optional setting that is off, or of a seed that is random.
pub(super) const NONE: &str = "none";

const ADDRESSES: &str =
    "write 127.0.0.1:8080 (this machine), 0.0.0.0:8080 (all of IPv4) or [::]:8080 (all addresses)";
