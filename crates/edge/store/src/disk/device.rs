//! The storage under a segment log: one linear space of bytes.
//!
//! [`Device`] separates the log from the operating system. [`FileDevice`] is a file or a block device. Tests
//! use devices that lose, tear and reorder data that was not synced, that fail, fill up or are slow.
//!
//! A device must give one guarantee: after [`Device::sync`] has returned without an error, all data written
//! before the call survives a crash. For data that was not synced, each 512 bytes may be old or new after a
//! crash.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::ReadWriteFlags;

use super::mapping::Mapping;
use super::page_replacement::PageReplacement;
use super::settings::file_in;
use super::space::{self, TooLittleSpace};

/// A linear space of bytes with many reading threads and one writing thread.
pub trait Device: Send + Sync + fmt::Debug {
    /// The size in bytes. It does not change while the device is open.
    fn len(&self) -> u64;

    /// Returns true if the size is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buffer` from `offset` on. May wait for the device.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Fills the start of `buffer` with the bytes from `offset` on that are available without waiting. Returns
    /// their number, or 0 if the read would wait.
    fn read_now_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Returns true if [`read_now_at`](Self::read_now_at) can read without waiting. If it cannot, it always
    /// returns 0, and callers should not call it.
    fn supports_read_now(&self) -> bool {
        true
    }

    /// Writes all of `bytes` at `offset`; both are multiples of [`WRITE_ALIGN`].
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Like [`write_at`](Self::write_at), for bytes that need not stay in the page cache.
    fn write_past_cache_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_at(bytes, offset)
    }

    /// Waits until all data that was written before the call is durable.
    fn sync(&self) -> io::Result<()>;

    /// Advises the system that the `bytes` bytes from `offset` on will not be read soon. May do nothing.
    fn forget(&self, _offset: u64, _bytes: u64) {}

    /// Returns the mapping of the device's page cache, or `None` if the device cannot be mapped.
    fn mapping(&self) -> Option<&Mapping> {
        None
    }

    /// Returns the file from which `sendfile` may send pages. Returns `None` if
    /// [`replace_pages`](Self::replace_pages) does not protect pages that are being sent.
    fn sendfile_source(&self) -> Option<&File> {
        None
    }

    /// Gives a range new pages in the page cache before the range is written again. `sendfile` may have put the old
    /// pages into socket buffers; there they stay unchanged. The content of the range is lost.
    fn replace_pages(&self, _offset: u64, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    /// Lets another process open the device, although this process still has it open.
    fn unlock(&self) {}

    /// The name of the device in messages.
    fn name(&self) -> String;
}

/// The alignment of writes: every write begins and ends at a multiple of this size. A write therefore shares no
/// sector with data that was written before, and a torn write cannot damage that data. The value is the largest
/// sector size in use.
pub const WRITE_ALIGN: u64 = 4096;

/// A file, or a block device.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    /// The same file, opened with `O_DIRECT`. `None` if this is not requested or not supported.
    direct: Option<File>,
    path: PathBuf,
    bytes: u64,
    /// True if the file was missing and was created.
    created: bool,
    block_device: bool,
    /// True if the file system can tell which pages are in the page cache.
    supports_read_now: bool,
    /// `None` if the system cannot map the file, or the file is open for reading only. Reads then use system calls.
    mapping: Option<Mapping>,
    /// `None` if pages in socket buffers cannot be protected from later writes, and for block devices.
    page_replacement: Option<PageReplacement>,
}

impl FileDevice {
    /// Opens the file or device at `path` and locks it. For a directory, opens the file [`FILE_NAME`](super::FILE_NAME) in it.
    ///
    /// A missing file is created, and a file shorter than `bytes` grows. If the file is longer, only the first
    /// `bytes` are used, and the file is not truncated. If `bytes` is `None`, the file must exist, and all its
    /// bytes are used.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be opened or locked, another process has locked it, or there is no space.
    pub fn open(path: &Path, bytes: Option<u64>) -> io::Result<Self> {
        Self::open_present(path, bytes)?.grown_to(bytes)
    }

