//! Don't send what was already sent: what two ends of a link decide, without a socket or a file.
//!
//! [`chunker`] cuts bodies where their content says so, [`id`] names what lies between two cuts. [`wire`] has the frames
//! two ends exchange, byte by byte; [`codec`] decides how hard they are compressed.
#![deny(unsafe_code)]

pub mod chunker;
pub mod codec;
pub mod id;
pub mod wire;
