//! What request logs say: parsers of log lines, and the figures made of them.
//!
//! A [`Parser`] finds the fields of one line where they lie: an [`Entry`]. Its URL becomes a
//! 64-bit [`fingerprint`](Fingerprints), which is all that is kept of it, and the rest goes into a
//! [`Tally`], whose size has a bound whatever the log says. How often each URL was requested is
//! counted elsewhere, fingerprint by fingerprint, and folded into [`Objects`]: the histogram of
//! requests per URL, who was requested once, popularity.
//!
//! A [`Sample`] keeps all requests for a share of the objects; what caches would do with them
//! follows from it: [`ReuseCurve`], [`WorkingSet`], or a simulation elsewhere.
//!
//! Everything here merges: what two machines counted apart is what one would have counted.
//! Nothing here opens a file or starts a thread; crate `logs` does.
#![forbid(unsafe_code)]

mod clock;
mod entry;
mod fingerprint;
mod hours;
mod objects;
mod parse;
mod popularity;
mod ranking;
mod reuse;
mod sample;
mod sizes;
mod tally;
mod texts;
pub mod wire;

pub use entry::{Entry, Malformed, Outcome};
pub use fingerprint::{Fingerprints, QueryRule};
pub use hours::{Hour, Hours};
pub use objects::{Object, Objects, Storable, TopObject};
pub use parse::{Field, Format, Names, Parser, Template, TemplateError, Unrecognised, recognise};
pub use popularity::{Popularity, ZipfFit};
pub use ranking::{Ranked, Ranking, Share};
pub use reuse::{ReuseCurve, ReusePoint, WorkingSet};
pub use sample::{Sample, Sampled};
pub use sizes::{SizeBucket, Sizes};
pub use tally::{Span, Statuses, Tally, type_of};
pub use texts::Texts;
