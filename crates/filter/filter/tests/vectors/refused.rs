//! Files and signed lines (manifests and proofs) that every client must refuse: truncated, changed, forged or hostile.
//! Forged files have valid checksums and forged lines have valid signatures, so that the client must find the wrong
//! field itself.

use std::hash::Hasher as _;

use ed25519_dalek::{Signer as _, SigningKey};
use edgeward_filter::delta::Delta;
use edgeward_filter::manifest::{DeltaEntry, Manifest, ManifestError, Proof};
use edgeward_filter::{Digest, Filter, IdForm, Signer, Trust, to_hex};
use edgeward_types::xxh3::{Xxh3, xxh3_64};
use serde_json::{Value, json};

use super::{filter, golden, signer, statements};

/// Returns a copy of a file with the bytes at `at` replaced by `field`, and with valid checksums.
fn forged(whole: &[u8], at: usize, field: &[u8]) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    bytes[at..at + field.len()].copy_from_slice(field);
    if bytes.starts_with(b"\x89EWF") {
        let payload = xxh3_64(&bytes[128..]);
        bytes[72..80].copy_from_slice(&payload.to_le_bytes());
        let header = xxh3_64(&bytes[..120]);
        bytes[120..128].copy_from_slice(&header.to_le_bytes());
    } else {
        let mut checksum = Xxh3::new();
        checksum.write(&bytes[..56]);
        checksum.write(&bytes[64..]);
        let checksum = checksum.finish();
        bytes[56..64].copy_from_slice(&checksum.to_le_bytes());
    }
    bytes
}

fn flipped(whole: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    bytes[at] ^= 0x10;
    bytes
}

#[test]
fn refused_files_equal_the_golden_file() {
    let fixed = filter("static-small.ewf", IdForm::Integer, 0.01, 0, 10).into_bytes();
    let growing = filter("updatable-small.ewf", IdForm::Uuid, 0.01, 0, 10).into_bytes();
    let (_, _, delta) = statements();
    let huge = u32::MAX.to_le_bytes();
    let mut cases: Vec<(&str, &str, Vec<u8>)> = Vec::new();
    for (name, whole) in [("static", &fixed), ("updatable", &growing)] {
        for (why, bytes) in [
            ("nothing at all", Vec::new()),
            ("cut within the magic", whole[..5].to_vec()),
            ("cut within the header", whole[..100].to_vec()),
            ("cut after the header", whole[..128].to_vec()),
            ("cut at its end", whole[..whole.len() - 1].to_vec()),
            ("followed by a byte", [&whole[..], &[0]].concat()),
            ("a flipped bit in the header", flipped(whole, 20)),
            ("a flipped bit in the payload", flipped(whole, 140)),
            ("a later version", forged(whole, 8, &[2])),
            ("an unknown construction", forged(whole, 10, &[3])),
            ("an unknown form of ids", forged(whole, 11, &[3])),
            ("no parts", forged(whole, 12, &[0; 4])),
            ("four billion parts", forged(whole, 12, &huge)),
            ("a payload of 2^64 - 1 bytes", forged(whole, 64, &[255; 8])),
            (
                "a payload that overflows with the header",
                forged(whole, 64, &(u64::MAX - 127).to_le_bytes()),
            ),
            (
                "a rate that is no number",
                forged(whole, 56, &f64::NAN.to_le_bytes()),
            ),
            ("a rate of 2", forged(whole, 56, &2f64.to_le_bytes())),
            ("a rate of 0", forged(whole, 56, &[0; 8])),
            ("something where zeros belong", forged(whole, 119, &[1])),
        ] {
            cases.push((name, why, bytes));
        }
    }
    // The payload begins at byte 128 with a *directory*, which has one entry for each shard. An entry begins with the
    // offset of the shard's *area* (its slots) in the payload.
    for (why, at, field) in [
        ("an area at offset 2^64 - 1", 128, &[255; 8][..]),
        ("an area within the directory", 128, &[0; 8]),
        ("four billion segments", 144, &huge),
        ("no segments, but slots", 144, &[0; 4]),
        ("wide slots that begin after the last slot", 148, &huge),
        ("segments of 2^200 slots", 152, &[200]),
        ("segments of 2^17 slots", 152, &[17]),
        ("slots of no bits", 153, &[0]),
        ("slots of 33 bits", 153, &[33]),
        ("something where zeros belong in a shard", 154, &[1]),
    ] {
        cases.push(("static", why, forged(&fixed, at, field)));
    }
    let first = u64::from_le_bytes(delta[64..72].try_into().expect("eight bytes"));
    for (why, bytes) in [
        ("nothing at all", Vec::new()),
        ("cut within the header", delta[..63].to_vec()),
        ("cut at its end", delta[..delta.len() - 1].to_vec()),
        ("followed by a byte", [&delta[..], &[0]].concat()),
        ("a flipped bit in the header", flipped(&delta, 16)),
        ("a flipped bit in an id", flipped(&delta, 70)),
        ("a later version", forged(&delta, 8, &[2])),
        (
            "2^61 ids, whose bytes overflow",
            forged(&delta, 48, &(1u64 << 61).to_le_bytes()),
        ),
        ("2^64 - 1 ids", forged(&delta, 48, &[255; 8])),
        (
            "ends where it begins",
            forged(&delta, 32, &1u64.to_le_bytes()),
        ),
        ("ids out of order", forged(&delta, 72, &[0; 8])),
        ("an id twice", forged(&delta, 72, &first.to_le_bytes())),
    ] {
        cases.push(("delta", why, bytes));
    }
    let mut rows = Vec::new();
    for (what, why, bytes) in &cases {
        let refused = match *what {
            "delta" => Delta::from_bytes(bytes).is_err(),
            _ => Filter::open(bytes).is_err(),
        };
        assert!(refused, "{what}: {why}");
        rows.push(json!({"what": what, "why": why, "bytes": to_hex(bytes)}));
    }
    golden("refused-files.json", table(&rows).as_bytes());
}

