//! Replaces the pages of a file range, so that `sendfile` can be used on a file that is overwritten later.
//!
//! `sendfile` passes pages of the page cache to a socket without copying them. The network card reads them
//! later, perhaps long after the call. An ordinary write changes pages in place, and the receiver would get the
//! changed bytes. Before a segment is overwritten, its range therefore gets new pages: `fallocate` removes the
//! old pages from the file, and old pages in socket buffers stay unchanged until they have been sent. The
//! suitable mode of `fallocate` depends on the file system. The store tries the modes on a temporary file in
//! its folder. If no mode works, the store does not use `sendfile`.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::fs::{FallocateFlags, Mode, OFlags, sendfile};

/// The size of the largest folio of the page cache (a huge page). Folios are aligned to their size. A folio
/// that crosses the edge of a replaced range is not removed but zeroed in part, even if it is in a socket
/// buffer. Therefore `sendfile` may only use the bytes of a segment from the first to the last multiple of this size.
pub(crate) const FOLIO_BYTES_MAX: u64 = 2 << 20;

/// The mode of `fallocate` that replaces pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageReplacement {
    /// The range stays allocated and reads as zeros.
    Zero,
    /// The range is freed, and allocated again when it is written.
    Punch,
}

impl PageReplacement {
    /// Returns a mode that works for files in `folder`, or `None` if no mode works.
    pub(crate) fn in_folder(folder: &Path) -> Option<Self> {
        [Self::Zero, Self::Punch].into_iter().find(|replacement| {
            replacement
                .preserves_pages_in_sockets(folder)
                .unwrap_or(false)
        })
    }

    /// Replaces the pages of a range of a file. The range's content is lost.
    pub(crate) fn replace(self, file: &File, offset: u64, bytes: u64) -> io::Result<()> {
        let mode = match self {
            Self::Zero => FallocateFlags::ZERO_RANGE,
            Self::Punch => FallocateFlags::PUNCH_HOLE,
        };
        let mode = mode | FallocateFlags::KEEP_SIZE;
        loop {
            match rustix::fs::fallocate(file, mode, offset, bytes) {
                Err(rustix::io::Errno::INTR) => {}
                result => return Ok(result?),
            }
        }
    }

    /// Sends [`TRIAL_BYTES`] of a file, replaces and overwrites their pages, and checks that the old bytes arrive.
    fn preserves_pages_in_sockets(self, folder: &Path) -> io::Result<bool> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR)?);
        let (old, new) = ([0xa5; TRIAL_BYTES], [0x5a; TRIAL_BYTES]);
        file.write_all_at(&old, 0)?;
        let (ours, mut theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        let mut offset = 0;
        let sent = sendfile(ours.as_fd(), &file, Some(&mut offset), TRIAL_BYTES)?;
        self.replace(&file, 0, TRIAL_BYTES as u64)?;
        file.write_all_at(&new, 0)?;
        let mut arrived = [0; TRIAL_BYTES];
        theirs.read_exact(&mut arrived[..sent])?;
        Ok(sent > 0 && arrived[..sent] == old[..sent])
    }
}

/// The number of bytes with which a mode is tried: four pages of 4 KiB.
const TRIAL_BYTES: usize = 16 << 10;

/// Sends `before`, then up to `bytes` bytes of a file from `offset`, to a socket. Returns the number of bytes that the
/// socket accepted without waiting.
///
/// `before` is sent in separate packets. With `MSG_MORE` (nginx: `tcp_nopush`), `before` would share a packet
/// with the first page, and the pages would no longer be aligned in their packets. This would halve the
/// throughput of bodies of 256 KiB. If the file ends at or before `offset`, only `before` is sent.
pub(crate) fn send(
    to: impl AsFd,
    before: &[u8],
    file: &File,
    mut offset: u64,
    bytes: usize,
) -> io::Result<usize> {
    let to = to.as_fd();
    let mut taken = 0;
    if !before.is_empty() {
        taken = super::mapping::send_bytes(to, before)?;
        if taken < before.len() {
            return Ok(taken);
        }
    }
    let sent = rustix::io::retry_on_intr(|| sendfile(to, file, Some(&mut offset), bytes));
    match sent {
        Ok(sent) => Ok(taken + sent),
        // The socket accepted `before`. The caller needs this number, although an error followed.
        Err(_) if taken > 0 => Ok(taken),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_a_socket_survive_a_replacement_and_a_write() {
        let folder = tempfile::tempdir().expect("the folder is created");
        let Some(replacement) = PageReplacement::in_folder(folder.path()) else {
            eprintln!("skipped: this file system cannot replace pages");
            return;
        };
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(folder.path().join("file"))
            .expect("the file can be created");
        file.write_all_at(&[1; 65_536], 0)
            .expect("the write succeeds");
        let (ours, mut theirs) = UnixStream::pair().expect("the sockets are created");
        let sent = send(&ours, b"head", &file, 4096, 16_384).expect("the send succeeds");
        assert_eq!(sent, 4 + 16_384);
        replacement
            .replace(&file, 0, 65_536)
            .expect("the pages are replaced");
        let mut now = [9; 100];
        file.read_exact_at(&mut now, 30_000)
            .expect("the file has its old length");
        assert_eq!(now, [0; 100]);
        file.write_all_at(&[2; 65_536], 0)
            .expect("the write succeeds");
        let mut arrived = vec![0; sent];
        theirs
            .read_exact(&mut arrived)
            .expect("the sent bytes arrive");
        assert!(arrived.starts_with(b"head") && arrived[4..].iter().all(|&byte| byte == 1));
    }

    #[test]
    fn a_folder_that_does_not_exist_has_no_mode() {
        assert_eq!(PageReplacement::in_folder(Path::new("/nonexistent")), None);
    }
}
