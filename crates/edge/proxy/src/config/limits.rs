//! Limits of the memory, connections and time that clients and origins can use.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use edgeward_types::ByteSize;

use crate::rt::pace::MinRate;

/// Limits of the memory, connections and time that clients and origins can use.
#[derive(Clone, Debug)]
pub struct LimitsConfig {
    /// Clients that the rate limits of rules remember. Default 65 536, which takes 1 MiB: many more than exceed a limit
    /// at the same time. A further client replaces one that is far below its limit.
    pub rate_limit_clients_max: NonZeroUsize,
    /// The number of keys whose rates one client address may use together, if a rule limits the rate by a request
    /// field. Default 4: a client can invent keys, and few addresses have more clients with keys that use their whole
    /// rate.
    pub rate_limit_keys_per_address: NonZeroU32,
    /// Client connections of all workers. Default 65 536: about 1 GiB of buffers and kernel state if all are
    /// busy. The edge lowers the value at start if the limit of open files requires it. A further connection
    /// replaces the one that has been idle for the longest time, and is refused if no connection is idle.
    pub connections_max: NonZeroUsize,
    /// Bytes of a message's head, from clients and from the origin. Default 64 KiB: cookies of 16 KiB occur, and more
    /// is an attack or a mistake. A client gets 431 for a larger request, and 502 for a larger response.
    pub head_bytes_max: ByteSize,
    /// Bytes of a request's target. Default 32 KiB: browsers and servers in use stay below 8 to 16 KiB, and RFC 9110
    /// §4.1 asks for at least 8000 octets. A client gets 414 for a longer target.
    pub target_bytes_max: ByteSize,
    /// Header fields of a message. Default 100, the number that hyper parses without an allocation.
    pub headers_max: NonZeroUsize,
    /// QUIC handshakes of all workers that are under way. Default 1024: each takes some 32 KiB. From half of the limit
    /// on, a client must first prove its address (Retry), which takes a round trip. Above it, clients are refused.
    pub quic_handshakes_max: NonZeroUsize,
    /// Longest time from the first byte of a request to the end of its head. Default 10 s. The client then gets 408.
    pub request_head_timeout: Duration,
    /// Longest PROXY header, with its extensions. Default 4 KiB. A longer header closes the connection.
    pub proxy_header_bytes_max: ByteSize,
    /// Longest idle time of a connection between two requests, or before the first. Default 75 s.
    pub idle_timeout: Duration,
    /// Longest time in which a client reads no byte of its response, or sends no byte of its upload. Default 60 s.
    pub body_idle_timeout: Duration,
    /// Largest body of a request. Default: none, because uploads are streamed. A client gets 413 for a larger body.
    pub request_body_bytes_max: Option<ByteSize>,
    /// Bytes of a request's body that are read before a connection to the origin is requested. Default 64 KiB: forms
    /// and API calls are smaller, so a slow client holds no connection to the origin.
    pub upload_buffer_bytes: ByteSize,
    /// Memory of all upload buffers. Default 64 MiB: a thousand full buffers. While they are used up, bodies are sent
    /// to the origin without a buffer.
    pub upload_buffers_bytes_max: ByteSize,
    /// Longest time that the edge buffers a body of unknown length before it contacts the origin. Default 1 s: the
    /// client may wait for the origin's response before it sends more. A body with a length is buffered to its end or
    /// until the buffer is full.
    pub upload_buffer_wait: Duration,
    /// Time for which the edge works for a client that has left. Default 1 s: most forms and API calls are answered by
    /// then, and the edge can remove the stored responses that they change after the origin has changed them.
    pub abandoned_wait: Duration,
    /// Minimum rate of an upload in bytes per second. Default 256 B: the slowest mobile networks are ten times as
    /// fast. Only time in which the edge waits for the client counts. 0 disables the limit. A slower upload gets 408.
    pub upload_rate_min: ByteSize,
    /// Minimum rate at which a client reads its response, in bytes per second. Default 256 B. Only time in which the
    /// client does not read available bytes counts, not a slow origin or an event stream. 0 disables the limit.
    pub response_rate_min: ByteSize,
    /// Window of both minimum rates: a client may transfer no byte for this time. Default 30 s: a train in a tunnel.
    /// For a response over HTTP/1.1 the window is at least `body_idle_timeout`, because a full socket empties in large
    /// steps; but not if the response occupies an origin connection that other requests wait for.
    pub rate_window: Duration,
    /// Bytes of a response that the edge reads from the origin and buffers while the client reads none. Default
    /// 512 KiB: the origin's connection becomes free at once after a smaller body. `fill_bytes_max` includes them.
    pub read_ahead_bytes: ByteSize,
    /// Bytes per second that a worker reads from all bodies that are more than 128 KiB ahead of their clients. Up to
    /// 64 of these bodies may be 1 MiB ahead before the limit applies to them. Default 16 MiB, 134 Mbit/s, which takes
    /// about 2 % of a worker's time. 0 disables the limit.
    pub read_ahead_rate_max: ByteSize,
    /// Largest body that may enter the cache. Default 1 TiB, so that the policy decides: size-aware policies reject
    /// large objects, and the simulator has no other limit.
    pub object_bytes_max: ByteSize,
    /// Memory of fills that is not part of the cache's capacity: responses that only followers share, and responses
    /// of unknown length. Default 256 MiB. While it is used up, responses of misses are not stored.
    pub fill_bytes_max: ByteSize,
    /// Tunnels of all workers to one origin: connections that have switched to another protocol, such as WebSocket, and
    /// requests that ask for it. Default 16 384: a quarter of `connections_max`, so that tunnels leave connections to
    /// requests. A tunnel has a connection to the origin of its own, which `connections_per_worker_max` does not
    /// include: idle tunnels must not take the connections of requests. A further request for a tunnel gets 503. One
    /// client address may use the share of `client_share_percent`.
    pub tunnels_max: NonZeroUsize,
    /// Longest time without a byte in either direction of a tunnel. Default 10 min: WebSocket libraries send a ping
    /// every 15 to 60 s, and load balancers and address translation drop connections that are silent for longer. 10
    /// minutes are enough for an application without pings too, and free the memory of clients that have disappeared.
    pub tunnel_idle_timeout: Duration,
    /// Concurrent streams of one HTTP/2 or HTTP/3 connection. Default 100: RFC 9113 §6.5.2 advises no less.
    pub h2_streams_max: NonZeroU32,
    /// RST_STREAM frames of one HTTP/2 connection in ten seconds, and cancelled or malformed requests of one HTTP/3
    /// connection. Default 400: a browser that leaves pages or pans a map cancels a hundred streams at once. More
    /// frames close the connection with ENHANCE_YOUR_CALM.
    pub h2_resets_max: NonZeroU32,
    /// PING, SETTINGS, PRIORITY and unknown frames of one HTTP/2 connection in ten seconds, and frames of the control
    /// stream and unidirectional streams of one HTTP/3 connection. Default 2000; gRPC clients that estimate bandwidth
    /// send the most. More frames close the connection with ENHANCE_YOUR_CALM.
    pub h2_control_frames_max: NonZeroU32,
    /// WINDOW_UPDATE frames of one HTTP/2 connection in ten seconds, in addition to one per 32 bytes of responses;
    /// for HTTP/3, frames of QUIC without content. Default 20 000. More frames close the connection with
    /// ENHANCE_YOUR_CALM.
    pub h2_window_updates_max: NonZeroU32,
    /// Bytes of the decoded heads of all requests under way in one HTTP/2 or HTTP/3 connection. Default 4 MiB: a
    /// hundred streams with cookies of 40 KiB. A request that would exceed the limit gets 503.
    pub h2_heads_bytes_max: ByteSize,
    /// Bytes of the decoded heads of all HTTP/2 and HTTP/3 requests under way. Default 64 MiB: 16 000 requests with
    /// 4 KiB each. A request that would exceed the limit gets 503.
    pub heads_bytes_max: ByteSize,
    /// Memory of the state of all client connections: their buffers and tasks, incomplete heads, streams, and requests
    /// under way. Default 64 MiB: 14 000 idle connections of HTTP/1.1, or 1600 of HTTP/2 with TLS. At 7/8 of the limit
    /// the edge closes the connections that hold most, of the addresses that hold most.
    pub connections_bytes_max: ByteSize,
}

