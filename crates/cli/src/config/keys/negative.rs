//! The settings of `[[negative]]`.

use std::time::Duration;

use edgeward_types::ByteSize;

use super::row::{Key, rows};
use crate::config::draft::Part as _;
use crate::config::value::{
    Filter, InputFile, PathOfId, PublicKeys, Size, Time, Token, Unset, Word,
};
use crate::negative::NegativeSettings;

pub(super) static ROWS: &[Key] = rows! {
    /// The pattern of paths, with one `{id}` that matches a segment of the path or part of one, such as
    /// `"/resource/{id}"` or `"/img/{id}.jpg"`. The first rule that matches applies.
    "negative.path" live: Unset(PathOfId) => NegativeSettings.pattern;

    /// The name by which `id_filter` of a `[[site.rule]]` selects this filter. Several `[[negative]]` may have one
    /// name.
    "negative.name" live: Unset(Token) => NegativeSettings.name;

    /// The filter of the ids that exist: a file, which is checked for changes once a second, or the URL of a published
    /// filter, `"https://HOST/sets/NAME"`, which is kept up to date.
    "negative.filter" live: Unset(Filter) => NegativeSettings.filter;

    /// The public key that verifies the signature of the published filter, or two keys during a change of keys.
    /// Required unless the URL is `https`.
    "negative.public_key" live: PublicKeys => NegativeSettings.keys;

    /// An id that was committed longer ago than this is never answered 404. Required for a published filter. For a
    /// file: how long after its creation the filter is used; by default without limit.
    "negative.max_staleness" live:
        Unset(Time(Duration::from_millis(500), Duration::from_secs(30 * 86_400))) => NegativeSettings.max_staleness;

    /// The form of the ids in the path; `hex` means bytes as hex digits. A filter with ids of another form is not used.
    /// A request whose id does not have this form is forwarded to the origin. Default: the form that the filter itself
    /// names.
    "negative.ids" live: Unset(Word::OF) => NegativeSettings.id_kind;

    /// The largest difference between the clocks of this machine and of the publisher, if you can guarantee such a
    /// limit. If it is set, the date of a manifest proves its age, so manifests may come from a cache. If not, the edge
    /// requests proofs of freshness from the publisher.
    "negative.clock_error" live:
        Unset(Time(Duration::ZERO, Duration::from_secs(86_400))) => NegativeSettings.clock_error;

    /// PEM file of the root certificates that an `https` publisher must chain to. Default: the root certificates of the
    /// system.
    "negative.tls_roots" live: Unset(InputFile) => NegativeSettings.root_certificates;

    /// The largest published snapshot that is fetched. Default: 1 GiB.
    "negative.snapshot_bytes_max" live:
        Unset(Size(ByteSize(1024), ByteSize::gib(64))) => NegativeSettings.snapshot_bytes_max;
};
