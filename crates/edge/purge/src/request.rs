//! The body of a request to the purge API.

use serde::Deserialize;

use crate::scope::{Purge, Scope, ScopeError};

/// A checked request to purge objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeRequest {
    /// The scopes to purge, at least one.
    pub scopes: Vec<Scope>,
    /// True if the objects become stale; false if they must not be used again.
    pub soft: bool,
    /// True if the objects are counted and not purged.
    pub dry_run: bool,
}

/// The reason why a body is not a purge request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The body is not JSON of the expected form.
    #[error("the body is not a purge request: {0}")]
    Json(#[from] serde_json::Error),
    /// A member of a list is not valid.
    #[error("{0}")]
    Scope(#[from] ScopeError),
    /// The request has no scope, or too many.
    #[error("a request has 1 to {SCOPES_MAX} scopes, and this one has {0}")]
    Count(usize),
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Body {
    urls: Vec<String>,
    hosts: Vec<String>,
    tags: Vec<String>,
    prefixes: Vec<String>,
    patterns: Vec<String>,
    soft: bool,
    dry_run: bool,
}

type ParseScope = fn(&str) -> Result<Scope, ScopeError>;

impl PurgeRequest {
    /// Parses a JSON body, for example `{"tags": ["product-17"], "soft": true}`.
    pub fn parse(body: &[u8]) -> Result<Self, RequestError> {
        let body: Body = serde_json::from_slice(body)?;
        let lists: [(&[String], ParseScope); 5] = [
            (&body.urls, Scope::url),
            (&body.hosts, Scope::host),
            (&body.tags, Scope::tag),
            (&body.prefixes, Scope::prefix),
            (&body.patterns, Scope::pattern),
        ];
        let count = lists.iter().map(|(texts, _)| texts.len()).sum();
        if !(1..=SCOPES_MAX).contains(&count) {
            return Err(RequestError::Count(count));
        }
        let scopes = lists
            .iter()
            .flat_map(|(texts, scope)| texts.iter().map(|text| scope(text)));
        Ok(Self {
            scopes: scopes.collect::<Result<_, _>>()?,
            soft: body.soft,
            dry_run: body.dry_run,
        })
    }

    /// Returns the purges of the request.
    pub fn purges(&self) -> impl Iterator<Item = Purge> + '_ {
        self.scopes.iter().map(|scope| Purge {
            scope: scope.clone(),
            soft: self.soft,
        })
    }
}

/// The maximum number of scopes of a request.
pub const SCOPES_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_between_one_and_a_thousand_scopes_and_no_unknown_member() {
        let tags = |count| {
            let tags = vec!["\"a\""; count].join(",");
            PurgeRequest::parse(format!("{{\"tags\": [{tags}]}}").as_bytes())
        };
        assert!(matches!(tags(0), Err(RequestError::Count(0))));
        assert_eq!(tags(1).expect("one").scopes.len(), 1);
        assert_eq!(tags(SCOPES_MAX).expect("the most").scopes.len(), SCOPES_MAX);
        assert!(matches!(tags(SCOPES_MAX + 1), Err(RequestError::Count(_))));
        // A misspelt `soft` must not become a hard purge.
        let misspelt = PurgeRequest::parse(b"{\"tags\": [\"a\"], \"Soft\": true}");
        assert!(matches!(misspelt, Err(RequestError::Json(_))));
    }

    #[test]
    fn scopes_have_the_form_of_cache_keys() {
        let body = r#"{"urls": ["HTTPS://Example.com", "http://Example.com?A=B/C"], "hosts": ["Example.COM:8080"], "prefixes": ["Example.com/A"],
            "patterns": ["*.Example.com/A*"], "soft": true}"#;
        let request = PurgeRequest::parse(body.as_bytes()).expect("a request");
        let texts: Vec<_> = request.scopes.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "https://example.com/",
                "http://example.com/?A=B/C",
                "example.com:8080",
                "example.com/A",
                "*.example.com/A*"
            ]
        );
        assert!(request.soft && !request.dry_run);
        for invalid in [
            r#"{"urls": ["example.com/"]}"#,
            r#"{"urls": ["http:///a"]}"#,
            r#"{"urls": ["http://?a"]}"#,
            r##"{"urls": ["http://example.com/a#b"]}"##,
            r#"{"hosts": ["example.com/a"]}"#,
            r#"{"hosts": ["*.example.com"]}"#,
            r#"{"tags": [""]}"#,
            r#"{"tags": [" a"]}"#,
            r#"{"prefixes": ["/a"]}"#,
            r#"{"patterns": ["a b"]}"#,
        ] {
            assert!(
                matches!(
                    PurgeRequest::parse(invalid.as_bytes()),
                    Err(RequestError::Scope(_))
                ),
                "{invalid}"
            );
        }
    }
}
