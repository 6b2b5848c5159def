//! Listeners on Unix sockets.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use edgeward_proxy::config::{ListenAddress, ListenerConfig};
use edgeward_proxy::{Edge, StartError};
use edgeward_proxy_protocol::{Addresses, Header, Version, write};
use edgeward_testkit::Answer;

use crate::identity::SelfSigned;
use crate::support::{TIMEOUT, TestBed, config_for};

/// An edge that listens on a port and on a Unix socket.
struct Bed {
    bed: TestBed,
    folder: tempfile::TempDir,
}

impl Bed {
    fn start(change: impl FnOnce(&mut ListenerConfig)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut listener = ListenerConfig::plain(socket_in(folder.path()));
        change(&mut listener);
        let bed = TestBed::with_config(|config| config.listeners.push(listener));
        bed.origin
            .otherwise(|_| Answer::ok("page").header("cache-control", "max-age=600"));
        Self { bed, folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("edge.sock")
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.path()).expect("the edge listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        stream
    }
}

fn socket_in(folder: &Path) -> ListenAddress {
    ListenAddress::Unix(folder.join("edge.sock"))
}

/// Sends bytes, and returns all that is received until the edge closes the connection.
fn exchange(mut stream: UnixStream, pieces: &[&[u8]]) -> String {
    for piece in pieces {
        stream.write_all(piece).expect("the edge reads");
    }
    let mut received = Vec::new();
    stream.read_to_end(&mut received).expect("a response");
    String::from_utf8(received).expect("text")
}

const REQUEST: &[u8] = b"GET /a HTTP/1.1\r\nHost: test.example\r\nConnection: close\r\n\r\n";

#[test]
fn a_unix_socket_and_a_port_serve_the_same_cache() {
    let bed = Bed::start(|_| ());
    let first = exchange(bed.connect(), &[REQUEST]);
    assert!(first.starts_with("HTTP/1.1 200"), "{first}");
    assert!(first.ends_with("page"), "{first}");
    assert!(bed.bed.get("/a").is_hit());
    let second = exchange(bed.connect(), &[REQUEST]);
    assert!(second.contains("; hit"), "{second}");
    let origin = bed.bed.origin.last("/a").expect("a request");
    assert_eq!(origin.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(bed.bed.edge.listening()[1], socket_in(bed.folder.path()));
    assert_eq!(bed.bed.edge.addrs().len(), 1);
}

#[test]
fn curl_gets_large_bodies_by_both_versions_of_http() {
    let bed = Bed::start(|_| ());
    let bytes = 3 << 20;
    let answer = Answer::pattern(bytes).header("cache-control", "max-age=600");
    bed.bed.origin.on("/large", answer);
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        for _ in 0..2 {
            let path = bed.path();
            let got = Command::new("curl")
                .args(["--silent", "--show-error", "--max-time", "30", version])
                .arg("--unix-socket")
                .arg(path)
                .arg("http://test.example/large")
                .output()
                .expect("curl runs");
            assert!(got.status.success(), "{version}: {got:?}");
            assert_eq!(got.stdout.len() as u64, bytes, "{version}");
        }
    }
    assert_eq!(bed.bed.origin.requests("/large"), 1);
}

/// Method: the second piece has the end of the header and the request.
#[test]
fn a_proxy_header_states_the_client_of_a_unix_socket() {
    let networks = "127.0.0.1".parse().expect("a network");
    let bed = Bed::start(|listener| listener.proxy_protocol_from = Some(networks));
    let mut header = Vec::new();
    let addresses = Addresses {
        source: "192.0.2.7:5000".parse().expect("an address"),
        destination: "198.51.100.1:80".parse().expect("an address"),
    };
    write(Version::V2, Header::Proxied(addresses), &mut header);
    let (begin, end) = header.split_at(7);
    let rest = [end, REQUEST].concat();
    let response = exchange(bed.connect(), &[begin, &rest]);
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    let origin = bed.bed.origin.last("/a").expect("a request");
    assert_eq!(origin.header("x-forwarded-for"), Some("192.0.2.7"));
    // Without a header, the connection is closed.
    let mut received = Vec::new();
    let mut stream = bed.connect();
    stream.write_all(REQUEST).expect("sent");
    _ = stream.read_to_end(&mut received);
    assert!(received.is_empty());
    assert_eq!(
        bed.bed
            .metric("edgeward_proxy_headers_refused_total{reason=\"missing\"}"),
        1.0
    );
}

#[test]
fn a_reload_adds_and_removes_a_unix_socket() {
    let bed = TestBed::start();
    bed.origin.otherwise(|_| Answer::ok("page"));
    let folder = tempfile::tempdir().expect("a folder");
    let plain = config_for(bed.origin.addr());
    let mut more = plain.clone();
    let socket = ListenerConfig::plain(socket_in(folder.path()));
    more.listeners.push(socket);
    let path = folder.path().join("edge.sock");
    for _ in 0..2 {
        bed.edge.reloader().reload(&more).expect("valid");
        let stream = UnixStream::connect(&path).expect("the edge listens");
        let response = exchange(stream, &[REQUEST]);
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        bed.edge.reloader().reload(&plain).expect("valid");
        // The workers close the socket when they next run.
        while UnixStream::connect(&path).is_ok() {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_unix_socket_has_no_tls() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config_for(([127, 0, 0, 1], 9).into());
    let mut listener = ListenerConfig::plain(socket_in(folder.path()));
    listener.tls = Some(SelfSigned::new().files());
    config.listeners.push(listener);
    let error = Edge::start(config).expect_err("TLS");
    assert!(matches!(error, StartError::UnixTls { .. }), "{error:?}");
}

#[test]
fn a_socket_on_which_another_process_listens_is_an_error_that_names_it() {
    let bed = Bed::start(|_| ());
    let mut config = config_for(bed.bed.origin.addr());
    config.listeners[0].addr = socket_in(bed.folder.path());
    let error = Edge::start(config).expect_err("in use");
    assert!(error.to_string().contains("edge.sock"), "{error}");
}
