//! Tests write captures in all formats and read them back. Corrupt captures are rejected.

use std::net::SocketAddr;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, proptest};

use edgeward_capture::{
    CaptureError, Direction, Endpoints, FlowEvent, FlowLimits, Flows, LinkType, Packet,
    PacketReader, Segment, SkipReason, is_capture, segment,
};

/// At most four connections. The bytes of these tests that wait behind a gap stay below the other limits.
const LIMITS: FlowLimits = FlowLimits {
    flows_max: 4,
    waiting_max: 1 << 20,
    waiting_all_max: 1 << 21,
};

/// Returns an IPv4 packet with a TCP segment, without a link-layer header.
fn v4(from: u16, to: u16, sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let total = u16::try_from(40 + payload.len()).expect("the packet is small");
    let mut packet = vec![0x45, 0];
    packet.extend(total.to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    packet.extend(tcp(from, to, sequence, flags, payload));
    packet
}

fn tcp(from: u16, to: u16, sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut segment = [from.to_be_bytes(), to.to_be_bytes()].concat();
    segment.extend(sequence.to_be_bytes());
    segment.extend([0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
    segment.extend(payload);
    segment
}

fn u32_bytes(number: u32, big_endian: bool) -> [u8; 4] {
    if big_endian {
        number.to_be_bytes()
    } else {
        number.to_le_bytes()
    }
}

fn pcap(packets: &[Vec<u8>], link: u32, big_endian: bool) -> Vec<u8> {
    let mut file = Vec::new();
    for number in [0xa1b2_c3d4, 0x0002_0004, 0, 0, 65_535, link] {
        file.extend(u32_bytes(number, big_endian));
    }
    for packet in packets {
        let length = packet.len() as u32;
        for number in [1, 2, length, length] {
            file.extend(u32_bytes(number, big_endian));
        }
        file.extend(packet);
    }
    file
}

fn block(kind: u32, body: &[u8], big_endian: bool) -> Vec<u8> {
    let padding = (4 - body.len() % 4) % 4;
    let length = u32_bytes((12 + body.len() + padding) as u32, big_endian);
    let kind = u32_bytes(kind, big_endian);
    [&kind[..], &length, body, &[0; 3][..padding], &length].concat()
}

fn pcapng(packets: &[Vec<u8>], link: u16, big_endian: bool) -> Vec<u8> {
    let number = |number| u32_bytes(number, big_endian);
    let half = |half: u16| {
        if big_endian {
            half.to_be_bytes()
        } else {
            half.to_le_bytes()
        }
    };
    let section = [number(0x1a2b_3c4d), number(1), [0xff; 4], [0xff; 4]].concat();
    let interface = [&half(link)[..], &half(0), &number(65_535)].concat();
    let mut file = block(0x0a0d_0d0a, &section, big_endian);
    file.extend(block(1, &interface, big_endian));
    // A block of an unknown type is skipped.
    file.extend(block(0x0bad, b"anything", big_endian));
    // Enhanced (type 6) and simple (type 3) packet blocks alternate.
    for (nth, packet) in packets.iter().enumerate() {
        let length = number(packet.len() as u32);
        if nth % 2 == 0 {
            let head = [number(0), [0; 4], [0; 4], length, length].concat();
            file.extend(block(6, &[head, packet.clone()].concat(), big_endian));
        } else {
            file.extend(block(3, &[&length[..], packet].concat(), big_endian));
        }
    }
    file
}

fn packets(file: &[u8]) -> Result<Vec<(LinkType, Vec<u8>)>, CaptureError> {
    let mut reader = PacketReader::new(file)?;
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet()? {
        packets.push((packet.link, packet.bytes.to_vec()));
    }
    Ok(packets)
}

/// Returns the emitted bytes of both directions, concatenated over all connections.
fn reassemble(segments: &[Segment<'_>], limits: FlowLimits) -> ([Vec<u8>; 2], Flows) {
    let mut flows = Flows::new(limits);
    let mut streams = [Vec::new(), Vec::new()];
    let mut receive = |event: FlowEvent<'_>| {
        if let FlowEvent::Bytes {
            direction, bytes, ..
        } = event
        {
            streams[usize::from(direction == Direction::Reverse)].extend_from_slice(bytes);
        }
    };
    for segment in segments {
        flows.take(segment, &mut receive);
        assert!(flows.open() <= limits.flows_max);
        assert!(flows.waiting() <= limits.waiting_all_max);
    }
    flows.finish(&mut receive);
    assert_eq!((flows.open(), flows.waiting()), (0, 0));
    (streams, flows)
}

fn endpoints() -> Endpoints {
    let address = |text: &str| text.parse::<SocketAddr>().expect("the address is valid");
    Endpoints {
        from: address("192.0.2.1:40000"),
        to: address("192.0.2.2:80"),
    }
}

/// Generates a body, a sequence number, and segments of the body that repeat, overlap and are reordered.
fn disordered_segments() -> impl Strategy<Value = (Vec<u8>, u32, Vec<(usize, usize)>)> {
    (vec(any::<u8>(), 1..3000), any::<u32>()).prop_flat_map(|(body, start)| {
        let bytes = body.len();
        let pieces = vec((0..bytes, 1..600_usize), 0..40).prop_map(move |extra| {
            let all = (0..bytes).step_by(257).map(|at| (at, 257));
            all.chain(extra).collect::<Vec<_>>()
        });
        (Just(body), Just(start), pieces.prop_shuffle())
    })
}

proptest! {
    /// Each byte of a direction is emitted once and in order, although segments are reordered and repeated.
    #[test]
    fn segments_are_reassembled((body, start, pieces) in disordered_segments()) {
        let segments: Vec<Segment<'_>> = pieces.iter().map(|&(at, length)| {
            let payload = &body[at..(at + length).min(body.len())];
            Segment {
                endpoints: endpoints(),
                sequence: start.wrapping_add(1 + at as u32),
                syn: false,
                fin: at + payload.len() == body.len(),
                rst: false,
                payload,
                length: payload.len() as u32,
            }
        }).collect();
        let syn = Segment { sequence: start, syn: true, fin: false, payload: &[], length: 0, ..segments[0] };
        let all: Vec<Segment<'_>> = std::iter::once(syn).chain(segments).collect();
        let (streams, flows) = reassemble(&all, LIMITS);
        prop_assert_eq!(&streams[0], &body);
        prop_assert_eq!(flows.counters().lost, 0);
        prop_assert_eq!(flows.counters().flows, 1);
    }

    /// With low limits, bytes may be lost, but the limits are never exceeded.
    #[test]
    fn limits_hold((body, start, pieces) in disordered_segments(), waiting in 0_usize..2000) {
        let segments: Vec<Segment<'_>> = pieces.iter().enumerate().map(|(nth, &(at, length))| {
            let payload = &body[at..(at + length).min(body.len())];
            let mut endpoints = endpoints();
            endpoints.from.set_port(40_000 + nth as u16 % 9);
            Segment {
                endpoints,
                sequence: start.wrapping_add(at as u32),
                syn: nth % 13 == 0,
                fin: nth % 7 == 0,
                rst: nth % 11 == 0,
                payload,
                length: payload.len() as u32 + nth as u32 % 3,
            }
        }).collect();
        let limits = FlowLimits { flows_max: 4, waiting_max: waiting, waiting_all_max: 2 * waiting };
        reassemble(&segments, limits);
    }

    /// The reader returns the packets that were written, in every format.
    #[test]
    fn captures_are_read_back(
        written in vec(vec(any::<u8>(), 0..200), 0..6),
        big_endian: bool,
        link in 0_u16..300,
    ) {
        let expected: Vec<_> = written.iter().map(|packet| (LinkType(link), packet.clone())).collect();
        for file in [pcap(&written, link.into(), big_endian), pcapng(&written, link, big_endian)] {
            prop_assert!(is_capture(&file));
            prop_assert_eq!(&packets(&file).expect("the file is a capture"), &expected);
            // A file that ends within a packet is an error.
            let cut = &file[..file.len() - 1];
            if !written.is_empty() {
                prop_assert!(matches!(packets(cut), Err(CaptureError::Truncated { .. })), "{:?}", packets(cut));
            }
        }
    }

    /// Random bytes after a file header, or in packets, are either rejected or read within the limits, without
    /// a panic.
    #[test]
    fn random_bytes_are_rejected_or_read(
        random_bytes in vec(any::<u8>(), 0..400),
        file_kind in 0_usize..4,
        link in 0_u16..300,
    ) {
        let headers = [pcap(&[], 1, true), pcap(&[], 1, false), pcapng(&[], 1, true), pcapng(&[], 1, false)];
        let file = [&headers[file_kind][..], &random_bytes].concat();
        if let Ok(mut reader) = PacketReader::new(&file[..]) {
            while let Ok(Some(packet)) = reader.next_packet() {
                _ = segment(&packet);
            }
        }
        let packet = Packet { link: LinkType(link), bytes: &random_bytes };
        if let Ok(segment) = segment(&packet) {
            prop_assert!(segment.payload.len() <= segment.length as usize);
            reassemble(&[segment, segment], LIMITS);
        }
    }
}

