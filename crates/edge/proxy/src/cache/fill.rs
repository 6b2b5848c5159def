//! Fills: responses under way from the origin, each shared by the requests for its key.
//!
//! One task, the pump, writes the origin's body into the fill. Each client has a [`FillReader`] with a position of
//! its own, so that a slow client does not delay others. If the memory tier may store the body, the [`BodyBuffer`] is
//! one buffer, which becomes the cached body without a further copy. Otherwise it is a list of the arrived pieces,
//! which readers and the disk share. After the end of the body, readers get slices of the body.
//!
//! If a body exceeds its length limit or the memory budget, the fill keeps only a window: the bytes that the slowest
//! reader has not read. The pump then waits for that reader.

mod body_buffer;
mod head;
mod reader;
mod readers;
mod shared_copies;
mod shared_fill;
#[cfg(test)]
mod tests;

pub(crate) use body_buffer::BodyBuffer;
pub(crate) use head::{Encodable, FillHead, FillVariant};
pub(crate) use reader::{FillEnd, FillReader, FollowResult, JoinError};
pub(crate) use shared_fill::{Failure, Fill, FollowLimits, PushResult, Retry};
