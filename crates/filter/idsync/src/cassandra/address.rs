//! The address of a Cassandra cluster and its settings:
//! `cassandra://user:password@node:9042,other/keyspace?consistency=local_one&dc=…`.
//!
//! With `tls=on`, the client verifies that each node's certificate is valid for the address of the node. If the
//! certificates contain a name instead of an address, `tls_name` must be this name. With `tls=ca`, the client
//! verifies that a trusted authority has signed the certificate, but verifies no name, like Cassandra's own shell.
//! A password is sent unencrypted only with `tls=off` or to this machine.

use std::net::IpAddr;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use scylla::frame::types::Consistency;

use crate::tls::{ExpectedName, TlsFiles, client_config};

/// A parsed address of a cluster.
#[derive(Clone, Debug)]
pub(super) struct ClusterAddress {
    /// The nodes to connect to first, as `host` or `host:port`.
    pub(super) nodes: Vec<String>,
    /// The name and the password.
    pub(super) user: Option<(String, String)>,
    pub(super) keyspace: Option<String>,
    pub(super) consistency: Consistency,
    /// The data centre whose nodes are preferred for queries.
    pub(super) datacenter: Option<String>,
    /// The number of rows in a page. For each range that is being read, a node buffers one page: 20,000 UUIDs take
    /// 0.6 MB.
    pub(super) page_rows: i32,
    /// The smallest number of ranges into which a scan divides the ring, the range of all tokens.
    pub(super) ranges: u32,
    /// `None` if the connection does not use TLS.
    pub(super) tls: Option<Arc<ClientConfig>>,
}

impl ClusterAddress {
    pub(super) fn parse(address: &str) -> Result<Self, String> {
        let (_, rest) = address.split_once("://").ok_or("the scheme is missing")?;
        let (rest, settings) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, keyspace) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, nodes) = match authority.rsplit_once('@') {
            Some((user, nodes)) => {
                let (user, password) = user.split_once(':').ok_or("the user has no password")?;
                (
                    Some((percent_decode(user)?, percent_decode(password)?)),
                    nodes,
                )
            }
            None => (None, authority),
        };
        let nodes: Vec<_> = nodes
            .split(',')
            .filter(|node| !node.is_empty())
            .map(str::to_owned)
            .collect();
        if nodes.is_empty() {
            return Err("no node given; write cassandra://node:9042/keyspace".to_owned());
        }
        let mut cluster = Self {
            nodes,
            user,
            keyspace: (!keyspace.is_empty()).then(|| keyspace.to_owned()),
            consistency: Consistency::LocalQuorum,
            datacenter: None,
            page_rows: 20_000,
            ranges: 64,
            tls: None,
        };
        let mut tls = None;
        let mut tls_name = None;
        let (mut ca, mut cert, mut key) = (None, None, None);
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            let number = |least: u32, most: u32| {
                let number = value.parse::<u32>().ok();
                let number = number.filter(|number| (least..=most).contains(number));
                number.ok_or_else(|| format!("{name} must be a number from {least} to {most}"))
            };
            match name {
                "consistency" => cluster.consistency = consistency(value)?,
                "dc" => cluster.datacenter = Some(percent_decode(value)?),
                "page" => {
                    cluster.page_rows = i32::try_from(number(1, 1_000_000)?).unwrap_or(i32::MAX);
                }
                "ranges" => cluster.ranges = number(1, 65_536)?,
                "tls" => tls = Some(Tls::parse(value)?),
                "tls_name" => tls_name = Some(server_name(value)?),
                "ca" => ca = Some(percent_decode(value)?),
                "cert" => cert = Some(percent_decode(value)?),
                "key" => key = Some(percent_decode(value)?),
                _ => {
                    return Err(format!(
                        "unknown setting `{name}`; use consistency, dc, page, ranges, \
                         tls, tls_name, ca, cert or key"
                    ));
                }
            }
        }
        let has_tls_settings =
            ca.is_some() || cert.is_some() || key.is_some() || tls_name.is_some();
        let tls = match (tls, has_tls_settings) {
            (Some(Tls::Off), true) => {
                return Err("tls=off contradicts the other TLS settings".to_owned());
            }
            (Some(tls), _) => tls,
            (None, true) => Tls::On,
            (None, false)
                if cluster.user.is_some() && !cluster.nodes.iter().all(|n| is_local(n)) =>
            {
                return Err(
                    "the password would be sent unencrypted; add tls=on, or tls=off to allow it"
                        .to_owned(),
                );
            }
            (None, false) => Tls::Off,
        };
        let expected = match (tls, tls_name) {
            (Tls::Off, _) => return Ok(cluster),
            (Tls::Ca, Some(_)) => {
                return Err("tls=ca verifies no name, so it allows no tls_name".to_owned());
            }
            (Tls::Ca, None) => ExpectedName::AnyName,
            (Tls::On, Some(name)) => ExpectedName::Fixed(name),
            (Tls::On, None) => ExpectedName::OfConnection,
        };
        let files = TlsFiles {
            roots: ca.as_deref().map(|file| ("ca", file)),
            certificate: cert.as_deref().map(|file| ("cert", file)),
            key: key.as_deref().map(|file| ("key", file)),
        };
        cluster.tls = Some(Arc::new(client_config(files, expected)?));
        Ok(cluster)
    }
}

