//! Changes of header fields that rules demand, with their values for one request.

use edgeward_sites::{FieldChange, RequestView, Template};
use http::header::{HeaderMap, HeaderName, HeaderValue};

/// A change of the lines of one field.
#[derive(Clone, Debug)]
pub(crate) enum FieldEdit {
    Set(HeaderValue),
    Add(HeaderValue),
    Remove,
}

impl FieldEdit {
    /// Returns a change of a rule with its value for a request.
    pub(crate) fn of(change: &FieldChange, request: &RequestView<'_>) -> Self {
        let value = |template: &Template| {
            // A template leaves control characters out, so its text is a value.
            HeaderValue::from_bytes(&template.field_value(request))
                .unwrap_or(HeaderValue::from_static(""))
        };
        match change {
            FieldChange::Set(template) => Self::Set(value(template)),
            FieldChange::Add(template) => Self::Add(value(template)),
            FieldChange::Remove => Self::Remove,
        }
    }

    pub(crate) fn apply(&self, name: &HeaderName, headers: &mut HeaderMap) {
        match self {
            Self::Set(value) => _ = headers.insert(name, value.clone()),
            Self::Add(value) => _ = headers.append(name, value.clone()),
            Self::Remove => _ = headers.remove(name),
        }
    }
}
