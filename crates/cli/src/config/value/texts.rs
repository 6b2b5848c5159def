//! Settings that are texts: addresses, names, rules and lists of them.

use std::fmt::Display;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use edgeward_acme::Name;
use edgeward_filter::PublicKey;
use edgeward_policy::log::Reinsertion;
use edgeward_policy::{DiskAdmissionSpec, ParsePolicyError, PolicySpec};
use edgeward_proxy::config::{
    FieldNames, HostPolicy, InvalidListenAddress, ListenAddress, LogFormat, Networks, OriginUrl,
    PurgeMethods, Roles, SyslogServer,
};
use edgeward_proxy::negative::PathPattern;
use edgeward_semantics::IgnoredParameters;
use edgeward_semantics::content_coding::{Coding, CompressibleTypes};
use edgeward_semantics::upgrade::Upgrades;
use edgeward_sites::{HostPattern, PathForms};

use super::files::InputFile;
use super::kind::{NONE, SettingValue};
use super::raw::{Raw, ValueError, error_of_sentence, to_value_error};
use crate::config::choice::Choice;
use crate::negative::FilterLocation;

/// Defines a type of settings for each entry. The strings are its name in the reference, its noun with the article and
/// an example. `parse` returns the value of a text, and `show` its text.
macro_rules! texts {
    ($(
        $(#[$doc:meta])*
        $kind:ident: $parsed:ty = $name:literal, $noun:literal, $example:literal $(, $list:ident)?;
        parse $parse:expr;
        show $show:expr;
    )+) => {$(
        $(#[$doc])*
        pub(in crate::config) struct $kind;

        impl SettingValue for $kind {
            type Parsed = $parsed;

            fn name(&self) -> String {
                $name.to_owned()
            }

            fn noun_phrase(&self) -> &'static str {
                $noun
            }

            fn example(&self) -> String {
                $example.to_owned()
            }

            fn read(&self, raw: &Raw, _folder: &Path) -> Result<$parsed, ValueError> {
                let parse: fn(&str) -> Result<$parsed, ValueError> = $parse;
                parse(self.text(raw)?)
            }

            fn show(&self, value: &$parsed) -> Option<String> {
                let show: fn(&$parsed) -> Option<String> = $show;
                show(value)
            }

            $(
                fn is_list(&self) -> bool {
                    stringify!($list) == "list"
                }
            )?
        }
    )+};
}

texts! {
    /// `"json"`, `"combined"`, `"combined-cache"`, or a format string of the access log.
    Log: LogFormat = "`\"json\"` or `\"combined\"` or `\"combined-cache\"` or a format string",
        "a format of the access log", "\"json\", \"combined\", \"combined-cache\", or variables such as \
         '$status $request_uri'";
    parse |text| match text {
        "json" => Ok(LogFormat::Json),
        "combined" => Ok(LogFormat::Combined),
        "combined-cache" => Ok(LogFormat::CombinedCache),
        _ if text.contains('$') => {
            let template = text.parse().map(LogFormat::Template);
            template.map_err(|error| error_of_sentence(&error))
        }
        _ => Err(unknown("is not known", &Log)),
    };
    show |format| Some(match format {
        LogFormat::Json => "json".to_owned(),
        LogFormat::Combined => "combined".to_owned(),
        LogFormat::CombinedCache => "combined-cache".to_owned(),
        LogFormat::Template(template) => template.as_str().to_owned(),
    });

    /// `"unix:/dev/log"` or `"udp:192.0.2.1:514"`.
    Syslog: SyslogServer = "address of a syslog server", "the address of a syslog server",
        "\"unix:/dev/log\" or \"udp:192.0.2.1:514\"";
    parse |text| text.parse().map_err(|error| error_of_sentence(&error));
    show shown;

    /// An address and port.
    Address: SocketAddr = "address", "an address", "\"127.0.0.1:8080\"";
    parse |text| text.parse().map_err(|_| ValueError::new("is not an address and port").hint(ADDRESSES));
    show shown;

    /// `"127.0.0.1:8080"` or `"unix:/run/edgeward.sock"`.
    Listen: ListenAddress = "address", "an address", "\"127.0.0.1:8080\"";
    parse |text| text.parse().map_err(|error: InvalidListenAddress| {
        ValueError::new(error.to_string()).hint(match error {
            InvalidListenAddress::NoAddress => ADDRESSES,
            _ => "write unix:/run/edgeward.sock",
        })
    });
    show shown;

    /// `"http://HOST:PORT"`.
    Url: OriginUrl = "URL", "a URL", "\"http://HOST:PORT\"";
    parse |text| text.parse().map_err(|error| to_value_error(text, &error));
    show shown;

    /// URLs of servers, separated by commas.
    Urls: Vec<OriginUrl> = "list of URLs", "a list of URLs",
        "[\"http://10.0.0.7:9000\", \"http://10.0.0.8:9000\"]", list;
    parse |text| {
        let urls = text.split(',').map(|url| url.trim().parse());
        urls.collect::<Result<_, _>>().map_err(|error| to_value_error(text, &error))
    };
    show |urls| joined(urls, ", ");

    /// Addresses of DNS servers, separated by commas. The default port is 53.
    NameServers: Vec<SocketAddr> = "list of addresses", "a list of addresses of DNS servers",
        "[\"10.0.0.2\", \"[fd00::2]:5353\"]", list;
    parse |text| {
        let servers = text.split(',').map(|server| {
            let server = server.trim();
            let with_port = || Some((server.parse::<IpAddr>().ok()?, 53).into());
            server.parse().ok().or_else(with_port)
        });
        let servers: Option<_> = servers.collect();
        servers.ok_or_else(|| unknown("has an item that is not an IP address", &NameServers))
    };
    show |servers| joined(servers, ", ");

    /// Names of certificates, separated by commas.
    AcmeNames: Vec<Name> = "list of names", "a list of names", "[\"www.example.com\", \"*.example.org\"]", list;
    parse |text| {
        let name = |text: &str| {
            let parsed = text.parse::<Name>();
            parsed.map_err(|error| ValueError::new(format!("has the name `{text}`, which {error}")))
        };
        let mut names = text.split(',').map(|text| name(text.trim())).collect::<Result<Vec<_>, _>>()?;
        names.sort_unstable();
        names.dedup();
        Ok(names)
    };
    show |names| joined(names, ", ");

    /// URLs of contacts, separated by commas.
    Contacts: Vec<String> = "list of URLs", "a list of URLs", "[\"mailto:admin@example.com\"]", list;
    parse |text| {
        let contacts = text.split(',').map(|contact| match contact.trim() {
            contact if contact.contains(':') && contact.is_ascii() => Ok(contact.to_owned()),
            contact => Err(ValueError::new(format!("has `{contact}`, which is not a URL"))
                .hint("write mailto:ADDRESS")),
        });
        contacts.collect()
    };
    show |contacts| joined(contacts, ", ");

    /// URLs of servers of NATS, separated by commas.
    NatsUrls: Vec<String> = "list of URLs", "a list of URLs", "[\"nats://10.0.0.5:4222\"]", list;
    parse |text| {
        let urls = text.split(',').map(|url| match url.trim().parse::<http::Uri>() {
            Ok(parsed) if parsed.authority().is_some_and(|a| a.as_str().contains('@')) => {
                Err(ValueError::new("has a user").hint("set fleet.nats.user and fleet.nats.password_file"))
            }
            Ok(parsed) if matches!(parsed.scheme_str(), Some("nats" | "tls")) && parsed.host().is_some() => {
                Ok(url.trim().to_owned())
            }
            _ => Err(ValueError::new(format!("has `{}`, which is not a URL of NATS", url.trim()))
                .hint("write nats://HOST:4222 or tls://HOST:4222")),
        });
        urls.collect()
    };
    show |urls| joined(urls, ", ");

    /// The name of a stream: letters, digits, `-` and `_`.
    StreamName: String = "name", "the name of a stream", "\"edgeward\"";
    parse |text| {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        match (1..=128).contains(&text.len()) && text.bytes().all(is_name) {
            true => Ok(text.to_owned()),
            false => Err(unknown("has other characters than letters, digits, - and _", &StreamName)),
        }
    };
    show shown;

    /// A URL with the scheme `https`.
    HttpsUrl: String = "URL", "an https URL", "\"https://HOST/directory\"";
    parse |text| match text.parse::<http::Uri>() {
        Ok(url) if url.scheme_str() == Some("https") && url.host().is_some() => Ok(text.to_owned()),
        _ => Err(unknown("is not an https URL", &HttpsUrl)),
    };
    show shown;

    /// A URL with the scheme `http` or `https`.
    WebUrl: http::Uri = "URL", "an http or https URL", "\"http://127.0.0.1:5555/ask\"";
    parse |text| match text.parse::<http::Uri>() {
        Ok(url) if url.authority().is_some_and(|authority| authority.as_str().contains('@')) => {
            let error = ValueError::new("has a user, which would not be sent");
            Err(error.hint("write a secret as a parameter: ?token=SECRET"))
        }
        Ok(url) if matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some() => Ok(url),
        _ => Err(unknown("is not an http or https URL", &WebUrl)),
    };
    show shown;

    /// A text without control characters.
    Text: String = "text", "a text", "\"shortlived\"";
    parse |text| match !text.is_empty() && text.len() <= 512 && !text.chars().any(char::is_control) {
        true => Ok(text.to_owned()),
        false => Err(unknown("is empty, longer than 512 bytes, or has control characters", &Text)),
    };
    show shown;

    /// A path of a URL, with or without a query.
    Target: String = "path", "a path of a URL", "\"/health\"";
    parse |text| {
        let has_only = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
        match text.starts_with('/') && text.bytes().all(has_only) {
            true => Ok(text.to_owned()),
            false => Err(unknown("is not a path of a URL", &Target)),
        }
    };
    show shown;

    /// The name of a rule of admission to disk.
    DiskRule: DiskAdmissionSpec = "rule", "a rule of admission to disk", "\"second-hit\"";
    parse |text| text.parse().map_err(|error| to_value_error(text, &error));
    show shown;

    /// The name of a rule of reinsertion.
    ReinsertionRule: Reinsertion = "rule", "a rule of reinsertion", "\"fifo-reinsertion\"";
    parse |text| text.parse().map_err(|error| to_value_error(text, &error));
    show shown;

    /// A host name or address, with or without a port.
    HostName: String = "host", "a host", "\"www.example.com\"";
    parse host_name;
    show shown;

    /// The choice of the `Host` for an origin. `None` is `"auto"`.
    OriginHost: Option<HostPolicy> = "`\"auto\"`, `\"forward\"`, `\"origin\"` or a host", "a host",
        "\"www.example.com\"";
    parse |text| Ok(match text {
        "auto" => None,
        "forward" => Some(HostPolicy::Forward),
        "origin" => Some(HostPolicy::Origin),
        _ => Some(HostPolicy::Fixed(host_name(text)?)),
    });
    show |host| Some(match host {
        None => "auto".to_owned(),
        Some(HostPolicy::Forward) => "forward".to_owned(),
        Some(HostPolicy::Origin) => "origin".to_owned(),
        Some(HostPolicy::Fixed(host)) => host.clone(),
    });

    /// A host name, or `"*.DOMAIN"` for all hosts below a domain.
    Host: HostPattern = "host or `\"*.DOMAIN\"`", "a host", "\"www.example.com\"";
    parse |text| text.parse().map_err(|_| {
        ValueError::new("is not a host name")
            .hint("write www.example.com, or *.example.com for all hosts below a domain")
    });
    show shown;

    /// `"gateway.example:7443"`.
    HostPort: crate::link_settings::HostPort = "host and port", "a host and port", "\"gateway.example:7443\"";
    parse |text| {
        text.parse().map_err(|_| ValueError::new("is not HOST:PORT").hint("write \"gateway.example:7443\""))
    };
    show shown;

    /// The limit of the bytes that a link sends: `"20Mbps"`, or `"08:00-18:00=20Mbps,100Mbps"`.
    RateLimit: crate::link_settings::RateLimit = "rate, or rates by time of day", "a rate limit", "\"20Mbps\"";
    parse |text| {
        text.parse().map_err(|_| {
            ValueError::new("is not a rate limit")
                .hint("write \"20Mbps\", or \"08:00-18:00=20Mbps,100Mbps\" with times in UTC")
        })
    };
    show shown;

    /// Hosts and ports, separated by commas.
    HostPorts: Vec<crate::link_settings::HostPort> = "list of hosts and ports", "a list of hosts and ports",
        "[\"gateway.example:7443\"]", list;
    parse |text| {
        let hosts = text.split(',').map(|host| host.trim().parse().ok());
        let hosts: Option<_> = hosts.collect();
        hosts.ok_or_else(|| unknown("has an item that is not HOST:PORT", &HostPorts))
    };
    show |hosts| joined(hosts, ", ");

    /// The name of the edge in header fields.
    Token: String = "name", "a name", "\"edge-1\"";
    parse |text| {
        // The accepted names are tokens both for `Via` (RFC 9110 §5.6.2) and for `Cache-Status` (RFC 9651 §3.3.4). Both
        // RFCs allow more punctuation.
        let is_valid = text.len() <= 64
            && text.starts_with(|first: char| first.is_ascii_alphabetic())
            && has_only(text, b"-_.");
        match is_valid {
            true => Ok(text.to_owned()),
            false => Err(ValueError::new("is not a valid name")
                .hint("use up to 64 letters, digits, -, _ and ., starting with a letter")),
        }
    };
    show shown;

    /// The name of a bucket of S3.
    Bucket: String = "name of a bucket", "the name of a bucket", "\"media\"";
    parse |text| {
        // Older buckets may have upper case and `_`. A name is put into a path unchanged, so it has no others.
        let is_valid =
            (3..=255).contains(&text.len()) && has_only(text, b"-_.") && !text.starts_with('.');
        match is_valid {
            true => Ok(text.to_owned()),
            false => Err(ValueError::new("is not the name of a bucket")
                .hint("use at least three letters, digits, -, . and _")),
        }
    };
    show shown;

    /// A path with one `{id}` in it.
    PathOfId: PathPattern = "path with `{id}`", "a path with {id}", "\"/resource/{id}\"";
    parse |text| text.parse().map_err(|error| to_value_error(text, &error));
    show shown;

    /// Protocols of `Upgrade`, separated by commas, or `"any"` or `"none"`.
    UpgradeList: Upgrades = "list of protocols, or `\"any\"` or `\"none\"`", "a list of protocols", "\"websocket\"";
    parse |text| text.parse().map_err(|error: <Upgrades as std::str::FromStr>::Err| {
        ValueError::new("is not a list of protocols").hint(error.to_string())
    });
    show shown;

    /// Host names, separated by commas.
    Hosts: Vec<String> = "list of host names", "a list of host names", "\"edge-1.example,edge-1\"", list;
    parse |text| {
        let hosts: Vec<String> = text.split(',').map(|host| host.trim().to_owned()).collect();
        let is_host =
            |host: &String| (1..=255).contains(&host.len()) && has_only(host, b"-_.");
        match hosts.iter().all(is_host) {
            true => Ok(hosts),
            false => Err(unknown("is not a list of host names", &Hosts)),
        }
    };
    show |hosts| joined(hosts, ",");

    /// Networks, separated by commas. `None` is `"none"`, and an empty list is a list without members.
    ProxyNetworks: Option<Networks> = "list of networks, or `\"none\"`", "a list of networks",
        "\"10.0.0.0/8, 2001:db8::/32\"", list;
    parse |text| match text {
        NONE => Ok(None),
        _ => text.parse().map(Some).map_err(|error| to_value_error(text, &error)),
    };
    show |networks| networks.as_ref().map_or_else(|| Some(NONE.to_owned()), shown);

    /// Roles of a token, separated by commas.
    RoleList: Roles = "list of `\"read\"`, `\"purge\"` and `\"reload\"`", "a list of roles",
        "[\"read\", \"purge\", \"reload\"]", list;
    parse |text| text.parse().map_err(|error| error_of_sentence(&error));
    show shown;

    /// Public keys in hex, separated by commas.
    PublicKeys: Vec<PublicKey> = "list of public keys", "a public key", "its 64 hex digits in quotes", list;
    parse |text| {
        let keys = text.split(',').map(|key| key.trim().parse().ok());
        keys.collect::<Option<_>>().ok_or_else(|| {
            ValueError::new("is not a public key of 64 hex digits")
                .hint("`edgeward filter keygen --public FILE` prints the key of a publisher")
        })
    };
    show |keys| joined(keys, ",");

    /// Media types or patterns for them, separated by commas.
    MediaTypes: CompressibleTypes = "list of media types", "a list of media types",
        "\"text/*, application/json, *+xml\"";
    parse |text| {
        let types = CompressibleTypes::parse(text.split(',').map(str::trim));
        types.map_err(|error| to_value_error(text, &error))
    };
    show shown;

    /// Content codings, separated by commas.
    Codings: Vec<Coding> = "list of codings", "a list of codings", "\"br, zstd, gzip\"";
    parse |text| {
        let codings = text.split(',').map(|name| Coding::from_name(name.trim().as_bytes()));
        // A coding with a dictionary is not applied in general.
        let general = codings.map(|coding| coding.filter(|coding| !coding.needs_dictionary()));
        let codings: Option<_> = general.collect();
        codings.ok_or_else(|| unknown("is not a list of codings that the edge can apply", &Codings))
    };
    show |codings| {
        let names: Vec<_> = codings.iter().map(|coding| coding.name()).collect();
        Some(names.join(", "))
    };

    /// The name of a policy.
    Policy: PolicySpec = "policy", "a policy", "\"density\"";
    parse |text| PolicySpec::parse_served(text).map_err(|error: ParsePolicyError| {
        let mut value_error = to_value_error(text, &error);
        if let ParsePolicyError::Unknown(_) = error {
            value_error.reason = "is not a policy".to_owned();
        }
        if let Some(cause) = std::error::Error::source(&error) {
            value_error.reason = format!("{}: {cause}", value_error.reason);
        }
        value_error
    });
    show shown;
}

/// One of the words of an enum.
pub(in crate::config) struct Word<T>(PhantomData<fn() -> T>);

impl<T> Word<T> {
    pub(in crate::config) const OF: Self = Self(PhantomData);
}

impl<T: Choice + Copy> SettingValue for Word<T> {
    type Parsed = T;

    fn name(&self) -> String {
        let words: Vec<String> = T::WORDS
            .iter()
            .map(|word| format!("`\"{word}\"`"))
            .collect();
        words.join(" or ")
    }

    fn noun_phrase(&self) -> &'static str {
        "one of the allowed words"
    }

    fn example(&self) -> String {
        T::WORDS.join(" or ")
    }

    fn read(&self, raw: &Raw, _folder: &Path) -> Result<T, ValueError> {
        let hint = || format!("use {}", self.example());
        let value = T::from_word(self.text(raw)?);
        value.ok_or_else(|| ValueError::new("is not known").hint(hint()))
    }

    fn show(&self, value: &T) -> Option<String> {
        Some(value.word().to_owned())
    }
}