/// The TLS setting of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tls {
    Off,
    On,
    Ca,
}

impl Tls {
    fn parse(name: &str) -> Result<Self, String> {
        match name {
            "off" => Ok(Self::Off),
            "on" => Ok(Self::On),
            "ca" => Ok(Self::Ca),
            _ => Err(format!("tls is `{name}`; use on, ca or off")),
        }
    }
}

fn server_name(text: &str) -> Result<ServerName<'static>, String> {
    let name = ServerName::try_from(percent_decode(text)?);
    name.map_err(|_| format!("tls_name `{text}` is not a host name or IP address"))
}

/// Returns true for an address of this machine, where traffic cannot be intercepted.
fn is_local(node: &str) -> bool {
    let host = match node.rsplit_once(':') {
        // An IPv6 address in brackets, with or without a port.
        _ if node.starts_with('[') => node[1..].split(']').next().unwrap_or_default(),
        Some((host, _)) if !host.contains(':') => host,
        _ => node,
    };
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn consistency(name: &str) -> Result<Consistency, String> {
    Ok(match name.to_ascii_lowercase().as_str() {
        "one" => Consistency::One,
        "local_one" => Consistency::LocalOne,
        "quorum" => Consistency::Quorum,
        "local_quorum" => Consistency::LocalQuorum,
        "all" => Consistency::All,
        _ => {
            return Err(format!(
                "consistency is `{name}`; use local_quorum, local_one, quorum, one or all"
            ));
        }
    })
}

/// Decodes percent-encoding.
fn percent_decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = after.split_at_checked(2).and_then(|(digits, after)| {
            rest = after;
            u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        });
        bytes.push(digits.ok_or("a `%` must be followed by two hex digits")?);
    }
    String::from_utf8(bytes).map_err(|_| "the text is not valid UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_contains_nodes_and_settings() {
        let cluster = ClusterAddress::parse(
            "cassandra://me:p%40ss@a:9042,b/shop?consistency=LOCAL_ONE&dc=eu&page=5000&ranges=9&tls=off",
        )
        .expect("the address is valid");
        assert_eq!(cluster.nodes, ["a:9042", "b"]);
        assert_eq!(cluster.user, Some(("me".to_owned(), "p@ss".to_owned())));
        assert_eq!(cluster.keyspace.as_deref(), Some("shop"));
        assert_eq!(cluster.consistency, Consistency::LocalOne);
        assert_eq!(cluster.datacenter.as_deref(), Some("eu"));
        assert_eq!((cluster.page_rows, cluster.ranges), (5000, 9));
        assert!(cluster.tls.is_none());
    }

    #[test]
    fn a_password_is_not_sent_unencrypted_by_default() {
        // The second value says if the connection uses TLS; `None` if the address is rejected.
        for (address, tls) in [
            ("cassandra://a/shop", Some(false)),
            (
                "cassandra://me:secret@127.0.0.1:9042,localhost/shop",
                Some(false),
            ),
            ("cassandra://me:secret@[::1]:9042/shop", Some(false)),
            ("cassandra://me:secret@10.0.0.1/shop", None),
            ("cassandra://me:secret@127.0.0.1,node/shop", None),
            ("cassandra://me:secret@node/shop?tls=off", Some(false)),
            ("cassandra://me:secret@node/shop?tls=on", Some(true)),
            ("cassandra://me:secret@node/shop?tls=ca", Some(true)),
            ("cassandra://node/shop?tls_name=db.example", Some(true)),
        ] {
            let cluster = ClusterAddress::parse(address);
            assert_eq!(
                cluster.ok().map(|cluster| cluster.tls.is_some()),
                tls,
                "{address}"
            );
        }
    }

    #[test]
    fn an_invalid_address_is_refused_with_a_reason() {
        for (address, why) in [
            ("cassandra://", "no node"),
            ("cassandra:///shop", "no node"),
            ("cassandra://a/shop?consistency=most", "most"),
            ("cassandra://a/shop?page=0", "page must be a number"),
            ("cassandra://a/shop?tls=1", "use on, ca or off"),
            ("cassandra://a/shop?ssl=1", "unknown setting `ssl`"),
            ("cassandra://a/shop?tls=off&ca=/ca.pem", "tls=off"),
            ("cassandra://a/shop?ca=/nowhere.pem", "ca /nowhere.pem"),
            ("cassandra://a/shop?tls=on&cert=/c.pem", "go together"),
            ("cassandra://a/shop?tls_name=-", "not a host name"),
            ("cassandra://a/shop?tls=ca&tls_name=a", "no tls_name"),
            ("cassandra://me:secret@a/shop", "unencrypted"),
            ("cassandra://me@a/shop", "password"),
            ("cassandra://me:%4@a/shop", "hex"),
        ] {
            let error = ClusterAddress::parse(address).expect_err("the address is invalid");
            assert!(error.contains(why), "{error}");
        }
    }
}