    /// Like [`open`](Self::open), but an existing file keeps its size and a missing file is created empty. The
    /// caller checks the content of the file, and then calls [`grown_to`](Self::grown_to).
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be opened or locked, or another process has locked it. A missing file is also
    /// an error if `bytes` is `None`, if the file would be created under `/dev` (except `/dev/shm`), or if its
    /// folder does not exist.
    pub fn open_present(path: &Path, bytes: Option<u64>) -> io::Result<Self> {
        let path = file_in(path);
        let created = !path.try_exists()?;
        if created {
            check_creatable(&path)?;
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
        let supports_read_now = supports_read_now(&file);
        let mapping = Mapping::new(&file, bytes).ok();
        let folder = path.parent().filter(|_| !block_device);
        // A path without a folder is in the current folder.
        let folder = folder.map(|folder| match folder.as_os_str().is_empty() {
            true => Path::new("."),
            false => folder,
        });
        let page_replacement = folder.and_then(PageReplacement::in_folder);
        Ok(Self {
            file,
            direct: None,
            path,
            bytes,
            created,
            block_device,
            supports_read_now,
            mapping,
            page_replacement,
        })
    }

    /// Extends the file to `bytes`, if it is shorter.
    ///
    /// # Errors
    ///
    /// Fails if there is no space, or a block device has fewer bytes. The file then keeps its size, and is removed if
    /// it was created.
    pub fn grown_to(mut self, bytes: Option<u64>) -> io::Result<Self> {
        let Some(wanted) = bytes.filter(|&wanted| wanted > self.bytes) else {
            return Ok(self);
        };
        if self.block_device {
            let present = self.bytes;
            return Err(io::Error::other(format!(
                "the device has {present} bytes, fewer than the configured {wanted}"
            )));
        }
        let grown = check_growth(&self.file, &self.path, wanted)
            .and_then(|()| allocate(&self.file, wanted));
        if let Err(error) = grown {
            // The first error is reported. An allocation that failed may have taken all free space.
            _ = self.file.set_len(self.bytes);
            if self.created {
                _ = std::fs::remove_file(&self.path);
            }
            return Err(error);
        }
        self.bytes = wanted;
        self.mapping = Mapping::new(&self.file, wanted).ok();
        Ok(self)
    }

    /// Returns true if the file was missing and was created when it was opened.
    pub fn is_created(&self) -> bool {
        self.created
    }

    /// Opens an existing file or device for reading only.
    ///
    /// # Errors
    ///
    /// Fails if the file or device cannot be opened, or another process has locked it.
    pub fn open_to_read(path: &Path) -> io::Result<Self> {
        let path = file_in(path);
        let file = File::open(&path)?;
        lock(&file, FlockOperation::NonBlockingLockShared)?;
        let bytes = size_of(&file)?;
        let supports_read_now = supports_read_now(&file);
        Ok(Self {
            file,
            direct: None,
            path,
            bytes,
            created: false,
            block_device: false,
            supports_read_now,
            mapping: None,
            page_replacement: None,
        })
    }

    /// Makes [`write_past_cache_at`](Device::write_past_cache_at) bypass the page cache, if the file system supports
    /// this.
    ///
    /// Writes that bypass the page cache evict no pages from it and cause no bursts of write-back. The cost: the
    /// first read of the bytes waits for the device. Reads through the page cache stay correct, because the kernel
    /// drops the written range from the page cache before and after each of these writes.
    #[must_use]
    pub fn writing_directly(mut self) -> Self {
        // The file is opened again by its descriptor, because the path may refer to another file by now.
        let this = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        self.direct = OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_DIRECT)
            .open(this)
            .ok();
        self
    }

    /// Writes bytes without the page cache. Returns false if this is not enabled, or not possible for these bytes.
    fn write_directly_at(&self, bytes: &[u8], offset: u64) -> io::Result<bool> {
        let Some(direct) = &self.direct else {
            return Ok(false);
        };
        if !bytes.as_ptr().addr().is_multiple_of(WRITE_ALIGN as usize) {
            return Ok(false);
        }
        match direct.write_all_at(bytes, offset) {
            Ok(()) => Ok(true),
            // The file system permits the open but not the write, or requires a larger alignment.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the path of the file. If a directory was given, this is the path of the file in the directory.
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
                // `NOTSUP`: this file system has no non-blocking reads, so every read might wait.
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::NOTSUP) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(filled)
    }

    fn supports_read_now(&self) -> bool {
        self.supports_read_now
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
        // If the call fails, the bytes only stay in the page cache for longer.
        _ = rustix::fs::fadvise(&self.file, offset, length, rustix::fs::Advice::DontNeed);
    }

    fn mapping(&self) -> Option<&Mapping> {
        self.mapping.as_ref()
    }

    fn sendfile_source(&self) -> Option<&File> {
        self.page_replacement.is_some().then_some(&self.file)
    }

    fn replace_pages(&self, offset: u64, bytes: u64) -> io::Result<()> {
        match self.page_replacement {
            Some(replacement) => replacement.replace(&self.file, offset, bytes),
            None => Ok(()),
        }
    }

    fn unlock(&self) {
        // Without a lock, the call fails; the lock then ends with the process.
        _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

/// Refuses to create a file where a missing file is probably a mistake: under `/dev`, or in a folder that does not
/// exist.
fn check_creatable(path: &Path) -> io::Result<()> {
    let missing = |what| Err(io::Error::new(io::ErrorKind::NotFound, what));
    if path.starts_with("/dev") && !path.starts_with("/dev/shm") {
        return missing("no such device; a file under /dev would be in memory");
    }
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
            missing("the folder does not exist; create it first")
        }
        _ => Ok(()),
    }
}

fn lock(file: &File, operation: FlockOperation) -> io::Result<()> {
    rustix::fs::flock(file, operation).map_err(|error| match error {
        rustix::io::Errno::WOULDBLOCK => io::Error::new(
            io::ErrorKind::ResourceBusy,
            "another process has locked it; stop that process first",
        ),
        error => error.into(),
    })
}

