//! Checkpoints of the disk tier's index: any bytes are rejected or loaded without a panic; a saved checkpoint
//! loads unchanged; a modified checkpoint is rejected.
//!
//! Checksums would limit the fuzzer to the header, so half of the inputs are a recipe instead: objects to save,
//! and a change to the saved bytes.
//!
//! Run: `cargo +nightly fuzz run disk_index`.
#![no_main]

use libfuzzer_sys::fuzz_target;

use edgeward_store::disk::{Index, IndexConfig, Location};
use edgeward_types::{ByteSize, KeyHash};

const CONFIG: IndexConfig = IndexConfig {
    device: ByteSize::mib(32),
    objects_max: 4096,
};

fuzz_target!(|input: &[u8]| {
    let Some((&first, rest)) = input.split_first() else {
        return;
    };
    if first % 2 == 0 {
        if let Ok((index, epoch)) = Index::load(CONFIG, &mut &rest[..]) {
            let mut saved = Vec::new();
            index.save(epoch, &mut saved).expect("writing to memory succeeds");
            let (loaded, _) = Index::load(CONFIG, &mut &saved[..]).expect("a saved checkpoint is valid");
            assert_eq!(loaded.len(), index.len());
        }
        return;
    }

    // The change: four bytes of position, and a byte that is XORed there. If this byte is 0, the checkpoint is
    // truncated at the position.
    let Some((change, objects)) = rest.split_first_chunk::<5>() else {
        return;
    };
    let index = Index::new(CONFIG);
    let objects: Vec<_> = objects
        .chunks_exact(4)
        .map(|object| {
            let key = KeyHash(u64::from(u16::from_le_bytes([object[0], object[1]])));
            // Locations on the device are multiples of a unit of 512 bytes.
            let unit = u64::from(u16::from_le_bytes([object[2], object[3]]));
            (key, Location::from_unit(unit.max(1)))
        })
        .collect();
    for &(key, at) in &objects {
        _ = index.insert(key, at);
        assert_eq!(index.find(key), Some(at));
    }
    let mut bytes = Vec::new();
    index.save(u64::from(first), &mut bytes).expect("writing to memory succeeds");
    assert!(bytes.len() as u64 <= Index::checkpoint_bytes_max(CONFIG));
    let (loaded, epoch) = Index::load(CONFIG, &mut &bytes[..]).expect("a saved checkpoint is valid");
    assert_eq!((loaded.len(), epoch), (index.len(), u64::from(first)));
    for &(key, _) in &objects {
        assert_eq!(loaded.find(key), index.find(key));
    }

    let at =
        u32::from_le_bytes([change[0], change[1], change[2], change[3]]) as usize % bytes.len();
    if change[4] == 0 {
        bytes.truncate(at);
    } else {
        bytes[at] ^= change[4];
    }
    assert!(Index::load(CONFIG, &mut &bytes[..]).is_err(), "byte {at}");
});
