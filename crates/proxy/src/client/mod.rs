//! Listeners, client connections and codecs. The codecs parse requests from bytes, and write responses as bytes.

pub(crate) mod connection;
pub(crate) mod h1;
pub mod h2_frames;
mod h2_io;
mod io;
pub(crate) mod listener;
mod service;
mod stream;
