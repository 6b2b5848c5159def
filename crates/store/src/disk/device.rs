//! What a segment log lies on: one linear space of bytes.
//!
//! [`Device`] is the seam between the log and the world. The real one is [`FileDevice`]: a file, which
//! may be a block device. Tests put another in its place that loses, tears and reorders what was not
//! synced, fails, fills up or is slow.
//!
//! What the log asks of a device: after [`Device::sync`] has returned without an error everything
//! written before it was called survives a crash. Of what was not synced nothing is assumed: any
//! 512 bytes of it may be old or new.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::ReadWriteFlags;

use super::mapping::Mapping;
use super::renewal::Renewal;

/// One linear space of bytes, read by any thread, written by one.
pub trait Device: Send + Sync + fmt::Debug {
    /// How many bytes there are. Does not change while the device is open.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buffer` from `offset` on. May wait for the device.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Reads from `offset` on what can be had without waiting: so many bytes, none if it would wait.
    fn read_now_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Whether [`read_now_at`](Self::read_now_at) knows what can be had. Where it does not it never reads anything, and who asks it
    /// first asks for nothing.
    fn tells_cached(&self) -> bool {
        true
    }

    /// Writes all of `bytes` at `offset`; both are multiples of [`WRITE_ALIGN`].
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// As [`write_at`](Self::write_at) for what need not stay in memory.
    fn write_past_cache_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_at(bytes, offset)
    }

    /// Returns when everything written before is durable.
    fn sync(&self) -> io::Result<()>;

    /// Hints that these bytes will not be read soon. May do nothing.
    fn forget(&self, _offset: u64, _bytes: u64) {}

    /// Its page cache, where the kernel can be told to send from it.
    fn mapping(&self) -> Option<&Mapping> {
        None
    }

    /// The file to send pages from, if [`renew`](Self::renew) keeps them as they were sent.
    fn sendable(&self) -> Option<&File> {
        None
    }

    /// Gives a range new pages before it is written again: what of the old ones is on its way stays as it is, and what lay
    /// there is lost.
    fn renew(&self, _offset: u64, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    /// What messages call it.
    fn name(&self) -> String;
}

/// Every write begins and ends at a multiple of this: no block that was synced is ever written again
/// in part, so a torn write cannot take what lies before it along. The largest sector in use.
pub const WRITE_ALIGN: u64 = 4096;

/// A file, or a block device.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    /// The same file past the page cache. None where that is not wanted or not to be had.
    direct: Option<File>,
    path: PathBuf,
    bytes: u64,
    /// The file was missing before it was opened.
    created: bool,
    block_device: bool,
    /// The file system says what is in the page cache.
    tells_cached: bool,
    /// None where the system does not map it; then everything is read.
    mapping: Option<Mapping>,
    /// None where pages on their way would change with the file, and for block devices.
    renewal: Option<Renewal>,
}

impl FileDevice {
    /// Opens what is at `path` and locks it; a directory means the file [`FILE_NAME`] within.
    ///
    /// A file that is missing is created, one shorter than `bytes` grows; of what is longer the first
    /// `bytes` are used, and none of it is cut off.
    ///
    /// # Errors
    ///
    /// If it cannot be opened or locked, if another process has it, if there is no room.
    pub fn open(path: &Path, bytes: Option<u64>) -> io::Result<Self> {
        Self::open_present(path, bytes)?.grown_to(bytes)
    }

