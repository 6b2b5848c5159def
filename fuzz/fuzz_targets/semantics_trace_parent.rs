//! Untrusted values of `traceparent` (W3C Trace Context §3.2). An accepted value is written in one form.
#![no_main]

use edgeward_semantics::TraceParent;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|value: &[u8]| {
    let Some(parent) = TraceParent::parse(value) else {
        return;
    };
    assert!(parent.trace_id() != 0 && parent.span_id() != 0);
    let written = parent.to_string();
    // Version and further fields are not kept.
    assert_eq!(&written.as_bytes()[2..], &value[2..55]);
    assert_eq!(TraceParent::parse(written.as_bytes()), Some(parent));
});