fn size_of(file: &File) -> io::Result<u64> {
    let metadata = file.metadata()?;
    if metadata.file_type().is_block_device() {
        // The metadata of a block device has the size 0; seeking to the end returns its size.
        return io::Seek::seek(&mut &*file, io::SeekFrom::End(0));
    }
    Ok(metadata.len())
}

/// Returns true if the file system supports non-blocking reads. In-memory and network file systems may not.
fn supports_read_now(file: &File) -> bool {
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

/// Checks that the file system has the free space by which the file grows.
fn check_growth(file: &File, path: &Path, wanted: u64) -> io::Result<()> {
    let needed = space::growth(Some(&file.metadata()?), wanted);
    let file_system = rustix::fs::fstatvfs(file)?;
    let free = file_system.f_bavail.saturating_mul(file_system.f_frsize);
    if needed <= free {
        return Ok(());
    }
    let path = path.to_owned();
    let error = TooLittleSpace { path, needed, free };
    Err(io::Error::new(io::ErrorKind::StorageFull, error))
}

/// Allocates the space now, so that a full disk is found at start and not under load.
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        // Some file systems cannot allocate in advance; they allocate when the bytes are written.
        Err(rustix::io::Errno::NOTSUP | rustix::io::Errno::NOSYS) => file.set_len(bytes),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn written_bytes_are_read_back() {
        let folder = tempfile::tempdir().expect("the folder is created");
        let device = FileDevice::open(folder.path(), Some(1 << 20)).expect("the file opens");
        device
            .write_at(&[7; 4096], 8192)
            .expect("the write succeeds");
        device.sync().expect("the sync succeeds");
        let mut bytes = [0; 100];
        device.read_at(&mut bytes, 8192).expect("the read succeeds");
        assert_eq!(bytes, [7; 100]);
        // The system decides if the page cache has the bytes. If it does, they must be right.
        let mut again = [0; 100];
        let filled = device
            .read_now_at(&mut again, 8192)
            .expect("the read returns no error");
        assert_eq!(again[..filled], [7; 100][..filled]);
        assert!(device.supports_read_now() || filled == 0);
    }

    /// A buffer with the alignment that a write without the page cache requires.
    #[repr(align(4096))]
    struct Aligned([u8; 1 << 16]);

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn the_last_write_is_read_with_and_without_the_page_cache(
            writes in proptest::collection::vec((0_usize..64, 1_usize..=16, any::<bool>(), 0_usize..64), 1..60)
        ) {
            const BLOCK: usize = WRITE_ALIGN as usize;
            let folder = tempfile::tempdir().expect("the folder is created");
            let device = FileDevice::open(folder.path(), Some(64 * BLOCK as u64)).expect("the file opens");
            let device = device.writing_directly();
            let mut expected = vec![0_u8; 64 * BLOCK];
            for (number, (block, blocks, directly, read)) in (1_u8..).zip(writes) {
                let blocks = blocks.min(64 - block);
                let bytes = Aligned([number; 1 << 16]);
                let bytes = &bytes.0[..blocks * BLOCK];
                let at = block * BLOCK;
                let written = match directly {
                    true => device.write_past_cache_at(bytes, at as u64),
                    false => device.write_at(bytes, at as u64),
                };
                written.expect("the write succeeds");
                expected[at..at + bytes.len()].copy_from_slice(bytes);
                // Reads from a random offset on, so that some pages are in the page cache when the next write
                // bypasses it.
                let mut found = vec![0; expected.len() - read * BLOCK];
                device.read_at(&mut found, (read * BLOCK) as u64).expect("the read succeeds");
                prop_assert!(found == expected[read * BLOCK..], "after write {number}");
            }
        }
    }

    #[test]
    fn a_file_cannot_be_opened_twice() {
        let folder = tempfile::tempdir().expect("the folder is created");
        let first = FileDevice::open(folder.path(), Some(1 << 20)).expect("the file opens");
        let second =
            FileDevice::open(folder.path(), Some(1 << 20)).expect_err("the file is locked");
        assert_eq!(second.kind(), io::ErrorKind::ResourceBusy);
        assert!(FileDevice::open_to_read(folder.path()).is_err());
        drop(first);
        assert!(FileDevice::open_to_read(folder.path()).is_ok());
    }

    #[test]
    fn opening_a_file_extends_but_never_truncates_it() {
        let folder = tempfile::tempdir().expect("the folder is created");
        let path = folder.path().join("log");
        for (wanted, has) in [(1 << 20, 1 << 20), (4096, 1 << 20), (2 << 20, 2 << 20)] {
            let device = FileDevice::open(&path, Some(wanted)).expect("the file opens");
            assert_eq!(device.len(), wanted);
            assert_eq!(
                std::fs::metadata(&path).expect("the file exists").len(),
                has
            );
        }
    }

    #[test]
    fn a_read_past_the_end_is_an_error() {
        let folder = tempfile::tempdir().expect("the folder is created");
        let device = FileDevice::open(folder.path(), Some(4096)).expect("the file opens");
        assert!(device.read_at(&mut [0; 8], 4092).is_err());
        assert!(device.read_now_at(&mut [0; 8], 4096).is_err());
    }
}