    /// As [`open`](Self::open), but a file that is there keeps its size; a missing one is created empty. Together with
    /// [`grown_to`](Self::grown_to), for a caller that first looks at what the file holds.
    ///
    /// # Errors
    ///
    /// If it cannot be opened or locked, or another process has it. A missing file is not created without `bytes` or under `/dev`.
    pub fn open_present(path: &Path, bytes: Option<u64>) -> io::Result<Self> {
        let path = file_in(path);
        let created = !path.try_exists()?;
        if created {
            may_be_created(&path)?;
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(bytes.is_some())
            .truncate(false)
            .open(&path)?;
        lock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let present = size_of(&file)?;
        let block_device = file.metadata()?.file_type().is_block_device();
        let bytes = bytes.map_or(present, |wanted| wanted.min(present));
        let tells_cached = tells_cached(&file);
        let mapping = Mapping::of(&file, bytes).ok();
        let folder = path.parent().filter(|_| !block_device);
        // A name without a folder lies in the current one.
        let folder = folder.map(|folder| match folder.as_os_str().is_empty() {
            true => Path::new("."),
            false => folder,
        });
        let renewal = folder.and_then(Renewal::in_folder);
        Ok(Self {
            file,
            direct: None,
            path,
            bytes,
            created,
            block_device,
            tells_cached,
            mapping,
            renewal,
        })
    }

    /// Makes the file as long as `bytes`, if it is shorter.
    ///
    /// # Errors
    ///
    /// If there is no room, or a block device has fewer bytes.
    pub fn grown_to(mut self, bytes: Option<u64>) -> io::Result<Self> {
        let Some(wanted) = bytes.filter(|&wanted| wanted > self.bytes) else {
            return Ok(self);
        };
        if self.block_device {
            let present = self.bytes;
            return Err(io::Error::other(format!(
                "the device holds {present} bytes, fewer than the {wanted} it is to have"
            )));
        }
        allocate(&self.file, wanted)?;
        self.bytes = wanted;
        self.mapping = Mapping::of(&self.file, wanted).ok();
        Ok(self)
    }

    /// Whether the file was missing and was created when it was opened.
    pub fn is_created(&self) -> bool {
        self.created
    }

    /// Opens what is there for reading alone; fails if a running process has it.
    ///
    /// # Errors
    ///
    /// If it cannot be opened or another process has it.
    pub fn open_to_read(path: &Path) -> io::Result<Self> {
        let path = file_in(path);
        let file = File::open(&path)?;
        lock(&file, FlockOperation::NonBlockingLockShared)?;
        let bytes = size_of(&file)?;
        let tells_cached = tells_cached(&file);
        Ok(Self {
            file,
            direct: None,
            path,
            bytes,
            created: false,
            block_device: false,
            tells_cached,
            mapping: None,
            renewal: None,
        })
    }

    /// [`write_past_cache_at`](Device::write_past_cache_at) means it, where the file system can do that.
    ///
    /// What is written so displaces nothing that is read, and no writing back comes in bursts; in return the first read of it is the
    /// device's. The kernel keeps both ways apart: before and after such a write it
    /// takes out of the page cache what lies there of the range.
    #[must_use]
    pub fn writing_directly(mut self) -> Self {
        // By its number: the path may mean another file by now.
        let this = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        self.direct = OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_DIRECT)
            .open(this)
            .ok();
        self
    }

    /// Writes past the page cache. False if that is not to be had for these bytes.
    fn write_directly_at(&self, bytes: &[u8], offset: u64) -> io::Result<bool> {
        let Some(direct) = &self.direct else {
            return Ok(false);
        };
        if !bytes.as_ptr().addr().is_multiple_of(WRITE_ALIGN as usize) {
            return Ok(false);
        }
        match direct.write_all_at(bytes, offset) {
            Ok(()) => Ok(true),
            // A file system that opens it so and takes no such write, or wants it aligned to more.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The file itself; within the directory if one was given.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Device for FileDevice {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn read_now_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let mut rest = [IoSliceMut::new(&mut buffer[filled..])];
            let at = offset + filled as u64;
            match rustix::io::preadv2(&self.file, &mut rest, at, ReadWriteFlags::NOWAIT) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(more) => filled += more,
                // `NOTSUP`: this file system cannot tell; then every read is one that might wait.
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::NOTSUP) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(filled)
    }

