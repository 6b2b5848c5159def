//! The settings of `[[listener]]`.

use super::row::{Key, rows};
use crate::config::draft::{DraftListener, Part as _};
use crate::config::value::{InputFile, Listen, ProxyNetworks, Switch, Unset};

pub(super) static ROWS: &[Key] = rows! {
    /// Address and port, or a Unix socket such as `unix:/run/edgeward/edge.sock` for a proxy on the same machine, whose
    /// connections count as those of 127.0.0.1. Port 0 selects a free port; the first log line shows which. If the
    /// system uses BBR congestion control, a loopback address uses Reno instead.
    "listener.address" live,
        flags "--listen ADDR" "Address to listen on; repeatable": Unset(Listen) => DraftListener.address;

    /// PEM file with the certificate first and then the chain. If it is set, the listener accepts TLS, with HTTP/2 or
    /// HTTP/1.1 by ALPN. If not, the listener accepts HTTP/1.1, or HTTP/2 with prior knowledge.
    "listener.tls_certificates" live,
        flag "--tls-cert FILE" "PEM file of the TLS certificate and its chain":
        Unset(InputFile) => DraftListener.certificates;

    /// PEM file with the private key of the certificate: PKCS#8, PKCS#1 or SEC1.
    "listener.tls_key" live,
        flag "--tls-key FILE" "PEM file of the private key": Unset(InputFile) => DraftListener.key;

    /// DER file with an OCSP response for the certificate, which the edge sends in TLS handshakes (stapling), so that
    /// clients need not ask the certificate authority. `openssl ocsp -respout FILE` writes it. The edge reads the file
    /// again when it changes, and does not send the response after its `nextUpdate`.
    "listener.tls_ocsp" live: Unset(InputFile) => DraftListener.ocsp;

    /// The listener accepts TLS with the certificates of `[[acme]]` and of sites, without one of its own.
    "listener.acme" live: Switch => DraftListener.acme;

    /// The listener also accepts HTTP/3 (QUIC), on the UDP port of the same number and with the same certificates.
    /// Clients learn of it by `Alt-Svc` or by HTTPS records of DNS. See docs/how-to/http3.md.
    "listener.http3" live: Switch => DraftListener.http3;

    /// Networks of proxies that begin each connection with a PROXY header (version 1 or 2), for example HAProxy, nginx
    /// or a load balancer of a cloud. The header names the client, which then counts as the client in logs,
    /// `X-Forwarded-For`, rate limits and rules. Connections of other peers, and connections without a valid header,
    /// are closed. See docs/how-to/behind-a-proxy.md.
    "listener.proxy_protocol_from" live: ProxyNetworks => DraftListener.proxy_protocol_from;
};
