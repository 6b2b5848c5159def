//! Reassembles TCP streams from a packet capture.
//!
//! [`PacketReader`] reads packets from a pcap or pcapng file, [`segment`] parses the TCP segment of a packet, and
//! [`Flows`] orders the segments and emits the bytes of each direction.
//!
//! A capture is untrusted input: every length is checked against the bytes present. Packets, connections and bytes
//! that wait for a gap to close are bounded. Bytes missing from the capture are counted and skipped.
#![forbid(unsafe_code)]

mod file;
mod flow;
mod packet;

pub use file::{CaptureError, LinkType, Packet, PacketReader, is_capture};
pub use flow::{Direction, FlowCounters, FlowEvent, FlowId, FlowLimits, Flows};
pub use packet::{Endpoints, Segment, Skipped, segment};
