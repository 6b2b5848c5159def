//! Functions for the fuzz targets. They call the parsers of bytes from the network. Not part of the public interface.
//!
//! Each function panics if a parser violates its contract.

use bytes::BytesMut;
use edgeward_httpd::{
    AdminRoutes, AdminToken, Caller, Role, Roles, Token, authorize, requested_host,
};
use edgeward_purge::PurgeRequest;
use http::{HeaderValue, Method, Uri};

use super::admin::Pages;
use crate::path::inspect::InspectedRequest;

pub use crate::client::h1::check_request as request_head;
pub use crate::client::h3::routes::check_datagram as quic_datagram;
pub use crate::origin::check_response_head as response_head;
pub use crate::path::inspect::check_body as inspect_request;

/// Decodes a chunked body from the origin. The result must not depend on how the bytes are split.
pub fn chunked_body(bytes: &[u8]) {
    let whole = crate::origin::read_chunked(&mut BytesMut::from(bytes), bytes.len());
    for piece in [1, 7] {
        let cut = crate::origin::read_chunked(&mut BytesMut::from(bytes), piece);
        assert_eq!(cut, whole, "pieces of {piece}");
    }
}

/// Parses bytes as a request to the admin server: a byte of flags, then target, `Authorization` and body, each on a
/// line of its own. Panics if a request is allowed that has no token with the role of its page.
pub fn admin_request(bytes: &[u8]) {
    let Some((flags, rest)) = bytes.split_first() else {
        return;
    };
    let mut lines = rest.splitn(3, |byte| *byte == b'\n');
    let [target, authorization, body] = [(); 3].map(|()| lines.next().unwrap_or_default());
    let methods = [Method::GET, Method::POST, Method::PUT, Method::HEAD];
    let method = &methods[usize::from(flags & 3)];
    let (requires_token, is_local) = (flags & 4 != 0, flags & 8 != 0);
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
    let access = AdminRoutes::<Pages>::access(method, target.path());
    let decided = match access.role(requires_token, is_local) {
        Some(role) => authorize(&tokens, sent, role),
        None => Ok(Caller::Anyone),
    };
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
        ("/status.json" | "/events", _) if requires_token || !is_local => Some(Role::Read),
        ("/metrics" | "/status", _) if requires_token => Some(Role::Read),
        ("/policy", &Method::GET | &Method::HEAD) if requires_token => Some(Role::Read),
        ("/policy", _) if requires_token => Some(Role::Reload),
        _ => None,
    };
    assert_eq!(
        decided.is_ok(),
        needed.is_none_or(holds),
        "{target}: {decided:?}"
    );
    _ = PurgeRequest::parse(body);
    _ = InspectedRequest::parse(body);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PATHS: [&str; 16] = [
        "/purge",
        "/cache",
        "/explain",
        "/reload",
        "/upgrade",
        "/metrics",
        "/status",
        "/policy",
        "/healthz",
        "/",
        "/page.js",
        "/page.css",
        "/status.json",
        "/events",
        "/Purge",
        "/purge/",
    ];

    #[test]
    fn the_oracle_judges_every_page() {
        for route in <Pages as edgeward_httpd::AdminPages>::ROUTES {
            assert!(PATHS.contains(&route.path), "PATHS lacks {}", route.path);
        }
    }

    /// Method: all pages with all methods, each set of roles, and fields that are nearly a token. `admin_request`
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
            for flags in 0..16 {
                for field in &fields {
                    for body in bodies {
                        let mut bytes = vec![flags];
                        bytes.extend(format!("{path}\n{field}\n{body}").bytes());
                        admin_request(&bytes);
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
            admin_request(&bytes);
            let mut with_token = vec![bytes.len() as u8];
            with_token.extend(format!("{path}\nBearer 0123456789abcde{number}\n").bytes());
            with_token.extend(bytes);
            admin_request(&with_token);
        }
    }
}
