//! Tests `link estimate` on files, logs and captures.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::run::{output, text};

/// The first copy of a folder is sent whole. For an edited copy, less than 4 % of its size is sent, and for an
/// identical copy less than 2 %.
#[test]
fn a_newer_version_is_mostly_sent_by_reference() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let version_folder = |version: &str| folder.path().join(version);
    let old = noise(600_000);
    let mut new = old.clone();
    new.splice(300_000..300_004, *b"other");
    for (version, body) in [("old", &old), ("new", &new)] {
        fs::create_dir_all(version_folder(version).join("inner")).expect("the folder is created");
        fs::write(version_folder(version).join("inner/body"), body).expect("the file is written");
        fs::write(version_folder(version).join("small"), b"a small file")
            .expect("the file is written");
    }
    let paths = [
        version_folder("old"),
        version_folder("new"),
        version_folder("new"),
    ];
    let names = paths.each_ref().map(|path| path.display().to_string());
    let [one, two, three] = names.each_ref().map(String::as_str);
    let estimate = run_estimate(&[one, two, three]);
    let rows = estimate["rows"].as_array().expect("the rows are a list");
    let saved = |row: usize| {
        rows[row]["saved_share"]
            .as_f64()
            .expect("the share is a number")
    };
    // Noise does not compress, so the headers of frames make the first copy up to 1 % longer.
    assert!(saved(0) < 0.0 && saved(0) > -0.01, "{estimate:#}");
    assert!(saved(1) > 0.96 && saved(2) > 0.98, "{estimate:#}");
    for row in rows {
        let bytes = |field: &str| row[field].as_u64().expect("the bytes are a number");
        // `named` counts bytes sent as references, and `plain` counts bytes that are not deduplicated.
        let parts = ["named", "delta", "literal", "plain"];
        let sum: u64 = parts
            .iter()
            .map(|part| bytes(&format!("{part}_bytes")))
            .sum();
        assert_eq!(sum, bytes("bytes"));
        assert_eq!(row["bodies"], 2);
        assert_eq!(row["kind"], "files");
    }

    // Without deltas, the edited chunk is sent completely.
    let without_delta = run_estimate(&[one, two, "--no-delta"]);
    assert_eq!(without_delta["rows"][1]["delta_bytes"], 0);
    let sent = |estimate: &Value| {
        estimate["rows"][1]["link_bytes"]
            .as_u64()
            .expect("the bytes are a number")
    };
    assert!(sent(&without_delta) > sent(&estimate));

    let table = text(&output(&["link", "estimate", one, two]).stdout);
    assert!(
        table.contains("total") && table.contains("saved"),
        "{table}"
    );
}

/// Images save nothing, because a link does not deduplicate them, and the output states this and what to do. Without
/// the probe, the second copy is sent by reference.
#[test]
fn an_estimate_explains_images() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let photo = [&b"\xff\xd8\xff\xe0"[..], &noise(200_000)].concat();
    for name in ["one.jpg", "two.jpg"] {
        fs::write(folder.path().join(name), &photo).expect("the file is written");
    }
    fs::write(folder.path().join("page.html"), "text ".repeat(1000)).expect("the file is written");
    let path = name(folder.path());
    let estimate = run_estimate(&[path]);
    let jpeg = &estimate["content_types"][0];
    assert_eq!(
        (&jpeg["name"], &jpeg["bodies"]),
        (&"image/jpeg".into(), &2.into())
    );
    assert_eq!(jpeg["bypassed_bytes"], 2 * photo.len() as u64);
    assert_eq!(estimate["content_types"][1]["name"], ".html");
    assert_eq!(estimate["rows"][0]["reasons"][0]["reason"], "bypassed");
    let printed = text(&output(&["link", "estimate", path]).stdout);
    for expected in ["saves only", "compressed before the link", "image/jpeg"] {
        assert!(printed.contains(expected), "{printed}");
    }
    let without_probe = run_estimate(&[path, "--probe=off"]);
    let jpeg = &without_probe["content_types"][0];
    assert!(
        jpeg["referenced_bytes"].as_u64() > Some(180_000),
        "{jpeg:#}"
    );
}

