//! TLS to a database: trusted roots, expected server name, and client certificate.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// PEM files. Each field has the name of a setting and the path of the file, which is the value of the setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsFiles<'a> {
    /// Root certificates. Default: the root certificates of the system.
    pub(crate) roots: Option<(&'a str, &'a str)>,
    /// The client certificate, with its intermediate certificates.
    pub(crate) certificate: Option<(&'a str, &'a str)>,
    /// The key of the client certificate.
    pub(crate) key: Option<(&'a str, &'a str)>,
}

/// The server name that a certificate must be valid for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExpectedName {
    /// The name or address to which the client connects.
    OfConnection,
    /// This name. The name or address to which the client connects does not matter.
    #[cfg_attr(
        not(any(feature = "cassandra", test)),
        expect(
            dead_code,
            reason = "only the nodes of Cassandra are known by address alone"
        )
    )]
    Fixed(ServerName<'static>),
    /// Any name: the certificate only needs a chain to one of the trusted roots.
    #[cfg_attr(
        not(any(feature = "cassandra", test)),
        expect(dead_code, reason = "only Cassandra's nodes share certificates")
    )]
    AnyName,
}

/// Returns the TLS configuration of a client. Errors name the setting and its file.
pub(crate) fn client_config(
    files: TlsFiles<'_>,
    expected: ExpectedName,
) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    if let Some((setting, file)) = files.roots {
        for certificate in certificates(setting, file)? {
            let added = roots.add(certificate);
            added.map_err(|error| format!("{setting} {file}: {error}"))?;
        }
    } else {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
    }
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match expected {
        ExpectedName::OfConnection => builder.with_root_certificates(roots),
        expected => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Verifier {
                expected,
                roots,
                algorithms: provider.signature_verification_algorithms,
            })),
    };
    match (files.certificate, files.key) {
        (None, None) => Ok(builder.with_no_client_auth()),
        (Some((setting, file)), Some((key_setting, key_file))) => {
            let chain = certificates(setting, file)?;
            let key = PrivateKeyDer::from_pem_file(key_file)
                .map_err(|error| format!("cannot read {key_setting} {key_file}: {error}"))?;
            let built = builder.with_client_auth_cert(chain, key);
            built.map_err(|error| format!("{setting} {file} with {key_file}: {error}"))
        }
        (Some((setting, _)), None) | (None, Some((setting, _))) => Err(format!(
            "{setting} is incomplete: a client certificate and its key go together"
        )),
    }
}

fn certificates(setting: &str, file: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Vec<_> = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<_, _>>)
        .map_err(|error| format!("cannot read {setting} {file}: {error}"))?;
    if certificates.is_empty() {
        return Err(format!("{setting} {file} contains no certificate"));
    }
    Ok(certificates)
}

/// Verifies the certificate of a server for [`ExpectedName::Fixed`] and [`ExpectedName::AnyName`]. The verifier of
/// rustls accepts only the name or address to which the client connects.
#[derive(Debug)]
struct Verifier {
    expected: ExpectedName,
    roots: RootCertStore,
    algorithms: rustls::crypto::WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        connected: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = rustls::server::ParsedCertificate::try_from(certificate)?;
        rustls::client::verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            intermediates,
            now,
            self.algorithms.all,
        )?;
        let expected = match &self.expected {
            ExpectedName::AnyName => None,
            ExpectedName::Fixed(name) => Some(name),
            ExpectedName::OfConnection => Some(connected),
        };
        if let Some(name) = expected {
            rustls::client::verify_server_name(&certificate, name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

    use super::*;

    /// Creates a certificate authority, which signs a certificate for the server `db.example`. Returns the path
    /// of the authority's certificate, and the server's certificate.
    fn test_authority(folder: &std::path::Path) -> (String, CertificateDer<'static>) {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority
            .distinguished_name
            .push(DnType::CommonName, "authority of a test");
        let key = KeyPair::generate().expect("the key is created");
        let authority =
            CertifiedIssuer::self_signed(authority, key).expect("the certificate is created");
        let key = KeyPair::generate().expect("the key is created");
        let server = CertificateParams::new(["db.example".to_owned()]).expect("the name is valid");
        let server = server
            .signed_by(&key, &authority)
            .expect("the certificate is created");
        let file = folder.join("ca.pem");
        fs::write(&file, authority.pem()).expect("the file is written");
        fs::write(folder.join("server.pem"), server.pem()).expect("the file is written");
        fs::write(folder.join("server.key"), key.serialize_pem()).expect("the file is written");
        (file.display().to_string(), server.der().clone())
    }

    fn store(file: &str) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        let read = certificates("ca", file).expect("the certificates are valid");
        read.into_iter()
            .for_each(|read| roots.add(read).expect("the authority is valid"));
        roots
    }

    /// Method: verify one certificate with every kind of expected name, with its authority and with another one.
    #[test]
    fn a_certificate_is_accepted_for_the_expected_name_only() {
        let folder = tempfile::tempdir().expect("the folder is created");
        let (own_authority, certificate) = test_authority(folder.path());
        let other_folder = tempfile::tempdir().expect("the folder is created");
        let (other_authority, _) = test_authority(other_folder.path());
        let name = |name: &str| ServerName::try_from(name.to_owned()).expect("the name is valid");
        let accepts = |expected: ExpectedName, roots: &str, connected: &str| {
            let verifier = Verifier {
                expected,
                roots: store(roots),
                algorithms: rustls::crypto::aws_lc_rs::default_provider()
                    .signature_verification_algorithms,
            };
            let connected = name(connected);
            let verified =
                verifier.verify_server_cert(&certificate, &[], &connected, &[], UnixTime::now());
            verified.is_ok()
        };
        for (expected, by_address, by_name) in [
            (ExpectedName::OfConnection, false, true),
            (ExpectedName::Fixed(name("db.example")), true, true),
            (ExpectedName::Fixed(name("other.example")), false, false),
            (ExpectedName::AnyName, true, true),
        ] {
            assert_eq!(
                accepts(expected.clone(), &own_authority, "10.0.0.1"),
                by_address
            );
            assert_eq!(
                accepts(expected.clone(), &own_authority, "db.example"),
                by_name
            );
            assert!(!accepts(expected, &other_authority, "db.example"));
        }
    }

    #[test]
    fn an_unusable_file_is_named_with_its_setting() {
        let folder = tempfile::tempdir().expect("the folder is created");
        let (roots, _) = test_authority(folder.path());
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (certificate, key) = (path("server.pem"), path("server.key"));
        let (missing, empty) = (path("missing"), path("empty"));
        fs::write(&empty, "").expect("the file is written");
        let build = |roots: &str, certificate: Option<&str>, key: Option<&str>| {
            let files = TlsFiles {
                roots: Some(("ca", roots)),
                certificate: certificate.map(|file| ("cert", file)),
                key: key.map(|file| ("key", file)),
            };
            client_config(files, ExpectedName::OfConnection).map(|_| ())
        };
        assert_eq!(build(&roots, Some(&certificate), Some(&key)), Ok(()));
        for (built, expected) in [
            (build(&missing, None, None), "ca "),
            (build(&empty, None, None), "no certificate"),
            (build(&roots, Some(&certificate), None), "go together"),
            (build(&roots, None, Some(&key)), "go together"),
            (build(&roots, Some(&certificate), Some(&missing)), "key "),
            (build(&roots, Some(&roots), Some(&key)), "cert "),
        ] {
            let error = built.expect_err("the operation fails");
            assert!(error.contains(expected), "{error}");
        }
    }
}
