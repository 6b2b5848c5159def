//! Whether a device that is no store is blank, or holds what must not be overwritten.
//!
//! Who makes a file system, a volume or a partition table writes near the front or the end, but not always at the very
//! front: btrfs leaves the first 64 KiB as they are, ZFS the first 16, and some arrays say at the end alone what they are.
//! So a device is blank if its first and its last mebibyte are zeros. A new file is.

use std::io;

use super::device::Device;

/// What was found on a device that was to be blank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Occupied {
    /// The first byte that is not zero.
    pub(super) at: u64,
    /// What it is, if that is known.
    pub(super) what: Option<&'static str>,
}

/// What of a device is looked at from either end.
const EDGE_BYTES: u64 = 1 << 20;

/// Nothing if the device is blank.
pub(super) fn occupied(device: &dyn Device) -> io::Result<Option<Occupied>> {
    let length = device.len();
    let front = read(device, 0, length.min(EDGE_BYTES))?;
    let end_at = length.saturating_sub(EDGE_BYTES);
    let end = read(device, end_at, length - end_at)?;
    let first = |bytes: &[u8]| bytes.iter().position(|&byte| byte != 0);
    let at = match (first(&front), first(&end)) {
        (Some(at), _) => at as u64,
        (None, Some(at)) => end_at + at as u64,
        (None, None) => return Ok(None),
    };
    let what = name(&front, &end);
    Ok(Some(Occupied { at, what }))
}

fn read(device: &dyn Device, at: u64, bytes: u64) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; usize::try_from(bytes).expect("at most a mebibyte")];
    device.read_at(&mut buffer, at)?;
    Ok(buffer)
}

fn name(front: &[u8], end: &[u8]) -> Option<&'static str> {
    let at_front = FRONT
        .iter()
        .find(|&&(at, magic, _)| front.get(at..).is_some_and(|rest| rest.starts_with(magic)));
    let at_end = || {
        END.iter().find(|&&(from_end, magic, _)| {
            let at = end.len().checked_sub(from_end);
            at.is_some_and(|at| end[at..].starts_with(magic))
        })
    };
    at_front.or_else(at_end).map(|&(.., what)| what)
}

type Signature = (usize, &'static [u8], &'static str);

/// The commonest, by their offset from the front. What holds others comes before what it may leave in place.
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

/// The same by their distance from the end.
const END: [Signature; 2] = [
    (512, b"EFI PART", "the copy of a partition table"),
    (8192, b"\xfc\x4e\x2b\xa9", "a member of a RAID array (md)"),
];