    fn tells_cached(&self) -> bool {
        self.tells_cached
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn write_past_cache_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match self.write_directly_at(bytes, offset)? {
            true => Ok(()),
            false => self.write_at(bytes, offset),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn forget(&self, offset: u64, bytes: u64) {
        let length = std::num::NonZeroU64::new(bytes);
        // A hint that is not taken costs page cache and nothing else.
        _ = rustix::fs::fadvise(&self.file, offset, length, rustix::fs::Advice::DontNeed);
    }

    fn mapping(&self) -> Option<&Mapping> {
        self.mapping.as_ref()
    }

    fn sendable(&self) -> Option<&File> {
        self.renewal.is_some().then_some(&self.file)
    }

    fn renew(&self, offset: u64, bytes: u64) -> io::Result<()> {
        match self.renewal {
            Some(renewal) => renewal.renew(&self.file, offset, bytes),
            None => Ok(()),
        }
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

/// What the log is called in a directory.
pub const FILE_NAME: &str = "edgeward.store";

fn file_in(path: &Path) -> PathBuf {
    if path.is_dir() {
        path.join(FILE_NAME)
    } else {
        path.to_owned()
    }
}

/// Refuses the paths where a missing file is a mistake: a device that is not attached, or a folder that does not exist.
fn may_be_created(path: &Path) -> io::Result<()> {
    let missing = |what| Err(io::Error::new(io::ErrorKind::NotFound, what));
    if path.starts_with("/dev") && !path.starts_with("/dev/shm") {
        return missing("there is no such device, and a file under /dev would lie in memory");
    }
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
            missing("its folder does not exist; create the folder first")
        }
        _ => Ok(()),
    }
}

fn lock(file: &File, operation: FlockOperation) -> io::Result<()> {
    rustix::fs::flock(file, operation).map_err(|error| match error {
        rustix::io::Errno::WOULDBLOCK => io::Error::new(
            io::ErrorKind::ResourceBusy,
            "another process has it open; stop that one first",
        ),
        error => error.into(),
    })
}

fn size_of(file: &File) -> io::Result<u64> {
    let metadata = file.metadata()?;
    if metadata.file_type().is_block_device() {
        // A block device's metadata says 0; its end is where seeking ends.
        return io::Seek::seek(&mut &*file, io::SeekFrom::End(0));
    }
    Ok(metadata.len())
}

/// Whether a read that shall not wait is one that the file system knows: a file in memory, say, or one on another machine, may not.
fn tells_cached(file: &File) -> bool {
    let first = &mut [0];
    let read = rustix::io::preadv2(
        file,
        &mut [IoSliceMut::new(first)],
        0,
        ReadWriteFlags::NOWAIT,
    );
    !matches!(
        read,
        Err(rustix::io::Errno::NOTSUP | rustix::io::Errno::NOSYS | rustix::io::Errno::INVAL)
    )
}

/// Takes the room now, so that a full disk is found at the start and not under load.
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        // Not every file system can; there the room is taken as it is written.
        Err(rustix::io::Errno::NOTSUP | rustix::io::Errno::NOSYS) => file.set_len(bytes),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_was_written_is_read_back_and_in_the_page_cache() {
        let folder = tempfile::tempdir().expect("a folder");
        let device = FileDevice::open(folder.path(), Some(1 << 20)).expect("opens");
        device.write_at(&[7; 4096], 8192).expect("writes");
        device.sync().expect("syncs");
        let mut bytes = [0; 100];
        device.read_at(&mut bytes, 8192).expect("reads");
        assert_eq!(bytes, [7; 100]);
        // Whether the page cache answers is the system's choice; if it does, rightly.
        let mut again = [0; 100];
        let filled = device.read_now_at(&mut again, 8192).expect("no error");
        assert_eq!(again[..filled], [7; 100][..filled]);
        assert!(device.tells_cached() || filled == 0);
    }

    /// Aligned as a write past the page cache wants it.
    #[repr(align(4096))]
    struct Aligned([u8; 1 << 16]);

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn what_was_written_last_is_read_whichever_way_it_went(
            writes in proptest::collection::vec((0_usize..64, 1_usize..=16, any::<bool>(), 0_usize..64), 1..60)
        ) {
            const BLOCK: usize = WRITE_ALIGN as usize;
            let folder = tempfile::tempdir().expect("a folder");
            let device = FileDevice::open(folder.path(), Some(64 * BLOCK as u64)).expect("opens");
            let device = device.writing_directly();
            let mut expected = vec![0_u8; 64 * BLOCK];
            for (turn, (block, blocks, directly, read)) in (1_u8..).zip(writes) {
                let blocks = blocks.min(64 - block);
                let bytes = Aligned([turn; 1 << 16]);
                let bytes = &bytes.0[..blocks * BLOCK];
                let at = block * BLOCK;
                let written = match directly {
                    true => device.write_past_cache_at(bytes, at as u64),
                    false => device.write_at(bytes, at as u64),
                };
                written.expect("writes");
                expected[at..at + bytes.len()].copy_from_slice(bytes);
                // From somewhere on, so that pages are in the cache when they are written past it.
                let mut found = vec![0; expected.len() - read * BLOCK];
                device.read_at(&mut found, (read * BLOCK) as u64).expect("reads");
                prop_assert!(found == expected[read * BLOCK..], "after write {turn}");
            }
        }
    }

    #[test]
    fn two_openings_of_one_file_exclude_each_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = FileDevice::open(folder.path(), Some(1 << 20)).expect("opens");
        let second = FileDevice::open(folder.path(), Some(1 << 20)).expect_err("it is taken");
        assert_eq!(second.kind(), io::ErrorKind::ResourceBusy);
        assert!(FileDevice::open_to_read(folder.path()).is_err());
        drop(first);
        assert!(FileDevice::open_to_read(folder.path()).is_ok());
    }

    #[test]
    fn a_file_grows_and_is_never_cut_off_by_being_opened() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        for (wanted, has) in [(1 << 20, 1 << 20), (4096, 1 << 20), (2 << 20, 2 << 20)] {
            let device = FileDevice::open(&path, Some(wanted)).expect("opens");
            assert_eq!(device.len(), wanted);
            assert_eq!(std::fs::metadata(&path).expect("it is there").len(), has);
        }
    }

    #[test]
    fn a_read_past_the_end_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let device = FileDevice::open(folder.path(), Some(4096)).expect("opens");
        assert!(device.read_at(&mut [0; 8], 4092).is_err());
        assert!(device.read_now_at(&mut [0; 8], 4096).is_err());
    }
}
