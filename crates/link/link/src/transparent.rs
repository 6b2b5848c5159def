//! Transparent interception on Linux: a listener to which a rule of the firewall diverts connections. The target of a
//! connection is the address to which its client connected.
//!
//! The rule `redirect` of nftables rewrites the destination of the packets; the kernel returns the original one as
//! `SO_ORIGINAL_DST`. The rule `tproxy` leaves the packets unchanged. The accepted connection then has the original
//! destination as its local address, and the listening socket needs `IP_TRANSPARENT`, for which the process needs the
//! capability `CAP_NET_ADMIN`. Without the capability only `redirect` works.

use std::io;
use std::net::SocketAddr;

use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};

use crate::label::{HostPort, Target};
use crate::local;

/// Why an intercepted connection has no target.
#[derive(Debug, Error)]
pub(crate) enum TargetError {
    /// The client connected to the listener itself. To forward this connection would connect the listener to itself.
    #[error(
        "{0} is the address of this listener: only connections that a firewall rule diverts are forwarded"
    )]
    Loop(SocketAddr),
    /// The address cannot be sent to the gateway.
    #[error("the address {0} cannot be a target")]
    Unsupported(SocketAddr),
    /// The system did not return the address.
    #[error("cannot read the original destination of the connection")]
    Io(#[from] io::Error),
}

/// Listens for intercepted connections.
pub(crate) fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    local::listen_with(addr, |socket| {
        let result = match addr {
            SocketAddr::V4(_) => socket.set_ip_transparent_v4(true),
            SocketAddr::V6(_) => socket.set_ip_transparent_v6(true),
        };
        if let Err(error) = result {
            tracing::warn!(
                %addr,
                %error,
                "connections diverted by `tproxy` cannot be accepted: the process lacks CAP_NET_ADMIN; `redirect` works"
            );
        }
    })
}

/// Returns the target of a connection that was accepted by the listener at this address.
pub(crate) fn target_of(tcp: &TcpStream, listener: SocketAddr) -> Result<Target, TargetError> {
    let local = tcp.local_addr()?;
    let socket = socket2::SockRef::from(tcp);
    let original = if local.ip().to_canonical().is_ipv4() {
        socket.original_dst_v4()
    } else {
        socket.original_dst_v6()
    };
    // Without a rule that rewrites the destination, the kernel returns an error or the local address.
    let original = original.ok().and_then(|addr| addr.as_socket());
    target_from(original, local, listener)
}

/// Returns the target of a connection with this original destination and local address.
fn target_from(
    original: Option<SocketAddr>,
    local: SocketAddr,
    listener: SocketAddr,
) -> Result<Target, TargetError> {
    let target = canonical(original.unwrap_or(local));
    let listener = canonical(listener);
    let is_listener = target.port() == listener.port()
        && (listener.ip().is_unspecified() || target.ip() == listener.ip());
    if is_listener {
        return Err(TargetError::Loop(target));
    }
    let address: Result<HostPort, _> = target.to_string().parse();
    let address = address.map_err(|_| TargetError::Unsupported(target))?;
    Ok(Target::Tcp(address))
}

/// Returns the IPv4 address of an IPv4 client of an IPv6 listener. The scope of a link-local address is removed,
/// because it is only valid on this machine.
fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The target is the destination before the rule. A connection to the listener itself has no target, so that the
    /// listener never connects to itself.
    #[test]
    fn the_target_is_the_original_destination_but_never_the_listener() {
        for (original, local, listener, target) in [
            // `redirect`: the local address is the listener.
            (
                Some("192.0.2.7:443"),
                "10.0.0.1:9",
                "0.0.0.0:9",
                Some("192.0.2.7:443"),
            ),
            (
                Some("[2001:db8::7]:443"),
                "[::1]:9",
                "[::]:9",
                Some("[2001:db8::7]:443"),
            ),
            (
                Some("192.0.2.7:443"),
                "[::ffff:10.0.0.1]:9",
                "[::]:9",
                Some("192.0.2.7:443"),
            ),
            // `tproxy`: no destination was rewritten, and the local address is not the listener.
            (None, "192.0.2.7:443", "127.0.0.1:9", Some("192.0.2.7:443")),
            (
                Some("192.0.2.7:443"),
                "192.0.2.7:443",
                "127.0.0.1:9",
                Some("192.0.2.7:443"),
            ),
            (
                None,
                "[::ffff:192.0.2.7]:443",
                "[::]:9",
                Some("192.0.2.7:443"),
            ),
            (None, "192.0.2.7:9", "127.0.0.1:9", Some("192.0.2.7:9")),
            // No rule: the client connected to the listener.
            (None, "127.0.0.1:9", "127.0.0.1:9", None),
            (Some("127.0.0.1:9"), "127.0.0.1:9", "127.0.0.1:9", None),
            (None, "10.0.0.1:9", "0.0.0.0:9", None),
            (None, "[::ffff:10.0.0.1]:9", "[::]:9", None),
            (Some("10.0.0.1:9"), "10.0.0.1:9", "0.0.0.0:9", None),
            // Port 0 is no target.
            (Some("192.0.2.7:0"), "10.0.0.1:9", "0.0.0.0:9", None),
        ] {
            let addr = |text: &str| text.parse().expect("the address is valid");
            let found = target_from(original.map(addr), addr(local), addr(listener)).ok();
            let found = found.map(|target| target.to_string());
            assert_eq!(found.as_deref(), target, "{original:?} {local} {listener}");
        }
    }
}
