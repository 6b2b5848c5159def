//! The reasons why a link saves few bytes of some bodies, with the advice for each. `status` and `estimate` print them.

use serde::Serialize;

use edgeward_types::ByteSize;

/// The bytes of some bodies, by the form in which the link sends them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Forms {
    /// All bytes, before deduplication and compression.
    pub(super) bytes: u64,
    /// The bytes of the frames that carry them.
    pub(super) wire: u64,
    /// Known chunks, which are sent as references.
    pub(super) referenced: u64,
    /// New chunks that are sent as deltas.
    pub(super) delta: u64,
    /// New chunks, without those that are sent as deltas.
    pub(super) literal: u64,
    /// The part of `literal` that looks encrypted or compressed.
    pub(super) incompressible: u64,
    /// An estimate of the part of the new chunks that the store once had and evicted.
    pub(super) evicted: u64,
    /// Bytes that are not deduplicated.
    pub(super) plain: u64,
    /// The part of `plain` in bodies that are not deduplicated as a whole.
    pub(super) bypassed: u64,
}

/// The facts beyond the bytes of a host that an explanation needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Context {
    /// The size of a store that would have kept most of the evicted chunks.
    pub(super) larger_store: Option<u64>,
    /// The content types of the bodies that are not deduplicated, the one with the most bytes first.
    pub(super) bypassed_types: Vec<String>,
}

impl Context {
    /// Creates a context from the bytes of each content type that are not deduplicated.
    pub(super) fn new<'a>(
        larger_store: Option<u64>,
        bypassed: impl Iterator<Item = (&'a str, u64)>,
    ) -> Self {
        let mut types: Vec<_> = bypassed.filter(|(_, bytes)| *bytes > 0).collect();
        types.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let types = types.into_iter().map(|(name, _)| name.to_owned());
        Self {
            larger_store,
            bypassed_types: types.take(TYPES_SHOWN_MAX).collect(),
        }
    }

    /// Returns the cause and the actions for bodies that are not deduplicated.
    fn advice_for_bypassed(&self) -> String {
        let types = &self.bypassed_types;
        let has =
            |class: fn(&str) -> bool| types.is_empty() || types.iter().any(|name| class(name));
        let actions = [
            (
                has(is_encrypted),
                "let the gateway end TLS (--origin https://...)",
            ),
            (has(is_packed), "turn off compression in the application"),
            (has(is_media), "media files stay as they are"),
        ];
        let actions = actions.iter().filter(|(applies, _)| *applies);
        let actions: Vec<_> = actions.map(|(_, action)| *action).collect();
        let types = if types.is_empty() {
            String::new()
        } else {
            let names = types.iter().map(|name| match name.strip_prefix('(') {
                Some(protocol) => protocol.trim_end_matches(')'),
                None => name,
            });
            format!(" ({})", names.collect::<Vec<_>>().join(", "))
        };
        format!(
            "encrypted or compressed before the link{types}: {}",
            actions.join("; ")
        )
    }
}

fn is_encrypted(content_type: &str) -> bool {
    content_type.starts_with('(')
}

fn is_media(content_type: &str) -> bool {
    let kinds = ["image/", "video/", "audio/", "font/"];
    !content_type.ends_with(')') && kinds.iter().any(|kind| content_type.starts_with(kind))
}

/// Compressed by a content coding.
fn is_packed(content_type: &str) -> bool {
    !is_encrypted(content_type) && !is_media(content_type)
}

/// Why bytes are not saved by references.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reason {
    /// The first bytes or the headers of the bodies show encrypted or compressed data.
    Bypassed,
    /// New chunks look encrypted or compressed.
    Opaque,
    /// The store had the chunks and has evicted them.
    Evicted,
    /// The chunks are sent for the first time.
    FirstTime,
    /// Short bodies, and the first bytes of each body.
    Short,
}

