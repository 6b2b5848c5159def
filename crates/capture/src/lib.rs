//! What was said over TCP, read from a capture of packets.
//!
//! [`PacketReader`] takes packets out of a pcap or pcapng file, [`segment`] finds the TCP segment in one, and [`Flows`] puts
//! segments in order and hands each direction's bytes on as they come.
//!
//! Nothing here trusts a capture: lengths are held against what there is, and what can grow (packets, flows, bytes that wait
//! for those before them) has a bound. Bytes that were not captured are counted and skipped.
#![forbid(unsafe_code)]

mod file;
mod flow;
mod packet;

pub use file::{CaptureError, LinkType, Packet, PacketReader, is_capture};
pub use flow::{Direction, FlowCounters, FlowId, FlowLimits, Flows, Heard};
pub use packet::{Endpoints, Segment, Skipped, segment};
