//! Tests of certificates: which are refused, with which message at both endpoints, how they are renewed while endpoints
//! run, and how a gateway reports copies.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls_pki_types::ServerName;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use edgeward_link::{
    CertificateProblem, Client, DenyList, EndpointName, Gateway, GatewayConfig, IdentityLimits,
    KeyFolder, Keys, LinkState,
};
use edgeward_testkit::TcpServer;

use crate::lockout::{another_edge, edge};
use crate::test_bed::{TestBed, echo, tcp, until, within};

fn name(text: &str) -> EndpointName {
    text.parse().expect("the name is valid")
}

/// Starts a gateway with the deny list in its folder of keys.
async fn gateway(test_bed: &mut TestBed, target: &TcpServer) -> Gateway {
    let config = config(test_bed, target);
    Gateway::bind(config)
        .await
        .expect("the listener can be bound")
}

fn config(test_bed: &mut TestBed, target: &TcpServer) -> GatewayConfig {
    let mut config = test_bed.gateway_config(target.addr());
    let keys = test_bed.folder.join("keys/gateway");
    config.deny = Some(DenyList::in_keys(&keys).expect("the deny list is valid"));
    config
}

async fn refusals(gateway: &Gateway, problem: CertificateProblem) -> u64 {
    gateway.status().await.counters.refused_certificates[problem as usize]
}

fn key_folder(test_bed: &TestBed) -> (KeyFolder, std::path::PathBuf) {
    let path = test_bed.folder.join("keys");
    (KeyFolder::open(&path).expect("the folder has a CA"), path)
}

