//! Format strings of the access log, with the names of nginx's `log_format`.
//!
//! The names of nginx are used because most operators know them, because a site that moves from nginx keeps its string,
//! and because `edgeward analyze` and other programs read such strings.

use std::fmt;

use http::header::HeaderName;

/// A format string, checked. The variables between the literal texts are those of the table in
/// `docs/reference/access-log.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogTemplate {
    text: String,
    pub(crate) pieces: Vec<Piece>,
    /// The request fields of the variables `$http_NAME`, without repetition.
    pub(crate) fields: Vec<HeaderName>,
}

/// The reason why a format string is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogTemplateError {
    /// The string has a variable that does not exist.
    #[error(
        "has no variable `${name}`; the variables are {}, and $http_NAME for a request field",
        VariableList
    )]
    Unknown {
        /// The name without `$`.
        name: String,
    },
    /// A `$` without a name.
    #[error("has a `$` without a name; write $status or ${{status}}")]
    NoName,
    /// The string has no variable, so all lines would be equal.
    #[error("has no variable such as $request")]
    NoVariable,
    /// The string has a control character.
    #[error("has a control character, but a line of the log is one line of text")]
    Control,
    /// The string has too many request fields.
    #[error("has more than {FIELDS_MAX} different variables $http_NAME")]
    TooManyFields,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(Box<str>),
    /// `is_quoted` is true if the variable is between two double quotes.
    Value {
        variable: Variable,
        is_quoted: bool,
    },
}

/// The most different variables `$http_NAME`: each value is copied for each request.
const FIELDS_MAX: usize = 32;

macro_rules! variables {
    ($( $name:literal $variable:ident )+) => {
        /// A variable of a format string.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Variable {
            $( $variable, )+
            /// The request field with this index in [`LogTemplate::fields`].
            RequestField(usize),
        }

        impl Variable {
            #[cfg(test)]
            pub(crate) const ALL: &[(&str, Self)] = &[$( ($name, Self::$variable) ),+];

            fn from_name(name: &str) -> Option<Self> {
                match name {
                    $( $name => Some(Self::$variable), )+
                    _ => None,
                }
            }
        }

        const NAMES: &[&str] = &[$( $name ),+];
    };
}

variables! {
    "remote_addr" RemoteAddr
    "remote_user" RemoteUser
    "time_local" TimeLocal
    "time_iso8601" TimeIso8601
    "msec" Msec
    "request" Request
    "request_method" RequestMethod
    "request_uri" RequestUri
    "scheme" Scheme
    "ssl_curve" SslCurve
    "host" Host
    "server_protocol" ServerProtocol
    "status" Status
    "body_bytes_sent" BodyBytesSent
    "request_time" RequestTime
    "request_time_us" RequestTimeUs
    "upstream_cache_status" UpstreamCacheStatus
    "cache" Cache
    "cache_detail" CacheDetail
    "collapsed" Collapsed
    "aborted" Aborted
}

/// Writes the names of all variables.
struct VariableList;

impl fmt::Display for VariableList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, name) in NAMES.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            write!(f, "{comma}${name}")?;
        }
        Ok(())
    }
}

impl LogTemplate {
    /// Returns the string as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl std::str::FromStr for LogTemplate {
    type Err = LogTemplateError;

    fn from_str(text: &str) -> Result<Self, LogTemplateError> {
        if text.chars().any(char::is_control) {
            return Err(LogTemplateError::Control);
        }
        let mut template = Self {
            text: text.to_owned(),
            pieces: Vec::new(),
            fields: Vec::new(),
        };
        let mut rest = text;
        let mut is_quoted = false;
        while let Some(at) = rest.find('$') {
            template.push_text(&rest[..at], &mut is_quoted);
            let after = &rest[at + 1..];
            let braced = after
                .strip_prefix('{')
                .and_then(|inner| inner.split_once('}'));
            let (name, behind) = braced.unwrap_or_else(|| {
                let end = after.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
                after.split_at(end.unwrap_or(after.len()))
            });
            if name.is_empty() {
                return Err(LogTemplateError::NoName);
            }
            let variable = template.variable(name)?;
            template.pieces.push(Piece::Value {
                variable,
                is_quoted,
            });
            rest = behind;
        }
        template.push_text(rest, &mut is_quoted);
        let is_value = |piece: &Piece| matches!(piece, Piece::Value { .. });
        if !template.pieces.iter().any(is_value) {
            return Err(LogTemplateError::NoVariable);
        }
        Ok(template)
    }
}

impl LogTemplate {
    fn push_text(&mut self, text: &str, is_quoted: &mut bool) {
        *is_quoted ^= text.bytes().filter(|byte| *byte == b'"').count() % 2 == 1;
        if !text.is_empty() {
            self.pieces.push(Piece::Text(text.into()));
        }
    }

    fn variable(&mut self, name: &str) -> Result<Variable, LogTemplateError> {
        let unknown = || LogTemplateError::Unknown {
            name: name.to_owned(),
        };
        let Some(field) = name.strip_prefix("http_") else {
            return Variable::from_name(name).ok_or_else(unknown);
        };
        // nginx writes the hyphens of a field's name as underscores.
        let field = HeaderName::try_from(field.replace('_', "-")).map_err(|_| unknown())?;
        let known = self.fields.iter().position(|known| *known == field);
        let index = known.unwrap_or_else(|| {
            self.fields.push(field);
            self.fields.len() - 1
        });
        if self.fields.len() > FIELDS_MAX {
            return Err(LogTemplateError::TooManyFields);
        }
        Ok(Variable::RequestField(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<LogTemplate, LogTemplateError> {
        text.parse()
    }

    #[test]
    fn a_template_has_texts_and_variables_and_knows_which_are_quoted() {
        let template = parse("a $status \"${http_User_Agent}x$http_a$http_a\" $http_user_agent")
            .expect("valid");
        let value = |variable, is_quoted| Piece::Value {
            variable,
            is_quoted,
        };
        assert_eq!(
            template.pieces,
            [
                Piece::Text("a ".into()),
                value(Variable::Status, false),
                Piece::Text(" \"".into()),
                value(Variable::RequestField(0), true),
                Piece::Text("x".into()),
                value(Variable::RequestField(1), true),
                value(Variable::RequestField(1), true),
                Piece::Text("\" ".into()),
                value(Variable::RequestField(0), false),
            ]
        );
        assert_eq!(template.fields, ["user-agent", "a"]);
    }

    #[test]
    fn an_invalid_template_is_refused() {
        let unknown = |name: &str| LogTemplateError::Unknown { name: name.into() };
        let many: String = (0..=FIELDS_MAX).map(|n| format!("$http_x{n} ")).collect();
        for (text, expected) in [
            ("$nothing", unknown("nothing")),
            ("$http_", unknown("http_")),
            ("$status${http_a b}", unknown("http_a b")),
            ("5 $", LogTemplateError::NoName),
            ("$ 5", LogTemplateError::NoName),
            ("${}", LogTemplateError::NoName),
            ("status", LogTemplateError::NoVariable),
            ("", LogTemplateError::NoVariable),
            ("$status\n", LogTemplateError::Control),
            ("$status\u{85}", LogTemplateError::Control),
            (&many, LogTemplateError::TooManyFields),
        ] {
            assert_eq!(parse(text), Err(expected), "{text}");
        }
        assert!(parse(&many[..many.len() - "$http_x32 ".len()]).is_ok());
    }
}
