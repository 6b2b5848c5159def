//! The settings of `[[negative]]`.

use std::time::Duration;

use edgeward_types::ByteSize;

use super::super::check::path_text;
use super::super::choice::Choice as _;
use super::super::kind::{Kind, duration_text, size_text};
use super::Key;
use crate::negative::IdKind;

pub(super) const PATH: Key = Key {
    path: "negative.path",
    flag: None,
    kind: Kind::Pattern,
    doc: "Which paths: one `{id}`, which is one part of the path or of a part, as in `\"/resource/{id}\"` or \
          `\"/img/{id}.jpg\"`. The first rule that fits decides.",
    set: |draft, item, value| draft.negative(item).pattern = Some(value.pattern()),
    show: |draft, item| Some(draft.negative.get(item)?.pattern.as_ref()?.to_string()),
};

pub(super) const FILTER: Key = Key {
    path: "negative.filter",
    flag: None,
    kind: Kind::Filter,
    doc: "The filter of the ids that exist: a file, looked at once a second, or the URL of a published set, \
          `\"https://HOST/sets/NAME\"`, which is followed.",
    set: |draft, item, value| draft.negative(item).filter = Some(value.filter()),
    show: |draft, item| Some(draft.negative.get(item)?.filter.as_ref()?.to_string()),
};

pub(super) const PUBLIC_KEY: Key = Key {
    path: "negative.public_key",
    flag: None,
    kind: Kind::PublicKeys,
    doc: "Whom a published set is believed of; two while keys are exchanged. Needed unless the URL is `https`.",
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
    kind: Kind::Duration {
        least: Duration::from_millis(500),
        most: Duration::from_secs(30 * 86_400),
    },
    doc: "An id that was committed longer ago than this is never answered 404. Of a published set it must be given. A file \
          is relied on for so long after it was built, and without it for as long as it is there.",
    set: |draft, item, value| draft.negative(item).max_staleness = Some(value.duration()),
    show: |draft, item| draft.negative.get(item)?.max_staleness.map(duration_text),
};

pub(super) const IDS: Key = Key {
    path: "negative.ids",
    flag: None,
    kind: Kind::Choice(IdKind::WORDS),
    doc: "What stands in the path; a filter of other ids is not used. `hex` are bytes in hex digits. What is no id of that \
          form goes to the origin. Without it the filter says.",
    set: |draft, item, value| draft.negative(item).ids = Some(value.choice()),
    show: |draft, item| Some(draft.negative.get(item)?.ids?.word().to_owned()),
};

pub(super) const CLOCK_ERROR: Key = Key {
    path: "negative.clock_error",
    flag: None,
    kind: Kind::Duration {
        least: Duration::ZERO,
        most: Duration::from_secs(86_400),
    },
    doc: "How far this machine's clock and the publisher's can be apart, if somebody answers for that. Then manifests are \
          believed by their date, out of any cache; without it the publisher itself is asked.",
    set: |draft, item, value| draft.negative(item).clock_error = Some(value.duration()),
    show: |draft, item| draft.negative.get(item)?.clock_error.map(duration_text),
};

pub(super) const TLS_ROOTS: Key = Key {
    path: "negative.tls_roots",
    flag: None,
    kind: Kind::InputFile,
    doc: "PEM file of the roots to trust with an `https` publisher. Without it the system's.",
    set: |draft, item, value| draft.negative(item).roots = Some(value.file()),
    show: |draft, item| draft.negative.get(item)?.roots.as_deref().map(path_text),
};

pub(super) const SNAPSHOT_BYTES_MAX: Key = Key {
    path: "negative.snapshot_bytes_max",
    flag: None,
    kind: Kind::Size {
        least: ByteSize(1024),
        most: ByteSize::gib(64),
    },
    doc: "A published snapshot above this size is not fetched. Without it 1 GiB.",
    set: |draft, item, value| draft.negative(item).snapshot_bytes_max = Some(value.size()),
    show: |draft, item| draft.negative.get(item)?.snapshot_bytes_max.map(size_text),
};