/// An edge with an expired, a revoked or an unknown certificate, or with that of a gateway, gets the reason and
/// the action of the operator. The gateway counts the problem.
#[tokio::test]
async fn a_refused_edge_gets_the_problem_of_its_certificate() {
    let target = TcpServer::echo();
    let mut test_bed = TestBed::new(true);
    let gateway = gateway(&mut test_bed, &target).await;
    let (keys, path) = key_folder(&test_bed);
    // A certificate of 0 days is valid until the current second has ended.
    keys.add(&name("late"), 0).expect("the edge is added");
    keys.add(&name("lost"), 30).expect("the edge is added");
    keys.revoke(&name("lost")).expect("the edge is known");
    let other_ca = tempfile::tempdir().expect("the folder can be created");
    edgeward_link::generate_keys(other_ca.path()).expect("the keys can be generated");
    // The edge accepts the gateway, so the gateway is the one that refuses.
    let unknown = other_ca.path().join("edge");
    std::fs::copy(path.join("edge/ca.pem"), unknown.join("ca.pem"))
        .expect("the file can be copied");
    for (nth, (folder, problem, message)) in [
        (
            path.join("late"),
            CertificateProblem::Expired,
            "it has expired; run `edgeward link keys renew late`",
        ),
        (
            path.join("lost"),
            CertificateProblem::Revoked,
            "it is on the deny list; if `lost` may connect again, run `edgeward link keys renew lost`",
        ),
        (
            unknown,
            CertificateProblem::Unknown,
            "another CA has signed it; create the keys of `edge` in the folder of this link's CA",
        ),
        (
            path.join("gateway"),
            CertificateProblem::WrongRole,
            "it is not for this kind of endpoint; the gateway needs the folder `gateway`",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let client = edge(
            &test_bed,
            gateway.local_addr(),
            nth as u64,
            0,
            Some(&folder),
        );
        let is_explained = || {
            let error = client.last_error();
            error.is_some_and(|error| error.contains("of this endpoint") && error.contains(message))
        };
        // Until the second has ended, and until the gateway has read the deny list again, these two are accepted.
        let is_refused_later = matches!(
            problem,
            CertificateProblem::Expired | CertificateProblem::Revoked
        );
        within(async {
            while !is_explained() {
                tokio::time::sleep(Duration::from_millis(5)).await;
                assert!(
                    is_refused_later || client.state() != LinkState::Up(1),
                    "{problem:?}"
                );
            }
        })
        .await;
        until(async || refusals(&gateway, problem).await > 0).await;
    }
    assert!(gateway.status().await.counters.denied > 0);
}

/// A TLS client without a certificate gets the alert `certificate_required`, and the gateway counts the problem.
#[tokio::test]
async fn an_edge_without_a_certificate_is_refused() {
    let target = TcpServer::echo();
    let mut test_bed = TestBed::new(true);
    let gateway = gateway(&mut test_bed, &target).await;
    let mut roots = rustls::RootCertStore::empty();
    let authority = std::fs::read(test_bed.folder.join("keys/edge/ca.pem"));
    let authority = authority.expect("the file can be read");
    use rustls_pki_types::pem::PemObject as _;
    let authority = rustls_pki_types::CertificateDer::from_pem_slice(&authority);
    roots
        .add(authority.expect("the file has a certificate"))
        .expect("the certificate is valid");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the versions are supported")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"edgeward-link/1".to_vec()];
    let tcp = TcpStream::connect(gateway.local_addr()).await;
    let tcp = tcp.expect("the port is open");
    let name = ServerName::try_from("gateway.link.edgeward").expect("the name is valid");
    let connected = TlsConnector::from(Arc::new(config))
        .connect(name, tcp)
        .await;
    let mut tls = connected.expect("the client completes its handshake first");
    let error = within(tls.read_u8())
        .await
        .expect_err("the client is refused");
    assert!(error.to_string().contains("CertificateRequired"), "{error}");
    until(async || refusals(&gateway, CertificateProblem::Missing).await == 1).await;
}

/// An edge that refuses the certificate of a gateway states the problem.
#[tokio::test]
async fn an_edge_states_the_problem_of_the_certificate_of_its_gateway() {
    let target = TcpServer::echo();
    let mut test_bed = TestBed::new(true);
    let (keys, path) = key_folder(&test_bed);
    let mut config = config(&mut test_bed, &target);
    keys.renew(&name("gateway"), 0)
        .expect("the gateway is known");
    let (expired, _) = Keys::load(&path.join("gateway")).expect("the keys are valid");
    config.link.encryption = edgeward_link::Encryption::Tls(Arc::new(expired));
    let gateway = Gateway::bind(config)
        .await
        .expect("the listener can be bound");
    // The certificate is valid until the second of its renewal has ended.
    let second = || {
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        time.expect("the clock is right").as_secs()
    };
    let renewed_at = second();
    until(async || second() > renewed_at).await;
    let client = edge(&test_bed, gateway.local_addr(), 1, 0, None);
    assert_eq!(within(client.settled()).await, LinkState::Down);
    let error = client.last_error().expect("the attempt failed");
    assert!(
        error.contains("certificate of the peer `gateway`: it has expired"),
        "{error}"
    );
}

async fn fingerprints(gateway: &Gateway) -> Vec<String> {
    let identities = gateway.status().await.identities.into_iter();
    identities.map(|identity| identity.fingerprint).collect()
}

/// A renewed certificate is used by new connections while streams continue, and the edge stays the same peer.
#[tokio::test]
async fn certificates_are_renewed_without_a_stop() {
    let target = TcpServer::echo();
    let mut test_bed = TestBed::new(true);
    let gateway = gateway(&mut test_bed, &target).await;
    let (keys, path) = key_folder(&test_bed);
    let first = edge(&test_bed, gateway.local_addr(), 7, 0, None);
    within(first.up()).await;
    let before = fingerprints(&gateway).await;
    let stream = first.open(tcp(target.addr())).expect("the link is up");
    keys.renew(&name("edge"), 30).expect("the edge is known");
    keys.renew(&name("gateway"), 30)
        .expect("the gateway is known");
    let renewed = Keys::load(&path.join("gateway"))
        .expect("the keys are valid")
        .0;
    // The gateway reads its folder again.
    until(async || gateway.status().await.identity == Some(renewed.identity())).await;
    let back = within(echo(stream, b"hello")).await;
    assert_eq!(back.expect("the stream continues"), b"hello");
    within(first.shutdown(Duration::from_secs(5)))
        .await
        .expect("the store is flushed");
    let second = edge(
        &test_bed,
        gateway.local_addr(),
        7,
        1,
        Some(&path.join("edge")),
    );
    within(second.up()).await;
    assert_ne!(fingerprints(&gateway).await, before);
    assert_eq!(
        gateway.status().await.peers.len(),
        1,
        "the edge is the same peer"
    );
}

/// While the CA is changed, endpoints with certificates of the old and the new CA accept each other. After the change,
/// a certificate of the old CA is refused.
#[tokio::test]
async fn two_cas_are_accepted_while_the_ca_is_changed() {
    let target = TcpServer::echo();
    let mut test_bed = TestBed::new(true);
    let gateway = gateway(&mut test_bed, &target).await;
    let (keys, path) = key_folder(&test_bed);
    let old = test_bed.folder.join("old");
    copy_folder(&path.join("edge"), &old);
    keys.begin_new_authority().expect("the CA is created");
    keys.renew(&name("edge"), 30).expect("the edge is known");
    copy_folder(&path.join("edge"), &test_bed.folder.join("new"));
    // The gateway has a certificate of the old CA, and reads the new CA within a second.
    let new = edge(
        &test_bed,
        gateway.local_addr(),
        1,
        0,
        Some(&test_bed.folder.join("new")),
    );
    within(new.up()).await;
    let first = edge(&test_bed, gateway.local_addr(), 2, 0, Some(&old));
    within(first.up()).await;
    drop((new, first));

    keys.renew(&name("gateway"), 30)
        .expect("the gateway is known");
    keys.end_new_authority()
        .expect("all certificates are renewed");
    let renewed = Keys::load(&path.join("gateway"))
        .expect("the keys are valid")
        .0;
    until(async || gateway.status().await.identity == Some(renewed.identity())).await;
    // The gateway may have read the folder before the end of the change. It then reads it again within a second.
    within(async {
        loop {
            let client = edge(&test_bed, gateway.local_addr(), 3, 0, Some(&old));
            if client.settled().await == LinkState::Down {
                break;
            }
            within(client.shutdown(Duration::ZERO))
                .await
                .expect("the store is flushed");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    until(async || refusals(&gateway, CertificateProblem::Unknown).await > 0).await;
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("the folder can be created");
    for entry in std::fs::read_dir(from).expect("the folder can be read") {
        let entry = entry.expect("the folder can be read");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("the file can be copied");
    }
}

/// Two edges that share a certificate, and two edges that share a store, are counted and shown.
#[tokio::test]
async fn copies_of_certificates_and_stores_are_reported() {
    let target = TcpServer::echo();
    let mut test_bed = TestBed::new(true);
    let gateway = gateway(&mut test_bed, &target).await;
    let other_keys = another_edge(&test_bed.folder.join("keys"));
    let addr = gateway.local_addr();
    let start = |epoch, nth, keys| edge(&test_bed, addr, epoch, nth, keys);
    let first = start(1, 0, None);
    within(first.up()).await;
    let stores = async |gateway: &Gateway, edge: &str| {
        let all = gateway.status().await.identities;
        let found = all.iter().find(|identity| identity.name == edge);
        found.map(|identity| identity.stores)
    };
    assert_eq!(stores(&gateway, "edge").await, Some(1));
    let second = start(2, 0, None);
    within(second.up()).await;
    assert_eq!(stores(&gateway, "edge").await, Some(2));
    assert_eq!(gateway.status().await.counters.shared_certificates, 1);
    assert_eq!(gateway.status().await.counters.clones, 0);
    let third = start(1, 1, Some(&other_keys));
    within(third.up()).await;
    assert_eq!(gateway.status().await.counters.clones, 1);
    drop((first, second, third));
    until(async || gateway.status().await.identities.is_empty()).await;
}

/// The limits of a certificate apply to connections and streams.
#[tokio::test]
async fn a_certificate_has_limits() {
    let target = TcpServer::echo();
    let mut test_bed = TestBed::new(true);
    let mut config = config(&mut test_bed, &target);
    config.identity_limits = IdentityLimits {
        connections_max: 2,
        streams_max: 1,
        ..IdentityLimits::default()
    };
    let gateway = Gateway::bind(config)
        .await
        .expect("the listener can be bound");
    let client = edge(&test_bed, gateway.local_addr(), 1, 0, None);
    until(async || client.state() == LinkState::Up(2)).await;
    let mut first = client.open(tcp(target.addr())).expect("the link is up");
    within(first.accepted())
        .await
        .expect("the limit is not reached");
    let mut second = client.open(tcp(target.addr())).expect("the link is up");
    let refused = within(second.accepted()).await;
    let reason = refused.expect_err("the limit is reached").reason;
    assert_eq!(reason, edgeward_dedup::reason::TOO_MANY);
    assert_eq!(gateway.status().await.counters.over_limit, 1);
    let other: Client = edge(&test_bed, gateway.local_addr(), 2, 0, None);
    assert_eq!(within(other.settled()).await, LinkState::Down);
    assert!(gateway.status().await.counters.refused > 0);
}
