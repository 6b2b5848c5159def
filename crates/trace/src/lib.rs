//! Request traces: one reader a format, writers, and a seeded generator of CDN-like traffic.
