//! Packets out of a capture file.
//!
//! pcap: a header of 24 bytes, then packets of 16 bytes and what was captured (draft-ietf-opsawg-pcap). pcapng: blocks with
//! their length before and behind (draft-ietf-opsawg-pcapng); packets are in enhanced, simple and (obsolete) packet
//! blocks, and which link they were captured on is told by their section's interface descriptions. Either may be in
//! either byte order.

use std::io::{self, Read};

use thiserror::Error;

/// What lies before a packet's network header, by its number in captures (LINKTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkType(pub u16);

/// A packet, as far as it was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'b> {
    /// What it begins with.
    pub link: LinkType,
    /// Its bytes. May be fewer than it had.
    pub bytes: &'b [u8],
}

/// Why a capture cannot be read further.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// It cannot be read at all.
    #[error("it cannot be read")]
    Read(#[source] io::Error),
    /// It begins like nothing known.
    #[error("it is neither pcap nor pcapng")]
    Unrecognised,
    /// It ends within a packet or block, as one that is still written or was cut off.
    #[error("it breaks off after {packets} packets")]
    BreaksOff {
        /// Packets before.
        packets: u64,
    },
    /// A length or reference that cannot be.
    #[error("after {packets} packets: {what} {value} cannot be")]
    Damaged {
        /// Packets before.
        packets: u64,
        /// What cannot be.
        what: &'static str,
        /// What it says.
        value: u64,
    },
}

/// Reads packets one after the other, each into the same memory.
#[derive(Debug)]
pub struct PacketReader<R> {
    input: R,
    format: Format,
    buffer: Vec<u8>,
    packets: u64,
}

#[derive(Debug)]
enum Format {
    Pcap {
        big_endian: bool,
        link: LinkType,
    },
    Ng {
        big_endian: bool,
        /// Of the section; packets name them by number.
        interfaces: Vec<LinkType>,
    },
}

/// Whether a file that begins like this is a capture.
pub fn is_capture(beginning: &[u8]) -> bool {
    beginning
        .first_chunk()
        .is_some_and(|magic| pcap_order(*magic).is_some() || *magic == SECTION.to_le_bytes())
}

/// Times in micro- or nanoseconds; they are not looked at.
fn pcap_order(magic: [u8; 4]) -> Option<bool> {
    match u32::from_be_bytes(magic) {
        0xa1b2_c3d4 | 0xa1b2_3c4d => Some(true),
        0xd4c3_b2a1 | 0x4d3c_b2a1 => Some(false),
        _ => None,
    }
}

impl<R: Read> PacketReader<R> {
    /// Reads the file's header.
    ///
    /// # Errors
    ///
    /// If it is none, or cannot be read.
    pub fn new(mut input: R) -> Result<Self, CaptureError> {
        let mut magic = [0; 4];
        if !fill(&mut input, &mut magic, 0)? {
            return Err(CaptureError::Unrecognised);
        }
        let mut reader = Self {
            input,
            format: Format::Ng {
                big_endian: false,
                interfaces: Vec::new(),
            },
            buffer: Vec::new(),
            packets: 0,
        };
        if let Some(big_endian) = pcap_order(magic) {
            let header: [u8; 20] = reader.take()?;
            // The upper bits tell of checksums at packets' ends, which TCP's lengths leave out anyway.
            let link = LinkType(number(&header[16..], big_endian) as u16);
            reader.format = Format::Pcap { big_endian, link };
        } else if magic == SECTION.to_le_bytes() {
            reader.section()?;
        } else {
            return Err(CaptureError::Unrecognised);
        }
        Ok(reader)
    }

    /// The next packet; `None` at the end.
    ///
    /// # Errors
    ///
    /// If there is no telling where it ends. What was read before was right.
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>, CaptureError> {
        let found = match self.format {
            Format::Pcap { big_endian, link } => self
                .pcap_packet(big_endian)?
                .map(|length| (link, 0..length)),
            Format::Ng { .. } => self.ng_packet()?,
        };
        let Some((link, range)) = found else {
            return Ok(None);
        };
        self.packets += 1;
        let bytes = &self.buffer[range];
        Ok(Some(Packet { link, bytes }))
    }

    fn pcap_packet(&mut self, big_endian: bool) -> Result<Option<usize>, CaptureError> {
        let mut header = [0; 16];
        if !fill(&mut self.input, &mut header, self.packets)? {
            return Ok(None);
        }
        let length = number(&header[8..], big_endian);
        self.read_buffer(length, "a packet's length").map(Some)
    }

