//! The settings of `[[negative]]`: rules that answer 404 without the origin. In `set` and `show`, `item` is the index
//! of the rule.

use std::time::Duration;

use edgeward_types::ByteSize;

use super::super::choice::Choice as _;
use super::super::draft::path_text;
use super::super::kind::{ValueKind, duration_text, size_text};
use super::Key;
use crate::negative::IdKind;

pub(super) const PATH: Key = Key {
    path: "negative.path",
    flag: None,
    kind: ValueKind::Pattern,
    doc: "The pattern of paths, with one `{id}` that matches a segment of the path or part of one, such as \
          `\"/resource/{id}\"` or `\"/img/{id}.jpg\"`. The first rule that matches applies.",
    set: |draft, item, value| draft.negative(item).pattern = Some(value.pattern()),
    show: |draft, item| Some(draft.negative.get(item)?.pattern.as_ref()?.to_string()),
};

pub(super) const NAME: Key = Key {
    path: "negative.name",
    flag: None,
    kind: ValueKind::Token,
    doc: "The name by which `id_filter` of a `[[site.rule]]` selects this filter. Several `[[negative]]` may have one \
          name.",
    set: |draft, item, value| draft.negative(item).name = Some(value.text()),
    show: |draft, item| draft.negative.get(item)?.name.clone(),
};

pub(super) const FILTER: Key = Key {
    path: "negative.filter",
    flag: None,
    kind: ValueKind::Filter,
    doc: "The filter of the ids that exist: a file, which is checked for changes once a second, or the URL of a \
          published filter, `\"https://HOST/sets/NAME\"`, which is kept up to date.",
    set: |draft, item, value| draft.negative(item).filter = Some(value.filter()),
    show: |draft, item| Some(draft.negative.get(item)?.filter.as_ref()?.to_string()),
};

pub(super) const PUBLIC_KEY: Key = Key {
    path: "negative.public_key",
    flag: None,
    kind: ValueKind::PublicKeys,
    doc: "The public key that verifies the signature of the published filter, or two keys during a change of keys. \
          Required unless the URL is `https`.",
    set: |draft, item, value| draft.negative(item).keys = value.public_keys(),
    show: |draft, item| {
        let keys = &draft.negative.get(item)?.keys;
        let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
        (!keys.is_empty()).then(|| keys.join(","))
    },
};

pub(super) const MAX_STALENESS: Key = Key {
    path: "negative.max_staleness",
    flag: None,
    kind: ValueKind::Duration {
        min: Duration::from_millis(500),
        max: Duration::from_secs(30 * 86_400),
    },
    doc: "An id that was committed longer ago than this is never answered 404. Required for a published filter. For \
          a file: how long after its creation the filter is used; by default without limit.",
    set: |draft, item, value| draft.negative(item).max_staleness = Some(value.duration()),
    show: |draft, item| draft.negative.get(item)?.max_staleness.map(duration_text),
};

pub(super) const IDS: Key = Key {
    path: "negative.ids",
    flag: None,
    kind: ValueKind::Choice(IdKind::WORDS),
    doc: "The form of the ids in the path; `hex` means bytes as hex digits. A filter with ids of another form is not \
          used. A request whose id does not have this form is forwarded to the origin. Default: the form that the \
          filter itself names.",
    set: |draft, item, value| draft.negative(item).id_kind = Some(value.choice()),
    show: |draft, item| Some(draft.negative.get(item)?.id_kind?.word().to_owned()),
};

pub(super) const CLOCK_ERROR: Key = Key {
    path: "negative.clock_error",
    flag: None,
    kind: ValueKind::Duration {
        min: Duration::ZERO,
        max: Duration::from_secs(86_400),
    },
    doc: "The largest difference between the clocks of this machine and of the publisher, if you can guarantee \
          such a limit. If it is set, the date of a manifest proves its age, so manifests may come from a cache. If \
          not, the edge requests proofs of freshness from the publisher.",
    set: |draft, item, value| draft.negative(item).clock_error = Some(value.duration()),
    show: |draft, item| draft.negative.get(item)?.clock_error.map(duration_text),
};

pub(super) const TLS_ROOTS: Key = Key {
    path: "negative.tls_roots",
    flag: None,
    kind: ValueKind::InputFile,
    doc: "PEM file of the root certificates that an `https` publisher must chain to. Default: the root \
          certificates of the system.",
    set: |draft, item, value| draft.negative(item).root_certificates = Some(value.file()),
    show: |draft, item| {
        draft
            .negative
            .get(item)?
            .root_certificates
            .as_deref()
            .map(path_text)
    },
};

pub(super) const SNAPSHOT_BYTES_MAX: Key = Key {
    path: "negative.snapshot_bytes_max",
    flag: None,
    kind: ValueKind::Size {
        min: ByteSize(1024),
        max: ByteSize::gib(64),
    },
    doc: "The largest published snapshot that is fetched. Default: 1 GiB.",
    set: |draft, item, value| draft.negative(item).snapshot_bytes_max = Some(value.size()),
    show: |draft, item| draft.negative.get(item)?.snapshot_bytes_max.map(size_text),
};