/// Returns a line with any contents, signed with the trusted key.
fn signed(kind: &str, json: &str) -> String {
    let key = SigningKey::from_bytes(&[7; 32]);
    let message = format!("edgeward filter {kind} 1\n{json}");
    let signature = to_hex(&key.sign(message.as_bytes()).to_bytes());
    let id = &Digest::compute(key.verifying_key().as_bytes()).to_string()[..16];
    format!("ed25519 {id} {signature} {json}")
}

#[test]
fn refused_lines_equal_the_golden_file() {
    let (valid, proof, _) = statements();
    let manifest = valid.to_line(Some(&signer()));
    let proof = proof.to_line(Some(&signer()));
    let json_of = |line: &str| line[line.find('{').expect("JSON")..].to_owned();
    let (manifest_json, proof_json) = (json_of(&manifest), json_of(&proof));
    let signature = manifest.split(' ').nth(2).expect("a signature").to_owned();
    let with_signature = |signature: String| {
        let mut words: Vec<_> = manifest.splitn(4, ' ').collect();
        words[2] = &signature;
        words.join(" ")
    };
    let other = if signature.starts_with('1') { "2" } else { "1" };
    let digest = valid.snapshot.sha256.to_string();
    let digest_from = format!("\"{}", &digest[..4]);
    let changed = |from: &str, to: &str| {
        assert!(manifest_json.contains(from), "{from}");
        signed("manifest", &manifest_json.replacen(from, to, 1))
    };
    let stranger = Signer::from_secret([8; 32]);
    let deltas = valid.deltas[0];
    let with_deltas = |count: u64| {
        let mut manifest = valid.clone();
        manifest.head = 1 + count;
        manifest.deltas = (1..=count)
            .map(|from| DeltaEntry {
                from,
                to: from + 1,
                ..deltas
            })
            .collect();
        manifest.to_line(Some(&signer()))
    };
    let long = format!("{}{}", manifest_json, " ".repeat(64 << 10));
    // In these labels, which the golden file contains, *form* is the version of the document's format (the field
    // `format`). A snapshot is *sufficient* if its epoch is at least the document's `epoch_min`; an older one may lack
    // ids.
    let cases: Vec<(&str, &str, String)> = vec![
        ("manifest", "nothing at all", String::new()),
        // The method of signing is not followed by the key's id, the signature and the JSON.
        ("manifest", "no words", "ed25519".to_owned()),
        (
            "manifest",
            "not signed",
            format!("unsigned {manifest_json}"),
        ),
        (
            "manifest",
            "signed with another key",
            valid.to_line(Some(&stranger)),
        ),
        (
            "manifest",
            "another way of signing",
            manifest.replacen("ed25519", "ed448", 1),
        ),
        (
            "manifest",
            "a wrong digit in the signature",
            with_signature(format!("{other}{}", &signature[1..])),
        ),
        (
            "manifest",
            "a signature that is too short",
            with_signature(signature[8..].to_owned()),
        ),
        (
            "manifest",
            "a signature that is not hex",
            with_signature(format!("x{}", &signature[1..])),
        ),
        (
            "manifest",
            "changed after it was signed",
            manifest.replacen("\"head\":2", "\"head\":3", 1),
        ),
        ("manifest", "a proof", signed("manifest", &proof_json)),
        (
            "manifest",
            "signed as a proof",
            signed("proof", &manifest_json),
        ),
        ("manifest", "no JSON", signed("manifest", "{")),
        ("manifest", "a list", signed("manifest", "[]")),
        (
            "manifest",
            "followed by something",
            signed("manifest", &format!("{manifest_json}{{}}")),
        ),
        ("manifest", "longer than 64 KiB", signed("manifest", &long)),
        (
            "manifest",
            "a later form",
            changed("\"format\":2", "\"format\":3"),
        ),
        (
            "manifest",
            "form 1, which does not name the oldest sufficient snapshot",
            MANIFEST_FORM_1.trim_end().to_owned(),
        ),
        (
            "manifest",
            "form 1 with the fields of form 2",
            changed("\"format\":2", "\"format\":1"),
        ),
        (
            "manifest",
            "form 2 with the fields of form 1",
            changed(",\"epoch_min\":7", ""),
        ),
        // A snapshot must have epoch 8 to suffice, but the newest snapshot has epoch 7. Only a future one can suffice.
        (
            "manifest",
            "a snapshot of the future that suffices",
            changed("\"epoch_min\":7", "\"epoch_min\":8"),
        ),
        (
            "proof",
            "form 1, which does not name the oldest sufficient snapshot",
            PROOF_FORM_1.trim_end().to_owned(),
        ),
        (
            "proof",
            "a later form",
            signed(
                "proof",
                &proof_json.replacen("\"format\":2", "\"format\":3", 1),
            ),
        ),
        (
            "proof",
            "form 2 with the fields of form 1",
            signed("proof", &proof_json.replacen("\"epoch_min\":7,", "", 1)),
        ),
        (
            "manifest",
            "an unknown field",
            changed("\"format\":2", "\"format\":2,\"more\":0"),
        ),
        (
            "manifest",
            "a field is missing",
            changed("\"serial\":100,", ""),
        ),
        (
            "manifest",
            "a field of the snapshot is missing",
            changed("\"epoch\":7,", ""),
        ),
        (
            "manifest",
            "a negative number",
            changed("\"serial\":100", "\"serial\":-100"),
        ),
        (
            "manifest",
            "a number with a fraction",
            changed("\"serial\":100", "\"serial\":100.5"),
        ),
        (
            "manifest",
            "a number beyond 64 bits",
            changed("\"serial\":100", "\"serial\":18446744073709551616"),
        ),
        (
            "manifest",
            "text where a number belongs",
            changed("\"serial\":100", "\"serial\":\"100\""),
        ),
        (
            "manifest",
            "a number where text belongs",
            changed("\"resource\"", "7"),
        ),
        (
            "manifest",
            "a digest that is too short",
            changed(&digest_from, "\""),
        ),
        (
            "manifest",
            "a digest that is not hex",
            changed(&digest_from, &format!("\"z{}", &digest[1..4])),
        ),
        (
            "manifest",
            "a gap before the first delta",
            changed("\"base\":1", "\"base\":0"),
        ),
        (
            "manifest",
            "a gap after the last delta",
            changed("\"head\":2", "\"head\":3"),
        ),
        (
            "manifest",
            "a delta that ends where it begins",
            changed("\"from\":1", "\"from\":2"),
        ),
        (
            "manifest",
            "a snapshot of the future",
            changed("\"base\":1", "\"base\":3"),
        ),
        ("manifest", "129 deltas", with_deltas(129)),
        ("proof", "not signed", format!("unsigned {proof_json}")),
        ("proof", "a manifest", manifest.clone()),
        (
            "proof",
            "changed after it was signed",
            proof.replacen("\"lag_ms\":250", "\"lag_ms\":0", 1),
        ),
        (
            "proof",
            "signed as a manifest",
            signed("manifest", &proof_json),
        ),
        (
            "proof",
            "an unknown field",
            signed("proof", &proof_json.replacen('{', "{\"more\":1,", 1)),
        ),
        (
            "proof",
            "a field is missing",
            signed("proof", &proof_json.replacen(",\"lag_ms\":250", "", 1)),
        ),
    ];
    let trust = Trust::Keys(vec![signer().public()]);
    let mut rows = Vec::new();
    for (what, why, line) in &cases {
        let refused = match *what {
            "proof" => Proof::from_line(line.as_bytes(), &trust).is_err(),
            _ => Manifest::from_line(line.as_bytes(), &trust).is_err(),
        };
        assert!(refused, "{what}: {why}");
        rows.push(json!({"what": what, "why": why, "line": line}));
    }
    let whole = with_deltas(128);
    assert!(Manifest::from_line(whole.as_bytes(), &trust).is_ok());
    golden("refused-lines.json", table(&rows).as_bytes());
}

/// A manifest and a proof of format version 1 (`form 1` in the cases), which an earlier edgeward wrote. They lack the
/// field `epoch_min`.
const MANIFEST_FORM_1: &str = include_str!("../../../../../fixtures/filter-manifest-v1.txt");
const PROOF_FORM_1: &str = include_str!("../../../../../fixtures/filter-proof-v1.txt");

/// The signatures are valid, so the error must state the version and not the signature.
#[test]
fn statements_of_version_1_are_refused_with_their_version() {
    let trust = Trust::Keys(vec![signer().public()]);
    let form_1 = ManifestError::Format { found: 1 };
    let manifest = Manifest::from_line(MANIFEST_FORM_1.as_bytes(), &trust);
    assert_eq!(manifest, Err(form_1.clone()));
    let proof = Proof::from_line(PROOF_FORM_1.as_bytes(), &trust);
    assert_eq!(proof, Err(form_1));
}

fn table(rows: &[Value]) -> String {
    let rows: Vec<_> = rows.iter().map(|row| format!("  {row}")).collect();
    format!("[\n{}\n]\n", rows.join(",\n"))
}
