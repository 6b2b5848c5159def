//! Finds out whether a device without a store is blank, or has data that must not be overwritten.
//!
//! Tools that make a file system, a volume or a partition table write near the front or the end of a device,
//! but not always at the very front: btrfs leaves the first 64 KiB unchanged, ZFS the first 16 KiB, and some
//! RAID arrays have their only label at the end. A device therefore counts as blank only if its first and its
//! last mebibyte are zeros. A new file is blank.

use std::io;

use super::device::Device;

/// Data on a device that should be blank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ForeignData {
    /// The offset of the first byte that is not zero.
    pub(super) at: u64,
    /// The kind of the data, if it is recognised.
    pub(super) kind: Option<&'static str>,
}

/// The number of bytes that are checked at the front and at the end of a device.
const CHECKED_BYTES: u64 = 1 << 20;

/// Returns the foreign data on a device, or `None` if the device is blank.
pub(super) fn foreign_data(device: &dyn Device) -> io::Result<Option<ForeignData>> {
    let length = device.len();
    let front = read(device, 0, length.min(CHECKED_BYTES))?;
    let end_at = length.saturating_sub(CHECKED_BYTES);
    let end = read(device, end_at, length - end_at)?;
    let first = |bytes: &[u8]| bytes.iter().position(|&byte| byte != 0);
    let at = match (first(&front), first(&end)) {
        (Some(at), _) => at as u64,
        (None, Some(at)) => end_at + at as u64,
        (None, None) => return Ok(None),
    };
    let kind = kind_of(&front, &end);
    Ok(Some(ForeignData { at, kind }))
}

fn read(device: &dyn Device, at: u64, bytes: u64) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; usize::try_from(bytes).expect("the read is at most a mebibyte")];
    device.read_at(&mut buffer, at)?;
    Ok(buffer)
}

fn kind_of(front: &[u8], end: &[u8]) -> Option<&'static str> {
    let at_front = FRONT
        .iter()
        .find(|&&(at, magic, _)| front.get(at..).is_some_and(|rest| rest.starts_with(magic)));
    let at_end = || {
        END.iter().find(|&&(from_end, magic, _)| {
            let at = end.len().checked_sub(from_end);
            at.is_some_and(|at| end[at..].starts_with(magic))
        })
    };
    at_front.or_else(at_end).map(|&(.., kind)| kind)
}

/// The offset of the signature in bytes, the signature, and the kind of data that has it.
type Signature = (usize, &'static [u8], &'static str);

/// The most frequent signatures, with their offset from the front of the device. The first match is reported.
/// Encrypted volumes, RAID members and LVM volumes are listed before file systems, because the signature of an
/// earlier file system may remain beside theirs.
const FRONT: [Signature; 9] = [
    (0, b"LUKS\xba\xbe", "an encrypted volume (LUKS)"),
    (4096, b"\xfc\x4e\x2b\xa9", "a member of a RAID array (md)"),
    (512, b"LABELONE", "an LVM volume"),
    (512, b"EFI PART", "a partition table"),
    (0, b"XFSB", "an XFS file system"),
    (65_600, b"_BHRfS_M", "a btrfs file system"),
    (1080, b"\x53\xef", "an ext file system"),
    (4086, b"SWAPSPACE2", "swap space"),
    (510, b"\x55\xaa", "a partition table or a boot sector"),
];

/// The most frequent signatures, with their distance from the end of the device.
const END: [Signature; 2] = [
    (512, b"EFI PART", "the copy of a partition table"),
    (8192, b"\xfc\x4e\x2b\xa9", "a member of a RAID array (md)"),
];
