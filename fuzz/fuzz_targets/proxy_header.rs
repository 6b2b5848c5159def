//! Untrusted PROXY headers, read from the first bytes of a connection. A complete header that is written and read again
//! is the same header, and a header never depends on the bytes after it.
#![no_main]

use edgeward_proxy_protocol::{Header, Progress, Version, client_uses_tls, read, write};
use libfuzzer_sys::fuzz_target;

const LEN_MAX: usize = 1024;

fuzz_target!(|bytes: &[u8]| {
    let Ok(Progress::Complete { header, len }) = read(bytes, LEN_MAX) else {
        return;
    };
    assert!(len <= bytes.len() && len <= LEN_MAX);
    let alone = Progress::Complete { header, len };
    assert_eq!(read(&bytes[..len], LEN_MAX), Ok(alone));
    assert_eq!(read(&bytes[..len - 1], LEN_MAX), Ok(Progress::Incomplete));
    let uses_tls = client_uses_tls(&bytes[..len]);
    assert!(!uses_tls || bytes.starts_with(b"\r\n\r\n"), "only version 2 states TLS");
    for version in [Version::V1, Version::V2] {
        let mut written = Vec::new();
        write(version, header, &mut written);
        let again = read(&written, LEN_MAX).expect("a written header is valid");
        let Progress::Complete { header: again, len } = again else {
            panic!("a written header is complete");
        };
        assert_eq!(len, written.len());
        // IPv4-mapped addresses are written as IPv4.
        let same = |a: Header, b: Header| match (a, b) {
            (Header::Proxied(a), Header::Proxied(b)) => {
                a.source.ip().to_canonical() == b.source.ip().to_canonical()
                    && a.source.port() == b.source.port()
            }
            (a, b) => a == b,
        };
        assert!(same(header, again), "{header:?} {again:?}");
    }
});
