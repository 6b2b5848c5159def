//! The access log in syslog and in the journal: stand-ins of the daemons receive datagrams on sockets in a temporary
//! folder and on loopback.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use crate::support::{TIMEOUT, TestBed};
use edgeward_proxy::config::{AccessLogConfig, LogDestination, LogFormat, SyslogServer};
use edgeward_testkit::Answer;

/// A target and an agent with which a client might forge a line: quotes, a backslash, and a line of syslog.
const TARGET: &str = "/a?x=\\n";
const AGENT: &str = "agent \"quoted\" \\ <0>1 - - - - - - forged";

fn bed_with(destination: LogDestination, format: LogFormat) -> TestBed {
    let bed = TestBed::with_config(|config| {
        config.access_log = Some(AccessLogConfig::new(destination, format));
        config.workers = std::num::NonZeroUsize::MIN;
    });
    let page = Answer::ok("hello").header("cache-control", "max-age=60");
    bed.origin.otherwise(move |_| page.clone());
    bed
}

fn template(text: &str) -> LogFormat {
    LogFormat::Template(text.parse().expect("a valid template"))
}

fn unix_socket(path: &Path) -> UnixDatagram {
    let socket = UnixDatagram::bind(path).expect("the socket can be bound");
    socket
        .set_read_timeout(Some(TIMEOUT))
        .expect("a timeout can be set");
    socket
}

fn receive(receive: impl FnOnce(&mut [u8]) -> std::io::Result<usize>) -> Vec<u8> {
    let mut datagram = vec![0; 1 << 20];
    let bytes = receive(&mut datagram).expect("a datagram arrives");
    datagram.truncate(bytes);
    datagram
}

/// Splits a message of RFC 5424 into the seven fields of its header, the absent structured data, and the message.
fn syslog_parts(datagram: &[u8]) -> Vec<String> {
    let text = String::from_utf8(datagram.to_vec()).expect("UTF-8");
    text.splitn(8, ' ').map(str::to_owned).collect()
}

fn check_syslog(datagram: &[u8], message: &str) {
    let parts = syslog_parts(datagram);
    assert_eq!(parts[0], "<190>1", "local7 and informational, version 1");
    let time = parts[1].as_bytes();
    assert!(
        time.len() == 24 && time[10] == b'T' && time[23] == b'Z',
        "{parts:?}"
    );
    assert!(!parts[2].is_empty(), "a host name or -");
    let pid = std::process::id().to_string();
    assert_eq!(
        parts[3..7],
        [
            "edgeward".to_owned(),
            pid,
            "access".to_owned(),
            "-".to_owned()
        ]
    );
    assert_eq!(parts[7], message);
}

#[test]
fn each_request_is_a_syslog_message() {
    let format = || template("$status $request_uri \"$http_user_agent\" $cache");
    let escaped = |cache: &str| {
        format!(
            "200 /a?x=\\x5Cn \
             \"agent \\x22quoted\\x22 \\x5C <0>1 - - - - - - forged\" {cache}"
        )
    };
    let folder = tempfile::tempdir().expect("the folder can be created");
    let path = folder.path().join("log");
    let unix = unix_socket(&path);
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    udp.set_read_timeout(Some(TIMEOUT))
        .expect("a timeout can be set");
    let addr = udp.local_addr().expect("the socket is bound");
    for server in [SyslogServer::Unix(path), SyslogServer::Udp(addr)] {
        let is_udp = matches!(server, SyslogServer::Udp(_));
        let bed = bed_with(LogDestination::Syslog(server), format());
        for cache in ["uri-miss", "hit"] {
            bed.get_with(TARGET, &[("user-agent", AGENT)]);
            let datagram = match is_udp {
                true => receive(|buffer| udp.recv(buffer)),
                false => receive(|buffer| unix.recv(buffer)),
            };
            check_syslog(&datagram, &escaped(cache));
        }
        assert_eq!(bed.metric("edgeward_access_log_lost_total"), 0.0);
    }
}

