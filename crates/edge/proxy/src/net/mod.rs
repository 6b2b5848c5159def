//! The network below HTTP: names, TLS and file descriptors.

pub(crate) mod descriptors;
pub(crate) mod dns; // the addresses of host names
pub(crate) mod staple; // OCSP responses in TLS handshakes
pub(crate) mod tls;
pub(crate) mod tls_expiry; // when certificates expire