/// The parser skips the headers of each link type, VLAN tags, IPv6 extension headers and padding.
#[test]
fn segments_are_found_after_all_headers() {
    let ip = v4(40_000, 80, 7, 2, b"hello");
    let mut v6 = vec![0x60, 0, 0, 0, 0, 33, 60, 64];
    v6.extend([0x20; 16]);
    v6.extend([0x21; 16]);
    v6.extend([6, 0, 1, 4, 0, 0, 0, 0]);
    v6.extend(tcp(40_000, 80, 7, 2, b"hello"));
    let tagged = [&[0; 12][..], &[0x81, 0, 0, 5, 8, 0], &ip, &[0; 9]].concat();
    for (link, bytes) in [
        (1, [&[0; 12][..], &[8, 0], &ip].concat()),
        (1, tagged),
        (1, [&[0; 12][..], &[0x86, 0xdd], &v6].concat()),
        (113, [&[0; 14][..], &[8, 0], &ip].concat()),
        (276, [&[8, 0][..], &[0; 18], &ip].concat()),
        (0, [&[2, 0, 0, 0][..], &ip].concat()),
        (101, ip.clone()),
        (101, v6.clone()),
    ] {
        let packet = Packet {
            link: LinkType(link),
            bytes: &bytes,
        };
        let found = segment(&packet).unwrap_or_else(|why| panic!("{link}: {why:?}"));
        assert_eq!(found.payload, b"hello", "{link}");
        assert_eq!(found.endpoints.from.port(), 40_000);
        assert_eq!((found.sequence, found.syn, found.length), (7, true, 5));
    }
    let rejection = |link: u16, bytes: &[u8]| {
        let link = LinkType(link);
        segment(&Packet { link, bytes }).map(|found| found.length)
    };
    let mut udp = ip.clone();
    udp[9] = 17;
    let mut fragment = ip.clone();
    fragment[6] = 0x20;
    assert_eq!(rejection(101, &udp), Err(SkipReason::NotTcp));
    assert_eq!(rejection(101, &fragment), Err(SkipReason::Fragment));
    assert_eq!(rejection(7, &ip), Err(SkipReason::LinkType));
    assert_eq!(rejection(101, &ip[..30]), Err(SkipReason::Malformed));
    assert_eq!(rejection(1, &[0; 14]), Err(SkipReason::NotIp));
}

