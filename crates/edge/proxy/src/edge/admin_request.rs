//! Parses requests to the admin server, and decides which role they need. These functions have no effects.

use edgeward_httpd::{AdminToken, Caller, Denied, Role, authorize};
use edgeward_purge::PurgeRequest;
use http::Method;

use crate::path::inspect::InspectedRequest;

/// A page of the admin server that may need a role. Other pages, such as `/healthz`, are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Metrics,
    Status,
    Policy,
    Posted(PostPage),
}

/// A page that accepts POST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PostPage {
    Purge,
    /// The stored responses of a URL.
    Cache,
    Explain,
    Reload,
    Upgrade,
}

/// The path of the policy.
pub(super) const POLICY: &str = "/policy";

impl Page {
    fn of(path: &str) -> Option<Self> {
        Some(match path {
            "/metrics" => Self::Metrics,
            "/status" => Self::Status,
            POLICY => Self::Policy,
            path => Self::Posted(PostPage::of(path)?),
        })
    }

    /// Returns the role that a request needs, or `None` if it needs no token.
    fn role(self, method: &Method, requires_token: bool) -> Option<Role> {
        let reads = matches!(*method, Method::GET | Method::HEAD);
        match self {
            Self::Metrics | Self::Status => requires_token.then_some(Role::Read),
            Self::Policy if reads => requires_token.then_some(Role::Read),
            Self::Policy => requires_token.then_some(Role::Reload),
            Self::Posted(page) => Some(page.role()),
        }
    }
}

impl PostPage {
    pub(super) fn of(path: &str) -> Option<Self> {
        Some(match path {
            "/purge" => Self::Purge,
            "/cache" => Self::Cache,
            "/explain" => Self::Explain,
            "/reload" => Self::Reload,
            "/upgrade" => Self::Upgrade,
            _ => return None,
        })
    }

    const fn role(self) -> Role {
        match self {
            Self::Cache | Self::Explain => Role::Read,
            Self::Purge => Role::Purge,
            Self::Reload | Self::Upgrade => Role::Reload,
        }
    }
}

/// Decides if a client may send a request to `path`. `authorization` is the value of `Authorization`.
pub(super) fn decide<'a>(
    tokens: impl IntoIterator<Item = &'a AdminToken>,
    requires_token: bool,
    method: &Method,
    path: &str,
    authorization: Option<&[u8]>,
) -> Result<Caller, Denied> {
    match Page::of(path).and_then(|page| page.role(method, requires_token)) {
        Some(role) => authorize(tokens, authorization, role),
        None => Ok(Caller::Anyone),
    }
}

/// The action that a POST demands.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Purge(PurgeRequest),
    /// Shows the stored responses of a URL.
    Cache(InspectedRequest),
    Explain(InspectedRequest),
    Reload,
    Upgrade,
}

impl Action {
    /// Parses a POST to a page. The error is a text for the client.
    pub(super) fn parse(page: PostPage, body: &[u8]) -> Result<Self, String> {
        let url = || InspectedRequest::parse(body).map_err(|error| error.to_string());
        Ok(match page {
            PostPage::Purge => {
                let purge = PurgeRequest::parse(body).map_err(|error| error.to_string());
                Self::Purge(purge?)
            }
            PostPage::Cache => Self::Cache(url()?),
            PostPage::Explain => Self::Explain(url()?),
            PostPage::Reload => Self::Reload,
            PostPage::Upgrade => Self::Upgrade,
        })
    }
}

