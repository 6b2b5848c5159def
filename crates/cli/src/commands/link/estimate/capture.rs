//! The estimate for captured packets: each direction of each TCP connection is a body that the simulated link sends.
//! The result has one row for each port and protocol of a server.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use anyhow::Context as _;

use edgeward_capture::{
    Direction, Endpoints, FlowEvent, FlowId, FlowLimits, Flows, PacketReader, segment,
};
use edgeward_chunk_store::estimate::{Estimator, Savings};
use edgeward_dedup::wire::StreamId;
use edgeward_dedup::{StreamProtocol, detect_protocol};

use crate::diagnostic::Diagnostic;
use crate::output::Progress;

use super::document::{BODIES_MAX, CaptureRow, Estimate, Row};

impl Estimate {
    /// Reassembles the TCP connections of a capture and sends their data over the simulated link. Encrypted data is
    /// only counted: a link sends it unchanged.
    pub(super) fn capture(&mut self, path: &Path) -> anyhow::Result<()> {
        let name = path.display().to_string();
        let file = File::open(path).with_context(|| name.clone())?;
        let input = ProgressReader {
            input: BufReader::with_capacity(1 << 20, file),
            progress: &self.progress,
        };
        let mut packets = PacketReader::new(input).map_err(|error| {
            Diagnostic::new(error.to_string())
                .in_file(path)
                .hint("the formats are pcap and pcapng; decompress the file first")
        })?;
        let mut flows = Flows::new(LIMITS);
        let mut sender = FlowSender {
            estimator: &mut self.estimator,
            flows: HashMap::new(),
            services: BTreeMap::new(),
        };
        let (mut count, mut not_tcp) = (0, 0);
        let read_error = loop {
            match packets.next_packet() {
                Ok(Some(packet)) => {
                    count += 1;
                    match segment(&packet) {
                        Ok(segment) => flows.take(&segment, |event| sender.handle(event)),
                        // This also counts IP fragments and malformed packets.
                        Err(_) => not_tcp += 1,
                    }
                }
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        flows.finish(|event| sender.handle(event));
        let services = sender.services;
        // The data before the error is part of the result.
        if let Some(error) = read_error {
            self.problems.push(format!("{name}: {error}"));
        }
        let mut services: Vec<(Service, Savings)> = services.into_iter().collect();
        services.sort_by_key(|(_, saved)| std::cmp::Reverse(saved.bytes));
        for (nth, (service, saved)) in services.iter().enumerate() {
            if nth == SERVICES_SHOWN_MAX && services.len() > SERVICES_SHOWN_MAX + 1 {
                let rest = services[nth..].iter();
                let rest = rest.fold(Savings::default(), |sum, (_, saved)| sum.plus(saved));
                let label = format!("{name}: other ports");
                self.document.rows.push(Row::of(label, "flows", &rest));
                break;
            }
            let label = match service.protocol {
                StreamProtocol::Tls => format!("{name}: port {} (TLS)", service.port),
                StreamProtocol::Ssh => format!("{name}: port {} (SSH)", service.port),
                _ => format!("{name}: port {}", service.port),
            };
            self.document.rows.push(Row::of(label, "flows", saved));
        }
        let counters = flows.counters();
        self.document.captures.push(CaptureRow {
            name,
            packets: count,
            not_tcp,
            connections: counters.flows,
            repeated_bytes: counters.repeated,
            lost_bytes: counters.lost,
        });
        Ok(())
    }
}

/// The port and the protocol of a server. The result has one row for each service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Service {
    port: u16,
    protocol: StreamProtocol,
}

/// Sends the data of reassembled connections to the estimator.
struct FlowSender<'e> {
    estimator: &'e mut Estimator,
    flows: HashMap<FlowId, Flow>,
    services: BTreeMap<Service, Savings>,
}

/// The state of a TCP connection.
struct Flow {
    service: Service,
    last_direction: Direction,
    /// The bodies of both directions, if they have begun and are not encrypted.
    bodies: [Option<StreamId>; 2],
    /// The number of directions that have ended.
    directions_ended: usize,
}

