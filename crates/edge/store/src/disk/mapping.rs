//! Sends bytes from a device's page cache without reading them in this process.
//!
//! A body in the page cache need not be copied to user space before it is sent to a socket: the kernel copies
//! it from a mapping of the file as from any other memory. But this process must not read the mapping. Mapped
//! bytes become unreadable if the file is truncated or the device fails, and a process that then reads them is
//! killed by a signal. A system call with the address of unreadable bytes returns `EFAULT` instead, which is an
//! ordinary error. This module therefore never makes a reference to mapped memory. It has only the address: it
//! queries which pages are resident, and passes addresses to system calls that send bytes.
//!
//! The caller ensures that the segment of the bytes is not overwritten: see
//! [`SegmentTable::block_overwrite`](super::segment::SegmentTable::block_overwrite).
#![expect(
    unsafe_code,
    reason = "mincore, madvise and sendmsg on addresses that must never become references"
)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use memmap2::{MmapOptions, MmapRaw};

/// A read-only mapping of a whole device.
#[derive(Debug)]
pub struct Mapping {
    memory: MmapRaw,
    page_bytes: usize,
}

/// The largest number of pages in one query: 1 MiB of 4 KiB pages, and one more for a range that begins within
/// a page.
const PAGES_MAX: usize = 257;

impl Mapping {
    /// Maps the first `bytes` of a file. This takes address space but no memory.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot map `bytes` bytes of the file.
    pub(crate) fn new(file: &File, bytes: u64) -> io::Result<Self> {
        let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let memory = MmapOptions::new().len(length).map_raw_read_only(file)?;
        Ok(Self {
            memory,
            page_bytes: page_bytes()?,
        })
    }

    /// Returns how many bytes of the range, from its start on, are in memory without a gap. Checks at most one
    /// mebibyte.
    pub(crate) fn resident_bytes(&self, range: Range<u64>) -> u64 {
        let Some((start, length)) = self.checked_range(&range) else {
            return 0;
        };
        let first = start / self.page_bytes * self.page_bytes;
        let pages = (start + length - first)
            .div_ceil(self.page_bytes)
            .min(PAGES_MAX);
        let mut states = [0_u8; PAGES_MAX];
        // SAFETY: `checked_range` checked that the pages are in the mapping, which lives as long as `self`.
        // `states` has a byte for each page of the query.
        let status = unsafe {
            libc::mincore(
                self.memory.as_mut_ptr().add(first).cast(),
                pages * self.page_bytes,
                states.as_mut_ptr(),
            )
        };
        if status != 0 {
            return 0;
        }
        let resident = states[..pages].iter().take_while(|&&page| page & 1 == 1);
        let end = first + resident.count() * self.page_bytes;
        end.saturating_sub(start).min(length) as u64
    }

