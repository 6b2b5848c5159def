//! The kinds of attacks, with their connections and their strength.

/// An attack on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attack {
    /// Two HTTP/2 connections with a window of 0 and 100 streams each. They request objects of 8 MiB that evict each
    /// other.
    PinnedH2,
    /// 200 HTTP/1.1 connections that request objects of 8 MiB and read nothing.
    PinnedH1,
    /// 40 HTTP/2 connections with 100 uploads each. Each upload repeats an indexed field of 4 kB, so one byte sent is
    /// decoded to 4 kB. The origin waits for bodies, which the client never sends.
    Hpack,
    /// 1,150 uploads that send one byte every 15 seconds. The origin waits for the whole body.
    SlowPosts,
    /// 12 HTTP/2 connections with a window of 0 that request bodies of 400 kB with `no-store`.
    ClosedWindows,
    /// Four HTTP/2 connections that reset each request at once. The origin takes 5 seconds per response.
    RapidReset,
    /// Four HTTP/2 connections that send PING and SETTINGS frames continuously.
    FrameFlood,
    /// 1,400 connections that send nothing.
    Idle,
    /// 32 connections to the admin server. Each pipelines 200 requests, reads nothing, and is replaced by a new
    /// connection after a third of a second (strong: after about 30 ms).
    Admin,
    /// 4,100 connections to the filter publisher that send nothing.
    Publisher,
    /// 115 (strong: 1,000) connections per second to the gateway of the link, until 1,150 are open. They send neither a
    /// certificate nor data.
    Gateway,
}

/// The strength of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strength {
    /// About 70 MB/s of bodies, 20,000 frames per second, and 100 new connections per second in place of those
    /// that the server closed.
    Moderate,
    /// As many bodies as the edge can fetch, a million frames per second, and 1,000 connections per second.
    Strong,
}

impl Strength {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        match name {
            "moderate" => Some(Self::Moderate),
            "strong" => Some(Self::Strong),
            _ => None,
        }
    }
}

/// The body of the objects that an attack requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Body {
    bytes: u32,
    /// Further query parameters for the origin, for example the value of `Cache-Control`.
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

    /// Returns the number of connections that the attack keeps open.
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

    /// Returns the number of connections opened per step of 20 ms until all are open.
    pub(super) const fn opened_per_step(self, strength: Strength) -> usize {
        match (self, strength) {
            // Two per step are 100 per second, and the attacker adds 15 per second. In an earlier measurement, 115
            // connections per second kept other edges from connecting.
            (Self::Gateway, Strength::Moderate) => 2,
            // Each connection makes the edge fetch 8 MiB. The attacker opens one only in every sixth step: 70 MB/s.
            (Self::PinnedH1, Strength::Moderate) => 1,
            _ => 20,
        }
    }

    /// Returns the body that the edge must fetch repeatedly in this attack, if any.
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

    /// Returns true if a connection is idle for seconds after it was opened.
    pub(super) const fn is_slow(self) -> bool {
        matches!(
            self,
            Self::SlowPosts | Self::Idle | Self::Publisher | Self::Gateway
        )
    }
}
