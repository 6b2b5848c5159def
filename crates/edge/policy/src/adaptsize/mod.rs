//! AdaptSize: size-aware admission to the memory tier, tuned by a model of the cache.
//!
//! An object of `s` bytes is admitted with probability `e^(-s/c)`: small objects nearly always, large objects
//! rarely, because one large object displaces many small ones. The result depends on `c`. After every window of
//! requests the [`Tuner`] predicts the hit ratio for a wide range of `c` and chooses the best value.
//! [`crate::Admission::Exponential`] then admits with this `c`.
//!
//! - [`Mode::Paper`] is the paper's model: the long run of one Markov chain per object ([`Population`]).
//! - [`Mode::Horizon`] predicts the next window from the current content of the cache ([`WindowObjects`]).
//!   The objects' request rates are calibrated: earlier estimates are compared with the requests that followed. The
//!   predicted hit ratio is corrected by small simulated caches, which see the requests for a sample of the objects.
//!   Use this mode in production.
//! - [`Mode::Code`] is the published code of the paper's authors, with its approximations (`code`).
//!
//! The tuner reads neither a clock nor the bits of a key. The server and the simulator, which hash keys differently,
//! therefore get the same `c`. The server runs the tuner outside the request path.
//!
//! Paper: Berger, Sitaraman, Harchol-Balter, "AdaptSize: Orchestrating the Hot Object Memory Cache in a Content
//! Delivery Network", NSDI 2017. `docs/explanation/adaptsize.md` lists what the paper leaves open, the choices
//! made here, and measurements.

mod calibration;
mod code;
mod config;
mod correction;
mod gaps;
mod horizon;
mod model;
mod sampled;
mod search;
mod statistics;
#[cfg(test)]
mod tests;
mod tuner;
pub(crate) mod tuning;
mod window;

pub use config::{Mode, TunerConfig};
pub use gaps::Gaps;
pub use horizon::{ExpectedRequests, WindowModel, WindowObjects};
pub use model::{BINS_PER_OCTAVE, ObjectRate, Population, Solution, admission_probability};
pub use tuner::Tuner;
pub use tuning::{CurvePoint, Tuning};
pub use window::forecast_window;
