//! The result of a step of a tuner.

/// One point of the predicted hit ratio over `c`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// The size in bytes at which the admission probability is 1/e; `∞` admits every object.
    pub c: f64,
    /// Predicted object hit ratio, 0 to 1.
    pub ohr: f64,
}

/// The result of a step. A step chooses `c` at the end of a window.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuning {
    /// The new `c`: objects are admitted with `e^(-s/c)`, or always if `∞`.
    pub c: f64,
    /// The predicted object hit ratio of the next window.
    pub predicted_ohr: f64,
    /// The object hit ratio of the past window.
    pub measured_ohr: f64,
    /// The prediction of the previous step minus the measured hit ratio of the past window.
    ///
    /// `None` at the first step, because it has no previous prediction.
    pub model_error: Option<f64>,
    /// The predicted hit ratio of each candidate, ascending in `c`, `∞` last. The refined `c` is not part of it.
    pub curve: Vec<CurvePoint>,
    /// The number of remembered objects after the step.
    pub objects: usize,
    /// Requests of the past window.
    pub requests: u64,
    /// Requests of the past window for new objects that did not fit into the table. 0 if the caller makes each
    /// step as soon as [`Tuner::record`](super::Tuner::record) returns true.
    pub untracked_requests: u64,
}
