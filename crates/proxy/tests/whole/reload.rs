//! Changes of the configuration while an edge serves.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use crate::support::{TIMEOUT, TestBed, config_for};
use edgeward_proxy::{EdgeConfig, ReloadError};
use edgeward_sites::{Settings, Site, Sites};
use edgeward_testkit::Answer;
use http::StatusCode;

use crate::identity::SelfSigned;

/// Returns sites with one site for these hosts.
fn site(hosts: &[&str], settings: Settings) -> Arc<Sites> {
    let mut sites = Sites::default();
    let patterns: Vec<_> = hosts
        .iter()
        .map(|host| host.parse().expect("a host"))
        .collect();
    sites
        .add(Site::new(hosts[0], settings), &patterns, false)
        .expect("the only site");
    Arc::new(sites)
}

fn denying() -> Settings {
    Settings {
        deny: Some(Some(StatusCode::FORBIDDEN)),
        ..Settings::default()
    }
}

/// The connection was open before the reload, and the fast path remembers the site of its host.
#[test]
fn a_reload_changes_sites_for_open_connections_and_keeps_the_cache() {
    let bed = TestBed::start();
    let origin = bed.origin.addr();
    bed.origin
        .otherwise(|_| Answer::ok("page").header("cache-control", "max-age=600"));
    let mut client = bed.connect();
    assert_eq!(client.get("/", &[]).status, 200);
    assert!(client.get("/", &[]).is_hit());
    let reload = |change: &dyn Fn(&mut EdgeConfig)| {
        let mut config = config_for(origin);
        change(&mut config);
        bed.edge.reloader().reload(&config)
    };
    reload(&|config| config.sites = site(&["test.example"], denying())).expect("valid");
    assert_eq!(client.get("/", &[]).status, 403);
    reload(&|config| config.sites = site(&["other.example"], Settings::default())).expect("valid");
    assert_eq!(client.get("/", &[]).status, 421);
    reload(&|_| {}).expect("valid");
    assert!(client.get("/", &[]).is_hit());
    assert_eq!(bed.origin.requests_total(), 1);
    assert_eq!(
        bed.metric("edgeward_reloads_total{result=\"applied\"}"),
        3.0
    );
}

#[test]
fn a_reload_with_an_unusable_part_changes_nothing() {
    let bed = TestBed::start();
    bed.origin.otherwise(|_| Answer::ok("page"));
    let mut config = config_for(bed.origin.addr());
    config.sites = site(
        &["test.example"],
        Settings {
            origin: Some(1),
            ..denying()
        },
    );
    let error = bed
        .edge
        .reloader()
        .reload(&config)
        .expect_err("there is no such origin");
    assert!(matches!(error, ReloadError::Origin { .. }), "{error}");
    assert_eq!(bed.get("/").status, 200);
}

/// Returns the certificate that a client gets.
fn certificate_of(bed: &TestBed) -> Vec<u8> {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let config = recording_client(Arc::clone(&seen));
    let name = "localhost".try_into().expect("a name");
    let mut connection = rustls::ClientConnection::new(config, name).expect("a connection");
    let mut tcp = TcpStream::connect(bed.addr()).expect("the edge listens");
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

#[test]
fn a_reload_reads_certificates_again_and_an_unreadable_one_is_refused() {
    let (first, second) = (SelfSigned::new(), SelfSigned::new());
    let files = first.files();
    let listener = files.clone();
    let bed = TestBed::with_config(|config| config.listeners[0].tls = Some(listener));
    bed.origin.otherwise(|_| Answer::ok("page"));
    let before = certificate_of(&bed);
    assert_eq!(certificate_of(&bed), before);
    let mut config = config_for(bed.origin.addr());
    config.listeners[0].tls = Some(files.clone());
    for (from, to) in [
        (second.files().certificates, &files.certificates),
        (second.files().key, &files.key),
    ] {
        std::fs::copy(from, to).expect("the file can be replaced");
    }
    assert_eq!(certificate_of(&bed), before);
    bed.edge.reloader().reload(&config).expect("valid");
    let after = certificate_of(&bed);
    assert_ne!(after, before);
    std::fs::write(&files.certificates, "nonsense").expect("the file can be replaced");
    let error = bed
        .edge
        .reloader()
        .reload(&config)
        .expect_err("no certificate");
    assert!(matches!(error, ReloadError::Tls { .. }), "{error}");
    assert_eq!(certificate_of(&bed), after);
}

/// Returns a client that accepts any certificate and records it.
fn recording_client(seen: Arc<std::sync::Mutex<Vec<u8>>>) -> Arc<rustls::ClientConfig> {
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
    seen: Arc<std::sync::Mutex<Vec<u8>>>,
    provider: Arc<rustls::crypto::CryptoProvider>,
}

impl rustls::client::danger::ServerCertVerifier for Recorder {
    fn verify_server_cert(
        &self,
        end_entity: &rustls_pki_types::CertificateDer<'_>,
        _: &[rustls_pki_types::CertificateDer<'_>],
        _: &rustls_pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls_pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        *self.seen.lock().expect("no test panicked") = end_entity.to_vec();
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
