//! The limit of the frames of QUIC that carry no content.
//!
//! A packet has room for hundreds of them, and each costs the edge work. The transport counts the frames, and no limit
//! of HTTP/3 applies to them. A connection compares the counts at intervals.

use std::time::Duration;

use edgeward_h3::{ConnectionError, ErrorCode};
use quinn::ConnectionStats;

/// The frames without content that a connection has received.
#[derive(Debug, Default)]
pub(super) struct FrameCount {
    /// The number at the last check.
    before: u64,
}

impl FrameCount {
    /// Checks the frames since the last check. `requests` is the number of requests so far, `max` the limit for ten
    /// seconds.
    pub(super) fn check(
        &mut self,
        stats: &ConnectionStats,
        requests: u64,
        max: u32,
    ) -> Result<(), ConnectionError> {
        let now = empty_frames(stats, requests);
        let new = now.saturating_sub(self.before);
        // The number may fall, if a packet with content follows. It must not give credit.
        self.before = self.before.max(now);
        match new.saturating_mul(CHECKS_IN_TEN_SECONDS) > u64::from(max) {
            true => Err(ConnectionError {
                code: ErrorCode::H3_EXCESSIVE_LOAD,
                reason: "the client sends too many frames without content",
            }),
            false => Ok(()),
        }
    }
}

/// Returns the number of received frames that carry no content.
///
/// Frames that content explains do not count: for each datagram that the edge has sent, an acknowledgement and an
/// update of a window; for each received datagram, each request and each [`CONTENT_BYTES`] received, a frame of a
/// stream.
fn empty_frames(stats: &ConnectionStats, requests: u64) -> u64 {
    let frames = &stats.frame_rx;
    let received = &stats.udp_rx;
    let explained = received.datagrams + received.bytes / CONTENT_BYTES + requests;
    let sent = stats.udp_tx.datagrams;
    [
        frames.acks.saturating_sub(sent),
        (frames.max_data + frames.max_stream_data).saturating_sub(sent),
        frames.stream.saturating_sub(explained),
        frames.crypto,
        frames.data_blocked,
        frames.max_streams_bidi,
        frames.max_streams_uni,
        frames.new_connection_id,
        frames.path_challenge,
        frames.path_response,
        frames.ping,
        frames.reset_stream,
        frames.retire_connection_id,
        frames.stop_sending,
        frames.stream_data_blocked,
        frames.streams_blocked_bidi,
        frames.streams_blocked_uni,
    ]
    .iter()
    .sum()
}

/// Several small messages, such as those of WebSockets, share a datagram.
const CONTENT_BYTES: u64 = 32;

/// The time between two checks: idle connections wake seldom.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(5);

const CHECKS_IN_TEN_SECONDS: u64 = 10 / CHECK_INTERVAL.as_secs();

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(change: impl FnOnce(&mut ConnectionStats)) -> ConnectionStats {
        let mut stats = ConnectionStats::default();
        change(&mut stats);
        stats
    }

    #[test]
    fn half_of_the_limit_may_arrive_between_two_checks() {
        let mut count = FrameCount::default();
        let pings = |number| stats(|stats| stats.frame_rx.ping = number);
        assert_eq!(count.check(&pings(10), 0, 20), Ok(()));
        assert_eq!(count.check(&pings(20), 0, 20), Ok(()));
        assert_eq!(count.check(&pings(20), 0, 20), Ok(()));
        let error = count.check(&pings(31), 0, 20).expect_err("a flood");
        assert_eq!(error.code, ErrorCode::H3_EXCESSIVE_LOAD);
    }

    #[test]
    fn frames_that_content_explains_do_not_count() {
        // A download, an upload, and small requests that share datagrams.
        let explained = stats(|stats| {
            (stats.udp_tx.datagrams, stats.frame_rx.acks) = (1_000_000, 1_000_000);
            (stats.frame_rx.max_data, stats.frame_rx.max_stream_data) = (500_000, 500_000);
            (stats.udp_rx.datagrams, stats.frame_rx.stream) = (2_000_000, 2_500_000);
        });
        assert_eq!(empty_frames(&explained, 500_000), 0);
        assert_eq!(empty_frames(&explained, 499_990), 10);
        // A packet of empty frames has three bytes for each; messages of WebSockets have more.
        for (frame_bytes, expected) in [(3, 327), (32, 0)] {
            let packet = stats(|stats| {
                (stats.udp_rx.datagrams, stats.frame_rx.stream) = (1, 361);
                stats.udp_rx.bytes = 361 * frame_bytes;
            });
            assert_eq!(empty_frames(&packet, 0), expected, "{frame_bytes} bytes");
        }
    }
}
