//! Keeps bytes under a key within a budget. Threads, no async, no HTTP.
