//! Servers: their names, the addresses at which they listen, and which server gets a request.

use super::parse::Directive;
use super::scope::Scope;
use crate::hosts::Host;
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
    pub(super) hosts: Vec<Host>,
    pub(super) listens: Vec<Listen<'t>>,
    /// True if the server has `_`, an empty name or no name.
    pub(super) is_unnamed: bool,
}

impl<'t> Server<'t> {
    pub(super) fn new(directive: Option<&'t Directive>, scope: Scope<'t>, ledger: &Ledger) -> Self {
        let mut hosts = Vec::new();
        let (mut is_unnamed, mut has_names) = (false, false);
        let named = |name: &str| {
            scope
                .here()
                .iter()
                .filter(move |d| d.name == name)
                .collect::<Vec<_>>()
        };
        for names in named("server_name") {
            ledger.translated(names, "site.hosts");
            for name in &names.args {
                has_names = true;
                let lower = name.to_ascii_lowercase();
                match lower.as_str() {
                    "_" | "" | "_default_" | "default" => is_unnamed = true,
                    _ if lower.starts_with('~')
                        || lower.contains(['$', ':', '/'])
                        || lower.ends_with(".*") =>
                    {
                        let advice = "a site has names and *.DOMAIN; list the names of this server";
                        ledger.left_out(names, Effect::Response, advice);
                    }
                    _ => {
                        if let Some(domain) = lower.strip_prefix("*.") {
                            hosts.push(Host::Below(domain.to_owned()));
                        } else if let Some(domain) = lower.strip_prefix('.') {
                            hosts.push(Host::Exact(domain.to_owned()));
                            hosts.push(Host::Below(domain.to_owned()));
                        } else {
                            hosts.push(Host::Exact(lower));
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
            hosts,
            listens,
            is_unnamed: is_unnamed || !has_names,
            scope,
        }
    }
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
            let advice = "the edge has no HTTP/3; clients use HTTP/2";
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

/// Which server gets the requests for a host.
#[derive(Debug)]
pub(super) struct Servers<'t> {
    pub(super) all: Vec<Server<'t>>,
    /// True if the input is a whole configuration, so that its first server gets requests for unknown hosts.
    pub(super) is_whole: bool,
}

impl Servers<'_> {
    /// Returns the addresses, each with the servers that listen there, the usual ports first.
    pub(super) fn addresses(&self) -> Vec<(&str, Vec<usize>)> {
        let mut addresses: Vec<(&str, Vec<usize>)> = Vec::new();
        for (index, server) in self.all.iter().enumerate() {
            for listen in &server.listens {
                match addresses
                    .iter_mut()
                    .find(|(address, _)| *address == listen.address)
                {
                    Some((_, servers)) => servers.push(index),
                    None => addresses.push((&listen.address, vec![index])),
                }
            }
        }
        let is_usual = |address: &str| address.ends_with(":80") || address.ends_with(":443");
        addresses.sort_by_key(|(address, _)| !is_usual(address));
        addresses
    }

    /// Returns the options of an address: true for TLS, true for PROXY headers.
    pub(super) fn options(&self, address: &str) -> (bool, bool) {
        let listens = self.all.iter().flat_map(|server| &server.listens);
        let same = listens.filter(|listen| listen.address == address);
        same.fold((false, false), |(tls, proxy), listen| {
            (tls || listen.is_tls, proxy || listen.has_proxy_header)
        })
    }

    /// Returns the server that nginx selects for a host at an address.
    fn at(&self, servers: &[usize], address: &str, host: &Host) -> (Option<usize>, Option<usize>) {
        let length = |candidate: &Host| candidate.text().len();
        let named = servers
            .iter()
            .flat_map(|index| self.all[*index].hosts.iter().map(move |h| (*index, h)))
            .filter(|(_, candidate)| *host != Host::Other && candidate.covers(host))
            .max_by_key(|(index, candidate)| {
                let is_exact = matches!(candidate, Host::Exact(_));
                (is_exact, length(candidate), std::cmp::Reverse(*index))
            });
        let is_default = |index: &&usize| {
            let server = &self.all[**index];
            let here = server
                .listens
                .iter()
                .find(|listen| listen.address == address);
            here.is_some_and(|listen| listen.is_default)
        };
        let flagged = servers.iter().find(is_default);
        let first = match self.is_whole {
            true => servers.first(),
            false => servers.iter().find(|index| self.all[**index].is_unnamed),
        };
        (named.map(|(index, _)| index), flagged.or(first).copied())
    }

    /// Returns the server that gets the requests for a host by a scheme.
    pub(super) fn select(&self, host: &Host, scheme: &str) -> Option<usize> {
        let addresses = self.addresses();
        let mut results = addresses
            .iter()
            .filter(|(address, _)| (scheme == "https") == self.options(address).0)
            .map(|(address, servers)| self.at(servers, address, host))
            .collect::<Vec<_>>();
        results.retain(|(named, default)| named.is_some() || default.is_some());
        let named = results.iter().find_map(|(named, _)| *named);
        named.or_else(|| results.iter().find_map(|(_, default)| *default))
    }

    /// Returns the schemes of all addresses.
    pub(super) fn schemes(&self) -> Vec<&'static str> {
        let is_tls = |tls: bool| {
            self.addresses()
                .iter()
                .any(|(address, _)| self.options(address).0 == tls)
        };
        [("http", false), ("https", true)]
            .into_iter()
            .filter(|(_, tls)| is_tls(*tls))
            .map(|(scheme, _)| scheme)
            .collect()
    }
}

#[cfg(test)]
mod tests {
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
    fn a_domain_covers_the_names_below_it() {
        let below = Host::Below("example.org".to_owned());
        let exact = |name: &str| Host::Exact(name.to_owned());
        assert!(below.covers(&exact("a.example.org")));
        assert!(below.covers(&Host::Below("a.example.org".to_owned())));
        assert!(below.covers(&below));
        assert!(!below.covers(&exact("example.org")));
        assert!(!below.covers(&exact("badexample.org")));
        assert!(!exact("a").covers(&Host::Other));
    }
}
