//! The attacks: what each does, with how many connections, at which strength.

use super::stage::Service;

/// The kinds of attack on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attack {
    /// Two HTTP/2 connections with a window of 0, 100 streams each, for objects of 8 MiB that evict each other.
    PinnedH2,
    /// 200 HTTP/1.1 connections that ask for such objects and read nothing.
    PinnedH1,
    /// 40 HTTP/2 connections with 100 uploads each that repeat an indexed field of 4 kB: a byte sent is 4 kB decoded. No
    /// body follows, and the origin waits for it.
    Hpack,
    /// 1,150 uploads that send a byte every 15 seconds. The origin waits for their bodies.
    SlowPosts,
    /// 12 HTTP/2 connections with a window of 0 that ask for bodies of 400 kB that may not be stored.
    ClosedWindows,
    /// Four HTTP/2 connections that reset each request at once. The origin takes 5 seconds for each response.
    RapidReset,
    /// Four HTTP/2 connections that send PING and SETTINGS without end.
    FrameFlood,
    /// 1,400 connections that say nothing.
    Idle,
    /// 32 connections to the admin server that pipeline requests and read nothing, each for a third of a second.
    Admin,
    /// 4,100 connections to the filter's publisher that say nothing.
    Publisher,
    /// 115 connections a second to the link's gateway that send no certificate and nothing else.
    Gateway,
}

/// How much an attack does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strength {
    /// About 70 MB/s of bodies, 20,000 frames a second, and 100 connections a second instead of those that the server closed.
    Moderate,
    /// As many bodies as the edge fetches, a million frames a second, and 1,000 connections a second.
    Strong,
}

impl Strength {
    pub(super) const ALL: [Self; 2] = [Self::Moderate, Self::Strong];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Moderate => "moderate",
            Self::Strong => "strong",
        }
    }
}

/// The body of an object that an attack asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Body {
    pub(super) bytes: u32,
    query: &'static str,
}

impl Body {
    pub(super) fn path(self, key: u64) -> String {
        format!("/o/{key}?size={}{}", self.bytes, self.query)
    }
}

impl Attack {
    pub(super) const ALL: [Self; 11] = [
        Self::PinnedH2,
        Self::PinnedH1,
        Self::Hpack,
        Self::SlowPosts,
        Self::ClosedWindows,
        Self::RapidReset,
        Self::FrameFlood,
        Self::Idle,
        Self::Admin,
        Self::Publisher,
        Self::Gateway,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::PinnedH2 => "pinned-h2",
            Self::PinnedH1 => "pinned-h1",
            Self::Hpack => "hpack",
            Self::SlowPosts => "slow-posts",
            Self::ClosedWindows => "closed-windows",
            Self::RapidReset => "rapid-reset",
            Self::FrameFlood => "frame-flood",
            Self::Idle => "idle",
            Self::Admin => "admin",
            Self::Publisher => "publisher",
            Self::Gateway => "gateway",
        }
    }

    pub(super) const fn service(self) -> Service {
        match self {
            Self::Admin => Service::Admin,
            Self::Publisher => Service::Publisher,
            Self::Gateway => Service::Gateway,
            _ => Service::Edge,
        }
    }

    /// Connections that it keeps open.
    pub(super) const fn connections(self) -> usize {
        match self {
            Self::PinnedH2 => 2,
            Self::PinnedH1 => 200,
            Self::Hpack => 40,
            Self::SlowPosts => 1150,
            Self::ClosedWindows => 12,
            Self::RapidReset | Self::FrameFlood => 4,
            Self::Idle => 1400,
            Self::Admin => 32,
            Self::Publisher => 4100,
            Self::Gateway => 1150,
        }
    }

    /// Connections opened in one turn before all are open.
    pub(super) const fn opened_a_turn(self, strength: Strength) -> usize {
        match (self, strength) {
            // 115 a second were found to lock out edges.
            (Self::Gateway, Strength::Moderate) => 2,
            // 8 MiB each, six turns apart: 70 MB/s.
            (Self::PinnedH1, Strength::Moderate) => 1,
            _ => 20,
        }
    }

    /// The body that the attack makes the edge fetch without end, if it does.
    pub(super) const fn body(self) -> Option<Body> {
        match self {
            Self::PinnedH2 | Self::PinnedH1 => Some(Body {
                bytes: 8 << 20,
                query: "",
            }),
            Self::ClosedWindows => Some(Body {
                bytes: 400_000,
                query: "&cc=no-store",
            }),
            _ => None,
        }
    }

    /// Returns true if a connection has nothing to do for seconds once it is open.
    pub(super) const fn is_slow(self) -> bool {
        matches!(
            self,
            Self::SlowPosts | Self::Idle | Self::Publisher | Self::Gateway
        )
    }
}