/// Parses bytes as a request to the admin server: a byte of flags, then target, `Authorization` and body, each on a
/// line of its own. Panics if a request gets an action that no token in it allows.
pub fn check_admin_request(bytes: &[u8]) {
    use edgeward_httpd::{Roles, Token, requested_host};
    use http::{HeaderValue, Uri};

    let Some((flags, rest)) = bytes.split_first() else {
        return;
    };
    let mut lines = rest.splitn(3, |byte| *byte == b'\n');
    let [target, authorization, body] = [(); 3].map(|()| lines.next().unwrap_or_default());
    let methods = [Method::GET, Method::POST, Method::PUT, Method::HEAD];
    let method = &methods[usize::from(flags & 3)];
    let requires_token = flags & 4 != 0;
    // The tokens have the roles of the bits of their numbers.
    let secret = |number: u8| format!("0123456789abcde{number}");
    let tokens: Vec<AdminToken> = (0..8u8)
        .map(|number| AdminToken {
            name: format!("token-{number}"),
            token: Token::new(&secret(number)).expect("the token is long enough"),
            roles: (Role::ALL.into_iter())
                .filter(|role| number & (1 << *role as u8) != 0)
                .collect::<Roles>(),
        })
        .collect();
    let Ok(target) = Uri::try_from(target) else {
        return;
    };
    let field = HeaderValue::from_bytes(authorization).ok();
    _ = requested_host(&target, field.as_ref());
    let sent = field.as_ref().map(HeaderValue::as_bytes);
    let decided = decide(&tokens, requires_token, method, target.path(), sent);
    // The naive oracle: the number of the token in the field decides.
    let holder = (0..8u8).find(|number| {
        let (scheme, token) = authorization
            .split_at_checked(7)
            .unwrap_or((b"", authorization));
        scheme.eq_ignore_ascii_case(b"bearer ") && token == secret(*number).as_bytes()
    });
    let holds = |role: Role| holder.is_some_and(|number| number & (1 << role as u8) != 0);
    let needed = match (target.path(), method) {
        ("/purge", _) => Some(Role::Purge),
        ("/cache" | "/explain", _) => Some(Role::Read),
        ("/reload" | "/upgrade", _) => Some(Role::Reload),
        ("/metrics" | "/status", _) if requires_token => Some(Role::Read),
        (POLICY, &Method::GET | &Method::HEAD) if requires_token => Some(Role::Read),
        (POLICY, _) if requires_token => Some(Role::Reload),
        _ => None,
    };
    assert_eq!(
        decided.is_ok(),
        needed.is_none_or(holds),
        "{target}: {decided:?}"
    );
    let Some(page) = PostPage::of(target.path()) else {
        return;
    };
    let parsed = Action::parse(page, body);
    if decided.is_ok()
        && let Ok(action) = parsed
    {
        let role = match action {
            Action::Purge(_) => Role::Purge,
            Action::Cache(_) | Action::Explain(_) => Role::Read,
            Action::Reload | Action::Upgrade => Role::Reload,
        };
        assert!(holds(role), "{action:?} without {role:?}");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PATHS: [&str; 12] = [
        "/purge", "/cache", "/explain", "/reload", "/upgrade", "/metrics", "/status", "/policy",
        "/healthz", "/", "/Purge", "/purge/",
    ];

    /// Method: all pages with all methods, each set of roles, and fields that are nearly a token. `check_admin_request`
    /// has the oracle.
    #[test]
    fn a_request_is_allowed_exactly_if_its_token_has_the_role() {
        let tokens = (0..9).map(|number| format!("0123456789abcde{number}"));
        let fields = tokens.flat_map(|token| {
            [
                format!("Bearer {token}"),
                format!("bearer {token}"),
                format!("Bearer  {token}"),
                format!("Bearer {token}x"),
                format!("Basic {token}"),
                token,
            ]
        });
        let fields: Vec<String> = fields.chain([String::new()]).collect();
        let bodies = ["{}", "{\"tags\": [\"a\"]}", "{\"url\": \"http://a/\"}"];
        for path in PATHS
            .iter()
            .copied()
            .chain(["/purge?x=/cache", "http://a/purge"])
        {
            for flags in 0..8 {
                for field in &fields {
                    for body in bodies {
                        let mut bytes = vec![flags];
                        bytes.extend(format!("{path}\n{field}\n{body}").bytes());
                        check_admin_request(&bytes);
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_allowed_without_a_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            path in proptest::sample::select(PATHS.to_vec()),
            number in 0..9,
        ) {
            check_admin_request(&bytes);
            let mut with_token = vec![bytes.len() as u8];
            with_token.extend(format!("{path}\nBearer 0123456789abcde{number}\n").bytes());
            with_token.extend(bytes);
            check_admin_request(&with_token);
        }
    }
}
