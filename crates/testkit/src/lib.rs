//! For tests only: an origin that follows a script, good or evil, and a disk that crashes and breaks.
//!
//! [`ScriptedOrigin`] speaks HTTP/1.1 over a plain socket on a loopback port, one thread of
//! its own, so that it serves blocking and async tests alike and can say what no HTTP
//! library would let it say: a length it does not keep, a hundred megabytes of headers,
//! half a body and a reset. What it answers is an [`Answer`]; where an answer must wait
//! for the test, a [`Gate`] stands in it, so that no test sleeps. The disk is [`disk::SimulatedDisk`]; [`Wan`] is a
//! line that is slow and long.
//!
//! ```
//! use edgeward_testkit::{Answer, Gate, ScriptedOrigin};
//!
//! let origin = ScriptedOrigin::start();
//! origin.on("/page", Answer::ok("hello").header("cache-control", "max-age=60"));
//! origin.once("/page", Answer::status(503));
//! let gate = Gate::new();
//! origin.on("/slow", Answer::ok("late").wait_before_head(&gate));
//! assert_eq!(origin.requests("/page"), 0);
//! # let _ = origin.url("/page");
//! ```
#![forbid(unsafe_code)]

mod answer;
pub mod disk;
mod gate;
mod origin;
mod request;
mod wan;

pub use answer::{Answer, Step};
pub use gate::Gate;
pub use origin::ScriptedOrigin;
pub use request::RecordedRequest;
pub use wan::{Wan, WanSettings};

/// The bytes of [`Answer::pattern`]: byte `offset` of every such body.
///
/// 251 is prime, so that a body shifted by any power of two is seen to be wrong.
pub fn pattern_byte(offset: u64) -> u8 {
    u8::try_from(offset % 251).expect("a remainder of 251 fits a byte")
}
