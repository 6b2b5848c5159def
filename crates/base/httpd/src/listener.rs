//! Listening sockets: TCP and Unix.

use std::fs::{self, Permissions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdTcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::Path;
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// A listening socket that is registered with the runtime.
#[derive(Debug)]
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
}

/// An accepted connection.
#[derive(Debug)]
pub enum Accepted {
    /// A connection of TCP with the address of its client.
    Tcp(TcpStream, SocketAddr),
    /// A connection of a Unix socket.
    Unix(UnixStream),
}

/// The address that clients of Unix sockets have, because they run on the same machine.
pub const UNIX_CLIENT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

impl Listener {
    /// Registers a non-blocking socket.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        if SockRef::from(&socket).local_addr()?.is_unix() {
            return UnixListener::from_std(StdUnixListener::from(socket)).map(Self::Unix);
        }
        TcpListener::from_std(StdTcpListener::from(socket)).map(Self::Tcp)
    }

    /// Returns a connection that waits in the kernel's queue.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Accepted>> {
        match self {
            Self::Tcp(listener) => listener
                .poll_accept(cx)
                .map_ok(|(stream, client)| Accepted::Tcp(stream, client)),
            Self::Unix(listener) => listener
                .poll_accept(cx)
                .map_ok(|(stream, _)| Accepted::Unix(stream)),
        }
    }

    /// Waits for a connection.
    pub async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => {
                let (stream, client) = listener.accept().await?;
                Ok(Accepted::Tcp(stream, client))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok(Accepted::Unix(stream))
            }
        }
    }
}

/// Opens a non-blocking Unix socket at `path`, which the users that `mode` states may connect to. A socket file on
/// which no process listens is replaced. Any other file is kept.
pub fn bind_unix(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    let is_socket =
        |path| fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if is_socket(path) {
        match StdUnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path)?;
            }
            _ => return Err(io::ErrorKind::AddrInUse.into()),
        }
    }
    let listener = StdUnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    Ok(listener.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_file_is_replaced_only_if_no_process_listens() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.sock");
        let socket = bind_unix(&path, 0o600).expect("free");
        let mode = fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let error = bind_unix(&path, 0o600).expect_err("in use");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(socket);
        assert!(path.exists());
        bind_unix(&path, 0o600).expect("the process has ended");
        let file = folder.path().join("notes");
        fs::write(&file, "text").expect("written");
        let error = bind_unix(&file, 0o600).expect_err("another file");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(fs::read(&file).expect("kept"), b"text");
    }
}
