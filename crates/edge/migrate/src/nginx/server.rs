//! Servers: their names, and the addresses at which they listen.

use core::net::IpAddr;

use super::parse::Directive;
use super::scope::Scope;
use super::server_names::ServerName;
use super::translator::every;
use crate::ledger::Ledger;
use crate::report::Effect;

/// An address at which a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listen<'t> {
    pub(super) directive: Option<&'t Directive>,
    /// The address as the edge writes it.
    pub(super) address: String,
    pub(super) is_tls: bool,
    pub(super) is_default: bool,
    pub(super) has_proxy_header: bool,
}

/// A block `server`.
#[derive(Debug)]
pub(super) struct Server<'t> {
    pub(super) directive: Option<&'t Directive>,
    pub(super) scope: Scope<'t>,
    pub(super) names: Vec<ServerName>,
    pub(super) listens: Vec<Listen<'t>>,
    /// True if the server has `_`, an empty name or no name.
    pub(super) is_unnamed: bool,
}

impl<'t> Server<'t> {
    pub(super) fn new(directive: Option<&'t Directive>, scope: Scope<'t>, ledger: &Ledger) -> Self {
        let mut names = Vec::new();
        let (mut is_unnamed, mut has_names) = (false, false);
        let effect = match limits_access(scope.here()) {
            true => Effect::Access,
            false => Effect::Response,
        };
        let named = |name: &str| {
            scope
                .here()
                .iter()
                .filter(move |d| d.name == name)
                .collect::<Vec<_>>()
        };
        for list in named("server_name") {
            ledger.translated(list, "site.hosts, and host_regex for expressions");
            for name in &list.args {
                has_names = true;
                if matches!(name.as_str(), "_" | "" | "_default_" | "default") {
                    is_unnamed = true;
                    continue;
                }
                // `.example.org` is the domain and all names below it.
                let both = name.strip_prefix('.');
                let all = both.map_or_else(
                    || vec![name.clone()],
                    |domain| vec![domain.to_owned(), format!("*.{domain}")],
                );
                for name in all {
                    match ServerName::parse(&name) {
                        Some(ServerName::Unknown) => {
                            ledger.left_out(list, effect, UNKNOWN_NAME);
                            names.push(ServerName::Unknown);
                        }
                        Some(name) => names.push(name),
                        None => {
                            let text = "no request has such a host; list the names of this server";
                            ledger.left_out(list, effect, text);
                        }
                    }
                }
            }
        }
        let has_ssl = named("ssl").iter().any(|d| d.arg(0) == "on");
        for legacy in named("ssl") {
            ledger.translated(legacy, "listener.tls_certificates");
        }
        let mut listens: Vec<Listen<'t>> = Vec::new();
        for directive in named("listen") {
            let listen = Listen::new(directive, has_ssl, ledger);
            if let Some(listen) = listen
                && !listens.iter().any(|known| known.address == listen.address)
            {
                listens.push(listen);
            }
        }
        if listens.is_empty() {
            listens.push(Listen {
                directive: None,
                address: "0.0.0.0:80".to_owned(),
                is_tls: has_ssl,
                is_default: false,
                has_proxy_header: false,
            });
        }
        Self {
            directive,
            names,
            listens,
            is_unnamed: is_unnamed || !has_names,
            scope,
        }
    }
}

const UNKNOWN_NAME: &str = "the edge cannot compare this expression; list the names of this server. If the server \
                            denies requests, those for hosts that no server names are denied";

impl Server<'_> {
    /// Returns true if a client that connects to an address may reach this server at one of its own addresses.
    pub(super) fn is_reached_from(&self, address: &str) -> bool {
        let (there, there_port) = parsed(address);
        let is_local = |address: &str, ip: Option<IpAddr>| {
            address.starts_with("unix:") || ip.is_some_and(|ip| ip.is_loopback())
        };
        let is_there_local = is_local(address, there);
        self.listens.iter().any(|listen| {
            let (here, here_port) = parsed(&listen.address);
            let is_any = here.is_some_and(|ip| ip.is_unspecified());
            let is_public = is_any && matches!(here_port, 80 | 443);
            let is_same = listen.address == address || (is_any && here_port == there_port);
            is_public || is_same || (is_there_local && (is_any || is_local(&listen.address, here)))
        })
    }

    /// Returns true if the server denies requests, or authenticates clients.
    pub(super) fn limits_access(&self) -> bool {
        limits_access(self.scope.here())
    }
}

