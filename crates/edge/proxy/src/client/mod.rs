//! Listeners and client connections: `stream` is TCP, TLS or a Unix socket, `io` connects it to hyper, `h1`
//! needs no hyper.

pub(crate) mod accepted; // an accepted connection until its protocol is known
mod connection;
pub(crate) mod h1;
mod hyper_body;
mod io;
pub(crate) mod listener;
mod proxy_header;
mod service;
mod stream;
