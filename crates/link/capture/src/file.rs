//! Reads packets from a capture file in the format pcap or pcapng.
//!
//! A pcap file (draft-ietf-opsawg-pcap) has a file header of 24 bytes, then for each packet a header of 16
//! bytes and the captured bytes. A pcapng file (draft-ietf-opsawg-pcapng) consists of blocks, which have their
//! length at the start and at the end. Packets are in enhanced packet blocks, simple packet blocks and obsolete
//! packet blocks. The interface descriptions of a section state the link types. Both formats exist in both byte
//! orders.

use std::io::{self, Read};

use thiserror::Error;

/// The type of the link-layer header of a packet: a LINKTYPE number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkType(pub u16);

/// A captured packet. Its end may be missing from the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'b> {
    /// The type of the link-layer header of the packet.
    pub link: LinkType,
    /// The captured bytes. If the capture truncated the packet, these are fewer than were sent.
    pub bytes: &'b [u8],
}

/// Why reading a capture failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// Reading the file failed.
    #[error("reading the capture failed")]
    Read(#[source] io::Error),
    /// The magic number is unknown.
    #[error("the file is neither pcap nor pcapng")]
    Unrecognised,
    /// The file ends within a packet or block: it is truncated, or still being written.
    #[error("the capture is truncated after {packets} packets")]
    Truncated {
        /// The number of complete packets.
        packets: u64,
    },
    /// A field has an impossible value.
    #[error("the capture is corrupt after {packets} packets: {field} is {value}")]
    Corrupt {
        /// The number of complete packets.
        packets: u64,
        /// The name of the field.
        field: &'static str,
        /// The value of the field.
        value: u64,
    },
}

/// Reads the packets of a capture, one after the other, into one buffer.
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
    Pcapng {
        big_endian: bool,
        /// The link types of the section's interfaces. A packet refers to them by index.
        interfaces: Vec<LinkType>,
    },
}

/// Returns true if a file with this beginning is a capture.
pub fn is_capture(beginning: &[u8]) -> bool {
    beginning.first_chunk().is_some_and(|magic| {
        pcap_is_big_endian(*magic).is_some() || *magic == SECTION_HEADER.to_le_bytes()
    })
}