/// A reason, and the bytes to which it applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Share {
    pub(super) reason: Reason,
    pub(super) bytes: u64,
}

impl Forms {
    /// Returns the reasons that apply to bytes of the bodies, the one with the most bytes first.
    pub(super) fn reasons(&self) -> Vec<Share> {
        let incompressible = self.incompressible.min(self.literal);
        let compressible = self.literal - incompressible;
        // The evicted bytes are an estimate, and may also have been sent as deltas.
        let evicted = self.evicted.min(self.literal);
        let evicted_opaque = evicted.saturating_sub(compressible);
        let shares = [
            (Reason::Bypassed, self.bypassed),
            (Reason::Opaque, incompressible - evicted_opaque),
            (Reason::Evicted, evicted),
            (Reason::FirstTime, compressible - (evicted - evicted_opaque)),
            (Reason::Short, self.plain.saturating_sub(self.bypassed)),
        ];
        let shares = shares.map(|(reason, bytes)| Share { reason, bytes });
        let mut shares: Vec<_> = shares.into_iter().filter(|share| share.bytes > 0).collect();
        shares.sort_by_key(|share| std::cmp::Reverse(share.bytes));
        shares
    }

    /// Adds the bytes of other bodies.
    pub(super) fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.wire += other.wire;
        self.referenced += other.referenced;
        self.delta += other.delta;
        self.literal += other.literal;
        self.incompressible += other.incompressible;
        self.evicted += other.evicted;
        self.plain += other.plain;
        self.bypassed += other.bypassed;
    }

    /// Returns an explanation if the link saves less than half of a considerable number of bytes. `name` is the host or
    /// file.
    pub(super) fn explanation(&self, name: &str, context: &Context) -> Option<String> {
        if self.bytes < EXPLAINED_BYTES_MIN || self.wire < self.bytes / 2 {
            return None;
        }
        let saved = (1.0 - self.wire as f64 / self.bytes as f64) * 100.0;
        let mut text = if saved < 0.05 {
            format!("why {name} saves nothing:\n")
        } else {
            format!("why {name} saves only {saved:.1} %:\n")
        };
        for share in self.reasons() {
            let percent = share.bytes as f64 / self.bytes as f64 * 100.0;
            if percent >= SHARE_PERCENT_MIN {
                let advice = share.reason.advice(context);
                text.push_str(&format!("  {percent:5.1} %  {advice}\n"));
            }
        }
        Some(text)
    }
}

impl Reason {
    /// Returns the cause, and the action to take.
    fn advice(self, context: &Context) -> String {
        match self {
            Self::Bypassed => context.advice_for_bypassed(),
            Self::Opaque => {
                "new data that looks encrypted or compressed: only an identical copy saves bytes; store and send \
                 archives and backups uncompressed"
                    .to_owned()
            }
            Self::Evicted => match context.larger_store {
                Some(bytes) => format!(
                    "evicted from the store before it was sent again: set --store-size to {} at both endpoints",
                    ByteSize(bytes)
                ),
                None => "evicted from the store before it was sent again: set a larger --store-size at both endpoints"
                    .to_owned(),
            },
            Self::FirstTime => {
                "sent for the first time, only compressed: it is saved when it is sent again".to_owned()
            }
            Self::Short => {
                "short bodies and the first 4 KiB of each body, only compressed: send fewer and larger bodies"
                    .to_owned()
            }
        }
    }
}

/// Bodies with fewer bytes are not explained.
pub(super) const EXPLAINED_BYTES_MIN: u64 = 64 << 10;

/// The highest number of content types in one reason.
const TYPES_SHOWN_MAX: usize = 3;