/// The bounds of HTTP/2 for a connection of another node, in relation to those of a client.
const NODE_FACTOR: NonZeroU32 = NonZeroU32::new(10).expect("10 is not zero");

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            connections_max: NonZeroUsize::new(65_536).expect("65 536 is not zero"),
            head_bytes_max: ByteSize::kib(64),
            target_bytes_max: ByteSize::kib(32),
            rate_limit_keys_per_address: NonZeroU32::new(4).expect("4 is not zero"),
            rate_limit_clients_max: NonZeroUsize::new(65_536).expect("65 536 is not zero"),
            headers_max: NonZeroUsize::new(100).expect("100 is not zero"),
            quic_handshakes_max: NonZeroUsize::new(1024).expect("1024 is not zero"),
            request_head_timeout: Duration::from_secs(10),
            proxy_header_bytes_max: ByteSize::kib(4),
            idle_timeout: Duration::from_secs(75),
            body_idle_timeout: Duration::from_secs(60),
            request_body_bytes_max: None,
            upload_buffer_bytes: ByteSize::kib(64),
            upload_buffers_bytes_max: ByteSize::mib(64),
            upload_buffer_wait: Duration::from_secs(1),
            abandoned_wait: Duration::from_secs(1),
            upload_rate_min: ByteSize(256),
            response_rate_min: ByteSize(256),
            rate_window: Duration::from_secs(30),
            read_ahead_bytes: ByteSize::kib(512),
            read_ahead_rate_max: ByteSize::mib(16),
            object_bytes_max: ByteSize::gib(1 << 10),
            fill_bytes_max: ByteSize::mib(256),
            tunnels_max: NonZeroUsize::new(16_384).expect("16 384 is not zero"),
            tunnel_idle_timeout: Duration::from_secs(600),
            h2_streams_max: NonZeroU32::new(100).expect("100 is not zero"),
            h2_resets_max: NonZeroU32::new(400).expect("400 is not zero"),
            h2_control_frames_max: NonZeroU32::new(2000).expect("2000 is not zero"),
            h2_window_updates_max: NonZeroU32::new(20_000).expect("20 000 is not zero"),
            h2_heads_bytes_max: ByteSize::mib(4),
            heads_bytes_max: ByteSize::mib(64),
            connections_bytes_max: ByteSize::mib(64),
        }
    }
}

