//! Tools for tests only: an origin that sends scripted responses, a simulated disk that can crash and fail, and
//! an emulated WAN path.
//!
//! [`ScriptedOrigin`] speaks HTTP/1.1 over a plain socket on a loopback port. It runs on a thread of its own,
//! so that blocking and async tests can use it. It can send responses that no HTTP library sends, for example
//! with a wrong length, with a hundred megabytes of headers, or with half a body and then a reset. An
//! [`Answer`] describes a response. A [`Gate`] makes a response wait for the test, so that no test sleeps.
//! [`client::Client`] sends given bytes to a server and returns the server's bytes. [`disk::SimulatedDisk`] is a disk
//! in memory. [`s3::Bucket`] verifies signatures as a bucket does. [`TcpServer`] passes
//! connections to a function. [`Wan`] relays connections at a low rate and with a
//! delay.
//!
//! ```
//! use edgeward_testkit::{Answer, Gate, ScriptedOrigin};
//!
//! let origin = ScriptedOrigin::start();
//! // The first request for /page gets 503, all others get 200.
//! origin.on("/page", Answer::ok("hello").header("cache-control", "max-age=60"));
//! origin.once("/page", Answer::status(503));
//! let gate = Gate::new();
//! origin.on("/slow", Answer::ok("late").wait_before_head(&gate));
//! assert_eq!(origin.requests("/page"), 0);
//! # let _ = origin.url("/page");
//! ```
#![forbid(unsafe_code)]

mod answer;
pub mod client;
pub mod disk;
mod gate;
pub mod nats;
mod origin;
pub mod pebble;
pub mod programs;
mod request;
pub mod s3;
pub mod tcp;
mod wan;

pub use answer::{Answer, Step};
pub use gate::Gate;
pub use origin::ScriptedOrigin;
pub use request::RecordedRequest;
pub use tcp::TcpServer;
pub use wan::{Wan, WanSettings};

/// Returns the byte at `offset` of the body of [`Answer::pattern`].
///
/// The pattern repeats every 251 bytes. Since 251 is prime, a body that is shifted by a power of two differs
/// from the pattern.
pub fn pattern_byte(offset: u64) -> u8 {
    u8::try_from(offset % 251).expect("a remainder of 251 fits a byte")
}
