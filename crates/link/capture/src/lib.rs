//! Reassembles TCP streams from a packet capture.
//!
//! [`PacketReader`] reads packets from a pcap or pcapng file, [`segment`] parses the TCP segment of a packet, and
//! [`Flows`] orders the segments and emits the bytes of each direction.
//!
//! A capture is untrusted input, so every length is compared with the number of bytes present. The length of
//! packets and the number of connections are limited. Bytes that arrive before earlier bytes of their stream wait for
//! them; the number of these bytes is limited too. Bytes that are missing from the capture are counted and skipped.
#![forbid(unsafe_code)]

mod file;
mod flow;
mod packet;

pub use file::{CaptureError, LinkType, Packet, PacketReader, is_capture};
pub use flow::{Direction, FlowCounters, FlowEvent, FlowId, FlowLimits, Flows};
pub use packet::{Endpoints, Segment, SkipReason, segment};
