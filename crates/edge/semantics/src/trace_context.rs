//! `traceparent`, by which services pass the identity of a distributed trace on (W3C Trace Context, §3.2).
//! <https://www.w3.org/TR/trace-context-1/>

use std::fmt;

use http::header::{HeaderMap, HeaderName};

/// The name of the field.
pub static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The name of the field for data of the tracing systems. It is forwarded unchanged, or removed (§3.3.1.1).
pub static TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The value of `traceparent`: the trace, and the span that sent the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    flags: u8,
}

impl TraceParent {
    /// Returns the value for a request that a span of this trace sends. An id of zeros is replaced, as it is invalid.
    pub const fn new(trace_id: u128, span_id: u64, is_sampled: bool) -> Self {
        let trace_id = if trace_id == 0 { 1 } else { trace_id };
        let span_id = if span_id == 0 { 1 } else { span_id };
        Self {
            trace_id: trace_id.to_be_bytes(),
            span_id: span_id.to_be_bytes(),
            flags: is_sampled as u8,
        }
    }

    /// Parses a value. Returns `None` if it is invalid.
    pub fn parse(value: &[u8]) -> Option<Self> {
        // §3.2.4: a later version may have more after a hyphen. Version 255 is invalid.
        let (fields, rest) = value.split_first_chunk::<FIELDS_BYTES>()?;
        let version = hex::<1>(&fields[..2])?[0];
        match version {
            0 if rest.is_empty() => {}
            1..=254 if rest.is_empty() || rest[0] == b'-' => {}
            _ => return None,
        }
        if [2, 35, 52].iter().any(|at| fields[*at] != b'-') {
            return None;
        }
        let parent = Self {
            trace_id: hex(&fields[3..35])?,
            span_id: hex(&fields[36..52])?,
            flags: hex::<1>(&fields[53..])?[0],
        };
        // §3.2.2.3, §3.2.2.4: ids of zeros are invalid.
        (parent.trace_id != [0; 16] && parent.span_id != [0; 8]).then_some(parent)
    }

    /// Returns the value of a request. Several fields are as invalid as a malformed one.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(&TRACEPARENT).iter();
        match (values.next(), values.next()) {
            (Some(value), None) => Self::parse(value.as_bytes()),
            _ => None,
        }
    }

    /// Returns the value for a request that another span of the same trace sends.
    pub const fn with_span(self, span_id: u64, is_sampled: bool) -> Self {
        let parent = Self::new(u128::from_be_bytes(self.trace_id), span_id, is_sampled);
        // §3.2.2.5: of the other flags only `random`, of level 2, is defined. It is a property of the trace's id.
        Self {
            flags: parent.flags | self.flags & RANDOM,
            ..parent
        }
    }

    /// The id of the trace.
    pub const fn trace_id(&self) -> u128 {
        u128::from_be_bytes(self.trace_id)
    }

    /// The id of the span that sent the request.
    pub const fn span_id(&self) -> u64 {
        u64::from_be_bytes(self.span_id)
    }

    /// True if the sender may have recorded its span (§3.2.2.5.1).
    pub const fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }
}

/// Writes the value in version 0.
impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "00-{:032x}-{:016x}-{:02x}",
            self.trace_id(),
            self.span_id(),
            self.flags
        )
    }
}

/// Decodes lower-case hexadecimal digits, two for each of `N` bytes (§3.2.2: upper case is invalid).
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    debug_assert_eq!(digits.len(), 2 * N);
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

const SAMPLED: u8 = 1;
const RANDOM: u8 = 2;

/// Bytes of version, trace id, parent id and flags, with the hyphens between them: 2 + 1 + 32 + 1 + 16 + 1 + 2.
const FIELDS_BYTES: usize = 55;

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn the_example_of_the_specification_is_parsed() {
        let parent = TraceParent::parse(VALID.as_bytes()).expect("valid");
        assert_eq!(parent.trace_id(), 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(parent.span_id(), 0x00f0_67aa_0ba9_02b7);
        assert!(parent.is_sampled());
        assert_eq!(parent.to_string(), VALID);
    }

    #[test]
    fn values_of_other_forms_are_invalid() {
        let with = |from: &str, to: &str| VALID.replacen(from, to, 1);
        for invalid in [
            String::new(),
            VALID[..54].to_owned(),
            format!("{VALID}-"),
            format!("{VALID} "),
            format!(" {VALID}"),
            with("00-", "ff-"),
            with("00-", "0x-"),
            with("00-4bf", "00-4BF"),
            with(
                "00-4bf92f3577b34da6a3ce929d0e0e4736",
                "00-00000000000000000000000000000000",
            ),
            with("00f067aa0ba902b7", "0000000000000000"),
            with("b7-01", "b7_01"),
            with("-01", "-0g"),
            with("00-4", "0004"),
            format!("{}x", with("00-", "01-")),
        ] {
            assert_eq!(TraceParent::parse(invalid.as_bytes()), None, "{invalid}");
        }
    }

    /// §4.3: a parser of version 0 reads the known fields of later versions.
    #[test]
    fn a_later_version_may_have_more_fields() {
        for suffix in ["", "-", "-what-ever"] {
            for version in ["01", "cc", "fe"] {
                let text = format!("{}{suffix}", VALID.replacen("00", version, 1));
                let parsed = TraceParent::parse(text.as_bytes()).expect("valid");
                assert_eq!(parsed.to_string(), VALID, "{text}");
            }
        }
    }

    #[test]
    fn several_fields_are_invalid() {
        let mut headers = HeaderMap::new();
        assert_eq!(TraceParent::of(&headers), None);
        headers.append(&TRACEPARENT, HeaderValue::from_static(VALID));
        assert!(TraceParent::of(&headers).is_some());
        headers.append(&TRACEPARENT, HeaderValue::from_static(VALID));
        assert_eq!(TraceParent::of(&headers), None);
    }

    proptest! {
        #[test]
        fn a_written_value_is_parsed(trace_id: u128, span_id: u64, other: u64, is_sampled: bool) {
            let parent = TraceParent::new(trace_id, span_id, is_sampled);
            prop_assert_eq!(TraceParent::parse(parent.to_string().as_bytes()), Some(parent));
            let child = parent.with_span(other, !is_sampled);
            prop_assert_eq!(child.trace_id(), parent.trace_id());
            prop_assert_eq!(child.is_sampled(), !is_sampled);
            prop_assert_eq!(TraceParent::parse(child.to_string().as_bytes()), Some(child));
        }

        /// Bytes that differ from a valid value in a few positions: each accepted value of version 0 is what is
        /// written.
        #[test]
        fn an_accepted_value_of_version_0_has_one_form(
            changes in prop::collection::vec((0..FIELDS_BYTES, any::<u8>()), 0..4),
        ) {
            let mut bytes = VALID.as_bytes().to_vec();
            for (at, byte) in changes {
                bytes[at] = byte;
            }
            if let Some(parsed) = TraceParent::parse(&bytes) {
                let text = parsed.to_string();
                prop_assert_eq!(&text.as_bytes()[2..], &bytes[2..]);
                prop_assert!(parsed.trace_id() != 0 && parsed.span_id() != 0);
            }
        }

        #[test]
        fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            _ = TraceParent::parse(&bytes);
        }
    }
}