/// Reasons that apply to a smaller share of the bytes are not printed.
const SHARE_PERCENT_MIN: f64 = 5.0;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Each byte that is not a reference or a delta has one reason, however the estimate of evicted bytes compares with
    /// the other counts.
    #[test]
    fn each_byte_that_is_not_saved_has_one_reason() {
        for evicted in [0, 1, 2, 3, 4, 5, 9] {
            for incompressible in 0..=4 {
                let forms = Forms {
                    bytes: 20,
                    wire: 20,
                    literal: 4,
                    incompressible,
                    evicted,
                    plain: 7,
                    bypassed: 5,
                    ..Forms::default()
                };
                let shares = forms.reasons();
                let sum: u64 = shares.iter().map(|share| share.bytes).sum();
                assert_eq!(sum, 11, "{forms:?}: {shares:?}");
                assert!(shares.is_sorted_by_key(|share| std::cmp::Reverse(share.bytes)));
                let of = |reason| {
                    let found = shares.iter().find(|share| share.reason == reason);
                    found.map_or(0, |share| share.bytes)
                };
                assert_eq!(of(Reason::Evicted), evicted.min(4));
                assert_eq!((of(Reason::Bypassed), of(Reason::Short)), (5, 2));
            }
        }
    }

    #[test]
    fn bodies_that_save_half_are_not_explained() {
        let forms = |bytes, wire| Forms {
            bytes,
            wire,
            literal: bytes,
            ..Forms::default()
        };
        for (bytes, wire, explained) in [
            (2 * MIB, MIB, true),
            (2 * MIB, MIB - 1, false),
            (EXPLAINED_BYTES_MIN, EXPLAINED_BYTES_MIN, true),
            (EXPLAINED_BYTES_MIN - 1, EXPLAINED_BYTES_MIN, false),
            (0, 0, false),
        ] {
            let explanation = forms(bytes, wire).explanation("db:1", &Context::default());
            assert_eq!(explanation.is_some(), explained, "{bytes} {wire}");
        }
    }

    #[test]
    fn an_explanation_has_the_large_reasons_and_what_to_do() {
        let forms = Forms {
            bytes: 100 * MIB,
            wire: 101 * MIB,
            literal: 8 * MIB,
            evicted: 8 * MIB,
            plain: 92 * MIB,
            bypassed: 91 * MIB,
            ..Forms::default()
        };
        let context = Context {
            larger_store: Some(40 << 30),
            ..Context::default()
        };
        let explanation = forms.explanation("db:1 (sent)", &context);
        let explanation = explanation.expect("nothing is saved");
        let lines: Vec<_> = explanation.lines().collect();
        assert_eq!(lines[0], "why db:1 (sent) saves nothing:");
        assert!(lines[1].starts_with("   91.0 %  encrypted or compressed"));
        assert!(lines[2].starts_with("    8.0 %  evicted") && lines[2].contains("40 GiB"));
        assert_eq!(lines.len(), 3, "1 % of short bodies is not printed");
    }

    /// The actions fit the content types; without content types, all actions are listed.
    #[test]
    fn the_advice_for_bypassed_bodies_fits_their_content_types() {
        let advice = |types: &[(&str, u64)]| {
            let context = Context::new(None, types.iter().copied());
            Reason::Bypassed.advice(&context)
        };
        for (types, shown, actions) in [
            (
                &[("image/png", 5), ("text/html", 0)][..],
                "image/png",
                [false, false, true],
            ),
            (&[("(TLS)", 5)], "link (TLS):", [true, false, false]),
            (
                &[("image/svg+xml (gzip)", 5)],
                "image/svg+xml (gzip)",
                [false, true, false],
            ),
            (
                &[("a/a", 1), ("(SSH)", 3), ("video/mp4", 4), ("b/b", 2)],
                "(video/mp4, SSH, b/b)",
                [true, true, true],
            ),
            (&[], "before the link: ", [true, true, true]),
        ] {
            let text = advice(types);
            assert!(text.contains(shown), "{text}");
            let has = ["end TLS", "turn off", "media files"].map(|action| text.contains(action));
            assert_eq!(has, actions, "{text}");
        }
    }
}
