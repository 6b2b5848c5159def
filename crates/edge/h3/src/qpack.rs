//! QPACK (RFC 9204) with the static table alone: field sections refer to no state of a connection.

pub(crate) mod decoder;
pub(crate) mod encoder;
pub(crate) mod huffman;
pub(crate) mod instructions;
mod integer;
mod static_table;
