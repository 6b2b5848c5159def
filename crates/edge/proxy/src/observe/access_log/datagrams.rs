//! Sends datagrams to a daemon of this machine, which may be restarted at any time.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::Duration;

/// The address of a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    Unix(PathBuf),
    Udp(SocketAddr),
}

/// A connected socket, or none until the next datagram.
#[derive(Debug)]
pub(super) struct Datagrams {
    peer: Peer,
    socket: Option<Socket>,
}

#[derive(Debug)]
enum Socket {
    Unix(UnixDatagram),
    Udp(UdpSocket),
}

impl Datagrams {
    pub(super) const fn new(peer: Peer) -> Self {
        Self { peer, socket: None }
    }

    /// Sends a datagram. If the daemon has closed its socket, connects to its new socket and tries again.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(socket) = &self.socket {
            match socket.send(bytes) {
                // The daemon does not read, or the datagram is too long: another socket would not help.
                Err(error) if is_of_datagram(&error) => return Err(error),
                Err(_) => self.socket = None,
                Ok(()) => return Ok(()),
            }
        }
        let socket = Socket::connect(&self.peer)?;
        let sent = socket.send(bytes);
        self.socket = Some(socket);
        sent
    }
}

impl Socket {
    fn connect(peer: &Peer) -> io::Result<Self> {
        match peer {
            Peer::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.set_write_timeout(Some(SEND_MAX))?;
                socket.connect(path)?;
                Ok(Self::Unix(socket))
            }
            Peer::Udp(addr) => {
                let any: SocketAddr = match addr {
                    SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
                    SocketAddr::V6(_) => ([0u16; 8], 0).into(),
                };
                let socket = UdpSocket::bind(any)?;
                socket.set_write_timeout(Some(SEND_MAX))?;
                socket.connect(addr)?;
                Ok(Self::Udp(socket))
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.send(bytes),
            Self::Udp(socket) => socket.send(bytes),
        }
        .map(drop)
    }
}

/// Returns true if the error says nothing about the connection.
fn is_of_datagram(error: &io::Error) -> bool {
    const EMSGSIZE: i32 = rustix::io::Errno::MSGSIZE.raw_os_error();
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    ) || error.raw_os_error() == Some(EMSGSIZE)
}

/// The longest wait for a daemon that does not read its socket. Requests do not wait for the log, and the stop of the
/// edge waits for it.
const SEND_MAX: Duration = Duration::from_millis(200);
