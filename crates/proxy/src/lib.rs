//! The edge: an HTTP reverse proxy cache on hyper, one runtime a core.
