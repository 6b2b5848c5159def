//! A client that accepts any certificate and records what it gets in the handshake.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use crate::support::TIMEOUT;

/// The server's part of a handshake.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handshake {
    pub(crate) certificate: Vec<u8>,
    /// Empty if the server sent none.
    pub(crate) ocsp_response: Vec<u8>,
}

/// Sends a request by TLS, and returns what the handshake had.
pub(crate) fn handshake(addr: SocketAddr) -> Handshake {
    let seen = Arc::default();
    let config = recording_client(Arc::clone(&seen));
    let name = "localhost".try_into().expect("a name");
    let mut connection = rustls::ClientConnection::new(config, name).expect("a connection");
    let mut tcp = TcpStream::connect(addr).expect("the edge listens");
    tcp.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    let mut tls = rustls::Stream::new(&mut connection, &mut tcp);
    let request = b"GET / HTTP/1.1\r\nHost: test.example\r\nConnection: close\r\n\r\n";
    tls.write_all(request).expect("the edge reads");
    let mut answer = Vec::new();
    _ = tls.read_to_end(&mut answer);
    assert!(
        answer.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    seen.lock().expect("no test panicked").clone()
}

/// Returns a client that accepts any certificate and records what it gets.
fn recording_client(seen: Arc<Mutex<Handshake>>) -> Arc<rustls::ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("the versions are supported")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Recorder { seen, provider }))
        .with_no_client_auth();
    Arc::new(config)
}

#[derive(Debug)]
struct Recorder {
    seen: Arc<Mutex<Handshake>>,
    provider: Arc<rustls::crypto::CryptoProvider>,
}

impl rustls::client::danger::ServerCertVerifier for Recorder {
    fn verify_server_cert(
        &self,
        end_entity: &rustls_pki_types::CertificateDer<'_>,
        _: &[rustls_pki_types::CertificateDer<'_>],
        _: &rustls_pki_types::ServerName<'_>,
        ocsp_response: &[u8],
        _: rustls_pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        *self.seen.lock().expect("no test panicked") = Handshake {
            certificate: end_entity.to_vec(),
            ocsp_response: ocsp_response.to_vec(),
        };
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &rustls_pki_types::CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &rustls_pki_types::CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
