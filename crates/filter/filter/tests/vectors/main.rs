//! The golden files under `vectors/filter/`. The clients in all languages are tested with them.
//!
//! `cargo xtask vectors` sets `EDGEWARD_RENEW_VECTORS`, so that these tests write the files. Otherwise the
//! tests compare their output with the files byte for byte, to detect a change of the format. Guava itself
//! wrote the files in Guava's format, and the output of edgeward must equal these files.

#[path = "../model/dice.rs"]
mod dice;
mod refused;
#[path = "../model/script_format.rs"]
mod script_format;
mod scripts;

use std::fs;
use std::path::PathBuf;

use edgeward_filter::guava::{Funnel, GuavaBuilder, GuavaFilter};
use edgeward_filter::journal::Journal;
use edgeward_filter::manifest::{Manifest, Proof};
use edgeward_filter::{
    Filter, FilterParams, IdForm, IdHash, IdHasher, Rate, Signer, StaticBuilder, Trust,
    UpdatableFilter,
};
use edgeward_types::Timestamp;
use edgeward_types::xxh3::xxh3_64;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../vectors/filter")
}

/// Compares `bytes` with the golden file `name`. Writes the file first if `EDGEWARD_RENEW_VECTORS` is set.
fn golden(name: &str, bytes: &[u8]) {
    let path = folder().join(name);
    if std::env::var_os("EDGEWARD_RENEW_VECTORS").is_some() {
        fs::write(&path, bytes).expect("the folder can be written");
    }
    let stored = fs::read(&path).unwrap_or_default();
    assert!(
        stored == bytes,
        "{name} has changed; if this is intended, run cargo xtask vectors"
    );
}

fn params(form: IdForm, rate: f64, seed: u64) -> FilterParams {
    FilterParams {
        hasher: IdHasher { form, seed },
        epoch: 7,
        built: Some(Timestamp::from_secs(1_700_000_000)),
        ..FilterParams::with_rate(Rate::new(rate).expect("the rate is valid"))
    }
}

/// Returns the n-th id of a form. For integers and UUIDs the spelling is not the canonical one.
fn spelling(form: IdForm, n: u32) -> String {
    match form {
        IdForm::Text => format!("résumé/{n}"),
        IdForm::Integer => format!("+00{n}"),
        IdForm::Uuid => {
            let high = u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let hex = format!("{high:016X}{:016x}", high.rotate_left(32));
            format!(
                "{{{}-{}-{}-{}-{}}}",
                &hex[..8],
                &hex[8..12],
                &hex[12..16],
                &hex[16..20],
                &hex[20..]
            )
        }
    }
}

/// Builds a filter with three shards. A `StaticBuilder` makes several shards only from more than a million ids,
/// so this function builds each shard as a separate filter and joins the three as described in
/// `docs/reference/filter-format.md`.
fn in_three_shards(params: FilterParams, ids: &[IdHash]) -> Filter<Vec<u8>> {
    let (mut directory, mut areas, mut file) = (Vec::new(), Vec::new(), Vec::new());
    for shard in 0..3 {
        let mut builder = StaticBuilder::new(params);
        let is_in_shard = |id: &&IdHash| (u128::from(id.0) * 3) >> 64 == shard;
        let shard_ids = ids.iter().filter(is_in_shard);
        shard_ids.for_each(|id| builder.insert(*id).expect("the builder accepts the id"));
        file = builder
            .finish()
            .expect("the filter is solvable")
            .into_bytes();
        let at = 3 * 32 + areas.len() as u64;
        directory.extend_from_slice(&at.to_le_bytes());
        directory.extend_from_slice(&file[136..160]);
        areas.extend_from_slice(&file[160..]);
    }
    file.truncate(128);
    file.extend_from_slice(&directory);
    file.extend_from_slice(&areas);
    let payload = &file[128..];
    let fields = [
        (12, 3),
        (32, ids.len() as u64),
        (40, ids.len() as u64),
        (64, payload.len() as u64),
        (72, xxh3_64(payload)),
    ];
    for (at, field) in fields {
        let width = if at == 12 { 4 } else { 8 };
        file[at..at + width].copy_from_slice(&field.to_le_bytes()[..width]);
    }
    let checksum = xxh3_64(&file[..120]);
    file[120..128].copy_from_slice(&checksum.to_le_bytes());
    Filter::open(file).expect("the file is valid")
}

