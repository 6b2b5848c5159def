//! Listeners, connections and codecs: bytes of a client become requests, and responses become bytes.

pub(crate) mod connection;
pub(crate) mod h1;
pub mod h2_frames;
mod h2_io;
mod io;
pub(crate) mod listener;
mod service;
mod stream;
