//! Listeners: their addresses and certificates.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use edgeward_sites::HostPattern;

use super::forwarding::Networks;

/// One listening address.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    /// The address. Port 0 takes a free port: see [`RunningEdge::addrs`](crate::RunningEdge::addrs).
    pub addr: ListenAddress,
    /// TLS with HTTP/2 or HTTP/1.1 by ALPN. Without TLS a client speaks HTTP/1.1, or HTTP/2 if it starts with the
    /// preface (prior knowledge, RFC 9113 §3.3). Unix sockets have no TLS.
    pub tls: Option<ListenerTls>,
    /// TLS without a certificate of the listener's own: [`EdgeConfig::certificates`](super::EdgeConfig::certificates)
    /// and the certificates of sites are all that it has. Default false.
    pub tls_by_name: bool,
    /// Proxies that begin each connection with a PROXY header. All others are closed. Default none: no header is read.
    pub proxy_protocol_from: Option<Networks>,
    /// PEM file of the authorities that issue the certificates of the other nodes of the fleet. A connection without
    /// such a certificate is closed. Default none: no certificate of the client is required.
    pub node_authorities: Option<PathBuf>,
    /// True for the listener for the other nodes of a fleet, see [`FleetConfig`](super::FleetConfig). Default false.
    pub is_for_nodes: bool,
    /// HTTP/3 over QUIC on the port of UDP with the same number, with the certificates of the listener. Default false:
    /// a firewall may block UDP, and clients find HTTP/3 only if the operator announces it. Needs TLS, no PROXY
    /// header, and no nodes as clients.
    pub http3: bool,
}

impl ListenerConfig {
    /// Returns a listener without TLS.
    pub fn plain(addr: impl Into<ListenAddress>) -> Self {
        Self {
            addr: addr.into(),
            tls: None,
            tls_by_name: false,
            proxy_protocol_from: None,
            node_authorities: None,
            is_for_nodes: false,
            http3: false,
        }
    }

    /// Returns true if clients must use TLS.
    pub const fn has_tls(&self) -> bool {
        self.tls.is_some() || self.tls_by_name
    }
}

/// The address on which a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ListenAddress {
    /// An address and port of TCP.
    Tcp(SocketAddr),
    /// The path of a Unix socket. Its clients have no address, so they count as 127.0.0.1.
    Unix(PathBuf),
}

impl ListenAddress {
    /// Returns the address of TCP.
    pub const fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(addr) => Some(*addr),
            Self::Unix(_) => None,
        }
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(addr: SocketAddr) -> Self {
        Self::Tcp(addr)
    }
}

/// Writes an address as it is configured: `127.0.0.1:80` or `unix:/run/edgeward.sock`.
impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => addr.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

impl FromStr for ListenAddress {
    type Err = InvalidListenAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix(UNIX) {
            Some(path) if path.len() > UNIX_PATH_BYTES_MAX => Err(InvalidListenAddress::TooLong),
            Some(path) if path.starts_with('/') => Ok(Self::Unix(path.into())),
            Some(_) => Err(InvalidListenAddress::RelativePath),
            None => text
                .parse()
                .map(Self::Tcp)
                .map_err(|_| InvalidListenAddress::NoAddress),
        }
    }
}

/// The reason why a text is no [`ListenAddress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidListenAddress {
    /// The text is neither an address and port nor `unix:`.
    #[error("is not an address and port")]
    NoAddress,
    /// The path of the Unix socket does not begin with `/`.
    #[error("has no absolute path")]
    RelativePath,
    /// The path of the Unix socket is longer than the system allows.
    #[error("has a path of more than {UNIX_PATH_BYTES_MAX} bytes")]
    TooLong,
}

const UNIX: &str = "unix:";

/// The longest path of a Unix socket on Linux: the 108 bytes of `sun_path` without the final NUL.
const UNIX_PATH_BYTES_MAX: usize = 107;

/// The certificate of a listener.
#[derive(Clone, Debug)]
pub struct ListenerTls {
    /// PEM file: the server's certificate, then the intermediate certificates, without the root.
    pub certificates: PathBuf,
    /// PEM file with the private key: PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
    /// DER file with the OCSP response that is sent with the certificate.
    pub ocsp: Option<PathBuf>,
}

/// The certificate of a site.
#[derive(Clone, Debug)]
pub struct SiteCertificate {
    /// The names in SNI for which the certificate is sent: the hosts of the site.
    pub hosts: Vec<HostPattern>,
    /// The files.
    pub tls: ListenerTls,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_as_it_is_read() {
        for text in ["127.0.0.1:80", "[::1]:0", "unix:/run/edgeward.sock"] {
            let read: ListenAddress = text.parse().expect("an address");
            assert_eq!(read.to_string(), text);
        }
        let long = format!("unix:/{}", "a".repeat(UNIX_PATH_BYTES_MAX));
        for (text, error) in [
            ("localhost:80", InvalidListenAddress::NoAddress),
            ("unix:a.sock", InvalidListenAddress::RelativePath),
            (&*long, InvalidListenAddress::TooLong),
        ] {
            assert_eq!(text.parse::<ListenAddress>(), Err(error), "{text}");
        }
    }
}