    /// The next packet of any section: its link, and where it lies in the buffer.
    fn ng_packet(&mut self) -> Result<Option<(LinkType, std::ops::Range<usize>)>, CaptureError> {
        loop {
            let mut kind = [0; 4];
            if !fill(&mut self.input, &mut kind, self.packets)? {
                return Ok(None);
            }
            // The same in both orders.
            if kind == SECTION.to_le_bytes() {
                self.section()?;
                continue;
            }
            let Format::Ng { big_endian, .. } = self.format else {
                unreachable!("only these have blocks");
            };
            let length = number(&self.take::<4>()?, big_endian);
            self.block(length, 12)?;
            let body = self.buffer.len() - 4;
            let field = |at: usize| number(&self.buffer[at..], big_endian);
            let damaged = |what, value: u32| CaptureError::Damaged {
                packets: self.packets,
                what,
                value: value.into(),
            };
            let (interface, at, captured) = match number(&kind, big_endian) {
                INTERFACE if body >= 8 => {
                    let link = LinkType(half(&self.buffer, big_endian));
                    if let Format::Ng { interfaces, .. } = &mut self.format {
                        if interfaces.len() >= INTERFACES_MAX {
                            return Err(CaptureError::Damaged {
                                packets: self.packets,
                                what: "the number of interfaces",
                                value: INTERFACES_MAX as u64 + 1,
                            });
                        }
                        interfaces.push(link);
                    }
                    continue;
                }
                ENHANCED if body >= 20 => (field(0), 20, field(12)),
                OBSOLETE if body >= 20 => {
                    (u32::from(half(&self.buffer, big_endian)), 20, field(12))
                }
                // No captured length: as much as there is, without what fills the last four bytes up.
                SIMPLE if body >= 4 => (0, 4, field(0).min(body as u32 - 4)),
                ENHANCED | OBSOLETE | SIMPLE | INTERFACE => {
                    return Err(damaged("a block's length", length));
                }
                // Statistics, names, whatever comes.
                _ => continue,
            };
            let Format::Ng { interfaces, .. } = &self.format else {
                unreachable!("only these have blocks");
            };
            let link = interfaces.get(interface as usize);
            let link = *link.ok_or_else(|| damaged("an interface's number", interface))?;
            if captured as usize > body - at {
                return Err(damaged("a packet's length", captured));
            }
            return Ok(Some((link, at..at + captured as usize)));
        }
    }

    /// A section's header, from behind its type: it says in which order numbers are.
    fn section(&mut self) -> Result<(), CaptureError> {
        let [length, order] = [self.take::<4>()?, self.take::<4>()?];
        let big_endian = match u32::from_be_bytes(order) {
            0x1a2b_3c4d => true,
            0x4d3c_2b1a => false,
            other => {
                return Err(CaptureError::Damaged {
                    packets: self.packets,
                    what: "a section's byte order",
                    value: other.into(),
                });
            }
        };
        self.block(number(&length, big_endian), 16)?;
        self.format = Format::Ng {
            big_endian,
            interfaces: Vec::new(),
        };
        Ok(())
    }

    /// What is left of a block of `length` bytes when `read` bytes of it (with those of the length that ends it) were not
    /// to come any more; with the length that ends it.
    fn block(&mut self, length: u32, read: u32) -> Result<(), CaptureError> {
        let rest = length
            .checked_sub(read)
            .filter(|_| length.is_multiple_of(4));
        let Some(rest) = rest else {
            return Err(CaptureError::Damaged {
                packets: self.packets,
                what: "a block's length",
                value: length.into(),
            });
        };
        self.read_buffer(rest.saturating_add(4), "a block's length")?;
        Ok(())
    }

    fn read_buffer(&mut self, length: u32, what: &'static str) -> Result<usize, CaptureError> {
        let length = length as usize;
        if length > PACKET_BYTES_MAX {
            return Err(CaptureError::Damaged {
                packets: self.packets,
                what,
                value: length as u64,
            });
        }
        self.buffer.resize(length, 0);
        if length > 0 && !fill(&mut self.input, &mut self.buffer, self.packets)? {
            return Err(self.breaks_off());
        }
        Ok(length)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], CaptureError> {
        let mut bytes = [0; N];
        if fill(&mut self.input, &mut bytes, self.packets)? {
            Ok(bytes)
        } else {
            Err(self.breaks_off())
        }
    }

    fn breaks_off(&self) -> CaptureError {
        CaptureError::BreaksOff {
            packets: self.packets,
        }
    }
}

/// Fills `buffer`; false if the input ended before its first byte.
fn fill(input: &mut impl Read, buffer: &mut [u8], packets: u64) -> Result<bool, CaptureError> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(CaptureError::BreaksOff { packets }),
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(CaptureError::Read(error)),
        }
    }
    Ok(true)
}

fn number(bytes: &[u8], big_endian: bool) -> u32 {
    let bytes = *bytes.first_chunk().expect("callers hold lengths");
    if big_endian {
        u32::from_be_bytes(bytes)
    } else {
        u32::from_le_bytes(bytes)
    }
}

fn half(bytes: &[u8], big_endian: bool) -> u16 {
    let bytes = *bytes.first_chunk().expect("callers hold lengths");
    if big_endian {
        u16::from_be_bytes(bytes)
    } else {
        u16::from_le_bytes(bytes)
    }
}

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OBSOLETE: u32 = 2;
const SIMPLE: u32 = 3;
const ENHANCED: u32 = 6;

/// Captures cut packets at 256 KiB; loopback with large segments stays below.
const PACKET_BYTES_MAX: usize = 1 << 20;

/// A capture of all interfaces of a large machine has hundreds.
const INTERFACES_MAX: usize = 1 << 16;