/// A link cuts compressed files into chunks, because the origin or its clients often send identical copies: the first
/// copy saves nothing, the second one is sent by reference.
#[test]
fn an_identical_copy_of_a_compressed_file_is_saved() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let archive = [&b"\x1f\x8b\x08\0\0\0\0\0"[..], &noise(200_000)].concat();
    let path = folder.path().join("site.tar.gz");
    fs::write(&path, &archive).expect("the file is written");
    let path = name(&path);
    let estimate = run_estimate(&[path, path]);
    let saved = |row: usize| estimate["rows"][row]["saved_share"].as_f64();
    assert!(
        saved(0) < Some(0.05) && saved(1) > Some(0.9),
        "{estimate:#}"
    );
    assert_eq!(estimate["rows"][0]["reasons"][0]["reason"], "opaque");
    assert_eq!(estimate["content_types"][0]["name"], ".gz");
    assert_eq!(estimate["content_types"][0]["bypassed_bytes"], 0);
}

/// If the store is too small for the files, the output states the size that is enough.
#[test]
fn an_estimate_states_how_large_a_store_is_enough() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let file = folder.path().join("file");
    fs::write(&file, noise(6_000_000)).expect("the file is written");
    let path = name(&file);
    let args = [path, path, "--store-size=4MiB"];
    let estimate = run_estimate(&args);
    let reason = &estimate["rows"][1]["reasons"][0];
    assert_eq!(reason["reason"], "evicted", "{estimate:#}");
    assert!(reason["bytes"].as_u64() > Some(5_000_000), "{estimate:#}");
    assert_eq!(estimate["rows"][0]["evicted_bytes"], 0);
    let printed = text(&output(&[&["link", "estimate"], &args[..]].concat()).stdout);
    assert!(printed.contains("set --store-size to"), "{printed}");
    let large = run_estimate(&[path, path, "--store-size=16MiB"]);
    assert_eq!(large["rows"][1]["evicted_bytes"], 0);
    assert!(large["rows"][1]["saved_share"].as_f64() > Some(0.9));
}

/// With `--order time`, the file that was changed first is sent first, and the other one by reference.
#[test]
fn files_are_sent_in_the_order_of_their_names_or_times() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    for (file_name, seconds) in [("1.new", 2000), ("2.old", 1000)] {
        let path = folder.path().join(file_name);
        fs::write(&path, noise(300_000)).expect("the file is written");
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        let file = fs::File::options().write(true).open(&path);
        let file = file.expect("the file exists");
        file.set_modified(time).expect("the time is set");
    }
    for (order, referenced) in [("name", ".old"), ("time", ".new")] {
        let estimate = run_estimate(&[name(folder.path()), "--order", order]);
        let types = estimate["content_types"].as_array();
        let types = types.expect("the types are a list").iter();
        let referred = types.filter(|row| row["referenced_bytes"].as_u64() > Some(200_000));
        let referred: Vec<_> = referred.map(|row| &row["name"]).collect();
        assert_eq!(referred, [referenced], "{order}");
    }
}

#[test]
fn a_log_is_reported_with_its_repeated_bytes() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let log = folder.path().join("access.log");
    let line = |url: &str, bytes: u32| {
        format!("192.0.2.1 - - [10/Oct/2025:13:55:36 +0000] \"GET {url} HTTP/1.1\" 200 {bytes}\n")
    };
    let lines = [
        line("/a", 1000),
        line("/b", 500),
        line("/a", 1000),
        line("/a", 1000),
    ];
    fs::write(&log, lines.concat()).expect("the file is written");
    let estimate = run_estimate(&[name(&log)]);
    let row = &estimate["logs"][0];
    assert_eq!((&row["requests"], &row["urls"]), (&4.into(), &2.into()));
    assert_eq!(
        (&row["bytes"], &row["repeated_bytes"]),
        (&3500.into(), &2000.into())
    );

    let as_body = run_estimate(&[name(&log), "--as=files"]);
    assert_eq!(as_body["rows"][0]["bodies"], 1);
}

