//! The settings of HTTP caching, and of requests for ranges.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use edgeward_semantics::{IgnoredParameters, Rules};
use edgeward_types::ByteSize;

/// The settings of HTTP caching.
#[derive(Clone, Debug)]
pub struct CachingConfig {
    /// The choices that RFC 9111 leaves to a cache: heuristic lifetimes, cookies, the client's directives.
    pub rules: Rules,
    /// Longest time after the end of its freshness for which a response is served while the origin cannot be reached
    /// (RFC 9111 §4.2.4). Default 1 d: most outages are shorter, and an old page is more useful than an error.
    pub stale_if_disconnected: Duration,
    /// Time after a failed validation for which a stale response is served without another attempt, if it may be served
    /// instead of the error. Default 2 s: an origin that fails gets at most one request per second and object.
    pub validation_backoff: Duration,
    /// Time for which requests for a URL are not collapsed after the URL had a response that clients must not share.
    /// Default 2 min, as in Varnish.
    pub hit_for_miss: Duration,
    /// Longest time from the start of a shared fetch to the head of its response for which followers wait. At this time
    /// all followers send requests of their own, and until the head arrives further requests do not wait. Default 10 s:
    /// with a longer wait, one slow connection could delay many followers.
    pub collapse_wait_max: Duration,
    /// Followers of one fetch. Default 16 384: a follower takes 40 bytes in the fetch's list, and the list wakes them
    /// one after the other. The next request leads another fetch, which further requests follow.
    pub collapse_followers_max: NonZeroUsize,
    /// Largest response that followers share although admission does not store it. Default 64 MiB, a quarter of
    /// `limits.fill_bytes_max`. A larger response is fetched again for each follower. If no follower waits when the
    /// head arrives, the limit is at most 8 MiB, because one client alone does not need the buffer.
    pub collapse_bytes_max: ByteSize,
    /// True if a storable 5xx replaces a stored response that may still be used by its lifetime,
    /// `stale-while-revalidate` or `stale-if-error`. Default false: a page that is a little old is of more use than an
    /// error, and the next validation tries again.
    pub errors_replace_stale: bool,
    /// True if a variant also answers requests with another `Accept-Encoding` or `Accept`, if the origin would answer
    /// them with the same coding or image format. Default true: without it, each browser version has its own copies.
    pub share_variants: bool,
    /// Most variants that are stored for one URL through one marker. Beyond it the URL begins with a new marker, and
    /// the older variants are no longer found. Default 1000: no negotiation of codings, types and languages makes so
    /// many, and a URL that varies by cookies or browsers does not fill the cache with copies that hardly any request
    /// hits.
    pub variants_max: NonZeroU32,
    /// Largest lines of `Link` from 103 Early Hints that are stored with a response. Default 4 KiB: forty links of 100
    /// bytes, and as much as many servers accept in a whole head. 0 stores none.
    pub early_links_bytes_max: ByteSize,
    /// Largest body that is fetched with GET for a HEAD. The first HEAD of a URL is forwarded as HEAD. If its response
    /// may be stored and is not known to be longer, the next HEAD is fetched with GET, and later ones are hits. Default
    /// 8 MiB: manifests, packages and images, which one client downloads in a second. 0 forwards every HEAD.
    pub head_fetch_bytes_max: ByteSize,
    /// Query parameters that do not change a response, for an origin that does not send `No-Vary-Search`. URLs that
    /// differ only in them share one response. The origin gets the URL of the first request. Default: none.
    pub ignored_parameters: IgnoredParameters,
    /// Seed of [`KeyHash`](edgeward_types::KeyHash). Default: random at each start, so that clients cannot search for
    /// collisions. A fixed seed makes measurements comparable.
    pub hash_seed: Option<u64>,
}

impl Default for CachingConfig {
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            stale_if_disconnected: Duration::from_secs(24 * 60 * 60),
            validation_backoff: Duration::from_secs(2),
            hit_for_miss: Duration::from_secs(120),
            collapse_wait_max: Duration::from_secs(10),
            collapse_followers_max: NonZeroUsize::new(16_384).expect("16 384 is not zero"),
            collapse_bytes_max: ByteSize::mib(64),
            errors_replace_stale: false,
            share_variants: true,
            variants_max: NonZeroU32::new(1000).expect("1000 is not zero"),
            early_links_bytes_max: ByteSize::kib(4),
            head_fetch_bytes_max: ByteSize::mib(8),
            ignored_parameters: IgnoredParameters::default(),
            hash_seed: None,
        }
    }
}

/// The settings of requests for ranges without a stored response.
#[derive(Clone, Copy, Debug)]
pub struct RangesConfig {
    /// The size of a slice. Default 1 MiB: a second of video at 8 Mbit/s, and two orders of magnitude more than the
    /// head and the index entry of a slice. 0 disables slices: these requests are then passed to the origin.
    pub slice_bytes: ByteSize,
    /// Slices that are fetched ahead of a client that reads in order. Default 2: while one is read, the next has
    /// arrived and one is under way.
    pub read_ahead_slices: u32,
}

impl Default for RangesConfig {
    fn default() -> Self {
        Self {
            slice_bytes: ByteSize::mib(1),
            read_ahead_slices: 2,
        }
    }
}
