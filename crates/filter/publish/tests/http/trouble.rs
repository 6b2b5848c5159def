//! A publisher limits the connections of slow, silent and hostile clients, and still serves other clients.
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::support::{self, Table, WAIT_MAX, config, get, start};

/// Silent connections occupy all slots. They are closed after the head timeout, and another client is served.
#[test]
fn silent_connections_are_closed_after_the_head_timeout() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let mut config = config(folder.path());
    config.limits.connections_max = 4;
    config.limits.head_timeout = Duration::from_millis(200);
    let publisher = start(config, &Table::with(0..10));
    let mut silent: Vec<_> = (0..4)
        .map(|_| TcpStream::connect(publisher.addr()).expect("the publisher listens"))
        .collect();
    silent[0]
        .write_all(b"GET /sets/resource HTTP/1.1\r\n")
        .expect("the bytes are sent");
    assert_eq!(get(publisher.addr(), "/sets/resource", &[]).status, 200);
    for stream in &mut silent {
        stream
            .set_read_timeout(Some(WAIT_MAX))
            .expect("the socket is configured");
        let mut rest = Vec::new();
        _ = stream.read_to_end(&mut rest);
    }
}

/// Clients that send no request, or that do not read their responses, occupy all slots. A new client is still served,
/// because their connections are closed.
///
/// Method: set timeouts that are longer than the test, so that no connection is closed by a timeout.
#[test]
fn connections_that_wait_for_their_clients_are_displaced() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let mut config = config(folder.path());
    config.limits.connections_max = 8;
    config.limits.head_timeout = Duration::from_secs(3600);
    config.limits.stall_timeout = Duration::from_secs(3600);
    config.admin = Some(([127, 0, 0, 1], 0).into());
    // The snapshot must be larger than the buffers of two sockets. A false-positive rate of 2⁻³² takes 4 bytes per id.
    config.rate = edgeward_filter::Rate::MIN;
    let publisher = start(config, &Table::with(0..1_200_000));
    let manifest = get(publisher.addr(), "/sets/resource", &[])
        .text()
        .to_owned();
    let digest = manifest
        .split("\"sha256\":\"")
        .nth(1)
        .expect("the manifest has a digest");
    let snapshot = format!("/sets/resource/snapshot/{}", &digest[..64]);
    let admin = publisher
        .admin_addr()
        .expect("the admin address is configured");
    let connect = |addr| TcpStream::connect(addr).expect("the publisher listens");
    let silent: Vec<_> = (0..40).map(|_| connect(publisher.addr())).collect();
    assert_eq!(get(publisher.addr(), "/sets/resource", &[]).status, 200);
    let greedy: Vec<_> = (0..40)
        .map(|_| {
            let mut stream = connect(publisher.addr());
            let request = format!("GET {snapshot} HTTP/1.1\r\nhost: p\r\n\r\n");
            // The connection may already be displaced.
            _ = stream.write_all(request.as_bytes());
            stream
        })
        .collect();
    assert_eq!(get(publisher.addr(), "/sets/resource", &[]).status, 200);
    let scrapers: Vec<_> = (0..40)
        .map(|_| {
            let mut stream = connect(admin);
            stream
                .set_nonblocking(true)
                .expect("the socket is configured");
            let requests = "GET /metrics HTTP/1.1\r\nhost: p\r\n\r\n".repeat(20_000);
            _ = stream.write_all(requests.as_bytes());
            stream
        })
        .collect();
    assert_eq!(get(admin, "/healthz", &[]).status, 200);
    drop((silent, greedy, scrapers));
}

/// A connection that sends no byte is closed within seconds, although the head timeout is longer.
#[test]
fn a_connection_that_sends_no_byte_is_closed() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let mut config = config(folder.path());
    config.limits.head_timeout = Duration::from_secs(3600);
    config.limits.first_byte_timeout = Duration::from_secs(2);
    let publisher = start(config, &Table::with(0..10));
    let mut slow = TcpStream::connect(publisher.addr()).expect("the publisher listens");
    slow.write_all(b"GET /sets/resource HTTP/1.1\r\nhost: p\r\n")
        .expect("the bytes are sent");
    let mut silent = TcpStream::connect(publisher.addr()).expect("the publisher listens");
    silent
        .set_read_timeout(Some(WAIT_MAX))
        .expect("the socket is configured");
    let mut rest = Vec::new();
    assert_eq!(
        silent
            .read_to_end(&mut rest)
            .expect("the connection is closed"),
        0
    );
    slow.write_all(b"connection: close\r\n\r\n")
        .expect("the connection is open");
    slow.set_read_timeout(Some(WAIT_MAX))
        .expect("the socket is configured");
    slow.read_to_end(&mut rest).expect("a response arrives");
    assert!(rest.starts_with(b"HTTP/1.1 200"));
}

/// A connection is closed if its client does not read a large snapshot.
#[test]
fn a_client_that_reads_nothing_is_disconnected() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let mut config = config(folder.path());
    config.limits.stall_timeout = Duration::from_millis(200);
    config.admin = Some(([127, 0, 0, 1], 0).into());
    // The snapshot must be larger than the buffers of two sockets. A false-positive rate of 2⁻³² takes 4 bytes per id.
    config.rate = edgeward_filter::Rate::MIN;
    let publisher = start(config, &Table::with(0..1_200_000));
    let manifest = get(publisher.addr(), "/sets/resource", &[])
        .text()
        .to_owned();
    let digest = manifest
        .split("\"sha256\":\"")
        .nth(1)
        .expect("the manifest has a digest");
    let mut stream = TcpStream::connect(publisher.addr()).expect("the publisher listens");
    let request = format!(
        "GET /sets/resource/snapshot/{} HTTP/1.1\r\nhost: p\r\n\r\n",
        &digest[..64]
    );
    stream
        .write_all(request.as_bytes())
        .expect("the bytes are sent");
    let admin = publisher
        .admin_addr()
        .expect("the admin address is configured");
    support::wait_until("the connection is closed", || {
        let metrics = get(admin, "/metrics", &[]).text().to_owned();
        metrics
            .contains("edgeward_publish_connections_stalled_total 1")
            .then_some(())
    });
}

#[test]
fn an_endless_head_is_refused() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let publisher = start(config(folder.path()), &Table::with(0..10));
    let mut stream = TcpStream::connect(publisher.addr()).expect("the publisher listens");
    stream
        .set_read_timeout(Some(WAIT_MAX))
        .expect("the socket is configured");
    let line = format!("x: {}\r\n", "y".repeat(1000));
    _ = stream.write_all(b"GET / HTTP/1.1\r\n");
    for _ in 0..100 {
        if stream.write_all(line.as_bytes()).is_err() {
            break;
        }
    }
    let mut response = Vec::new();
    _ = stream.read_to_end(&mut response);
    let response = String::from_utf8_lossy(&response);
    assert!(
        response.is_empty() || response.starts_with("HTTP/1.1 431"),
        "{response}"
    );
    assert_eq!(get(publisher.addr(), "/sets/resource", &[]).status, 200);
}
