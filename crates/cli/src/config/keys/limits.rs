//! The settings of `[limits]`.

use edgeward_proxy::config::EdgeConfig;
use edgeward_types::ByteSize;

use super::row::{DURATION, DURATION_OR_ZERO, Key, TIB_16, rows};
use crate::config::draft::Part as _;
use crate::config::value::{Count, REQUEST_BODY_SIZES, Size};

pub(super) static ROWS: &[Key] = rows! {
    /// The maximum number of client connections of all workers. A further connection replaces the connection that has
    /// been idle longest, or is refused if every connection has a request in progress. At the start, the edge lowers
    /// this limit if the limit of open files requires it, and logs the lower limit.
    "limits.connections_max" live: Count::of(1, 1 << 22) => EdgeConfig.limits.connections_max;

    /// The maximum number of tunnels of all workers to one origin: connections that have switched to WebSocket or
    /// another protocol, and requests for it. One client address may use `origin.client_share_percent` of them. A
    /// further request gets 503. A tunnel has a connection to the origin of its own, which
    /// `origin.connections_per_worker_max` does not include. At the start, the edge lowers this limit if the limit of
    /// open files requires it.
    "limits.tunnels_max" live: Count::of(1, 1 << 22) => EdgeConfig.limits.tunnels_max;

    /// The longest time without a byte in either direction of a tunnel. Then the edge closes both connections. After
    /// one side has closed, the timeout is at most `limits.body_idle_timeout`.
    "limits.tunnel_idle_timeout" live: DURATION => EdgeConfig.limits.tunnel_idle_timeout;

    /// The maximum size of a message's head. A larger request head gets 431; a larger response head of the origin
    /// becomes 502.
    "limits.head_bytes_max" live: Size(ByteSize::kib(8), ByteSize::mib(1)) => EdgeConfig.limits.head_bytes_max;

    /// The maximum length of a request target. A request with a longer target gets 414.
    "limits.target_bytes_max" live:
        Size(ByteSize(256), ByteSize::kib(60)) => EdgeConfig.limits.target_bytes_max;

    /// The maximum number of header fields of a message. A request with more fields gets 431; a response of the origin
    /// with more fields becomes 502.
    "limits.headers_max" live: Count::of(16, 4096) => EdgeConfig.limits.headers_max;

    /// The longest time from the first byte of a request to the end of its head. Then the client gets 408.
    "limits.request_head_timeout" live: DURATION => EdgeConfig.limits.request_head_timeout;

    /// The maximum number of QUIC handshakes in progress (HTTP/3), over all workers. From half of the limit on, a
    /// client must first prove its address (Retry), which takes a round trip. Above the limit, attempts are refused.
    "limits.quic_handshakes_max" live: Count::of(1, 1_000_000) => EdgeConfig.limits.quic_handshakes_max;

    /// The longest PROXY header with its extensions, which are skipped. A longer header closes the connection. The
    /// header must arrive within `limits.request_head_timeout`.
    "limits.proxy_header_bytes_max" live:
        Size(ByteSize::kib(1), ByteSize::kib(64)) => EdgeConfig.limits.proxy_header_bytes_max;

    /// The longest idle time of a client connection between two requests or before the first one. Then the edge closes
    /// the connection.
    "limits.idle_timeout" live: DURATION => EdgeConfig.limits.idle_timeout;

    /// The longest time that a client may take no bytes of its response, or send no bytes of its upload. Then the edge
    /// closes the connection.
    "limits.body_idle_timeout" live: DURATION => EdgeConfig.limits.body_idle_timeout;

    /// The largest request body. A request with a larger body gets 413. Uploads are streamed and not stored. The key
    /// `request_body_max` of a site or a rule replaces this limit.
    "limits.request_body_bytes_max" live: REQUEST_BODY_SIZES => EdgeConfig.limits.request_body_bytes_max;

    /// The number of bytes of a request body that are buffered before the request takes a connection to the origin, so
    /// that a small slow upload occupies no connection.
    "limits.upload_buffer_bytes" live:
        Size(ByteSize(0), ByteSize::mib(16)) => EdgeConfig.limits.upload_buffer_bytes;

    /// The maximum memory of all upload buffers. At this limit, further bodies are sent to the origin without a buffer.
    "limits.upload_buffers_bytes_max" live:
        Size(ByteSize(0), ByteSize::gib(64)) => EdgeConfig.limits.upload_buffers_bytes_max;

    /// The longest time that a body of unknown length is buffered. Then the request is sent to the origin, because the
    /// client may wait for a response before it sends more of the body.
    "limits.upload_buffer_wait" live: DURATION_OR_ZERO => EdgeConfig.limits.upload_buffer_wait;

    /// The time for which the edge works for a client that has left. A request that was sent to the origin ends after
    /// this time, unless its response has begun and may be stored, or other clients wait for it. A client that has
    /// closed only its sending direction counts as left if it gets no byte of its response for this time.
    "limits.abandoned_wait" live: DURATION_OR_ZERO => EdgeConfig.limits.abandoned_wait;

    /// The minimum rate of an upload, in bytes per second over `rate_window`. A slower upload gets 408. Only time in
    /// which the edge waits for the client counts. 0 is no limit.
    "limits.upload_rate_min" live: Size(ByteSize(0), ByteSize::mib(1)) => EdgeConfig.limits.upload_rate_min;

    /// The minimum rate at which a client takes a response, in bytes per second over `rate_window`. Time counts only
    /// while the client does not take bytes that the edge has, so that event streams and slow origins are not affected.
    /// 0 is no limit.
    "limits.response_rate_min" live: Size(ByteSize(0), ByteSize::mib(1)) => EdgeConfig.limits.response_rate_min;

    /// The time over which `upload_rate_min` and `response_rate_min` apply: a client may pause for this time before its
    /// rate is too low. For a response over HTTP/1.1, the time is `body_idle_timeout` if that is longer. There is one
    /// exception: while requests wait for a connection to the origin and the response uses such a connection, the time
    /// is always `rate_window`.
    "limits.rate_window" live: DURATION => EdgeConfig.limits.rate_window;

    /// The number of bytes of a response that the edge reads from the origin and buffers while the client takes none.
    /// The buffer counts towards `fill_bytes_max`. If the rest of the body fits into the buffer, the connection to the
    /// origin is released.
    "limits.read_ahead_bytes" live: Size(ByteSize(0), ByteSize::mib(64)) => EdgeConfig.limits.read_ahead_bytes;

    /// The maximum rate, in bytes per second, at which a worker reads bodies ahead of slow clients. The limit applies
    /// to a body while the edge has read more than 128 KiB that no client of the body has taken. For up to 64 bodies
    /// per worker, it applies only above 1 MiB. 0 is no limit.
    "limits.read_ahead_rate_max" live:
        Size(ByteSize(0), ByteSize::gib(64)) => EdgeConfig.limits.read_ahead_rate_max;

    /// The largest body that is stored in the cache, even if the policy would store larger ones. Larger bodies are
    /// streamed to the client.
    "limits.object_bytes_max" live:
        Size(ByteSize(1), ByteSize::gib(1 << 10)) => EdgeConfig.limits.object_bytes_max;

    /// The maximum memory of all fills, in addition to `hot.capacity`. Fills are response bodies that are being read
    /// into the cache or are shared by several clients. At the limit, misses are streamed without being stored.
    "limits.fill_bytes_max" live: Size(ByteSize::mib(1), TIB_16) => EdgeConfig.limits.fill_bytes_max;

    /// The maximum number of concurrent streams of an HTTP/2 or HTTP/3 connection. RFC 9113 §6.5.2 recommends at least
    /// 100.
    "limits.h2_streams_max" live: Count::of(1, 10_000) => EdgeConfig.limits.h2_streams_max;

    /// The maximum number of RST_STREAM frames that a client may send on an HTTP/2 connection in ten seconds. Each 16
    /// KiB of response bytes allow one frame more. Above the limit, the connection is closed with ENHANCE_YOUR_CALM.
    /// For HTTP/3: the maximum number of requests that a client may cancel, or that are malformed, in ten seconds.
    "limits.h2_resets_max" live: Count::of(1, 1_000_000) => EdgeConfig.limits.h2_resets_max;

    /// The maximum number of PING, SETTINGS, PRIORITY and unknown frames that a client may send on an HTTP/2 connection
    /// in ten seconds. Each 4 KiB of response bytes allow one frame more. Above the limit, the connection is closed
    /// with ENHANCE_YOUR_CALM. For HTTP/3: the maximum number of frames of the control stream and of
    /// unidirectional streams in ten seconds.
    "limits.h2_control_frames_max" live: Count::of(1, 1_000_000) => EdgeConfig.limits.h2_control_frames_max;

    /// The maximum number of WINDOW_UPDATE frames that a client may send on an HTTP/2 connection in ten seconds. Each
    /// 32 response bytes allow one frame more. Above the limit, the connection is closed with ENHANCE_YOUR_CALM. For
    /// HTTP/3: the maximum number of frames of QUIC without content, such as PING, in ten seconds.
    "limits.h2_window_updates_max" live: Count::of(1, 10_000_000) => EdgeConfig.limits.h2_window_updates_max;

    /// The maximum size of the decoded heads of requests in progress on an HTTP/2 or HTTP/3 connection. A request that
    /// would exceed this size gets 503.
    "limits.h2_heads_bytes_max" live:
        Size(ByteSize::kib(64), ByteSize::gib(16)) => EdgeConfig.limits.h2_heads_bytes_max;

    /// The maximum size of the decoded heads of all HTTP/2 and HTTP/3 requests in progress. A request that would exceed
    /// this size gets 503.
    "limits.heads_bytes_max" live:
        Size(ByteSize::kib(64), ByteSize::gib(16)) => EdgeConfig.limits.heads_bytes_max;

    /// The number of keys whose rates one client address may use together, if `rate_limit_by` is a request field. A
    /// client can invent keys, so the requests with keys of one address have this many times the rate and the burst of
    /// one key. Increase it if many clients share an address. An IPv6 network with a prefix of 64 bits counts as one
    /// address.
    "limits.rate_limit_keys_per_address" live:
        Count::of(1, 1_000_000) => EdgeConfig.limits.rate_limit_keys_per_address;

    /// The maximum memory of the state of all client connections: buffers and tasks, incomplete heads, HTTP/2 streams,
    /// and requests in progress without their bodies. An idle connection takes 4 KiB, 20 KiB with TLS, and 16 KiB more
    /// with HTTP/2. At 7/8 of this size, the edge closes the connections that hold most memory, first of the client
    /// address (IPv6: /64 network) that holds most, and connections that get hits last. At the whole size, requests
    /// over HTTP/2 get 503.
    "limits.connections_bytes_max" live:
        Size(ByteSize::mib(1), ByteSize::gib(1 << 10)) => EdgeConfig.limits.connections_bytes_max;
};
