//! Selects the servers of a host, as nginx does, as far as sites and rules of the edge can state it.

use core::cmp::Reverse;

use super::server::Server;
use super::server_names::{Holds, ServerName};
use crate::hosts::Host;

/// Which server gets the requests for a host.
#[derive(Debug)]
pub(super) struct Servers<'t> {
    pub(super) all: Vec<Server<'t>>,
    /// True if the input is a whole configuration, so that its first server gets requests for unknown hosts.
    pub(super) is_whole: bool,
}

/// The server that answers the requests for a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// This server.
    Server(usize),
    /// This server at some addresses, or for some hosts that the edge cannot distinguish. The requests are denied.
    Denied(usize),
    /// A server of another file.
    Elsewhere,
}

/// The server of the hosts that an expression matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layer {
    /// `None` for all hosts.
    pub(super) host_regex: Option<String>,
    pub(super) choice: Choice,
}

impl Layer {
    /// Returns the server, also if its requests are denied.
    pub(super) fn server(&self) -> Option<usize> {
        match self.choice {
            Choice::Server(index) | Choice::Denied(index) => Some(index),
            Choice::Elsewhere => None,
        }
    }

    fn always(choice: Choice) -> Self {
        Self {
            host_regex: None,
            choice,
        }
    }
}

/// The servers that nginx selects for a host at an address.
struct Selection {
    /// The first layer is that of all hosts, and the last one that holds counts.
    layers: Vec<Layer>,
    /// False if the server is the default of the address.
    is_named: bool,
}

impl Selection {
    fn has(&self, index: usize) -> bool {
        let mut layers = self.layers.iter();
        layers.any(|layer| layer.choice == Choice::Server(index))
    }
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

    /// Returns the servers that nginx selects for a host at an address. `None` if another file has them.
    fn at(&self, servers: &[usize], address: &str, host: &Host) -> Option<Selection> {
        let mut layers = Vec::new();
        for (name, index) in self.by_precedence(servers) {
            let server = &self.all[index];
            let layer = match (name.holds(host), name) {
                (Holds::Never, _) => continue,
                (Holds::Always, _) => Layer::always(Choice::Server(index)),
                (Holds::Sometimes, ServerName::Unknown) if server.limits_access() => {
                    Layer::always(Choice::Denied(index))
                }
                (Holds::Sometimes, name) => match name.expression() {
                    Some(expression) => Layer {
                        host_regex: Some(expression),
                        choice: Choice::Server(index),
                    },
                    None => continue,
                },
            };
            let is_last = layer.host_regex.is_none();
            layers.push(layer);
            if is_last {
                layers.reverse();
                return Some(Selection {
                    layers,
                    is_named: true,
                });
            }
        }
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
        match flagged.or(first) {
            Some(index) => layers.push(Layer::always(Choice::Server(*index))),
            None if layers.is_empty() => return None,
            None => layers.push(Layer::always(Choice::Elsewhere)),
        }
        layers.reverse();
        Some(Selection {
            layers,
            is_named: false,
        })
    }

    /// Returns the names of servers, in the order in which nginx compares them.
    fn by_precedence(&self, servers: &[usize]) -> Vec<(&ServerName, usize)> {
        let names = servers.iter().flat_map(|index| {
            let names = self.all[*index].names.iter();
            names.map(move |name| (name, *index))
        });
        let mut names: Vec<(&ServerName, usize)> = names.collect();
        // The order of servers counts among equal names and among expressions.
        names.sort_by_key(|(name, _)| match name {
            ServerName::Host(Host::Below(domain)) => (1, Reverse(domain.len())),
            ServerName::Host(_) => (0, Reverse(0)),
            ServerName::Start(start) => (2, Reverse(start.len())),
            ServerName::Expression(_) | ServerName::Unknown => (3, Reverse(0)),
        });
        names
    }

