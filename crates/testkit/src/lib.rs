//! For tests only: an origin that follows a script, good or evil.
