//! The access log in the journal of systemd, by journald's native protocol: one datagram per line, with a field for
//! each value, so that `journalctl EDGEWARD_STATUS=503` finds requests. <https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>

use std::io;
use std::path::Path;

use super::datagrams::{Datagrams, Peer};
use super::line::{self, Formatter, LogLine};
use super::syslog::truncate;

/// journald's socket.
pub(super) struct Journald {
    datagrams: Datagrams,
    entry: Vec<u8>,
    value: Vec<u8>,
}

impl Journald {
    pub(super) fn new(socket: &Path) -> Self {
        Self {
            datagrams: Datagrams::new(Peer::Unix(socket.to_owned())),
            entry: Vec::new(),
            value: Vec::new(),
        }
    }

    pub(super) fn write(&mut self, line: &LogLine, formatter: &mut Formatter) -> io::Result<()> {
        let Self { entry, value, .. } = self;
        entry.clear();
        // Severity 6 is informational, as in syslog.
        entry.extend_from_slice(b"PRIORITY=6\nSYSLOG_IDENTIFIER=edgeward\n");
        let mut push = |name: &str, write: &mut dyn FnMut(&mut Vec<u8>)| {
            value.clear();
            write(value);
            truncate(value, VALUE_BYTES_MAX);
            push_field(entry, name, value);
        };
        push("MESSAGE", &mut |out| formatter.write(line, out));
        line::for_each_value(line, &mut |name, value| {
            push(name, &mut |out| out.extend_from_slice(value));
        });
        self.datagrams.send(entry)
    }
}

/// Appends a field. A value with a line feed is written with its length, so that it cannot begin a further field.
fn push_field(entry: &mut Vec<u8>, name: &str, value: &[u8]) {
    entry.extend_from_slice(name.as_bytes());
    if value.contains(&b'\n') {
        entry.push(b'\n');
        entry.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        entry.push(b'=');
    }
    entry.extend_from_slice(value);
    entry.push(b'\n');
}

/// The longest value. Up to nine values then fit into a datagram: the default limit of a unix socket is 208 KiB.
const VALUE_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_with_a_line_feed_has_its_length_before_it() {
        let mut entry = Vec::new();
        push_field(&mut entry, "A", b"x=y");
        push_field(&mut entry, "B", b"x\nPRIORITY=0");
        assert_eq!(entry, b"A=x=y\nB\n\x0c\0\0\0\0\0\0\0x\nPRIORITY=0\n");
    }
}