/// Builds the golden filter with this name.
fn filter(name: &str, form: IdForm, rate: f64, seed: u64, ids: u32) -> Filter<Vec<u8>> {
    let params = params(form, rate, seed);
    let hash = |n| {
        let id = params.hasher.hash_spelling(spelling(form, n).as_bytes());
        id.expect("the spelling is valid")
    };
    if name.contains("shards") {
        let hashes: Vec<_> = (0..ids).map(hash).collect();
        in_three_shards(params, &hashes)
    } else if name.starts_with("static") {
        let mut builder = StaticBuilder::new(params);
        (0..ids).for_each(|n| builder.insert(hash(n)).expect("the builder accepts the id"));
        builder.finish().expect("the filter is solvable")
    } else {
        let capacity = u64::from(ids + ids / 10);
        let mut filter = UpdatableFilter::new(params, capacity).expect("the filter fits");
        (0..ids).for_each(|n| _ = filter.insert(hash(n)).expect("the filter has space"));
        filter.to_filter(7)
    }
}

/// Compares filters of each construction and form, and their answers for present and absent ids, with golden files.
#[test]
fn filters_equal_the_golden_files() {
    let mut cases = Vec::new();
    for (name, form, rate, seed, ids) in [
        ("static-uuid.ewf", IdForm::Uuid, 0.01, 0, 1000),
        ("static-integer.ewf", IdForm::Integer, 0.03, 0, 1000),
        ("static-text-seeded.ewf", IdForm::Text, 0.0001, 42, 1000),
        ("static-empty.ewf", IdForm::Text, 0.01, 0, 0),
        ("static-small.ewf", IdForm::Integer, 0.01, 0, 10),
        // This filter has slots of 31 bits and slots of 32 bits, the largest widths.
        ("static-rare.ewf", IdForm::Integer, 3e-10, 7, 100),
        ("static-three-shards.ewf", IdForm::Uuid, 0.03, 42, 300),
        ("updatable-small.ewf", IdForm::Uuid, 0.01, 0, 10),
        ("updatable-uuid.ewf", IdForm::Uuid, 0.01, 0, 1000),
        (
            "updatable-integer-seeded.ewf",
            IdForm::Integer,
            0.2,
            42,
            1000,
        ),
    ] {
        let filter = filter(name, form, rate, seed, ids);
        golden(name, filter.bytes());
        let opened = Filter::open(filter.bytes()).expect("the filter is valid");
        let answer = |n| opened.contains_spelling(spelling(form, n).as_bytes());
        assert!((0..ids).all(answer));
        let asked: Vec<_> = (0..2000).map(|n| spelling(form, n)).step_by(10).collect();
        let maybe: String = (0..2000)
            .step_by(10)
            .map(|n| if answer(n) { '1' } else { '0' })
            .collect();
        cases.push(serde_json::json!({
            "file": name, "form": form.name(), "seed": seed, "ids": ids,
            "asked": asked, "maybe": maybe,
        }));
    }
    let text = serde_json::to_string_pretty(&cases).expect("the values are JSON");
    golden("answers.json", format!("{text}\n").as_bytes());
}

