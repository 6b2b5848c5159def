//! TCP servers that are no HTTP origins.

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

/// A server that passes each connection to a function on a thread of its own, so that blocking and async tests can use
/// it. Dropping the server closes its port. The threads of connections end with their functions.
pub struct TcpServer {
    addr: SocketAddr,
    connections: Arc<AtomicU64>,
    is_dropped: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl TcpServer {
    /// Starts a server on a free port of loopback.
    pub fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), serve)
    }

    /// Starts a server at this address.
    pub fn start_at(addr: SocketAddr, serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(addr).expect("the address is free");
        let addr = listener
            .local_addr()
            .expect("a bound socket has an address");
        let (connections, is_dropped) = <(Arc<AtomicU64>, Arc<AtomicBool>)>::default();
        let (counter, stop) = (Arc::clone(&connections), Arc::clone(&is_dropped));
        let serve = Arc::new(serve);
        let acceptor = thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                counter.fetch_add(1, Ordering::SeqCst);
                let serve = Arc::clone(&serve);
                thread::spawn(move || serve(stream));
            }
        });
        Self {
            addr,
            connections,
            is_dropped,
            acceptor: Some(acceptor),
        }
    }

    /// Starts a server that returns all received bytes, and ends its direction of a connection after the client.
    pub fn echo() -> Self {
        Self::start(echo)
    }

    /// Returns the address of the listener.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the number of accepted connections.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for TcpServer {
    fn drop(&mut self) {
        self.is_dropped.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts. If no connection is possible, the thread ends with the process.
        if TcpStream::connect(self.addr).is_ok()
            && let Some(acceptor) = self.acceptor.take()
        {
            _ = acceptor.join();
        }
    }
}

/// Returns all bytes of a connection to its client.
pub fn echo(stream: TcpStream) {
    _ = io::copy(&mut &stream, &mut &stream);
    _ = stream.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;

    /// The bytes come back, and the port is closed when the server is dropped.
    #[test]
    fn an_echo_ends_with_its_client_and_a_port_with_its_server() {
        let server = TcpServer::echo();
        let addr = server.addr();
        let mut client = Client::connect(addr);
        client.send("hello");
        client.shutdown_write();
        assert_eq!(client.read_to_end(), "hello");
        assert_eq!(server.connections(), 1);
        drop(server);
        assert!(TcpStream::connect(addr).is_err());
    }
}
