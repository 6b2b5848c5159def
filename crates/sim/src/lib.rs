//! Drives the serving policies with a trace and reports what they would have done.
