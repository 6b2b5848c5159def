//! Pebble, a folder, and a responder to its challenges.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use edgeward_acme_client::{
    Acme, AcmeSettings, Certificates, Challenge, IssuerSettings, NameGroup,
};
use edgeward_testkit::pebble::{Pebble, PebbleOptions};
use edgeward_testkit::programs::free_port;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, ServerConnection};
use serde_json::Value;
use tempfile::TempDir;

/// How names are validated.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Http,
    TlsAlpn,
    Dns,
}

pub(crate) struct Bed {
    pebble: Pebble,
    folder: TempDir,
    http_port: u16,
    tls_port: u16,
}

impl Bed {
    pub(crate) fn start(variables: &[(&'static str, &'static str)]) -> Option<Self> {
        Self::with(variables, false)
    }

    /// Pebble demands that accounts are bound to an external one.
    pub(crate) fn start_bound(variables: &[(&'static str, &'static str)]) -> Option<Self> {
        Self::with(variables, true)
    }

    fn with(variables: &[(&'static str, &'static str)], requires_binding: bool) -> Option<Self> {
        let (http_port, tls_port) = (free_port(), free_port());
        let options = PebbleOptions {
            http_port,
            tls_port,
            variables: variables.to_vec(),
            requires_binding,
        };
        Some(Self {
            pebble: Pebble::start(&options)?,
            folder: tempfile::tempdir().expect("a folder"),
            http_port,
            tls_port,
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn settings(&self, names: &[&str], kind: Kind) -> AcmeSettings {
        let challenge = match kind {
            Kind::Http => Challenge::Http,
            Kind::TlsAlpn => Challenge::TlsAlpn,
            Kind::Dns => Challenge::Dns {
                hook: self.pebble.write_hook(self.folder.path()),
                timeout: Duration::from_secs(30),
            },
        };
        AcmeSettings {
            groups: vec![NameGroup {
                names: names
                    .iter()
                    .map(|name| name.parse().expect("valid"))
                    .collect(),
                issuers: vec![IssuerSettings {
                    directory: self.pebble.directory().into(),
                    binding: None,
                }],
                contacts: vec!["mailto:admin@a.example".to_owned()],
                challenge,
                profile: None,
                preferred_chain: None,
                roots: Some(self.pebble.roots()),
            }],
            folder: self.folder.path().join("state"),
            limits: Default::default(),
            on_demand: None,
        }
    }

    /// The ports at which Pebble validates HTTP-01 and TLS-ALPN-01.
    pub(crate) fn ports(&self) -> (u16, u16) {
        (self.http_port, self.tls_port)
    }

    /// Opens the ports at which Pebble validates, before the first order is begun.
    pub(crate) fn respond(&self) -> Responder {
        Responder::start(self.http_port, self.tls_port)
    }

    /// Waits until this many certificates are stored.
    pub(crate) fn wait_for(&self, acme: &Acme, stored: u64) {
        until("the certificates are issued", || {
            let certificates = acme.certificates();
            certificates.counts().stored() >= stored
        });
    }

    /// Asserts that the certificate for a name is not self-signed.
    pub(crate) fn assert_issued(&self, acme: &Acme, name: &str) -> Arc<CertifiedKey> {
        let key = acme.certificates().of_name(name).expect("a certificate");
        assert!(
            key.cert.len() >= 2,
            "{name} has only a self-signed certificate"
        );
        key
    }

    /// Returns the common name of a root, and its certificate in DER.
    pub(crate) fn root(&self, number: usize) -> (String, Vec<u8>) {
        use rustls_pki_types::pem::PemObject as _;
        use x509_cert::der::Decode as _;
        let file = self.pebble.write_root(self.folder.path(), number);
        let root = rustls_pki_types::CertificateDer::from_pem_file(file).expect("a certificate");
        let parsed = x509_cert::Certificate::from_der(&root).expect("a certificate");
        let subject = parsed.tbs_certificate.subject.to_string();
        let name = subject.strip_prefix("CN=").expect("only a common name");
        (name.to_owned(), root.to_vec())
    }

    pub(crate) fn set_window(&self, certificate: &str, response: &str) {
        let end = "-----END CERTIFICATE-----\n";
        let leaf = certificate.find(end).expect("a certificate") + end.len();
        self.pebble.set_window(&certificate[..leaf], response);
    }

    pub(crate) fn ledger(&self, settings: &AcmeSettings) -> Value {
        let bytes = fs::read(settings.folder.join("ledger.json")).expect("the ledger is persisted");
        serde_json::from_slice(&bytes).expect("the ledger is JSON")
    }

    pub(crate) fn edit_ledger(&self, settings: &AcmeSettings, edit: impl Fn(&mut Value)) {
        let mut ledger = self.ledger(settings);
        edit(&mut ledger);
        let bytes = serde_json::to_vec(&ledger).expect("JSON");
        fs::write(settings.folder.join("ledger.json"), bytes).expect("writable");
    }
}

/// Serves the answers of an [`Acme`] on the ports at which Pebble validates.
pub(crate) struct Responder {
    certificates: Arc<Mutex<Arc<Certificates>>>,
    answered: Arc<AtomicU64>,
    is_stopped: Arc<AtomicBool>,
    ports: [u16; 2],
    threads: Vec<JoinHandle<()>>,
}

impl Responder {
    /// Opens the ports. They have no answer until [`answer_for`](Self::answer_for).
    pub(crate) fn start(http_port: u16, tls_port: u16) -> Self {
        let certificates = Arc::new(Mutex::new(Arc::<Certificates>::default()));
        let answered = Arc::new(AtomicU64::new(0));
        let (of_http, count) = (Arc::clone(&certificates), Arc::clone(&answered));
        let http = TcpListener::bind((Ipv4Addr::LOCALHOST, http_port)).expect("the port is free");
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stops = Arc::clone(&is_stopped);
        let serving_http = std::thread::spawn(move || {
            let is_open = |_: &TcpStream| !stops.load(Ordering::SeqCst);
            for stream in http.incoming().flatten().take_while(is_open) {
                let mut line = String::new();
                let mut reader = BufReader::new(&stream);
                _ = reader.read_line(&mut line);
                let path = line.split(' ').nth(1).unwrap_or_default();
                let token = path
                    .strip_prefix("/.well-known/acme-challenge/")
                    .unwrap_or_default();
                let answer = of_http.lock().expect("no panic").http_answer(token);
                let body = answer.unwrap_or_default();
                count.fetch_add(1, Ordering::SeqCst);
                _ = write!(
                    &stream,
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                );
            }
        });
        let resolver = Arc::new(ChallengeKeys(Arc::clone(&certificates)));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the versions are supported")
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"acme-tls/1".to_vec()];
        let config = Arc::new(config);
        let tls = TcpListener::bind((Ipv4Addr::LOCALHOST, tls_port)).expect("the port is free");
        let stops = Arc::clone(&is_stopped);
        let serving_tls = std::thread::spawn(move || {
            let is_open = |_: &TcpStream| !stops.load(Ordering::SeqCst);
            for mut stream in tls.incoming().flatten().take_while(is_open) {
                let mut tls = ServerConnection::new(Arc::clone(&config)).expect("valid");
                while tls.is_handshaking() && tls.complete_io(&mut stream).is_ok() {}
                _ = stream.read(&mut [0; 64]);
            }
        });
        Self {
            certificates,
            answered,
            is_stopped,
            ports: [http_port, tls_port],
            threads: vec![serving_http, serving_tls],
        }
    }

    /// Closes the ports.
    pub(crate) fn stop(self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        for port in self.ports {
            _ = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
        }
        for thread in self.threads {
            thread.join().expect("no panic");
        }
    }

    /// Answers the challenges for which `acme` has published answers, from now on.
    pub(crate) fn answer_for(&self, acme: &Acme) {
        *self.certificates.lock().expect("no panic") = acme.certificates();
    }

    /// Returns how many requests were answered.
    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Ordering::SeqCst)
    }
}

#[derive(Debug)]
struct ChallengeKeys(Arc<Mutex<Arc<Certificates>>>);

impl ResolvesServerCert for ChallengeKeys {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name()?;
        self.0.lock().expect("no panic").of_challenge(name)
    }
}

/// Waits until a condition holds.
pub(crate) fn until(what: &str, condition: impl Fn() -> bool) {
    edgeward_testkit::client::until(what, || condition().then_some(()));
}
