//! Don't send what was already sent: what two ends of a link decide, without a socket or a file.
//!
//! [`chunker`] cuts bodies where their content says so.
#![deny(unsafe_code)]

pub mod chunker;
