//! Strings that are replaced in bodies: any list of strings and any body, in pieces of any lengths. The result is that
//! of a loop over the whole body, the replacer holds back less than the longest string, and it returns the output in
//! pieces of bounded length.
//!
//! The input is the number of strings, then for each its length and its bytes, then the length of a piece, and the
//! body.
//! Run: `cargo +nightly fuzz run site_replace`.
#![no_main]

use std::net::IpAddr;

use http::Method;
use http::header::HeaderMap;
use libfuzzer_sys::fuzz_target;

use edgeward_sites::{PathReadings, Replacement, Replacements, Replacer, RequestView, Template};

/// Takes the whole output.
fn pull_all(replacer: &mut Replacer, out: &mut Vec<u8>) {
    loop {
        let piece = replacer.pull(7);
        assert!(piece.len() <= 7);
        if piece.is_empty() {
            return;
        }
        out.extend(piece);
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&count, mut rest)) = data.split_first() else {
        return;
    };
    let mut strings: Vec<&str> = Vec::new();
    for _ in 0..count % 5 {
        let Some((&length, after)) = rest.split_first() else {
            return;
        };
        let Some((text, after)) = after.split_at_checked(usize::from(length % 16)) else {
            return;
        };
        let Ok(text) = std::str::from_utf8(text) else {
            return;
        };
        strings.push(text);
        rest = after;
    }
    let Some((&piece, body)) = rest.split_first() else {
        return;
    };
    let to = ["", "<${host}>", "aa"];
    let list = strings.iter().enumerate().map(|(n, from)| Replacement {
        from: (*from).into(),
        to: Template::new(to[n % 3], None).expect("a template"),
    });
    let Ok(replacements) = Replacements::new(list.collect()) else {
        return;
    };
    let fields = HeaderMap::new();
    let view = RequestView {
        method: &Method::GET,
        scheme: "https",
        host: "example.org",
        path: &PathReadings::of("/"),
        sent_path: "/",
        query: "",
        fields: &fields,
        client: IpAddr::from([192, 0, 2, 1]),
    };
    let mut replacer = replacements.replacer(&view);
    let longest = strings.iter().map(|text| text.len()).max().unwrap_or(1);
    let mut out = Vec::new();
    for piece in body.chunks(usize::from(piece).max(1)) {
        replacer.push(piece);
        pull_all(&mut replacer, &mut out);
        assert!(replacer.held_bytes() < longest.max(1));
    }
    replacer.end();
    pull_all(&mut replacer, &mut out);

    let mut expected = Vec::new();
    let mut rest = body;
    while let Some((first, after)) = rest.split_first() {
        match strings.iter().position(|from| rest.starts_with(from.as_bytes())) {
            Some(n) => {
                expected.extend_from_slice([&b""[..], b"<example.org>", b"aa"][n % 3]);
                rest = &rest[strings[n].len()..];
            }
            None => {
                expected.push(*first);
                rest = after;
            }
        }
    }
    assert_eq!(out, expected);
});