    /// Returns the servers that get the requests for a host by a scheme, the last one whose expression holds.
    ///
    /// The edge answers a host at all its listeners. If nginx selects other servers at another address, and clients
    /// that reach this address may not reach one of the servers otherwise, the requests are denied.
    pub(super) fn select(&self, host: &Host, scheme: &str) -> Option<Vec<Layer>> {
        let addresses = self.addresses();
        let found: Vec<(&str, Selection)> = addresses
            .iter()
            .filter(|(address, _)| (scheme == "https") == self.options(address).0)
            .filter_map(|(address, servers)| Some((*address, self.at(servers, address, host)?)))
            .collect();
        let named = found.iter().find(|(_, selection)| selection.is_named);
        let (_, chosen) = named.or_else(|| found.first())?;
        let is_exposed = |layer: &&Layer| {
            let Choice::Server(index) = layer.choice else {
                return false;
            };
            found.iter().any(|(address, there)| {
                !there.has(index) && !self.all[index].is_reached_from(address)
            })
        };
        match chosen.layers.iter().find(is_exposed) {
            Some(Layer {
                choice: Choice::Server(index),
                ..
            }) => Some(vec![Layer::always(Choice::Denied(*index))]),
            _ => Some(chosen.layers.clone()),
        }
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
    use proptest::prelude::*;

    use super::super::parse::{Directive, parse};
    use super::super::scope::Scope;
    use super::*;
    use crate::ledger::Ledger;

    const NAMES: [&str; 17] = [
        "a.ex",
        "b.ex",
        "*.ex",
        ".a.ex",
        "*.b.ex",
        "a.*",
        "b.a.*",
        "~^(a|b)\\.ex$",
        "~^(?<s>.+)\\.ex$",
        "~^[^.]+\\.a\\.ex$",
        "~b",
        "~^a\\.",
        "~(?!a)b",
        "~^c\\.ex$|b\\.ex$",
        "_",
        "A.ex",
        "c.ex",
    ];

    fn parsed_servers(drawn: &[(Vec<&str>, Vec<&str>, bool)]) -> Vec<Directive> {
        let text: String = drawn
            .iter()
            .map(|(names, listens, limits)| {
                let listens: String = listens.iter().map(|at| format!("listen {at};")).collect();
                let names = if names.is_empty() {
                    "_".to_owned()
                } else {
                    names.join(" ")
                };
                let limit = if *limits { "return 403;" } else { "" };
                format!("server {{ server_name {names}; {listens} {limit} }}\n")
            })
            .collect();
        parse(&"t".into(), &text, &mut 0).expect("a configuration")
    }

    /// The server of nginx, by its documentation: an exact name, the longest name with `*` at its start, the longest
    /// with `*` at its end, the first expression, the default server. `Err` if an expression is unknown to `regex`.
    fn selected(
        drawn: &[(Vec<&str>, Vec<&str>, bool)],
        here: &[usize],
        host: &str,
    ) -> Result<usize, usize> {
        let names = || {
            here.iter().flat_map(|index| {
                let names = drawn[*index].0.iter();
                names.map(move |name| (*index, name.to_lowercase()))
            })
        };
        let below = |name: &str| match name.strip_prefix("*.").or_else(|| name.strip_prefix('.')) {
            Some(domain) => host.ends_with(&format!(".{domain}")),
            None => false,
        };
        let domain = |name: &str| name.trim_start_matches('*').trim_start_matches('.').len();
        if let Some((index, _)) = names().find(|(_, name)| name.trim_start_matches('.') == host) {
            return Ok(index);
        }
        let starting = names().filter(|(_, name)| below(name));
        if let Some(index) = first_of_longest(starting, domain) {
            return Ok(index);
        }
        let ending = names().filter(|(_, name)| {
            let start = name.strip_suffix('*');
            start.is_some_and(|start| start.ends_with('.') && host.starts_with(start))
        });
        if let Some(index) = first_of_longest(ending, str::len) {
            return Ok(index);
        }
        for (index, name) in names() {
            let Some(pattern) = name.strip_prefix('~') else {
                continue;
            };
            match regex::Regex::new(pattern) {
                Ok(regex) if regex.is_match(host) => return Ok(index),
                Ok(_) => {}
                Err(_) if drawn[index].2 => return Err(index),
                Err(_) => {}
            }
        }
        Ok(here[0])
    }

    /// Returns the server of the first one of the longest names.
    fn first_of_longest(
        names: impl Iterator<Item = (usize, String)>,
        length: impl Fn(&str) -> usize,
    ) -> Option<usize> {
        let mut found: Option<(usize, usize)> = None;
        for (index, name) in names {
            if found.is_none_or(|(_, known)| length(&name) > known) {
                found = Some((index, length(&name)));
            }
        }
        found.map(|(index, _)| index)
    }

    /// The choice of the edge: the narrowest site of the host, and its last layer that holds.
    fn chosen(servers: &Servers<'_>, host: &str) -> Option<Choice> {
        let exact = Host::Exact(host.to_owned());
        let all = servers.all.iter().flat_map(|server| &server.names);
        let mut sites: Vec<Host> = all.flat_map(ServerName::hosts).collect();
        sites.retain(|site| site.covers(&exact));
        let site = sites.into_iter().max_by_key(|site| match site {
            Host::Exact(_) => usize::MAX,
            site => site.text().len(),
        });
        let layers = servers.select(&site.unwrap_or(Host::Other), "http")?;
        let holds = |layer: &&Layer| {
            let regex = layer.host_regex.as_deref();
            regex.is_none_or(|regex| regex::Regex::new(regex).expect("valid").is_match(host))
        };
        Some(layers.iter().rfind(holds)?.choice)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        /// The edge selects the server of nginx for each host. Requests are denied instead if an expression of a server
        /// that limits access is unknown, or if a server would be reached at another address.
        #[test]
        fn the_server_of_a_host_is_that_of_nginx(
            drawn in prop::collection::vec(
                (
                    prop::collection::vec(prop::sample::select(NAMES.to_vec()), 0..4),
                    prop::sample::select(vec![
                        vec!["80"], vec!["80"], vec!["80", "[::]:80"], vec!["8080"], vec!["80", "8080"],
                        vec!["127.0.0.1:81"], vec!["unix:/s"],
                    ]),
                    any::<bool>(),
                ),
                1..6,
            ),
            host in r"[abc](\.[ab])?\.ex|[ab]{1,2}",
        ) {
            let blocks = parsed_servers(&drawn);
            let ledger = Ledger::default();
            let scope = Scope::new(&blocks);
            let all = blocks.iter();
            let all = all.map(|b| Server::new(Some(b), scope.within(b.children()), &ledger)).collect();
            let servers = Servers { all, is_whole: true };
            let choice = chosen(&servers, &host).expect("an address has a default server");
            let addresses = servers.addresses();
            let expected: Vec<(&str, Result<usize, usize>)> = addresses
                .iter()
                .map(|(address, here)| (*address, selected(&drawn, here, &host)))
                .collect();
            match choice {
                // One of several addresses counts, and the server is reached from all others anyway.
                Choice::Server(index) => {
                    prop_assert!(expected.iter().any(|(_, found)| *found == Ok(index)), "{expected:?}");
                    for (address, found) in &expected {
                        let is_reached = servers.all[index].is_reached_from(address);
                        prop_assert!(*found == Ok(index) || is_reached, "{address} {expected:?}");
                    }
                }
                Choice::Denied(index) => {
                    let is_unknown = expected.iter().any(|(_, found)| *found == Err(index));
                    let is_elsewhere = expected.iter().any(|(address, found)| {
                        *found != Ok(index) && !servers.all[index].is_reached_from(address)
                    });
                    prop_assert!(is_unknown || is_elsewhere, "{expected:?}");
                }
                Choice::Elsewhere => prop_assert!(false, "the configuration is whole"),
            }
        }
    }
}
