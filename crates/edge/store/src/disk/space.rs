//! The free space that the files of a store need.
//!
//! A file of a store is allocated when it is opened. If the file system had too little free space, the allocation
//! would fill the file system, and other programs could not write. **The space is therefore checked before any file
//! grows, for all files of a file system together.** A file that could not be allocated nevertheless gets its earlier
//! size back, and is removed if it was new.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::settings::{DeviceSettings, file_in};

/// A file system has too little free space for the files of a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the store needs {needed} more bytes, and the file system of {} has {free} bytes free; choose a smaller capacity",
    path.display()
)]
pub struct TooLittleSpace {
    /// The path of the first file of this file system that would grow.
    pub path: PathBuf,
    /// The bytes by which the files of this file system would grow.
    pub needed: u64,
    /// The free bytes of the file system.
    pub free: u64,
}

/// Checks that the file systems have the space for the files of these devices. Changes nothing. A path that cannot be
/// examined is not checked; opening it states the reason.
pub fn check_space(devices: &[DeviceSettings]) -> Result<(), TooLittleSpace> {
    let mut file_systems: BTreeMap<u64, TooLittleSpace> = BTreeMap::new();
    for device in devices {
        let Some(wanted) = device.capacity else {
            continue;
        };
        if let Ok(Some(space)) = space_of(&device.path, wanted.bytes()) {
            let entry = file_systems
                .entry(space.file_system)
                .or_insert_with(|| TooLittleSpace {
                    path: device.path.clone(),
                    needed: 0,
                    free: space.free,
                });
            entry.needed = entry.needed.saturating_add(space.growth);
        }
    }
    match file_systems.into_values().find(|fs| fs.needed > fs.free) {
        Some(short) => Err(short),
        None => Ok(()),
    }
}

struct Space {
    /// The number of the file system.
    file_system: u64,
    /// The bytes by which the file would grow.
    growth: u64,
    /// The free bytes of the file system.
    free: u64,
}

/// Returns the space that a file needs to have `wanted` bytes, or `None` if it does not grow.
fn space_of(path: &Path, wanted: u64) -> io::Result<Option<Space>> {
    let file = file_in(path);
    let (present, place) = match file.metadata() {
        Ok(metadata) => (Some(metadata), file),
        Err(_) => (None, folder_of(&file)),
    };
    let growth = growth(present.as_ref(), wanted);
    if growth == 0 {
        return Ok(None);
    }
    let file_system = rustix::fs::statvfs(&place)?;
    Ok(Some(Space {
        file_system: place.metadata()?.dev(),
        growth,
        free: file_system.f_bavail.saturating_mul(file_system.f_frsize),
    }))
}

/// Returns the bytes that a file or block device takes in addition if it grows to `wanted` bytes.
pub(super) fn growth(present: Option<&Metadata>, wanted: u64) -> u64 {
    match present {
        Some(file) if file.file_type().is_block_device() || file.len() >= wanted => 0,
        // `blocks` counts units of 512 bytes.
        Some(file) => wanted.saturating_sub(file.blocks().saturating_mul(512)),
        None => wanted,
    }
}

fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use edgeward_types::ByteSize;

    use super::super::FileDevice;
    use super::*;

    fn device(path: &Path, bytes: u64) -> DeviceSettings {
        DeviceSettings {
            path: path.to_owned(),
            capacity: Some(ByteSize(bytes)),
        }
    }

    /// Returns a size that fits once and not twice.
    fn more_than_half_of_the_free_space(folder: &Path) -> u64 {
        let file_system = rustix::fs::statvfs(folder).expect("the folder exists");
        file_system.f_bavail * file_system.f_frsize / 4 * 3
    }

    /// The files of one file system are added up. A file that has its size already needs no space.
    #[test]
    fn files_that_exceed_the_free_space_together_are_refused() {
        let folder = tempfile::tempdir().expect("the folder is created");
        let most = more_than_half_of_the_free_space(folder.path());
        let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
        assert_eq!(check_space(&[device(&one, most)]), Ok(()));
        let error = check_space(&[device(&one, most), device(&other, most)])
            .expect_err("both files together are too large");
        assert_eq!((error.needed, &error.path), (2 * most, &one));
        let present = std::fs::File::create(&other).expect("the file is created");
        present.set_len(most).expect("the file is sparse");
        assert_eq!(
            check_space(&[device(&one, most), device(&other, most)]),
            Ok(())
        );
    }

    #[test]
    fn a_store_that_does_not_fit_leaves_no_file_and_keeps_an_existing_one() {
        let folder = tempfile::tempdir().expect("the folder is created");
        let file = folder.path().join("store");
        let error = FileDevice::open(&file, Some(1 << 60)).expect_err("the file does not fit");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
        assert!(!file.exists());
        FileDevice::open(&file, Some(1 << 20)).expect("the file fits");
        FileDevice::open(&file, Some(1 << 60)).expect_err("the file does not fit");
        let length = file.metadata().expect("the file exists").len();
        assert_eq!(length, 1 << 20);
    }
}
