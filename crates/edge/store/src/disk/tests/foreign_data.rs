//! Tests that opening a store does not change a device that has data of another program. Such data is recognised by
//! signatures, each at a fixed offset from the start or the end of the device.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::*;

const DEVICE_BYTES: u64 = 8 << 20;

/// Makes a device that is blank except for `bytes` at the offset `at`.
fn write_device(folder: &Path, at: u64, bytes: &[u8]) {
    let file = File::create(folder.join(FILE_NAME)).expect("the file can be created");
    file.set_len(DEVICE_BYTES).expect("the space is sufficient");
    file.write_all_at(bytes, at).expect("the write succeeds");
}

fn open_and_close(folder: &Path) -> Result<(), String> {
    let settings = DiskSettings {
        segment_bytes: Some(ByteSize::kib(256)),
        ..DiskSettings::new(folder, ByteSize(DEVICE_BYTES))
    };
    match DiskCache::open(settings) {
        Ok((cache, _)) => {
            cache.close().expect("the cache closes");
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Method: for each kind of data, write only its signature at its offset, so that the rest of the device is blank.
#[test]
fn data_of_other_programs_is_named_and_not_changed() {
    let end = DEVICE_BYTES;
    let signatures: [(u64, &[u8], &str); 11] = [
        (0, b"LUKS\xba\xbe", "an encrypted volume (LUKS)"),
        (4096, b"\xfc\x4e\x2b\xa9", "a member of a RAID array"),
        (512, b"LABELONE", "an LVM volume"),
        (512, b"EFI PART", "a partition table"),
        (0, b"XFSB", "an XFS file system"),
        (65_536 + 64, b"_BHRfS_M", "a btrfs file system"),
        (1024 + 56, b"\x53\xef", "an ext file system"),
        (4086, b"SWAPSPACE2", "swap space"),
        (510, b"\x55\xaa", "a partition table or a boot sector"),
        (end - 512, b"EFI PART", "the copy of a partition table"),
        (end - 8192, b"\xfc\x4e\x2b\xa9", "a member of a RAID array"),
    ];
    for (at, bytes, kind) in signatures {
        let folder = tempfile::tempdir().expect("the folder is created");
        write_device(folder.path(), at, bytes);
        let before = fs::read(folder.path().join(FILE_NAME)).expect("the read succeeds");
        let error = open_and_close(folder.path()).expect_err(kind);
        assert!(error.contains(kind), "{error}");
        assert!(error.contains(&format!("at byte {at}")), "{error}");
        assert!(error.contains("first and its last MiB"), "{error}");
        assert!(fs::read(folder.path().join(FILE_NAME)).expect("the read succeeds") == before);
    }
}

/// Tests both sides of the boundaries of the checked ranges.
#[test]
fn a_device_with_a_byte_in_its_first_or_last_mebibyte_is_rejected() {
    let mib = 1 << 20;
    let end = DEVICE_BYTES;
    for (at, refused) in [
        (0, true),
        (8192, true),
        (mib - 1, true),
        (mib, false),
        (end - mib - 1, false),
        (end - mib, true),
        (end - 1, true),
    ] {
        let folder = tempfile::tempdir().expect("the folder is created");
        write_device(folder.path(), at, &[1]);
        let result = open_and_close(folder.path());
        assert_eq!(result.is_err(), refused, "byte {at}: {result:?}");
        if let Err(error) = result {
            assert!(error.contains("not an edgeward store"), "{error}");
        }
    }
}

/// The instruction in the error message is sufficient to make a former store blank.
#[test]
fn a_store_whose_first_and_last_mebibyte_are_zeroed_is_blank() {
    let folder = tempfile::tempdir().expect("the folder is created");
    open_and_close(folder.path()).expect("a new store can be created");
    let file = File::options()
        .write(true)
        .open(folder.path().join(FILE_NAME))
        .expect("the file opens");
    file.write_all_at(&[0; 8192], 0)
        .expect("the write succeeds");
    // Zeroing only the two superblocks is not enough, because the last mebibyte still has data.
    file.write_all_at(b"EWsg", DEVICE_BYTES - 100)
        .expect("the write succeeds");
    assert!(open_and_close(folder.path()).is_err());
    let zeros = vec![0; 1 << 20];
    for at in [0, DEVICE_BYTES - (1 << 20)] {
        file.write_all_at(&zeros, at).expect("the write succeeds");
    }
    assert_eq!(open_and_close(folder.path()), Ok(()));
}

/// The device is smaller than one mebibyte, so the first and the last mebibyte that are checked overlap.
#[test]
fn a_blank_device_that_is_too_small_for_a_store_is_rejected() {
    let folder = tempfile::tempdir().expect("the folder is created");
    fs::write(folder.path().join(FILE_NAME), [0; 9000]).expect("the write succeeds");
    let settings = DiskSettings::new(folder.path(), ByteSize(9000));
    let error = DiskCache::open(settings)
        .expect_err("the device is too small")
        .to_string();
    assert!(error.contains("too few"), "{error}");
}

/// Method: configure a capacity that is larger than the file, so that an accepted file would grow.
#[test]
fn a_rejected_file_keeps_its_size_and_its_bytes() {
    let (folder, other) = (tempfile::tempdir(), tempfile::tempdir());
    let (folder, other) = (
        folder.expect("the folder is created"),
        other.expect("the folder is created"),
    );
    let larger = |folder: &Path| DiskSettings {
        segment_bytes: Some(ByteSize::kib(256)),
        ..DiskSettings::new(folder, ByteSize(2 * DEVICE_BYTES))
    };
    // Three files are rejected in turn: no store, a store of a newer format version, and a store of another
    // cache.
    let path = folder.path().join(FILE_NAME);
    fs::write(&path, "not a store").expect("the write succeeds");
    assert!(DiskCache::open(larger(folder.path())).is_err());
    assert_eq!(fs::read(&path).expect("the read succeeds"), b"not a store");
    fs::remove_file(&path).expect("the file can be removed");
    open_and_close(folder.path()).expect("a new store can be created");
    let mut later = fs::read(&path).expect("the read succeeds");
    // The format version of both superblocks.
    (later[8], later[4096 + 8]) = (2, 2);
    fs::write(&path, &later).expect("the write succeeds");
    let error = DiskCache::open(larger(folder.path())).expect_err("the store has version 2");
    assert!(error.to_string().contains("format version 2"), "{error}");
    assert!(fs::read(&path).expect("the read succeeds") == later);
    fs::remove_file(&path).expect("the file can be removed");
    for folder in [folder.path(), other.path()] {
        open_and_close(folder).expect("a new store can be created");
    }
    let mut both = larger(folder.path());
    both.devices.extend(larger(other.path()).devices);
    assert!(matches!(
        DiskCache::open(both),
        Err(OpenError::SeedMismatch { .. })
    ));
    for folder in [folder.path(), other.path()] {
        let length = fs::metadata(folder.join(FILE_NAME))
            .expect("the file exists")
            .len();
        assert_eq!(length, DEVICE_BYTES);
    }
}

/// Method: store objects on two devices, then overwrite the first 64 KiB of the first device.
#[test]
fn a_store_without_superblock_is_not_changed_and_other_devices_are_used() {
    for fill_byte in [0, 0xa5] {
        let folders = [0, 1].map(|_| tempfile::tempdir().expect("the folder is created"));
        // `settings` configures 1100 segments of 2 MiB, and 1 MiB for everything else.
        let mut both = settings(folders[0].path(), 1100);
        let second = settings(folders[1].path(), 1100);
        both.devices.extend(second.devices.clone());
        let (cache, _) = DiskCache::open(both.clone()).expect("the cache opens");
        // The last argument: the write states the length of the body at its start.
        (0..20).for_each(|key| put(&cache, key, &pattern(key, 1000), true));
        cache.sync().expect("the sync succeeds");
        let hits = |cache: &DiskCache| (0..20).filter(|&key| get(cache, key).is_some()).count();
        assert_eq!(hits(&cache), 20);
        drop(cache);
        let path = folders[0].path().join(FILE_NAME);
        let file = File::options()
            .write(true)
            .open(&path)
            .expect("the file opens");
        file.write_all_at(&[fill_byte; 64 << 10], 0)
            .expect("the write succeeds");
        let before = front(&path);
        let (cache, report) = DiskCache::open(both).expect("the other device is a valid store");
        assert_eq!(report.damaged.len(), 1, "{report:?}");
        assert_eq!(report.damaged[0].device, path.display().to_string());
        assert_eq!(report.devices.len(), 1);
        assert!((1..20).contains(&hits(&cache)), "{}", hits(&cache));
        put(&cache, 77, &pattern(77, 1000), true);
        drop(cache);
        let alone = settings(folders[0].path(), 1200);
        let error = DiskCache::open(alone).expect_err("no device is left");
        assert!(error.to_string().contains("damaged"), "{error}");
        assert!(front(&path) == before, "the damaged device was written");
        let length = fs::metadata(&path).expect("the file exists").len();
        assert_eq!(
            length,
            (2 * 1100 + 1) << 20,
            "the damaged device was resized"
        );
    }
}

/// Returns the first 16 MiB of a file.
fn front(path: &Path) -> Vec<u8> {
    let mut bytes = vec![0; 16 << 20];
    let file = File::open(path).expect("the file opens");
    file.read_exact_at(&mut bytes, 0)
        .expect("the read succeeds");
    bytes
}

#[test]
fn a_missing_file_is_created_except_under_dev_or_without_a_folder() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let at = |path: &Path| DiskSettings {
        segment_bytes: Some(ByteSize::kib(256)),
        ..DiskSettings::new(path, ByteSize(DEVICE_BYTES))
    };
    let (cache, report) =
        DiskCache::open(at(&folder.path().join("store"))).expect("the cache opens");
    assert!(report.devices[0].created, "{report:?}");
    drop(cache);
    let (_, report) = DiskCache::open(at(&folder.path().join("store"))).expect("the cache opens");
    assert!(!report.devices[0].created, "{report:?}");
    for (path, message) in [
        (folder.path().join("none/store"), "folder does not exist"),
        ("/dev/no-such-device".into(), "no such device"),
    ] {
        let Err(OpenError::Device { source, .. }) = DiskCache::open(at(&path)) else {
            panic!("{} was created", path.display());
        };
        assert!(source.to_string().contains(message), "{source}");
        assert!(!path.exists());
    }
}