#[test]
fn hashes_equal_the_golden_file() {
    let mut cases = Vec::new();
    for (form, spelling) in [
        (IdForm::Text, ""),
        (IdForm::Text, "a"),
        (IdForm::Text, "007"),
        (IdForm::Text, "550E8400-E29B-41D4-A716-446655440000"),
        (IdForm::Text, "Ünïcödé, as its UTF-8"),
        (IdForm::Integer, "007"),
        (IdForm::Integer, "-0"),
        (IdForm::Integer, "-170141183460469231731687303715884105728"),
        (IdForm::Uuid, "550E8400-E29B-41D4-A716-446655440000"),
        (IdForm::Uuid, "550e8400e29b41d4a716446655440000"),
        (
            IdForm::Uuid,
            "urn:uuid:550e8400-e29b-41d4-a716-446655440000",
        ),
        (IdForm::Uuid, "not a uuid"),
    ] {
        for seed in [0, 42] {
            let hash = IdHasher { form, seed }.hash_verbatim(spelling.as_bytes());
            cases.push(serde_json::json!({
                "form": form.name(), "seed": seed.to_string(), "spelling": spelling,
                "hash": format!("{:016x}", hash.0),
            }));
        }
    }
    // XXH3 has a separate algorithm for each range of lengths; these lengths are on both sides of each boundary.
    for length in [
        2usize, 4, 5, 8, 9, 16, 17, 32, 33, 64, 65, 96, 97, 128, 129, 160, 192, 239, 240, 241, 256,
        511, 512, 513, 1023, 1024, 1025, 1088, 2048, 3000,
    ] {
        let spelling: String = ('a'..='z').cycle().take(length).collect();
        for seed in [0, u64::MAX - 41] {
            let hasher = IdHasher {
                form: IdForm::Text,
                seed,
            };
            // The seed is text, because some languages cannot read numbers above 2^53 from JSON.
            cases.push(serde_json::json!({
                "form": "text", "seed": seed.to_string(), "spelling": spelling,
                "hash": format!("{:016x}", hasher.hash_verbatim(spelling.as_bytes()).0),
            }));
        }
    }
    let text = serde_json::to_string_pretty(&cases).expect("the values are JSON");
    golden("hashes.json", format!("{text}\n").as_bytes());
}

/// Returns the signer with the secret key of 32 bytes 0x07.
fn signer() -> Signer {
    Signer::from_secret([7; 32])
}

/// Returns a manifest, a proof (the signed response to a client's challenge) and a delta of the same publisher.
fn statements() -> (Manifest, Proof, Vec<u8>) {
    let hasher = IdHasher::default();
    let mut journal = Journal::new("resource", 0x1234_5678, 99, 0);
    journal.append((0..20).map(|n| hasher.hash_integer(n)).collect());
    let snapshot = filter("static-integer.ewf", IdForm::Integer, 0.03, 0, 1000);
    journal.publish(snapshot.bytes(), 7, 1, 1);
    journal.append((1000..1003).map(|n| hasher.hash_integer(n)).collect());
    let manifest = journal
        .manifest(1_700_000_000_000, None)
        .expect("the journal has a snapshot");
    let proof = journal.prove([0xab; 16], 250, 7);
    (manifest, proof, journal.deltas()[0].bytes.clone())
}

#[test]
fn statements_of_a_publisher_equal_the_golden_files() {
    let signer = signer();
    let (manifest, proof, delta) = statements();
    golden("delta.ewd", &delta);
    let (manifest_line, proof_line) = (
        manifest.to_line(Some(&signer)),
        proof.to_line(Some(&signer)),
    );
    golden("manifest.txt", format!("{manifest_line}\n").as_bytes());
    golden("proof.txt", format!("{proof_line}\n").as_bytes());
    golden("key.txt", format!("{}\n", signer.public()).as_bytes());
    let trust = Trust::Keys(vec![signer.public()]);
    assert_eq!(
        Manifest::from_line(manifest_line.as_bytes(), &trust),
        Ok(manifest)
    );
    assert_eq!(Proof::from_line(proof_line.as_bytes(), &trust), Ok(proof));
}

/// For the ids 0 to 999 and a false-positive rate of 1 %, edgeward writes the same file as Guava 33.4.8. It also reads
/// Guava's file.
#[test]
fn guava_files_equal_those_of_guava() {
    for funnel in [Funnel::Utf8, Funnel::UnencodedChars, Funnel::Long] {
        let name = format!("guava-{}.bloom", funnel.name());
        let guava_file = fs::read(folder().join(&name)).expect("the golden file is readable");
        let hash = |n: u32| {
            funnel
                .hash(n.to_string().as_bytes())
                .expect("the spelling is valid")
        };
        let mut builder = GuavaBuilder::new();
        (0..1000).for_each(|n| builder.insert(hash(n)));
        let (built, _) = builder
            .finish(Rate::new(0.01).expect("the rate is valid"))
            .expect("the filter fits");
        assert!(built.to_bytes() == guava_file, "{name}");
        let read = GuavaFilter::from_bytes(&guava_file).expect("Guava's file is valid");
        assert!((0..1000).all(|n| read.might_contain(hash(n))));
        let false_positives = (1000..101_000)
            .filter(|&n| read.might_contain(hash(n)))
            .count();
        assert!(
            (800..1200).contains(&false_positives),
            "{false_positives} of 100,000 at 1 %"
        );
    }
}