impl FlowSender<'_> {
    fn handle(&mut self, event: FlowEvent<'_>) {
        match event {
            FlowEvent::Begins {
                flow,
                direction,
                endpoints,
            } => {
                self.flows.entry(flow).or_insert_with(|| Flow {
                    service: Service {
                        port: port(&endpoints),
                        protocol: StreamProtocol::Other,
                    },
                    last_direction: direction,
                    bodies: [None; 2],
                    directions_ended: 0,
                });
            }
            FlowEvent::Bytes {
                flow,
                direction,
                bytes,
            } => self.bytes(flow, direction, bytes),
            FlowEvent::Ends { flow, direction } => {
                let Some(entry) = self.flows.get_mut(&flow) else {
                    return;
                };
                entry.directions_ended += 1;
                let body = entry.bodies[usize::from(direction == Direction::Reverse)].take();
                let service = entry.service;
                if entry.directions_ended == 2 {
                    self.flows.remove(&flow);
                }
                if let Some(body) = body {
                    self.count_savings(service, |estimator| {
                        estimator.end(body).expect("the stream is open");
                    });
                }
            }
        }
    }

    fn bytes(&mut self, flow: FlowId, direction: Direction, bytes: &[u8]) {
        let Some(entry) = self.flows.get_mut(&flow) else {
            return;
        };
        let side = usize::from(direction == Direction::Reverse);
        // The first bytes of the client reveal the protocol. A greeting that the server sends before these bytes is
        // sent as a body.
        if entry.service.protocol == StreamProtocol::Other && entry.bodies[side].is_none() {
            entry.service.protocol = detect_protocol(bytes);
        }
        let service = entry.service;
        if service.protocol != StreamProtocol::Other {
            // The link sends encrypted bytes unchanged, so all these sizes are equal.
            let saved = self.services.entry(service).or_default();
            *saved = saved.plus(&Savings {
                bytes: bytes.len() as u64,
                wire: bytes.len() as u64,
                compressed: bytes.len() as u64,
                plain: bytes.len() as u64,
                bypassed: bytes.len() as u64,
                ..Savings::default()
            });
            return;
        }
        // A change of direction shows that the previous sender waits for a response. Its data is complete and
        // is flushed.
        let direction_changed =
            std::mem::replace(&mut entry.last_direction, direction) != direction;
        let other_body = entry.bodies[1 - side].filter(|_| direction_changed);
        let open_body = entry.bodies[side];
        let mut body = open_body;
        self.count_savings(service, |estimator| {
            if let Some(other) = other_body {
                estimator.flush(other);
            }
            // The body has no label and is deduplicated.
            let begin = || estimator.begin(b"", true).ok();
            // The estimator accepts this body: `LIMITS` allows two bodies for each connection.
            body = open_body.or_else(begin);
            if let Some(body) = body {
                estimator.write(body, bytes).expect("the stream is open");
            }
        });
        if let Some(entry) = self.flows.get_mut(&flow) {
            entry.bodies[side] = body;
        }
    }

    fn count_savings(&mut self, service: Service, action: impl FnOnce(&mut Estimator)) {
        let before = self.estimator.savings();
        action(self.estimator);
        let savings = self.estimator.savings().since(&before);
        let saved = self.services.entry(service).or_default();
        *saved = saved.plus(&savings);
    }
}

/// Guesses the port of the server: the lower of the two ports. The direction of the first packet does not show the
/// server, because a capture may begin in the middle of a connection.
fn port(endpoints: &Endpoints) -> u16 {
    endpoints.from.port().min(endpoints.to.port())
}

/// A reader that reports to a progress bar how many bytes were read.
struct ProgressReader<'p, R> {
    input: R,
    progress: &'p Progress,
}

impl<R: Read> Read for ProgressReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.input.read(buffer)?;
        self.progress.advance(bytes as u64);
        Ok(bytes)
    }
}

/// The limits of the reassembly. Each connection may have two open bodies, so the maximum of connections is half of the
/// maximum of bodies. Out-of-order data may take 4 MiB per direction of a connection and 64 MiB in total.
const LIMITS: FlowLimits = FlowLimits {
    flows_max: BODIES_MAX / 2,
    waiting_max: 4 << 20,
    waiting_all_max: 64 << 20,
};

/// With 14 or more services, the largest 12 have rows of their own, and one row is the sum of the others. With 13
/// services each has a row, because a sum of one service saves no row.
const SERVICES_SHOWN_MAX: usize = 12;
