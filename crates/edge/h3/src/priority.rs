//! Priorities of responses (RFC 9218): the field `priority`, and the value of PRIORITY_UPDATE.

use http::{HeaderMap, HeaderName};
use sfv::{BareItem, Dictionary, ListEntry, Parser};

/// The field `priority` of requests and responses.
pub static PRIORITY: HeaderName = HeaderName::from_static("priority");

/// The priority of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// 0 is sent first, 7 last (RFC 9218 §4.1).
    pub urgency: u8,
    /// True if the client can use parts of the response before it is complete (§4.2).
    pub incremental: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Self {
            urgency: 3,
            incremental: false,
        }
    }
}

impl Priority {
    /// Returns this priority with the parameters that `text` states. Unknown parameters, and values of a wrong type or
    /// out of range, are ignored (§4), and so is a text that is not a dictionary.
    #[must_use]
    pub fn with(mut self, text: &[u8]) -> Self {
        let Ok(parameters) = Parser::new(text).parse::<Dictionary>() else {
            return self;
        };
        if let Some(ListEntry::Item(item)) = parameters.get("u")
            && let BareItem::Integer(urgency) = item.bare_item
            && let Ok(urgency) = u8::try_from(i64::from(urgency))
            && urgency <= URGENCY_MAX
        {
            self.urgency = urgency;
        }
        if let Some(ListEntry::Item(item)) = parameters.get("i")
            && let BareItem::Boolean(incremental) = item.bare_item
        {
            self.incremental = incremental;
        }
        self
    }

    /// Returns this priority with the parameters that the field `priority` states. That of a response overrides
    /// parameters of its request (§8).
    #[must_use]
    pub fn with_field(self, headers: &HeaderMap) -> Self {
        let mut lines = headers.get_all(&PRIORITY).into_iter();
        let Some(first) = lines.next() else {
            return self;
        };
        let mut text = first.as_bytes().to_vec();
        for line in lines {
            text.extend_from_slice(b", ");
            text.extend_from_slice(line.as_bytes());
        }
        self.with(&text)
    }
}

/// The urgency of background work.
pub(crate) const URGENCY_MAX: u8 = 7;

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const fn priority(urgency: u8, incremental: bool) -> Priority {
        Priority {
            urgency,
            incremental,
        }
    }

    #[test]
    fn known_parameters_of_valid_values_count() {
        for (text, urgency, incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=7, i", 7, true),
            ("i=?0", 3, false),
            ("u=8, i", 3, true),
            ("u=-1", 3, false),
            ("u=1.0, i=1", 3, false),
            ("u=\"1\"", 3, false),
            ("u=(1 2), i=?1", 3, true),
            ("u=1, u=2", 2, false),
            ("u=1;x=2, other=\"a\", i;y", 1, true),
            ("u=1, U=2", 3, false),
            ("u=1,", 3, false),
            ("u", 3, false),
        ] {
            assert_eq!(
                Priority::default().with(text.as_bytes()),
                priority(urgency, incremental),
                "{text}"
            );
        }
    }

    #[test]
    fn a_response_overrides_parameters_of_its_request() {
        let mut response = HeaderMap::new();
        assert_eq!(priority(5, true).with_field(&response), priority(5, true));
        response.append(&PRIORITY, HeaderValue::from_static("u=1"));
        assert_eq!(priority(5, true).with_field(&response), priority(1, true));
        response.append(&PRIORITY, HeaderValue::from_static("i=?0"));
        assert_eq!(priority(5, true).with_field(&response), priority(1, false));
    }
}