/// Returns true if the magic number is that of a big-endian pcap file, false for little-endian, and `None` for
/// other files. Files with times in microseconds and in nanoseconds have different magic numbers. Times are
/// ignored.
fn pcap_is_big_endian(magic: [u8; 4]) -> Option<bool> {
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
    /// Returns an error if the file is not a capture or cannot be read.
    pub fn new(mut input: R) -> Result<Self, CaptureError> {
        let mut magic = [0; 4];
        if !fill(&mut input, &mut magic, 0)? {
            return Err(CaptureError::Unrecognised);
        }
        let mut reader = Self {
            input,
            format: Format::Pcapng {
                big_endian: false,
                interfaces: Vec::new(),
            },
            buffer: Vec::new(),
            packets: 0,
        };
        if let Some(big_endian) = pcap_is_big_endian(magic) {
            let header: [u8; 20] = reader.take()?;
            // The upper 16 bits are ignored. They state if packets have frame checksums at their end. The
            // lengths in IP headers exclude these checksums.
            let link = LinkType(read_u32(&header[16..], big_endian) as u16);
            reader.format = Format::Pcap { big_endian, link };
        } else if magic == SECTION_HEADER.to_le_bytes() {
            reader.read_section_header()?;
        } else {
            return Err(CaptureError::Unrecognised);
        }
        Ok(reader)
    }

    /// Returns the next packet, or `None` at the end of the file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or is truncated or corrupt. Packets that were returned before are
    /// valid.
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>, CaptureError> {
        let found = match self.format {
            Format::Pcap { big_endian, link } => self
                .pcap_packet(big_endian)?
                .map(|length| (link, 0..length)),
            Format::Pcapng { .. } => self.pcapng_packet()?,
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
        let length = read_u32(&header[8..], big_endian);
        self.read_buffer(length, "a packet's length").map(Some)
    }

    /// Reads the next packet of any section. Returns its link type and its range in the buffer.
    fn pcapng_packet(
        &mut self,
    ) -> Result<Option<(LinkType, std::ops::Range<usize>)>, CaptureError> {
        loop {
            let mut kind = [0; 4];
            if !fill(&mut self.input, &mut kind, self.packets)? {
                return Ok(None);
            }
            // The type of a section header is the same in both byte orders.
            if kind == SECTION_HEADER.to_le_bytes() {
                self.read_section_header()?;
                continue;
            }
            let Format::Pcapng { big_endian, .. } = self.format else {
                unreachable!("this function is called for pcapng only");
            };
            let length = read_u32(&self.take::<4>()?, big_endian);
            self.read_block(length, 8)?;
            let body = self.buffer.len() - 4;
            let field = |offset: usize| read_u32(&self.buffer[offset..], big_endian);
            let corrupt = |field, value: u32| CaptureError::Corrupt {
                packets: self.packets,
                field,
                value: value.into(),
            };
            let (interface, offset, captured) = match read_u32(&kind, big_endian) {
                INTERFACE if body >= 8 => {
                    let link = LinkType(read_u16(&self.buffer, big_endian));
                    if let Format::Pcapng { interfaces, .. } = &mut self.format {
                        if interfaces.len() >= INTERFACES_MAX {
                            return Err(CaptureError::Corrupt {
                                packets: self.packets,
                                field: "the number of interfaces",
                                value: INTERFACES_MAX as u64 + 1,
                            });
                        }
                        interfaces.push(link);
                    }
                    continue;
                }
                ENHANCED if body >= 20 => (field(0), 20, field(12)),
                OBSOLETE if body >= 20 => {
                    (u32::from(read_u16(&self.buffer, big_endian)), 20, field(12))
                }
                // A simple packet block has only the original length of the packet. The captured bytes end at
                // this length, or at the end of the block if the packet was truncated.
                SIMPLE if body >= 4 => (0, 4, field(0).min(body as u32 - 4)),
                ENHANCED | OBSOLETE | SIMPLE | INTERFACE => {
                    return Err(corrupt("a block's length", length));
                }
                // Statistics, names and unknown blocks are skipped.
                _ => continue,
            };
            let Format::Pcapng { interfaces, .. } = &self.format else {
                unreachable!("this function is called for pcapng only");
            };
            let link = interfaces.get(interface as usize);
            let link = *link.ok_or_else(|| corrupt("an interface index", interface))?;
            if captured as usize > body - offset {
                return Err(corrupt("a packet's length", captured));
            }
            return Ok(Some((link, offset..offset + captured as usize)));
        }
    }

    /// Reads the rest of a section header block after its type. The block states the byte order of the section.
    fn read_section_header(&mut self) -> Result<(), CaptureError> {
        let [length, order] = [self.take::<4>()?, self.take::<4>()?];
        let big_endian = match u32::from_be_bytes(order) {
            0x1a2b_3c4d => true,
            0x4d3c_2b1a => false,
            other => {
                return Err(CaptureError::Corrupt {
                    packets: self.packets,
                    field: "a section's byte order",
                    value: other.into(),
                });
            }
        };
        self.read_block(read_u32(&length, big_endian), 12)?;
        self.format = Format::Pcapng {
            big_endian,
            interfaces: Vec::new(),
        };
        Ok(())
    }

    /// Reads the rest of a block of `length` bytes into the buffer, with the four bytes of the length at its end.
    /// `already_read` is the number of bytes of the block that were read before.
    fn read_block(&mut self, length: u32, already_read: u32) -> Result<(), CaptureError> {
        let rest = length
            .checked_sub(already_read)
            .filter(|rest| *rest >= 4 && length.is_multiple_of(4));
        let Some(rest) = rest else {
            return Err(CaptureError::Corrupt {
                packets: self.packets,
                field: "a block's length",
                value: length.into(),
            });
        };
        self.read_buffer(rest, "a block's length")?;
        Ok(())
    }

    fn read_buffer(&mut self, length: u32, field: &'static str) -> Result<usize, CaptureError> {
        let length = length as usize;
        if length > PACKET_BYTES_MAX {
            return Err(CaptureError::Corrupt {
                packets: self.packets,
                field,
                value: length as u64,
            });
        }
        self.buffer.resize(length, 0);
        if length > 0 && !fill(&mut self.input, &mut self.buffer, self.packets)? {
            return Err(self.truncated());
        }
        Ok(length)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], CaptureError> {
        let mut bytes = [0; N];
        if fill(&mut self.input, &mut bytes, self.packets)? {
            Ok(bytes)
        } else {
            Err(self.truncated())
        }
    }

    fn truncated(&self) -> CaptureError {
        CaptureError::Truncated {
            packets: self.packets,
        }
    }
}

/// Fills `buffer`. Returns false if the input ended before the first byte. `packets` is the number of
/// complete packets before, for the error.
fn fill(input: &mut impl Read, buffer: &mut [u8], packets: u64) -> Result<bool, CaptureError> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(CaptureError::Truncated { packets }),
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(CaptureError::Read(error)),
        }
    }
    Ok(true)
}

fn read_u32(bytes: &[u8], big_endian: bool) -> u32 {
    let bytes = *bytes.first_chunk().expect("callers check the length");
    if big_endian {
        u32::from_be_bytes(bytes)
    } else {
        u32::from_le_bytes(bytes)
    }
}

fn read_u16(bytes: &[u8], big_endian: bool) -> u16 {
    let bytes = *bytes.first_chunk().expect("callers check the length");
    if big_endian {
        u16::from_be_bytes(bytes)
    } else {
        u16::from_le_bytes(bytes)
    }
}

// The types of pcapng blocks.
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OBSOLETE: u32 = 2;
const SIMPLE: u32 = 3;
const ENHANCED: u32 = 6;

/// The maximum length of a packet or block. tcpdump truncates packets at 256 KiB, and segments on loopback are
/// smaller.
const PACKET_BYTES_MAX: usize = 1 << 20;

/// The maximum number of interfaces of a section: far above the few hundred interfaces of a large machine.
const INTERFACES_MAX: usize = 1 << 16;