    /// Sends `before` and then the range to a socket. Returns the number of bytes that the socket accepted without
    /// waiting.
    ///
    /// # Errors
    ///
    /// Returns `WouldBlock` if the socket accepts no byte now. Returns `EFAULT` (see [`is_unreadable`]) if the range
    /// cannot be read, is empty or is not within the mapping. Other errors are errors of the socket.
    pub(crate) fn send(
        &self,
        to: BorrowedFd<'_>,
        before: &[u8],
        range: Range<u64>,
    ) -> io::Result<usize> {
        let Some((start, length)) = self.checked_range(&range) else {
            return Err(unreadable_error());
        };
        // SAFETY: `checked_range` checked that the offset is in the mapping.
        let address = unsafe { self.memory.as_mut_ptr().add(start) };
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        loop {
            let sent = if before.is_empty() {
                // SAFETY: the kernel reads `length` bytes of the mapping, which lives as long as `self`. If
                // they are not readable, the call fails.
                unsafe { libc::send(to.as_raw_fd(), address.cast(), length, flags) }
            } else {
                let mut pieces = [
                    libc::iovec {
                        iov_base: before.as_ptr().cast_mut().cast(),
                        iov_len: before.len(),
                    },
                    libc::iovec {
                        iov_base: address.cast(),
                        iov_len: length,
                    },
                ];
                // SAFETY: a message of zeros is an empty one.
                let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
                message.msg_iov = pieces.as_mut_ptr();
                message.msg_iovlen = pieces.len() as _;
                // SAFETY: `before` is borrowed until the call returns, and the mapping lives as long as `self`.
                // The kernel only reads both. `message` and `pieces` live until the call returns.
                unsafe { libc::sendmsg(to.as_raw_fd(), &message, flags) }
            };
            if let Ok(sent) = usize::try_from(sent) {
                return Ok(sent);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Removes sent pages from the mapping, so that they no longer count as resident memory of this process. (A
    /// send maps each page that it reads.) The pages stay in the page cache, so a later send needs no read from
    /// the device.
    pub(crate) fn release_pages(&self) {
        // SAFETY: pages of a read-only file mapping belong to the file, so no data is lost, and no reference to
        // them exists. If the call fails, the pages count as resident until the next call.
        unsafe {
            libc::madvise(
                self.memory.as_mut_ptr().cast(),
                self.memory.len(),
                libc::MADV_DONTNEED,
            );
        }
    }

    /// Returns the range as offset and length. Returns `None` if the range is empty or not within the mapping.
    fn checked_range(&self, range: &Range<u64>) -> Option<(usize, usize)> {
        let start = usize::try_from(range.start).ok()?;
        let end = usize::try_from(range.end).ok()?;
        (start < end && end <= self.memory.len()).then(|| (start, end - start))
    }
}

/// Sends bytes of this process. Returns how many bytes the socket accepted without waiting.
pub(crate) fn send_bytes(to: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    loop {
        // SAFETY: the kernel reads `bytes`, which are borrowed until the call returns.
        let sent = unsafe { libc::send(to.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
        if let Ok(sent) = usize::try_from(sent) {
            return Ok(sent);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn page_bytes() -> io::Result<usize> {
    // SAFETY: the call takes and returns a number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let bytes = usize::try_from(bytes).ok().filter(|&bytes| bytes > 0);
    bytes.ok_or_else(io::Error::last_os_error)
}

/// The error that a system call returns for bytes that cannot be read.
pub(crate) fn unreadable_error() -> io::Error {
    io::Error::from_raw_os_error(libc::EFAULT)
}

/// Returns true if the bytes to send could not be read: the file was truncated, or the device fails.
pub(crate) fn is_unreadable(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EFAULT)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::FileExt as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn mapped(bytes: &[u8]) -> (File, Mapping) {
        let file = tempfile::tempfile().expect("a temporary file can be created");
        file.write_all_at(bytes, 0).expect("the write succeeds");
        let mapping = Mapping::new(&file, bytes.len() as u64).expect("the file can be mapped");
        (file, mapping)
    }

    #[test]
    fn written_bytes_are_resident_and_are_sent_after_the_head() {
        let bytes: Vec<u8> = (0..20_000_u32).map(|n| (n % 251) as u8).collect();
        let (_file, mapping) = mapped(&bytes);
        assert_eq!(mapping.resident_bytes(5000..20_000), 15_000);
        let (ours, mut theirs) = UnixStream::pair().expect("the sockets are created");
        for before in [&b"head"[..], b""] {
            let sent = mapping.send(ours.as_fd(), before, 5000..9000);
            assert_eq!(sent.expect("the object fits"), before.len() + 4000);
            let mut got = vec![0; before.len() + 4000];
            theirs.read_exact(&mut got).expect("the sent bytes arrive");
            assert!(got == [before, &bytes[5000..9000]].concat());
        }
    }

    #[test]
    fn a_range_outside_the_mapping_is_neither_resident_nor_sent() {
        let (_file, mapping) = mapped(&[1; 8192]);
        let (ours, _theirs) = UnixStream::pair().expect("the sockets are created");
        for range in [0..0, 8192..8193, 4096..8193, u64::MAX - 1..u64::MAX] {
            assert_eq!(mapping.resident_bytes(range.clone()), 0);
            let error = mapping
                .send(ours.as_fd(), b"", range)
                .expect_err("the input is refused");
            assert!(is_unreadable(&error), "{error}");
        }
    }

    /// Returns the KiB of a mapping that count as this process's memory.
    fn resident_kib(mapping: &Mapping) -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("Linux has this file");
        let begin = format!("{:x}-", mapping.memory.as_ptr() as usize);
        let of_this = smaps.lines().skip_while(|line| !line.starts_with(&begin));
        let line = of_this
            .skip(1)
            .find_map(|line| line.strip_prefix("Rss:"))
            .expect("each mapping has a line `Rss:`");
        let number = line
            .trim()
            .strip_suffix("kB")
            .expect("the unit is kB")
            .trim();
        number.parse().expect("the text is a number")
    }

    #[test]
    fn sent_pages_count_as_memory_until_they_are_released() {
        let (_file, mapping) = mapped(&[1; 65_536]);
        let (ours, mut theirs) = UnixStream::pair().expect("the sockets are created");
        for _ in 0..2 {
            let sent = mapping
                .send(ours.as_fd(), b"", 0..65_536)
                .expect("the socket accepts some bytes");
            let mut got = vec![0; sent];
            theirs.read_exact(&mut got).expect("the sent bytes arrive");
            assert!(got.iter().all(|&byte| byte == 1));
            assert!(resident_kib(&mapping) > 0);
            mapping.release_pages();
            assert_eq!(resident_kib(&mapping), 0);
        }
    }

    #[test]
    fn a_truncated_file_is_an_error_and_no_signal() {
        let (file, mapping) = mapped(&[1; 65_536]);
        file.set_len(4096).expect("the file can be truncated");
        let (ours, _theirs) = UnixStream::pair().expect("the sockets are created");
        let error = mapping.send(ours.as_fd(), b"", 8192..10_000);
        assert!(is_unreadable(&error.expect_err("the file is truncated")));
        match mapping.send(ours.as_fd(), b"head", 8192..10_000) {
            // The socket accepted `head` before the kernel noticed the error.
            Ok(sent) => assert_eq!(sent, 4),
            Err(error) => assert!(is_unreadable(&error), "{error}"),
        }
    }

    #[test]
    fn a_send_to_a_full_socket_does_not_wait() {
        let (_file, mapping) = mapped(&vec![1; 4 << 20]);
        let (ours, _theirs) = UnixStream::pair().expect("the sockets are created");
        let mut sent = 0;
        let error = loop {
            match mapping.send(ours.as_fd(), b"", sent..4 << 20) {
                Ok(more) => sent += more as u64,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
