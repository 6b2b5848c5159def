//! Opens TCP sockets, and disables pacing for connections within one machine.
//!
//! Connections within one machine are frequent: from a client to a local listener, from the gateway to a service on
//! the same host, or to a sidecar that carries the link. Pacing (BBR) would only slow them down.

use std::io;
use std::net::SocketAddr;

use edgeward_httpd::disable_loopback_pacing;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Listens on an address. If it is a loopback address, accepted connections are not paced.
pub(crate) fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    listen_with(addr, |_| {})
}

/// Like [`listen`]; `set_options` is called before the socket is bound.
pub(crate) fn listen_with(
    addr: SocketAddr,
    set_options: impl FnOnce(&SockRef<'_>),
) -> io::Result<TcpListener> {
    let socket = socket_for(addr)?;
    socket.set_reuseaddr(true)?;
    set_options(&SockRef::from(&socket));
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

/// Connects to an address. If it is a loopback address, the connection is not paced.
pub(crate) async fn connect(addr: SocketAddr) -> io::Result<TcpStream> {
    socket_for(addr)?.connect(addr).await
}

/// Returns a socket for an address. If it is a loopback address, the socket is not paced.
fn socket_for(addr: SocketAddr) -> io::Result<TcpSocket> {
    let socket = match addr {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    disable_loopback_pacing(&SockRef::from(&socket), addr.ip());
    Ok(socket)
}

/// The number of connections that the system queues while the accepting task is busy.
const BACKLOG: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn congestion(tcp: &SockRef<'_>) -> String {
        let name = tcp.tcp_congestion().expect("the socket is a TCP socket");
        String::from_utf8_lossy(&name).trim_matches('\0').to_owned()
    }

    /// Returns the congestion control of both endpoints of a connection to a listener at this address.
    async fn congestion_of_connection(listening: &str) -> [String; 2] {
        let listener = listen(listening.parse().expect("the address is valid"))
            .expect("the port can be bound");
        let port = listener
            .local_addr()
            .expect("the listener has an address")
            .port();
        let connecting = connect(SocketAddr::from(([127, 0, 0, 1], port)));
        let (client, accepted) = tokio::join!(connecting, listener.accept());
        let (client, (accepted, _)) = (
            client.expect("the port is open"),
            accepted.expect("a client connects"),
        );
        [&client, &accepted].map(|tcp| congestion(&SockRef::from(tcp)))
    }

    fn system_default() -> String {
        let socket = TcpSocket::new_v4().expect("the socket can be created");
        congestion(&SockRef::from(&socket))
    }

    /// Connections to a loopback address are not paced. A listener that other machines can reach uses the system's
    /// default congestion control.
    #[tokio::test]
    async fn connections_within_the_machine_are_not_paced() {
        let unpaced = match system_default() {
            paced if paced.starts_with("bbr") => "reno".to_owned(),
            other => other,
        };
        let both = [unpaced.clone(), unpaced.clone()];
        assert_eq!(congestion_of_connection("127.0.0.1:0").await, both);
        assert_eq!(
            congestion_of_connection("0.0.0.0:0").await,
            [unpaced, system_default()]
        );
    }
}
