//! Listeners and their certificates.

use std::net::SocketAddr;
use std::path::PathBuf;

use edgeward_sites::HostPattern;

use super::Networks;

/// The certificate of a site.
#[derive(Clone, Debug)]
pub struct SiteCertificate {
    /// The names in SNI for which the certificate is sent: the hosts of the site.
    pub hosts: Vec<HostPattern>,
    /// The files.
    pub tls: ListenerTls,
}

/// One listening address.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    /// The address. Port 0 takes a free port: see [`RunningEdge::addrs`](crate::RunningEdge::addrs).
    pub addr: SocketAddr,
    /// TLS with HTTP/2 or HTTP/1.1 by ALPN. Without TLS a client speaks HTTP/1.1, or HTTP/2 if it starts with the
    /// preface (prior knowledge, RFC 9113 §3.3).
    pub tls: Option<ListenerTls>,
    /// Proxies that begin each connection with a PROXY header. All others are closed. Default none: no header is read.
    pub proxy_protocol_from: Option<Networks>,
}

impl ListenerConfig {
    /// Returns a listener without TLS.
    pub const fn plain(addr: SocketAddr) -> Self {
        Self {
            addr,
            tls: None,
            proxy_protocol_from: None,
        }
    }
}

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
