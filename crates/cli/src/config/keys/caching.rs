//! The settings of `[caching]` and `[ranges]`.

use edgeward_proxy::config::EdgeConfig;
use edgeward_types::ByteSize;

use super::row::{DURATION_OR_ZERO, Key, rows};
use crate::config::draft::{ConfigDraft, Part as _};
use crate::config::value::{Count, Listed, OrNone, Seed, Size, Switch, Word};

pub(super) static ROWS: &[Key] = rows! {
    /// The handling of a response with `Set-Cookie` that is otherwise cacheable: `"refuse"` does not store it,
    /// `"strip"` stores it without the cookie, `"share"` stores it with the cookie, which RFC 9111 §7.3 allows.
    "caching.set_cookie" live: Word::OF => EdgeConfig.caching.rules.set_cookie;

    /// The handling of `Cache-Control` and `Pragma` in requests: `"ignore"` or `"honour"`. RFC 9111 §5.2.1 calls them
    /// advisory. If they are honoured, any client can send every request through to the origin.
    "caching.client_directives" live: Word::OF => EdgeConfig.caching.rules.client_directives;

    /// If true, responses without an explicit lifetime get a heuristic one (RFC 9111 §4.2.2).
    "caching.heuristic" live: Switch => ConfigDraft.heuristic_on;

    /// The heuristic lifetime as a percentage of the time since `Last-Modified`.
    "caching.heuristic_percent" live: Count::of(0, 100) => ConfigDraft.heuristic.percent;

    /// The maximum of the heuristic lifetime.
    "caching.heuristic_lifetime_max" live: DURATION_OR_ZERO => ConfigDraft.heuristic.lifetime_max;

    /// The heuristic lifetime of a response without `Last-Modified`.
    "caching.heuristic_without_last_modified" live:
        DURATION_OR_ZERO => ConfigDraft.heuristic.without_last_modified;

    /// If true, responses 400, 413, 414 and 501 with an explicit lifetime are stored. If false, they are never stored:
    /// request fields outside the cache key can cause these errors, so one client could replace a page by an error for
    /// all clients.
    "caching.store_request_errors" live: Switch => EdgeConfig.caching.rules.store_request_errors;

    /// The longest time after the end of its freshness for which a response is served while the origin cannot be
    /// reached (RFC 9111 §4.2.4). `stale-if-error` of a response takes precedence. Not served are responses with
    /// `must-revalidate`, `proxy-revalidate`, `s-maxage` or `no-cache`, and responses that were never fresh.
    "caching.stale_if_disconnected" live: DURATION_OR_ZERO => EdgeConfig.caching.stale_if_disconnected;

    /// How long a stale response is served without another request to the origin after its validation failed, if the
    /// response may be served instead of the error. Rounded down to whole seconds of the clock.
    "caching.validation_backoff" restart: DURATION_OR_ZERO => EdgeConfig.caching.validation_backoff;

    /// How long the edge does not collapse requests for a URL, after a response for this URL that several requests
    /// cannot share.
    "caching.hit_for_miss" restart: DURATION_OR_ZERO => EdgeConfig.caching.hit_for_miss;

    /// The longest time from the start of a shared fetch to the head of its response for which followers wait. At this
    /// time all followers send requests of their own, and until the head arrives further requests do not wait.
    "caching.collapse_wait_max" restart: DURATION_OR_ZERO => EdgeConfig.caching.collapse_wait_max;

    /// The maximum number of followers of one fetch. The next request leads another fetch, which further requests
    /// follow.
    "caching.collapse_followers_max" restart:
        Count::of(1, 1 << 22) => EdgeConfig.caching.collapse_followers_max;

    /// The largest response that followers share if admission does not store it. If no follower waits when the head
    /// arrives, the limit is at most `"8MiB"`.
    "caching.collapse_bytes_max" live:
        Size(ByteSize(0), ByteSize::gib(64)) => EdgeConfig.caching.collapse_bytes_max;

    /// If true, a 5xx of the origin that may be stored replaces a stored response that may still be used by its
    /// lifetime, `stale-while-revalidate` or `stale-if-error`. If false, the error is not stored then.
    "caching.errors_replace_stale" live: Switch => EdgeConfig.caching.errors_replace_stale;

    /// If true, a stored variant also answers requests with another `Accept-Encoding` or `Accept`, if the origin would
    /// answer them with the same coding or image format. See docs/reference/http-caching.md.
    "caching.share_variants" live: Switch => EdgeConfig.caching.share_variants;

    /// The maximum number of variants of one URL: responses for different values of the request fields that `Vary`
    /// names. With one more, the URL begins again with this one, and the older ones are not used. After a restart, the
    /// variants on disk do not count.
    "caching.variants_max" live: Count::of(1, 1 << 22) => EdgeConfig.caching.variants_max;

    /// The largest header lines `Link` of a 103 Early Hints from the origin that are kept with the stored response: its
    /// hits have them. 0 keeps none. See docs/reference/http-caching.md.
    "caching.early_links_bytes_max" live:
        Size(ByteSize(0), ByteSize::kib(64)) => EdgeConfig.caching.early_links_bytes_max;

    /// The largest body that the edge fetches with GET for a HEAD. The first HEAD of a URL is forwarded as HEAD. If its
    /// response may be stored and is not known to be longer, the next HEAD is fetched with GET, so that later requests
    /// of both methods are hits. A body of unknown length is given up at this length. 0 forwards every HEAD. See
    /// docs/reference/http-caching.md.
    "caching.head_fetch_bytes_max" live:
        Size(ByteSize(0), ByteSize::gib(1)) => EdgeConfig.caching.head_fetch_bytes_max;

    /// Query parameters that do not change a response, for an origin that does not send `No-Vary-Search`, for example
    /// `"utm_*, gclid"`. URLs that differ only in these parameters share one stored response. The origin gets the whole
    /// URL of the request that is forwarded. A `*` at the end stands for any text.
    "caching.ignored_parameters" restart: Listed::OF => EdgeConfig.caching.ignored_parameters;

    /// The seed of the hash of cache keys. `"none"` draws a random seed at each start, so that clients cannot search
    /// for collisions. A fixed seed makes runs comparable.
    "caching.hash_seed" restart,
        hidden_flag "--hash-seed N" "Seed of the hash of cache keys, for reproducible runs":
        OrNone(Seed) => EdgeConfig.caching.hash_seed;

    /// The size of a slice. A request for a range without a stored response fetches only the slices that the range
    /// needs, at multiples of this size. With `"none"`, these requests are passed to the origin and their responses are
    /// not stored. Stored slices keep the size that they were fetched with.
    "ranges.slice_bytes" live: OrNone(Size(ByteSize::kib(64), ByteSize::mib(64))),
        get: |draft, _| {
            let size = draft.edge.ranges.slice_bytes;
            Some((size.bytes() > 0).then_some(size))
        },
        set: |draft, _, value| draft.edge.ranges.slice_bytes = value.unwrap_or_default();

    /// The most slices that are fetched ahead of a client that reads one response in order. The first is fetched after
    /// half a slice was read. No slice beyond the requested range is fetched. 0 disables reading ahead.
    "ranges.read_ahead_slices" live: Count::of(0, 16) => EdgeConfig.ranges.read_ahead_slices;
};
