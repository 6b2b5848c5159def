//! Parsers of log lines, and statistics of the requests.
//!
//! A [`Parser`] finds the fields of one line and returns an [`Entry`] that borrows them. The URL is reduced to
//! a 64-bit [`fingerprint`](Fingerprints). The other fields are counted in a [`Tally`], whose size is bounded
//! for any log. The crate `logs` counts the requests per URL by fingerprint and adds these counts to
//! [`Objects`], which computes the histogram of requests per URL, the one-hit wonders and the popularity.
//!
//! A [`Sample`] stores all requests for a share of the objects. A [`WorkingSet`] or the input of a
//! simulation is computed from a `CompleteSample`: a finished sample, whose requests are sorted by time.
//!
//! `Texts` has the texts of the most requested URLs; the fingerprints of all other URLs have no text. `type_of` returns
//! the media type of a response or, if its line has none, the extension of the path. The module `wire` is the binary
//! encoding of statistics in files, by which the statistics of one machine are merged with those of another.
//!
//! All statistics can be merged: the merged results of two machines equal the result of one machine that reads
//! both logs. Only bounded tables such as [`Ranking`] may differ, after they have dropped entries. This crate opens
//! no file and starts no thread; the crate `logs` does both.
#![forbid(unsafe_code)]

mod clock;
mod entry;
mod fingerprint;
mod hours;
mod objects;
mod parse;
mod popularity;
mod ranking;
mod sample;
mod sizes;
mod tally;
mod texts;
pub mod wire;
mod working_set;

pub use entry::{Entry, MalformedLine, Outcome, UnknownOutcome};
pub use fingerprint::{Fingerprints, QueryRule};
pub use hours::{Hours, TrafficCounts, suffices};
pub use objects::{Object, Objects, StorableObjects, TopObject};
pub use parse::{
    Field, FieldNames, Format, PRESETS, Parser, Preset, Template, TemplateError,
    UnrecognisedFormat, UnrecognisedKind, detect_format, preset,
};
pub use popularity::{Popularity, ZipfFit};
pub use ranking::{RankedName, Ranking};
pub use sample::{CompleteSample, Sample};
pub use sizes::{SizeBucket, Sizes};
pub use tally::{Statuses, Tally, TimeSpan, type_of};
pub use texts::Texts;
pub use working_set::WorkingSet;
