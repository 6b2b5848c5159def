//! OCSP responses in TLS handshakes.

use std::path::Path;
use std::time::{Duration, SystemTime};

use edgeward_proxy::{Edge, StartError};
use edgeward_testkit::Answer;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_cert::Certificate;
use x509_cert::der::asn1::{BitString, Null, OctetString};
use x509_cert::der::{Decode as _, Encode as _};
use x509_cert::serial_number::SerialNumber;
use x509_ocsp::{
    BasicOcspResponse, CertId, CertStatus, OcspGeneralizedTime, OcspResponse, OcspResponseStatus,
    ResponderId, ResponseBytes, ResponseData, SingleResponse, Version,
};

use crate::handshake::handshake;
use crate::identity::SelfSigned;
use crate::support::{TestBed, config_for};

/// Returns a response for the certificate in a file. Its signature is empty: the client under test does not check it.
fn response_for(certificate: &Path, serial: Option<SerialNumber>, next_update: i64) -> Vec<u8> {
    let der = CertificateDer::from_pem_file(certificate).expect("a certificate");
    let certificate = Certificate::from_der(&der).expect("a certificate");
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("a time after 1970");
    let time = |offset: i64| {
        let seconds = now.as_secs().saturating_add_signed(offset);
        let time =
            x509_cert::der::asn1::GeneralizedTime::from_unix_duration(Duration::from_secs(seconds));
        OcspGeneralizedTime(time.expect("a time"))
    };
    let algorithm = certificate.signature_algorithm.clone();
    let hash = OctetString::new([0; 20]).expect("short");
    let answer = SingleResponse {
        cert_id: CertId {
            hash_algorithm: algorithm.clone(),
            issuer_name_hash: hash.clone(),
            issuer_key_hash: hash.clone(),
            serial_number: serial.unwrap_or(certificate.tbs_certificate.serial_number),
        },
        cert_status: CertStatus::Good(Null),
        this_update: time(-7200),
        next_update: Some(time(next_update)),
        single_extensions: None,
    };
    let basic = BasicOcspResponse {
        tbs_response_data: ResponseData {
            version: Version::V1,
            responder_id: ResponderId::ByKey(hash),
            produced_at: time(-7200),
            responses: vec![answer],
            response_extensions: None,
        },
        signature_algorithm: algorithm,
        signature: BitString::from_bytes(&[0]).expect("short"),
        certs: None,
    };
    let response = OcspResponse {
        response_status: OcspResponseStatus::Successful,
        response_bytes: Some(ResponseBytes {
            response_type: x509_cert::der::oid::ObjectIdentifier::new_unwrap(
                "1.3.6.1.5.5.7.48.1.1",
            ),
            response: OctetString::new(basic.to_der().expect("DER")).expect("short"),
        }),
    };
    response.to_der().expect("DER")
}

#[test]
fn a_handshake_has_the_response_of_the_file_until_it_expires() {
    let (identity, folder) = (SelfSigned::new(), tempfile::tempdir().expect("a folder"));
    let file = folder.path().join("ocsp.der");
    let mut files = identity.files();
    let current = response_for(&files.certificates, None, 3600);
    std::fs::write(&file, &current).expect("written");
    files.ocsp = Some(file.clone());
    let listener = files.clone();
    let bed = TestBed::with_config(|config| {
        config.listeners[0].tls = Some(listener);
        config.certificate_interval = Duration::from_millis(1);
    });
    bed.origin.otherwise(|_| Answer::ok("page"));
    assert_eq!(handshake(bed.addr()).ocsp_response, current);
    let ends_after = |metric: &str| {
        let now = SystemTime::UNIX_EPOCH.elapsed().expect("a time after 1970");
        bed.metric(metric) - now.as_secs_f64()
    };
    let ocsp_end = "edgeward_ocsp_expiry_timestamp_seconds";
    assert!((3500.0..=3600.0).contains(&ends_after(ocsp_end)));
    assert!(ends_after("edgeward_certificate_expiry_timestamp_seconds") > 3600.0);
    let expired = response_for(&files.certificates, None, -3600);
    std::fs::write(&file, expired).expect("written");
    bed.wait_for_metric("edgeward_certificate_reads_total{result=\"applied\"}", 1.0);
    assert!(ends_after(ocsp_end) < 0.0);
    let seen = handshake(bed.addr());
    assert!(!seen.certificate.is_empty() && seen.ocsp_response.is_empty());
    std::fs::write(&file, "nonsense").expect("written");
    bed.wait_for_metric("edgeward_certificate_reads_total{result=\"refused\"}", 1.0);
    assert_eq!(handshake(bed.addr()).certificate, seen.certificate);
    let longer = response_for(&files.certificates, None, 7200);
    std::fs::write(&file, &longer).expect("written");
    bed.wait_for_metric("edgeward_certificate_reads_total{result=\"applied\"}", 2.0);
    assert_eq!(handshake(bed.addr()).ocsp_response, longer);
}

#[test]
fn a_file_that_is_no_response_for_the_certificate_is_refused() {
    let (identity, folder) = (SelfSigned::new(), tempfile::tempdir().expect("a folder"));
    let file = folder.path().join("ocsp.der");
    let mut files = identity.files();
    files.ocsp = Some(file.clone());
    let other = SerialNumber::new(&[42]).expect("short");
    let refused = OcspResponse {
        response_status: OcspResponseStatus::TryLater,
        response_bytes: None,
    };
    for (content, reason) in [
        (None, "cannot be read"),
        (Some(b"nonsense".to_vec()), "is not an OCSP response in DER"),
        (
            Some(response_for(&files.certificates, Some(other), 3600)),
            "is for another certificate",
        ),
        (Some(refused.to_der().expect("DER")), "TryLater"),
    ] {
        match content {
            Some(content) => std::fs::write(&file, content).expect("written"),
            None => assert!(!file.exists()),
        }
        let mut config = config_for(([127, 0, 0, 1], 9).into());
        config.listeners[0].tls = Some(files.clone());
        let error = Edge::start(config).expect_err("no response");
        assert!(matches!(error, StartError::Tls { .. }), "{error:?}");
        let causes = edgeward_types::with_causes(&error);
        assert!(causes.contains(reason), "{causes}");
        assert!(causes.contains("ocsp.der"), "{causes}");
    }
}
