//! Listeners and client connections: `stream` is TCP, TLS or a Unix socket, `io` connects it to hyper, `h1`
//! needs no hyper. `h3` has its own transport.

pub(crate) mod accepted; // an accepted connection until its protocol is known
mod admission; // the requests of HTTP/2 and HTTP/3 that are served
mod connection;
pub(crate) mod h1;
pub(crate) mod h3;
mod hyper_body;
mod io;
pub(crate) mod listener;
mod proxy_header;
mod service;
mod stream;
