//! Opening, inspecting and reading a store ends without a panic, and returns no wrong byte, whatever bytes the
//! device returns.
//!
//! The input overwrites a part of a small valid store; its first three bytes are the offset. This way the fuzzer gets
//! past the superblock without guessing a checksum, and can still corrupt it.
#![no_main]

use std::io;
use std::sync::{Arc, OnceLock, RwLock};

use edgeward_store::disk::{Device, DiskCache, DiskSettings, inspect_device};
use edgeward_types::{ByteSize, KeyHash};
use libfuzzer_sys::fuzz_target;

#[derive(Debug)]
struct Memory(RwLock<Vec<u8>>);

impl Device for Memory {
    fn len(&self) -> u64 {
        self.0.read().expect("no thread panics with the lock").len() as u64
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = self.0.read().expect("no thread panics with the lock");
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let found = bytes.get(start..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn read_now_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buffer, offset).map(|()| buffer.len())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        self.0.write().expect("no thread panics with the lock")[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn name(&self) -> String {
        "memory".to_owned()
    }
}

fn settings() -> DiskSettings {
    DiskSettings {
        segment_bytes: Some(ByteSize::kib(256)),
        ..DiskSettings::default()
    }
}

fn valid_store() -> &'static [u8] {
    static STORE: OnceLock<Vec<u8>> = OnceLock::new();
    STORE.get_or_init(|| {
        // 1.25 MiB, the size of five segments.
        let device = Arc::new(Memory(RwLock::new(vec![0; 5 << 18])));
        let (cache, _) =
            DiskCache::open_with_devices(settings(), vec![device.clone()]).expect("an empty store opens");
        for (key, bytes) in [(1, 100), (2, 5000), (3, 60_000)] {
            let length = Some(bytes as u64);
            let mut write = cache
                .begin(KeyHash(key), &[key as u8], "head".into(), length)
                .expect("the write begins");
            write.push(vec![key as u8; bytes].into()).expect("the body is accepted");
            write.finish().expect("the write ends");
        }
        cache.purge(KeyHash(1), &[1]);
        cache.sync().expect("the store is synced");
        let bytes = device.0.read().expect("no thread panics with the lock").clone();
        bytes
    })
}

fuzz_target!(|input: &[u8]| {
    let Some((at, patch)) = input.split_first_chunk::<3>() else {
        return;
    };
    let mut bytes = valid_store().to_vec();
    let at = u32::from_le_bytes([at[0], at[1], at[2], 0]) as usize % bytes.len();
    let end = bytes.len().min(at + patch.len());
    bytes[at..end].copy_from_slice(&patch[..end - at]);
    let device = Arc::new(Memory(RwLock::new(bytes)));
    // `true` verifies the bodies too.
    _ = inspect_device(&*device, true, |_| {});
    let Ok((cache, _)) = DiskCache::open_with_devices(settings(), vec![device]) else {
        return;
    };
    for (key, bytes) in [(1, 100), (2, 5000), (3, 60_000)] {
        let Some(candidate) = cache.lookup(KeyHash(key)) else {
            continue;
        };
        let Ok(object) = cache.read_head(&candidate, &[key as u8]) else {
            continue;
        };
        assert_eq!(object.length(), bytes);
        let mut at = 0;
        while at < bytes {
            let Ok(piece) = object.read(at..bytes) else {
                break;
            };
            assert!(!piece.is_empty() && piece.iter().all(|&byte| byte == key as u8));
            at += piece.len() as u64;
        }
    }
});