/// A filter's file, or the URL of a published filter.
pub(in crate::config) struct Filter;

impl SettingValue for Filter {
    type Parsed = FilterLocation;

    fn name(&self) -> String {
        "file or URL".to_owned()
    }

    fn noun_phrase(&self) -> &'static str {
        "a file or a URL"
    }

    fn example(&self) -> String {
        "\"resource.ids\" or \"https://HOST/sets/NAME\"".to_owned()
    }

    fn read(&self, raw: &Raw, folder: &Path) -> Result<FilterLocation, ValueError> {
        let text = self.text(raw)?;
        if text.starts_with("http://") || text.starts_with("https://") {
            let url = text.parse().map(FilterLocation::Publisher);
            return url.map_err(|error: edgeward_filter_client::ParseUrlError| {
                ValueError::new("is not the URL of a published filter").hint(error.to_string())
            });
        }
        InputFile.read(raw, folder).map(FilterLocation::File)
    }

    fn show(&self, location: &FilterLocation) -> Option<String> {
        shown(location)
    }
}

/// A list that may be empty: texts separated by commas, or `"none"`.
pub(in crate::config) struct Listed<T>(PhantomData<fn() -> T>);

/// The types of such lists.
pub(in crate::config) trait List:
    Default + Display + std::str::FromStr<Err: Display>
{
    /// The name of a list in the reference, without its article.
    const NAME: &'static str;
    /// The same with its article.
    const NOUN_PHRASE: &'static str;
    /// A list as text.
    const EXAMPLE: &'static str;

    /// Returns true if the list has no members.
    fn has_no_members(&self) -> bool;
}