/// Returns true if a directive of a block denies requests, or authenticates clients.
fn limits_access(block: &[Directive]) -> bool {
    every(block).iter().any(|directive| {
        matches!(
            directive.name.as_str(),
            "allow"
                | "deny"
                | "auth_basic"
                | "auth_request"
                | "auth_jwt"
                | "internal"
                | "limit_except"
                | "satisfy"
                | "secure_link"
                | "ssl_verify_client"
                | "valid_referers"
        ) || (directive.name == "return" && directive.arg(0).starts_with(['4', '5']))
    })
}

impl<'t> Listen<'t> {
    fn new(directive: &'t Directive, is_tls: bool, ledger: &Ledger) -> Option<Self> {
        let mut listen = Self {
            directive: Some(directive),
            address: address(directive.arg(0)),
            is_tls,
            is_default: false,
            has_proxy_header: false,
        };
        let mut is_quic = false;
        for word in directive.args.iter().skip(1) {
            match word.as_str() {
                "ssl" => listen.is_tls = true,
                "default_server" | "default" => listen.is_default = true,
                "proxy_protocol" => listen.has_proxy_header = true,
                "quic" => is_quic = true,
                // `http2`, and options of the socket: backlog, reuseport, deferred and others.
                _ => {}
            }
        }
        if is_quic {
            let advice = "set http3 = true at the listener of the same port";
            ledger.left_out(directive, Effect::Operation, advice);
            return None;
        }
        ledger.translated(directive, "listener.address");
        Some(listen)
    }
}

/// Returns an address of `listen` as the edge writes it.
fn address(text: &str) -> String {
    if text.starts_with("unix:") {
        return text.to_owned();
    }
    if text.parse::<u16>().is_ok() {
        return format!("0.0.0.0:{text}");
    }
    let has_port = match text.strip_prefix('[') {
        Some(rest) => rest.contains("]:"),
        None => text.contains(':'),
    };
    let text = match has_port {
        true => text.to_owned(),
        false => format!("{text}:80"),
    };
    let text = text.replace("*:", "0.0.0.0:");
    text.replace("localhost:", "127.0.0.1:")
}

/// Returns the address, unless it is a Unix socket or a name, and the port.
fn parsed(address: &str) -> (Option<IpAddr>, u16) {
    let (ip, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let ip = ip.trim_start_matches('[').trim_end_matches(']');
    (ip.parse().ok(), port.parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::*;

    #[test]
    fn addresses_have_the_form_of_the_edge() {
        for (text, expected) in [
            ("80", "0.0.0.0:80"),
            ("*:8080", "0.0.0.0:8080"),
            ("127.0.0.1", "127.0.0.1:80"),
            ("localhost:81", "127.0.0.1:81"),
            ("[::]:443", "[::]:443"),
            ("[::1]", "[::1]:80"),
            ("unix:/run/a.sock", "unix:/run/a.sock"),
        ] {
            assert_eq!(address(text), expected, "{text}");
        }
    }

    #[test]
    fn a_server_is_reached_from_an_address_whose_clients_reach_it_anyway() {
        for (own, other, expected) in [
            ("80", "8080", true),
            ("[::]:443", "10.0.0.1:81", true),
            ("8080", "80", false),
            ("8080", "10.0.0.1:8080", true),
            ("8080", "127.0.0.1:81", true),
            ("10.0.0.1:80", "80", false),
            ("10.0.0.1:80", "10.0.0.1:80", true),
            ("127.0.0.1:81", "80", false),
            ("127.0.0.1:81", "unix:/s", true),
            ("unix:/s", "80", false),
            ("name.example:81", "127.0.0.1:80", false),
        ] {
            let text = format!("server {{ listen {own}; }}");
            let blocks = parse(&"t".into(), &text, &mut 0).expect("a configuration");
            let scope = Scope::new(&blocks);
            let inner = scope.within(blocks[0].children());
            let server = Server::new(Some(&blocks[0]), inner, &Ledger::default());
            assert_eq!(
                server.is_reached_from(&address(other)),
                expected,
                "{own} {other}"
            );
        }
    }
}
