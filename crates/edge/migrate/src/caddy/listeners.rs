//! Listeners: the addresses and ports of sites.
//!
//! The edge answers each site at all listeners of its scheme, and Caddy at those of the site alone. A site that Caddy
//! answers at fewer addresses is therefore exposed ([`exposes`]).

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::tree::Directive;
use crate::hosts::Reason;
use crate::toml::{self, Table};

/// The listeners of both schemes.
#[derive(Clone, Debug, Default)]
pub(super) struct Listeners {
    pub(super) plain: Vec<SocketAddr>,
    pub(super) encrypted: Vec<SocketAddr>,
}

/// Returns the addresses of a line such as `bind 127.0.0.1`, or all without a line.
pub(super) fn bound(line: Option<&Directive>, port: u16) -> Result<Vec<SocketAddr>, Reason> {
    let Some(line) = line else {
        return Ok(vec![(Ipv4Addr::UNSPECIFIED, port).into()]);
    };
    let address = |text: &String| {
        let plain = text.trim_start_matches('[').trim_end_matches(']');
        let address: IpAddr = match plain {
            "localhost" => Ipv4Addr::LOCALHOST.into(),
            _ => plain
                .parse()
                .map_err(|_| format!("{text} is not an address; write that of listener.address"))?,
        };
        Ok(SocketAddr::from((address, port)))
    };
    match line.args.is_empty() {
        true => Err("bind without an address".to_owned()),
        false => line.args.iter().map(address).collect(),
    }
}

/// Adds addresses to a list in which none covers another.
pub(super) fn add(all: &mut Vec<SocketAddr>, more: &[SocketAddr]) {
    for address in more {
        if !all.iter().any(|known| covers(*known, *address)) {
            all.retain(|known| !covers(*address, *known));
            all.push(*address);
        }
    }
}

/// Returns true if a listener is at an address that none of a site covers.
pub(super) fn exposes(listeners: &[SocketAddr], of_site: &[SocketAddr]) -> bool {
    let is_covered = |address: &SocketAddr| of_site.iter().any(|known| covers(*known, *address));
    !listeners.iter().all(is_covered)
}

fn covers(wide: SocketAddr, narrow: SocketAddr) -> bool {
    let is_of_all = wide.ip().is_unspecified() && (wide.is_ipv6() || narrow.is_ipv4());
    wide.port() == narrow.port() && (is_of_all || wide.ip() == narrow.ip())
}

impl Listeners {
    /// Returns the tables of the listeners. Those of HTTPS have `acme`, or the certificates of the sites.
    pub(super) fn tables(&self, has_acme: bool) -> Vec<Table> {
        let mut tables = Vec::new();
        let new = |address: &SocketAddr| {
            let mut table = Table::new("[[listener]]");
            table.set("address", toml::text(&address.to_string()), None);
            table
        };
        tables.extend(self.plain.iter().map(new));
        for address in &self.encrypted {
            let mut table = new(address);
            match has_acme {
                true => table.set("acme", "true".to_owned(), None),
                false => table.comment(
                    "The certificates are those of the sites; a listener needs one for other names.",
                ),
            }
            tables.push(table);
        }
        tables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_exposed_by_a_listener_at_another_address() {
        let of = |all: &[&str]| -> Vec<SocketAddr> {
            all.iter()
                .map(|one| one.parse().expect("an address"))
                .collect()
        };
        for (listeners, site, expected) in [
            (&["0.0.0.0:80"][..], &["0.0.0.0:80"][..], false),
            (&["0.0.0.0:80"], &["127.0.0.1:80"], true),
            (&["127.0.0.1:80"], &["0.0.0.0:80"], false),
            (&["0.0.0.0:80", "0.0.0.0:9000"], &["0.0.0.0:80"], true),
            (&["[::]:80"], &["0.0.0.0:80"], true),
            (&["10.0.0.1:80"], &["[::]:80"], false),
        ] {
            assert_eq!(
                exposes(&of(listeners), &of(site)),
                expected,
                "{listeners:?} {site:?}"
            );
        }
        let mut all = of(&["127.0.0.1:80", "127.0.0.1:81"]);
        add(&mut all, &of(&["0.0.0.0:80", "10.0.0.1:80"]));
        assert_eq!(all, of(&["127.0.0.1:81", "0.0.0.0:80"]));
    }
}
