//! Connection ids: each one names the endpoint of its connection, so a datagram that another endpoint has received
//! reaches it. A client keeps its id when its address and port change, and while another process takes the sockets
//! over.
//!
//! An id has 8 bytes. Before encryption these are:
//!
//! | bytes | content |
//! |---|---|
//! | 0 | the generation of the process |
//! | 1 | 0, or 1 if a Retry has the id. Ids of others are recognised by other values |
//! | 2 to 3 | the number of the endpoint in its process |
//! | 4 to 7 | a number that the endpoint uses once |
//!
//! A permutation of 64 bits encrypts them: a Feistel network of four rounds whose function is AES, as in the draft of
//! QUIC-LB (draft-ietf-quic-load-balancers). An observer therefore cannot link two ids of a connection (RFC 9000 §5.1).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_lc_rs::aead::quic::HeaderProtectionKey;
use quinn::{ConnectionId, ConnectionIdGenerator};

use super::steering::Slot;

/// Names an endpoint among those of all processes that share sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EndpointName {
    /// Counts the processes that have followed each other by upgrades, modulo 256.
    pub(crate) generation: u8,
    /// The number of the endpoint in its process.
    pub(crate) number: u16,
}

/// The content of an id, except for its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IdName {
    pub(super) endpoint: EndpointName,
    /// True for the id of a Retry. No connection has it, and the client answers with it and a token.
    pub(super) is_retry: bool,
}

/// A connection id in bytes.
pub(super) type Id = [u8; ID_BYTES];

pub(super) const ID_BYTES: usize = 8;

/// Encrypts and decrypts ids.
pub(super) struct IdCipher(HeaderProtectionKey);

impl IdCipher {
    /// Returns the cipher of a key of AES-128.
    pub(super) fn new(key: HeaderProtectionKey) -> Self {
        Self(key)
    }

    /// Returns an id with this content. The same `nonce` makes the same id.
    pub(super) fn id(&self, name: IdName, nonce: u32) -> Id {
        let IdName { endpoint, is_retry } = name;
        let [low, high] = endpoint.number.to_le_bytes();
        let name = u32::from_le_bytes([endpoint.generation, is_retry.into(), low, high]);
        self.encrypt([name, nonce])
    }

    /// Returns the content of an id. `None` if the id is not one of ours; one in 128 of these is not noticed.
    pub(super) fn name(&self, id: Id) -> Option<IdName> {
        let [name, _] = self.decrypt(id);
        let [generation, is_retry, low, high] = name.to_le_bytes();
        let number = u16::from_le_bytes([low, high]);
        (is_retry <= 1).then_some(IdName {
            endpoint: EndpointName { generation, number },
            is_retry: is_retry == 1,
        })
    }

    /// Panics if an id is not made again from its parts. For the fuzz target.
    pub(super) fn check(&self, id: Id) {
        let [name, nonce] = self.decrypt(id);
        assert_eq!(self.encrypt([name, nonce]), id);
        if let Some(name) = self.name(id) {
            assert_eq!(self.id(name, nonce), id);
        }
    }

    fn encrypt(&self, [mut left, mut right]: [u32; 2]) -> Id {
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ self.mask(round, right));
        }
        let mut id = [0; ID_BYTES];
        id[..4].copy_from_slice(&left.to_le_bytes());
        id[4..].copy_from_slice(&right.to_le_bytes());
        id
    }

    fn decrypt(&self, id: Id) -> [u32; 2] {
        let half = |at: usize| u32::from_le_bytes([id[at], id[at + 1], id[at + 2], id[at + 3]]);
        let (mut left, mut right) = (half(0), half(4));
        for round in (0..ROUNDS).rev() {
            (left, right) = (right ^ self.mask(round, left), left);
        }
        [left, right]
    }

    fn mask(&self, round: u8, half: u32) -> u32 {
        let mut block = [0; 16];
        block[0] = round;
        block[4..8].copy_from_slice(&half.to_le_bytes());
        let mask = self.0.new_mask(&block);
        let [a, b, c, d, _] = mask.expect("a block of AES has 16 bytes");
        u32::from_le_bytes([a, b, c, d])
    }
}

/// Makes the ids of one endpoint.
pub(super) struct IdGenerator {
    pub(super) cipher: Arc<IdCipher>,
    pub(super) endpoint: EndpointName,
    /// The kernel finds the socket of the endpoint by its ids.
    pub(super) slot: Slot,
    /// True while the endpoint makes a Retry.
    pub(super) makes_retry: Arc<AtomicBool>,
    pub(super) nonce: u32,
}

impl ConnectionIdGenerator for IdGenerator {
    fn generate_cid(&mut self) -> ConnectionId {
        let name = IdName {
            endpoint: self.endpoint,
            is_retry: self.makes_retry.load(Ordering::Relaxed),
        };
        // Encryption makes each slot equally likely, so this takes as many attempts as there are sockets, on average.
        loop {
            self.nonce = self.nonce.wrapping_add(1);
            let id = self.cipher.id(name, self.nonce);
            if self.slot.has(id) {
                return ConnectionId::new(&id);
            }
        }
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// Four rounds with a pseudorandom function are a strong pseudorandom permutation (Luby and Rackoff).
const ROUNDS: u8 = 4;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use aws_lc_rs::aead::quic::AES_128;
    use proptest::prelude::*;

    use super::*;

    fn cipher(key: u8) -> IdCipher {
        let key = HeaderProtectionKey::new(&AES_128, &[key; 16]);
        IdCipher::new(key.expect("the key has 16 bytes"))
    }

    fn name(generation: u8, number: u16, is_retry: bool) -> IdName {
        let endpoint = EndpointName { generation, number };
        IdName { endpoint, is_retry }
    }

    proptest! {
        #[test]
        fn an_id_names_its_endpoint(generation: u8, number: u16, is_retry: bool, nonce: u32) {
            let (cipher, name) = (cipher(1), name(generation, number, is_retry));
            prop_assert_eq!(cipher.name(cipher.id(name, nonce)), Some(name));
        }
    }

    proptest! {
        #[test]
        fn every_id_is_made_from_its_parts(id: Id) {
            cipher(1).check(id);
        }
    }

    /// Method: the ids and the keys are fixed, so the counts are too. The expected number is 65,536 / 128.
    #[test]
    fn one_in_128_ids_of_another_key_names_an_endpoint() {
        let (ours, other) = (cipher(1), cipher(2));
        let ids = (0..1 << 16).map(|nonce| other.id(name(0, 0, false), nonce));
        let named = ids.filter_map(|id| ours.name(id)).count();
        assert!((400..624).contains(&named), "{named}");
    }

    #[test]
    fn ids_of_an_endpoint_differ_and_show_no_byte_of_its_name() {
        let cipher = cipher(1);
        let ids = (0..1 << 12).map(|nonce| cipher.id(name(0, 0, false), nonce));
        let ids: HashSet<Id> = ids.collect();
        assert_eq!(ids.len(), 1 << 12);
        for at in 0..ID_BYTES {
            let values: HashSet<u8> = ids.iter().map(|id| id[at]).collect();
            assert_eq!(values.len(), 256, "byte {at}");
        }
    }
}
