//! Untrusted field sections of QPACK. A decoded section has the same fields when it is encoded and decoded again, and a
//! request that is accepted has no text that could be read as something else over HTTP/1.1.
//!
//! Run: `cargo +nightly fuzz run h3_qpack`.
#![no_main]

use edgeward_h3::{
    Error, FieldSection, RequestHead, SectionLimits, begin_section, decode_request,
    decode_trailers, push_field,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|section: &[u8]| {
    let limits = SectionLimits {
        bytes_max: 4000,
        fields_max: 30,
    };
    if let Ok(fields) = decode(section, limits) {
        let mut encoded = Vec::new();
        begin_section(&mut encoded);
        for (name, value, is_sensitive) in &fields {
            push_field(&mut encoded, name, value, *is_sensitive);
        }
        assert_eq!(decode(&encoded, limits).as_ref(), Ok(&fields));
    }
    if let Ok(head) = decode_request(section, limits, true) {
        check(&head);
    }
    _ = decode_trailers(section, limits);
});

type Field = (Vec<u8>, Vec<u8>, bool);

fn decode(section: &[u8], limits: SectionLimits) -> Result<Vec<Field>, Error> {
    let mut section = FieldSection::new(section, limits)?;
    let mut fields = Vec::new();
    while let Some(line) = section.next_line()? {
        fields.push((line.name.to_vec(), line.value.to_vec(), line.is_sensitive));
    }
    Ok(fields)
}

/// Checks that no text of a request ends a line or a word of HTTP/1.1.
fn check(head: &RequestHead) {
    let target = head.uri.to_string();
    assert!(target.bytes().all(|byte| byte > b' ' && byte != 0x7f), "{target:?}");
    for (name, value) in &head.headers {
        assert!(name.as_str().bytes().all(|byte| byte.is_ascii_graphic() && byte != b':'));
        let is_control = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
        assert!(!value.as_bytes().iter().any(is_control), "{name}");
        assert_eq!(value.as_bytes().trim_ascii(), value.as_bytes(), "{name}");
    }
    for name in ["connection", "transfer-encoding", "upgrade"] {
        assert!(!head.headers.contains_key(name));
    }
    assert!(head.headers.get_all("host").iter().count() <= 1);
    let lengths = head.headers.get_all("content-length").iter().count();
    assert_eq!(lengths, usize::from(head.content_length.is_some()));
}
