//! HTTP caching by RFC 9110 and 9111 as pure functions over heads and times.
