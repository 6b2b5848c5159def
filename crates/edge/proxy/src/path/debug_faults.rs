//! Faults that a test causes by the request field `edgeward-debug-fault`. Only builds with debug assertions have them.

use http::HeaderMap;

use crate::rt::clock::Clock;

/// Sets the wall clock of the edge forward by the milliseconds of the fault `step-wall-MILLISECONDS`, or back if they
/// are negative.
#[cfg(debug_assertions)]
pub(crate) fn step_wall(clock: &Clock, fields: &HeaderMap) {
    let fault = fields.get("edgeward-debug-fault");
    let fault = fault.and_then(|fault| fault.to_str().ok()?.strip_prefix("step-wall-"));
    if let Some(millis) = fault.and_then(|millis| millis.parse().ok()) {
        clock.step_wall(millis);
    }
}

/// Does nothing: this build has no faults.
#[cfg(not(debug_assertions))]
#[inline]
pub(crate) fn step_wall(_clock: &Clock, _fields: &HeaderMap) {}

/// Causes the fault if the request asks for it at this point: `panic-POINT` panics, `block-MILLISECONDS` blocks the
/// thread at the point `request`.
#[cfg(debug_assertions)]
pub(crate) fn cause(point: &str, fields: &HeaderMap) {
    let Some(fault) = fields.get("edgeward-debug-fault") else {
        return;
    };
    let fault = fault.to_str().unwrap_or_default();
    assert!(
        fault.strip_prefix("panic-") != Some(point),
        "a test asked for a panic at the point {point}"
    );
    if point == "request"
        && let Some(millis) = fault.strip_prefix("block-")
    {
        let millis = millis.parse().unwrap_or(0);
        std::thread::sleep(std::time::Duration::from_millis(millis));
    }
}

/// Does nothing: this build has no faults.
#[cfg(not(debug_assertions))]
#[inline]
pub(crate) fn cause(_point: &str, _fields: &HeaderMap) {}
