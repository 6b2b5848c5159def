//! Listeners and client connections: `stream` is TCP, TLS or a Unix socket, `io` and `h2_io` connect it to hyper, `h1`
//! needs no hyper.

mod accepted; // an accepted connection until its protocol is known
mod connection;
pub(crate) mod h1;
pub mod h2_frames;
mod h2_io;
mod io;
pub(crate) mod listener;
mod proxy_header;
mod service;
mod stream;
pub(crate) mod transport;