macro_rules! lists {
    ($($list:ident: $name:literal, $example:literal, $is_empty:expr;)+) => {$(
        impl List for $list {
            const NAME: &'static str = $name;
            const NOUN_PHRASE: &'static str = concat!("a ", $name);
            const EXAMPLE: &'static str = $example;

            fn has_no_members(&self) -> bool {
                let is_empty: fn(&Self) -> bool = $is_empty;
                is_empty(self)
            }
        }
    )+};
}

lists! {
    Networks: "list of networks", "\"10.0.0.0/8, 2001:db8::/32\"", |networks| networks.0.is_empty();
    FieldNames: "list of field names", "\"x-original-url, x-rewrite-url\"", |names| names.0.is_empty();
    PathForms: "list of forms", "\"encoded-slash, dot-segment\"", |forms| forms.is_empty();
    PurgeMethods: "list of methods", "\"PURGE, BAN\"", |methods| methods.iter().next().is_none();
    IgnoredParameters: "list of parameter names", "\"utm_*, gclid\"", Self::is_empty;
}

impl<T> Listed<T> {
    pub(in crate::config) const OF: Self = Self(PhantomData);
}

impl<T: List> SettingValue for Listed<T> {
    type Parsed = T;

    fn name(&self) -> String {
        format!("{}, or `\"none\"`", T::NAME)
    }

