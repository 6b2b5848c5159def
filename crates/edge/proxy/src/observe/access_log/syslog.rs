//! The access log in syslog's format (RFC 5424), over a unix socket such as `/dev/log` or over UDP (RFC 5426).

use std::fs;
use std::io;

use super::datagrams::{Datagrams, Peer};
use super::line::{Formatter, LogLine};
use crate::config::SyslogServer;

/// A syslog server, and the parts of the header that are equal in all messages.
pub(super) struct Syslog {
    datagrams: Datagrams,
    /// The fields between the time and the message.
    sender: String,
    message: Vec<u8>,
}

impl Syslog {
    pub(super) fn new(server: &SyslogServer) -> Self {
        let peer = match server {
            SyslogServer::Unix(path) => Peer::Unix(path.clone()),
            SyslogServer::Udp(addr) => Peer::Udp(*addr),
        };
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            datagrams: Datagrams::new(peer),
            sender: sender(host.trim(), std::process::id()),
            message: Vec::new(),
        }
    }

    pub(super) fn write(&mut self, line: &LogLine, formatter: &mut Formatter) -> io::Result<()> {
        let message = &mut self.message;
        message.clear();
        message.extend_from_slice(PRIORITY_AND_VERSION);
        formatter.push_rfc3339(line.request.read().0.time, message);
        message.extend_from_slice(self.sender.as_bytes());
        formatter.write(line, message);
        truncate(message, MESSAGE_BYTES_MAX);
        self.datagrams.send(message)
    }
}

/// Returns HOSTNAME, APP-NAME, PROCID, MSGID and the absent STRUCTURED-DATA (RFC 5424 §6), with spaces around them.
fn sender(host: &str, pid: u32) -> String {
    // RFC 5424 §6: up to 255 printable ASCII characters, or `-`.
    let is_valid = |host: &str| host.bytes().all(|byte| byte.is_ascii_graphic());
    let host = match host {
        "" => "-",
        host if host.len() <= 255 && is_valid(host) => host,
        _ => "-",
    };
    format!(" {host} edgeward {pid} access - ")
}

/// Cuts a message to at most `bytes_max` bytes, not within a character of UTF-8.
pub(super) fn truncate(message: &mut Vec<u8>, bytes_max: usize) {
    if message.len() <= bytes_max {
        return;
    }
    let mut end = bytes_max;
    while end > 0 && message[end] & 0b1100_0000 == 0b1000_0000 {
        end -= 1;
    }
    message.truncate(end);
}

/// The facility local7 (23) with the severity informational (6), as nginx has it, and the version 1.
const PRIORITY_AND_VERSION: &[u8] = b"<190>1 ";

/// The longest message. RFC 5424 §6.1 asks receivers to accept 2048 bytes; rsyslog accepts 8 KiB by default. A longer
/// line, which only a client with a very long URL or field causes, is cut.
const MESSAGE_BYTES_MAX: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_name_that_is_not_printable_is_left_out() {
        for (host, expected) in [
            ("edge-1.example", "edge-1.example"),
            ("", "-"),
            ("two words", "-"),
            ("näme", "-"),
            (&"x".repeat(255), &"x".repeat(255)),
            (&"x".repeat(256), "-"),
        ] {
            assert_eq!(sender(host, 7), format!(" {expected} edgeward 7 access - "));
        }
    }

    #[test]
    fn a_long_message_is_cut_before_a_character_that_does_not_fit() {
        for (text, bytes_max, expected) in [
            ("abc", 3, "abc"),
            ("abc", 2, "ab"),
            ("aä", 3, "aä"),
            ("aäb", 3, "aä"),
            ("aäb", 2, "a"),
            ("€", 2, ""),
        ] {
            let mut message = text.as_bytes().to_vec();
            truncate(&mut message, bytes_max);
            assert_eq!(String::from_utf8_lossy(&message), expected);
        }
    }
}