/// A client with a very long URL. The receiver accepts 8 KiB.
#[test]
fn a_long_line_is_cut_in_syslog() {
    let folder = tempfile::tempdir().expect("the folder can be created");
    let path = folder.path().join("log");
    let socket = unix_socket(&path);
    let bed = bed_with(
        LogDestination::Syslog(SyslogServer::Unix(path)),
        LogFormat::Json,
    );
    bed.get(&format!("/{}", "x".repeat(20_000)));
    assert_eq!(receive(|buffer| socket.recv(buffer)).len(), 8 << 10);
}

/// Without a daemon, lines are counted as lost. A daemon that starts later, or again, gets the next lines.
#[test]
fn lines_are_lost_and_counted_while_no_daemon_listens() {
    let folder = tempfile::tempdir().expect("the folder can be created");
    let path = folder.path().join("log");
    let server = SyslogServer::Unix(path.clone());
    let bed = bed_with(LogDestination::Syslog(server), template("$request_uri"));
    let mut lost = 0.0;
    for round in ["/1", "/2"] {
        bed.get("/lost");
        lost += 1.0;
        bed.wait_for_metric("edgeward_access_log_lost_total", lost);
        let socket = unix_socket(&path);
        bed.get(round);
        check_syslog(&receive(|buffer| socket.recv(buffer)), round);
        drop(socket);
        std::fs::remove_file(&path).expect("the socket's file can be removed");
    }
}

/// Parses an entry of journald's native protocol: `NAME=value`, or `NAME`, the length and the value.
fn journal_entry(mut bytes: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut fields = BTreeMap::new();
    while !bytes.is_empty() {
        let end = bytes
            .iter()
            .position(|byte| *byte == b'\n')
            .expect("a line feed");
        let line = &bytes[..end];
        bytes = &bytes[end + 1..];
        let (name, value) = match line.iter().position(|byte| *byte == b'=') {
            Some(at) => (&line[..at], line[at + 1..].to_vec()),
            None => {
                let (length, rest) = bytes.split_first_chunk::<8>().expect("a length");
                let (value, rest) = rest.split_at(u64::from_le_bytes(*length) as usize);
                bytes = rest
                    .strip_prefix(b"\n")
                    .expect("a line feed ends the value");
                (line, value.to_vec())
            }
        };
        let name = String::from_utf8(name.to_vec()).expect("ASCII");
        fields.insert(name, value);
    }
    fields
}

#[test]
fn each_request_is_an_entry_of_the_journal_with_its_values_as_fields() {
    let folder = tempfile::tempdir().expect("the folder can be created");
    let path = folder.path().join("socket");
    let socket = unix_socket(&path);
    let bed = bed_with(LogDestination::Journald(path), LogFormat::CombinedCache);
    for cache in ["uri-miss", "hit"] {
        bed.get_with(TARGET, &[("user-agent", AGENT)]);
        let entry = journal_entry(&receive(|buffer| socket.recv(buffer)));
        let field = |name: &str| String::from_utf8_lossy(&entry[name]).into_owned();
        assert_eq!(field("PRIORITY"), "6");
        assert_eq!(field("SYSLOG_IDENTIFIER"), "edgeward");
        assert_eq!(field("EDGEWARD_CLIENT"), "127.0.0.1");
        assert_eq!(field("EDGEWARD_METHOD"), "GET");
        assert_eq!(field("EDGEWARD_HOST"), "test.example");
        assert_eq!(field("EDGEWARD_TARGET"), TARGET);
        assert_eq!(field("EDGEWARD_STATUS"), "200");
        assert_eq!(field("EDGEWARD_BYTES"), "5");
        assert_eq!(field("EDGEWARD_CACHE"), cache);
        assert!(
            field("MESSAGE").ends_with(&format!(" {cache}")),
            "{}",
            field("MESSAGE")
        );
        assert!(field("MESSAGE").starts_with("127.0.0.1 - - ["));
        assert!(!entry.contains_key("EDGEWARD_ABORTED"));
    }
}