impl LimitsConfig {
    /// Returns `head_bytes_max` as `usize`.
    pub(crate) fn head_len_max(&self) -> usize {
        usize::try_from(self.head_bytes_max.bytes()).unwrap_or(usize::MAX)
    }

    /// Returns the limits of connections of other nodes of a fleet. A node has one connection for each of its workers,
    /// for the requests of many clients, and cancels those that it sends to the origin instead.
    pub(crate) fn for_node(&self) -> Self {
        let larger = |limit: NonZeroU32| limit.saturating_mul(NODE_FACTOR);
        Self {
            h2_streams_max: larger(self.h2_streams_max),
            h2_resets_max: larger(self.h2_resets_max),
            h2_control_frames_max: larger(self.h2_control_frames_max),
            h2_window_updates_max: larger(self.h2_window_updates_max),
            h2_heads_bytes_max: self.heads_bytes_max,
            ..self.clone()
        }
    }

    pub(crate) fn upload_rate(&self) -> MinRate {
        MinRate {
            bytes_per_second: self.upload_rate_min.bytes(),
            window: self.rate_window,
        }
    }

    /// Returns the minimum rate of an HTTP/2 stream, which has flow control of its own.
    pub(crate) fn stream_rate(&self) -> MinRate {
        MinRate {
            bytes_per_second: self.response_rate_min.bytes(),
            window: self.rate_window,
        }
    }

    /// Returns the minimum rate of a connection whose socket accepts no more bytes.
    pub(crate) fn socket_rate(&self) -> MinRate {
        MinRate {
            bytes_per_second: self.response_rate_min.bytes(),
            window: self.rate_window.max(self.body_idle_timeout),
        }
    }
}

/// The number of header fields that hyper and httparse parse without an allocation.
pub(crate) const HEADERS_ON_STACK: usize = 100;