/// A page that two clients fetch is sent once, and encrypted data is not chunked. Some packets of the capture
/// are out of order.
#[test]
fn a_capture_is_reassembled_and_sent() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let page = [&b"HTTP/1.1 200 OK\r\n\r\n"[..], &noise(400_000)].concat();
    let tls = [&[22, 3, 1, 1, 0][..], &noise(50_000)].concat();
    let mut packets = Vec::new();
    for client in [50_001, 50_002] {
        packets.push(segment(client, 80, b"GET / HTTP/1.1\r\n\r\n", 1));
        let parts = page.chunks(1400).enumerate();
        let mut parts: Vec<_> = parts
            .map(|(nth, part)| segment(80, client, part, 1 + 1400 * nth as u32))
            .collect();
        // The first packet stays first, because it reveals the protocol.
        parts[1..].reverse();
        packets.extend(parts);
    }
    let parts = tls.chunks(1400).enumerate();
    packets.extend(parts.map(|(nth, part)| segment(50_003, 443, part, 1400 * nth as u32)));
    // The header of a pcap file. Link type 101 means raw IP packets.
    let mut file = Vec::new();
    for number in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101] {
        file.extend(number.to_le_bytes());
    }
    for packet in &packets {
        let length = packet.len() as u32;
        file.extend(
            [0, 0, length, length]
                .into_iter()
                .flat_map(u32::to_le_bytes),
        );
        file.extend(packet);
    }
    let capture = folder.path().join("capture.pcap");
    fs::write(&capture, &file).expect("the file is written");
    let estimate = run_estimate(&[name(&capture)]);
    let [http_row, tls_row] = &estimate["rows"].as_array().expect("the rows are a list")[..] else {
        panic!("{estimate:#}");
    };
    // Each request has 18 bytes.
    assert_eq!(http_row["bytes"], 2 * (page.len() as u64 + 18));
    let sent = http_row["link_bytes"]
        .as_u64()
        .expect("the bytes are a number");
    assert!((400_000..420_000).contains(&sent), "{estimate:#}");
    assert!(
        tls_row["name"]
            .as_str()
            .is_some_and(|name| name.ends_with("port 443 (TLS)"))
    );
    assert_eq!(tls_row["link_bytes"], tls_row["bytes"]);
    assert_eq!(estimate["captures"][0]["connections"], 3);
    assert_eq!(estimate["captures"][0]["lost_bytes"], 0);

    // For a truncated capture, the data before its end is counted, and the error is reported.
    fs::write(&capture, &file[..file.len() - 10]).expect("the file is written");
    let out = output(&["link", "estimate", name(&capture)]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stdout).contains("port 80"));
    assert!(text(&out.stderr).contains("is truncated after"));
}

/// A raw IPv4 packet from one port to another. The lower port is that of the server, 192.0.2.1. The client is
/// 192.0.2.0.
fn segment(from: u16, to: u16, payload: &[u8], sequence: u32) -> Vec<u8> {
    let total = (40 + payload.len()) as u16;
    let sender_octet = u8::from(from < to);
    let mut packet = vec![0x45, 0];
    packet.extend(total.to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    packet.extend([192, 0, 2, sender_octet, 192, 0, 2, 1 - sender_octet]);
    packet.extend([from.to_be_bytes(), to.to_be_bytes()].concat());
    packet.extend(sequence.to_be_bytes());
    packet.extend([0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
    packet.extend(payload);
    packet
}

#[test]
fn errors_of_estimates_state_their_cause() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let missing = folder.path().join("missing");
    let existing = folder.path().join("there");
    fs::write(&existing, noise(10_000)).expect("the file is written");
    for (args, expected) in [
        (vec![name(&missing)], "missing"),
        (vec![name(&existing), "--chunk=5KiB"], "use a power of two"),
        (vec![name(&existing), "--store-size=1MiB"], "4MiB or more"),
        (vec![name(&existing), "--as=log"], "no line with a request"),
    ] {
        let args: Vec<&str> = ["link", "estimate"].into_iter().chain(args).collect();
        let out = output(&args);
        let printed = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {printed}");
        assert!(printed.contains(expected), "{args:?}: {printed}");
    }
}

fn run_estimate(args: &[&str]) -> Value {
    let args: Vec<&str> = ["link", "estimate", "--json"]
        .iter()
        .chain(args)
        .copied()
        .collect();
    let out = output(&args);
    assert!(out.status.success(), "{}", text(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("the text is JSON")
}

fn name(path: &Path) -> &str {
    path.to_str().expect("the path is UTF-8")
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut word = 1_u64;
    let mut next = || {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (word >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}
