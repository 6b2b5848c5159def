//! Selects the implementation of AES-128-GCM that encrypts TLS records. The fastest implementation depends on the
//! processor.
//!
//! AWS-LC is fastest on processors with AVX-512. AMD Zen 3 and Intel desktop processors since 2021 have vector
//! AES instructions (VAES) without AVX-512. On these processors AWS-LC uses the 128-bit AES instructions, at
//! half the speed of `ring`. There, `ring` encrypts and decrypts the records, and AWS-LC does the rest of TLS.
//! The bytes on the wire do not depend on the implementation.

#[cfg(target_arch = "x86_64")]
use std::arch::is_x86_feature_detected;

use rustls::SupportedCipherSuite;
use rustls::crypto::aws_lc_rs::cipher_suite;

/// The cipher suites that the link offers and accepts, in order of preference.
pub(crate) fn suites() -> Vec<SupportedCipherSuite> {
    vec![
        aes_128_gcm(),
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ]
}

#[cfg(not(target_arch = "x86_64"))]
fn aes_128_gcm() -> SupportedCipherSuite {
    cipher_suite::TLS13_AES_128_GCM_SHA256
}

#[cfg(target_arch = "x86_64")]
fn aes_128_gcm() -> SupportedCipherSuite {
    if has_vaes_without_avx512() {
        vaes::suite()
    } else {
        cipher_suite::TLS13_AES_128_GCM_SHA256
    }
}

/// Returns true if the processor has vector AES instructions but lacks at least one of the five AVX-512 extensions
/// below. AWS-LC uses vector AES only with all of these extensions.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_vaes_without_avx512() -> bool {
    let has_vaes = is_x86_feature_detected!("vaes")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("avx2");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512ifma");
    has_vaes && !avx512
}

#[cfg(target_arch = "x86_64")]
mod vaes {
    use std::sync::LazyLock;

    use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
    use rustls::crypto::cipher::{
        AeadKey, InboundOpaqueMessage, InboundPlainMessage, Iv, MessageDecrypter, MessageEncrypter,
        OutboundOpaqueMessage, OutboundPlainMessage, PrefixedPayload, Tls13AeadAlgorithm,
        UnsupportedOperationError, make_tls13_aad,
    };
    use rustls::{
        CipherSuiteCommon, ConnectionTrafficSecrets, ContentType, Error, ProtocolVersion,
        SupportedCipherSuite, Tls13CipherSuite,
    };

    use super::cipher_suite;

    /// Returns AWS-LC's cipher suite with the AES-128-GCM of `ring`.
    pub(super) fn suite() -> SupportedCipherSuite {
        static SUITE: LazyLock<Tls13CipherSuite> = LazyLock::new(|| {
            let base = cipher_suite::TLS13_AES_128_GCM_SHA256.tls13();
            let base = base.expect("the suite is one of TLS 1.3");
            Tls13CipherSuite {
                common: CipherSuiteCommon {
                    suite: base.common.suite,
                    hash_provider: base.common.hash_provider,
                    confidentiality_limit: base.common.confidentiality_limit,
                },
                hkdf_provider: base.hkdf_provider,
                aead_alg: &Aes128Gcm,
                quic: None,
            }
        });
        SupportedCipherSuite::Tls13(&SUITE)
    }

    struct Aes128Gcm;

    impl Tls13AeadAlgorithm for Aes128Gcm {
        fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
            Box::new(RecordCipher::new(&key, iv))
        }

        fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
            Box::new(RecordCipher::new(&key, iv))
        }

        fn key_len(&self) -> usize {
            AES_128_GCM.key_len()
        }

        fn extract_keys(
            &self,
            key: AeadKey,
            iv: Iv,
        ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
            Ok(ConnectionTrafficSecrets::Aes128Gcm { key, iv })
        }
    }

    /// Encrypts or decrypts the records of one direction of a connection with one key. rustls numbers the records, so
    /// no nonce is used twice (RFC 8446, section 5.3).
    struct RecordCipher {
        key: LessSafeKey,
        iv: Iv,
    }

    impl RecordCipher {
        fn new(key: &AeadKey, iv: Iv) -> Self {
            let key = UnboundKey::new(&AES_128_GCM, key.as_ref());
            let key = LessSafeKey::new(key.expect("rustls passes a key of the length of key_len"));
            Self { key, iv }
        }

        fn nonce(&self, record: u64) -> Nonce {
            Nonce::assume_unique_for_key(rustls::crypto::cipher::Nonce::new(&self.iv, record).0)
        }
    }

    /// Bytes added to each record: the encrypted content type (RFC 8446, section 5.2) and the tag.
    const OVERHEAD_BYTES: usize = 1 + TAG_BYTES;

    const TAG_BYTES: usize = 16;

    const _: () = assert!(size_of::<Tag>() == TAG_BYTES);

    impl MessageEncrypter for RecordCipher {
        fn encrypt(
            &mut self,
            message: OutboundPlainMessage<'_>,
            record: u64,
        ) -> Result<OutboundOpaqueMessage, Error> {
            let bytes = self.encrypted_payload_len(message.payload.len());
            let mut payload = PrefixedPayload::with_capacity(bytes);
            payload.extend_from_chunks(&message.payload);
            payload.extend_from_slice(&message.typ.to_array());
            let aad = Aad::from(make_tls13_aad(bytes));
            let sealed =
                self.key
                    .seal_in_place_separate_tag(self.nonce(record), aad, payload.as_mut());
            let tag = sealed.map_err(|_| Error::EncryptError)?;
            payload.extend_from_slice(tag.as_ref());
            // TLS 1.3 records have the version number of TLS 1.2 (RFC 8446, section 5.1).
            Ok(OutboundOpaqueMessage::new(
                ContentType::ApplicationData,
                ProtocolVersion::TLSv1_2,
                payload,
            ))
        }

        fn encrypted_payload_len(&self, payload_len: usize) -> usize {
            payload_len + OVERHEAD_BYTES
        }
    }

    impl MessageDecrypter for RecordCipher {
        fn decrypt<'a>(
            &mut self,
            mut message: InboundOpaqueMessage<'a>,
            record: u64,
        ) -> Result<InboundPlainMessage<'a>, Error> {
            let aad = Aad::from(make_tls13_aad(message.payload.len()));
            let opened = self
                .key
                .open_in_place(self.nonce(record), aad, &mut message.payload);
            let bytes = opened.map_err(|_| Error::DecryptError)?.len();
            message.payload.truncate(bytes);
            message.into_tls13_unpadded_message()
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    use std::io::{self, Read as _, Write as _};
    use std::sync::LazyLock;

    use proptest::collection::vec;
    use proptest::prelude::{ProptestConfig, any, prop_assert_eq, proptest};
    use rustls::{ClientConnection, Error, ServerConnection};
    use tempfile::TempDir;

    use crate::keys::{Keys, gateway_name, generate_keys};

    /// Returns a client with one cipher suite and a server with the other, after their handshake.
    fn connected_pair(
        client: SupportedCipherSuite,
        server: SupportedCipherSuite,
    ) -> (ClientConnection, ServerConnection) {
        static KEYS: LazyLock<TempDir> = LazyLock::new(|| {
            let folder = tempfile::tempdir().expect("the folder can be created");
            generate_keys(&folder.path().join("keys")).expect("the keys can be generated");
            folder
        });
        let folder = KEYS.path().join("keys");
        let load = |endpoint: &str, suite| {
            let keys = Keys::load_for(&folder.join(endpoint), vec![suite]);
            keys.expect("the keys were just generated")
        };
        let client = ClientConnection::new(load("edge", client).client, gateway_name());
        let server = ServerConnection::new(load("gateway", server).server);
        let mut pair = (
            client.expect("the client can be created"),
            server.expect("the server can be created"),
        );
        while pair.0.is_handshaking() || pair.1.is_handshaking() {
            transfer(&mut pair.0, &mut pair.1).expect("the handshake succeeds");
            transfer(&mut pair.1, &mut pair.0).expect("the handshake succeeds");
        }
        pair
    }

    /// Moves all pending records from one endpoint to the other, and returns the received plaintext.
    fn transfer<A, B>(
        from: &mut rustls::ConnectionCommon<A>,
        to: &mut rustls::ConnectionCommon<B>,
    ) -> Result<Vec<u8>, Error> {
        let mut wire = Vec::new();
        while from.wants_write() {
            from.write_tls(&mut wire)
                .expect("a write to memory succeeds");
        }
        receive(to, &wire)
    }

    fn receive<S>(
        connection: &mut rustls::ConnectionCommon<S>,
        wire: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let (mut wire, mut plaintext) = (wire, Vec::new());
        while !wire.is_empty() {
            connection
                .read_tls(&mut wire)
                .expect("a read from memory succeeds");
            connection.process_new_packets()?;
            match connection.reader().read_to_end(&mut plaintext) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => panic!("{other:?}"),
            }
        }
        Ok(plaintext)
    }

    /// Pairs of suites: `ring` at one endpoint or at both. `ring` also supports processors without VAES, so the
    /// tests run on any processor.
    fn pairs() -> [(SupportedCipherSuite, SupportedCipherSuite); 3] {
        let (ring, aws_lc) = (vaes::suite(), cipher_suite::TLS13_AES_128_GCM_SHA256);
        [(ring, aws_lc), (aws_lc, ring), (ring, ring)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        /// The two implementations interoperate in both directions, for messages of any length.
        #[test]
        fn the_two_implementations_interoperate(bodies in vec(vec(any::<u8>(), 0..40_000), 1..4)) {
            for (client, server) in pairs() {
                let (mut client, mut server) = connected_pair(client, server);
                for body in &bodies {
                    client.writer().write_all(body).expect("rustls buffers 64 KiB");
                    prop_assert_eq!(&transfer(&mut client, &mut server).expect("the records are valid"), body);
                    server.writer().write_all(body).expect("rustls buffers 64 KiB");
                    prop_assert_eq!(&transfer(&mut server, &mut client).expect("the records are valid"), body);
                }
            }
        }
    }

    /// A flipped bit in any byte of the encrypted part of a record ends the connection. A repeated or missing
    /// record ends the connection too.
    #[test]
    fn changed_repeated_and_missing_records_are_refused() {
        let record = |client: &mut ClientConnection| {
            let mut wire = Vec::new();
            client
                .writer()
                .write_all(b"some bytes")
                .expect("the bytes are accepted");
            client
                .write_tls(&mut wire)
                .expect("a write to memory succeeds");
            wire
        };
        let (ring, aws_lc) = (vaes::suite(), cipher_suite::TLS13_AES_128_GCM_SHA256);
        // After five bytes of header: the ten encrypted bytes, the content type and the tag of 16 bytes.
        for at in 5..5 + 10 + 1 + 16 {
            let (mut client, mut server) = connected_pair(aws_lc, ring);
            let mut wire = record(&mut client);
            wire[at] ^= 0x10;
            assert_eq!(
                receive(&mut server, &wire),
                Err(Error::DecryptError),
                "{at}"
            );
        }
        let (mut client, mut server) = connected_pair(aws_lc, ring);
        let wire = record(&mut client);
        receive(&mut server, &wire).expect("the record is valid");
        assert_eq!(receive(&mut server, &wire), Err(Error::DecryptError));
        let (mut client, mut server) = connected_pair(ring, ring);
        record(&mut client);
        let wire = record(&mut client);
        assert_eq!(receive(&mut server, &wire), Err(Error::DecryptError));
    }

    /// A record that is shorter than its tag is refused.
    #[test]
    fn a_record_without_room_for_its_tag_is_refused() {
        let (_, mut server) = connected_pair(vaes::suite(), vaes::suite());
        let wire = [&[23, 3, 3, 0, 15][..], &[0; 15]].concat();
        assert_eq!(receive(&mut server, &wire), Err(Error::DecryptError));
    }

    /// Traffic keys can be updated during a connection. TLS requires an update after some hundred gigabytes.
    #[test]
    fn traffic_keys_can_be_updated() {
        let (mut client, mut server) = connected_pair(vaes::suite(), vaes::suite());
        for _ in 0..3 {
            client
                .refresh_traffic_keys()
                .expect("the keys can be updated");
            client
                .writer()
                .write_all(b"a question")
                .expect("the bytes are accepted");
            let plaintext = transfer(&mut client, &mut server).expect("the records are valid");
            assert_eq!(plaintext, b"a question");
            server
                .writer()
                .write_all(b"an answer")
                .expect("the bytes are accepted");
            let plaintext = transfer(&mut server, &mut client).expect("the records are valid");
            assert_eq!(plaintext, b"an answer");
        }
    }

    /// The suite with the cipher of `ring` has the same name and limits as the suite of AWS-LC.
    #[test]
    fn the_suite_with_ring_has_the_limits_of_aws_lc() {
        let (ring, aws_lc) = (vaes::suite(), cipher_suite::TLS13_AES_128_GCM_SHA256);
        assert_eq!(ring.suite(), aws_lc.suite());
        let limit = |suite: SupportedCipherSuite| {
            suite
                .tls13()
                .map(|suite| suite.common.confidentiality_limit)
        };
        assert_eq!(limit(ring), Some(1 << 24));
        assert_eq!(limit(ring), limit(aws_lc));
        assert_eq!(suites().len(), 3);
    }
}