    fn noun_phrase(&self) -> &'static str {
        T::NOUN_PHRASE
    }

    fn example(&self) -> String {
        T::EXAMPLE.to_owned()
    }

    fn read(&self, raw: &Raw, _folder: &Path) -> Result<T, ValueError> {
        match self.text(raw)? {
            NONE => Ok(T::default()),
            text => text.parse().map_err(|error| to_value_error(text, &error)),
        }
    }

    fn show(&self, list: &T) -> Option<String> {
        Some(match list.has_no_members() {
            true => NONE.to_owned(),
            false => list.to_string(),
        })
    }

    fn is_list(&self) -> bool {
        true
    }
}

fn host_name(text: &str) -> Result<String, ValueError> {
    let is_valid =
        !text.is_empty() && text.len() <= 255 + ":65535".len() && has_only(text, b"-._:[]");
    match is_valid {
        true => Ok(text.to_owned()),
        false => Err(ValueError::new("is not a host name").hint("write HOST or HOST:PORT")),
    }
}

fn shown(value: &impl Display) -> Option<String> {
    Some(value.to_string())
}

/// Returns the members with `separator` between them, or `None` if there is no member.
fn joined(members: &[impl Display], separator: &str) -> Option<String> {
    let texts: Vec<String> = members.iter().map(ToString::to_string).collect();
    (!texts.is_empty()).then(|| texts.join(separator))
}

/// Returns true if the text has only letters, digits and these bytes.
fn has_only(text: &str, others: &[u8]) -> bool {
    text.bytes()
        .all(|b| b.is_ascii_alphanumeric() || others.contains(&b))
}

fn unknown(reason: &str, kind: &impl SettingValue) -> ValueError {
    ValueError::new(reason).hint(format!("write {}", kind.example()))
}

const ADDRESSES: &str =
    "write 127.0.0.1:8080 (this machine), 0.0.0.0:8080 (all of IPv4) or [::]:8080 (all addresses)";