/// Bytes that are missing from the capture are skipped and counted as lost.
#[test]
fn missing_bytes_are_skipped() {
    // `length` is the number of bytes sent. The capture has only the bytes of `payload`.
    let part = |sequence, payload: &'static [u8], length| Segment {
        endpoints: endpoints(),
        sequence,
        syn: false,
        fin: false,
        rst: false,
        payload,
        length,
    };
    let cut = [part(0, b"abc", 10), part(10, b"def", 3)];
    let (streams, flows) = reassemble(&cut, LIMITS);
    assert_eq!(
        (&streams[0][..], flows.counters().lost),
        (&b"abcdef"[..], 7)
    );
    let missing = [part(0, b"abc", 3), part(5, b"def", 3)];
    let (streams, flows) = reassemble(&missing, LIMITS);
    assert_eq!(
        (&streams[0][..], flows.counters().lost),
        (&b"abcdef"[..], 2)
    );
}

/// A SYN with the addresses of an open connection opens another connection.
#[test]
fn addresses_are_reused() {
    let part = |sequence, syn, payload: &'static [u8]| Segment {
        endpoints: endpoints(),
        sequence,
        syn,
        fin: false,
        rst: false,
        payload,
        length: payload.len() as u32,
    };
    let all = [
        part(100, true, b""),
        part(101, false, b"one"),
        part(9000, true, b""),
        part(9001, false, b"two"),
    ];
    let (streams, flows) = reassemble(&all, LIMITS);
    assert_eq!(
        (&streams[0][..], flows.counters().flows),
        (&b"onetwo"[..], 2)
    );
}
