//! The protocol upgrade that a request asks for (RFC 9110 §7.8), and the handshake of WebSocket (RFC 6455 §4).
//!
//! Over HTTP/2 a client opens a WebSocket by an extended CONNECT (RFC 8441). The edge makes an ordinary upgrade of such
//! a request, so it also makes the key that an HTTP/1.1 client would send.

use aws_lc_rs::digest;
use edgeward_semantics::upgrade::switched;
use http::header::{HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY};

/// The upgrade that a request asks for.
#[derive(Clone, Debug)]
pub(crate) struct UpgradeRequest {
    /// The protocols that the origin gets in `Upgrade`.
    pub(crate) protocols: HeaderValue,
    /// The key that the edge has made for an extended CONNECT.
    pub(crate) made_key: Option<HeaderValue>,
}

impl UpgradeRequest {
    /// Returns the upgrade of an HTTP/1.1 request.
    pub(crate) const fn new(protocols: HeaderValue) -> Self {
        Self {
            protocols,
            made_key: None,
        }
    }

    /// Returns the upgrade to WebSocket for an extended CONNECT. Returns `None` if the system has no randomness.
    pub(crate) fn of_connect() -> Option<Self> {
        let mut nonce = [0; 16];
        aws_lc_rs::rand::fill(&mut nonce).ok()?;
        Some(Self {
            protocols: HeaderValue::from_static("websocket"),
            made_key: Some(base64(&nonce)),
        })
    }

    /// Returns true for an extended CONNECT: the client gets 200 in place of 101.
    pub(crate) const fn is_connect(&self) -> bool {
        self.made_key.is_some()
    }

    /// Returns the value of `Upgrade` of a 101, or the reason why the response is no valid answer to this request.
    /// `request` has the fields of the client's request.
    ///
    /// A server that answers 101 by mistake would go on to parse the client's bytes as requests, and the edge would no
    /// longer see them. The check of `Sec-WebSocket-Accept` excludes such a mistake for WebSocket.
    pub(crate) fn check(
        &self,
        request: &HeaderMap,
        response: &HeaderMap,
    ) -> Result<HeaderValue, &'static str> {
        let Some(protocol) = switched(&self.protocols, response) else {
            return Err("its Upgrade is not one of the offered protocols");
        };
        if !protocol.as_bytes().eq_ignore_ascii_case(b"websocket") {
            return Ok(protocol);
        }
        let key = self.made_key.as_ref();
        let key = key.or_else(|| request.get(SEC_WEBSOCKET_KEY));
        let expected = key.map(|key| accept_of(key.as_bytes()));
        let mut accepted = response.get_all(SEC_WEBSOCKET_ACCEPT).into_iter();
        match (accepted.next(), accepted.next()) {
            (Some(only), None) if Some(only) == expected.as_ref() => Ok(protocol),
            _ => Err("its Sec-WebSocket-Accept does not belong to the key"),
        }
    }
}

/// Returns the `Sec-WebSocket-Accept` for a key (RFC 6455 §4.2.2).
fn accept_of(key: &[u8]) -> HeaderValue {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(key);
    context.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    base64(context.finish().as_ref())
}

/// Encodes bytes with padding (RFC 4648 §4).
fn base64(bytes: &[u8]) -> HeaderValue {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut bits = [0; 3];
        bits[..group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes([0, bits[0], bits[1], bits[2]]);
        for digit in 0..4 {
            text.push(match digit <= group.len() {
                true => DIGITS[(bits >> (18 - 6 * digit) & 63) as usize],
                false => b'=',
            });
        }
    }
    HeaderValue::from_bytes(&text).expect("the digits are ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vectors of RFC 4648 §10.
    #[test]
    fn base64_pads_to_groups_of_four() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    /// The example of RFC 6455 §1.3.
    #[test]
    fn a_websocket_is_accepted_by_the_hash_of_its_key() {
        assert_eq!(
            accept_of(b"dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }

    #[test]
    fn keys_of_extended_connects_are_16_random_bytes() {
        let key = || UpgradeRequest::of_connect().and_then(|upgrade| upgrade.made_key);
        let (one, other) = (key().expect("a key"), key().expect("a key"));
        assert_ne!(one, other);
        assert_eq!(one.len(), 24);
    }
}
