//! Files whose pages may be on their way while the file is written again.
//!
//! `sendfile` hands pages of the page cache to a socket without copying them; they are read when they leave, perhaps
//! long after the call. Written over in place, as a write does, they would arrive changed. So before a segment is
//! overwritten its range gets new pages: `fallocate` takes the old ones out of the file, and those on their way live, as they
//! were, until they have arrived. Which of its modes does that is tried out on a file of its own beside the store's; where none
//! does, nothing is sent this way.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::fs::{FallocateFlags, Mode, OFlags, sendfile};

/// The largest piece of page cache there is (a huge page). Such pieces are aligned to their size. One that lies across
/// the edge of a renewed range is not taken out but zeroed in part, also for those who still send it: so of a segment only
/// what is further than this from its edges, rounded to it, may be sent.
pub(crate) const FOLIO_BYTES_MAX: u64 = 2 << 20;

/// How a file gets new pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// The room stays taken and reads as zeros.
    Zero,
    /// The room is given back, and taken again when it is written.
    Punch,
}

impl Renewal {
    /// What works in `folder`, if anything does.
    pub(crate) fn in_folder(folder: &Path) -> Option<Self> {
        [Self::Zero, Self::Punch]
            .into_iter()
            .find(|renewal| renewal.keeps_what_is_on_its_way(folder).unwrap_or(false))
    }

    /// Gives a range of a file new pages. What it held is lost.
    pub(crate) fn renew(self, file: &File, offset: u64, bytes: u64) -> io::Result<()> {
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

    /// Sends a page, renews and overwrites it, and looks at what arrives.
    fn keeps_what_is_on_its_way(self, folder: &Path) -> io::Result<bool> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR)?);
        let (old, new) = ([0xa5; TRIED_BYTES], [0x5a; TRIED_BYTES]);
        file.write_all_at(&old, 0)?;
        let (ours, mut theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        let mut offset = 0;
        let sent = sendfile(ours.as_fd(), &file, Some(&mut offset), TRIED_BYTES)?;
        self.renew(&file, 0, TRIED_BYTES as u64)?;
        file.write_all_at(&new, 0)?;
        let mut arrived = [0; TRIED_BYTES];
        theirs.read_exact(&mut arrived[..sent])?;
        Ok(sent > 0 && arrived[..sent] == old[..sent])
    }
}

const TRIED_BYTES: usize = 16 << 10;

/// Sends a part of a file to a socket, `before` first: so many bytes of the two together, as many as it takes without waiting.
///
/// In packets of their own: held back for the first pages (`MSG_MORE`), the head shifts them in their packets, which halves the rate
/// of 256 KiB bodies, as nginx's `tcp_nopush` does.
/// None if the file ends before the part does.
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
        // What was taken must be told, whatever happened then.
        Err(_) if taken > 0 => Ok(taken),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_its_way_is_not_what_is_written_after_a_renewal() {
        let folder = tempfile::tempdir().expect("a folder");
        let Some(renewal) = Renewal::in_folder(folder.path()) else {
            eprintln!("skipped: this file system cannot");
            return;
        };
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(folder.path().join("file"))
            .expect("creates");
        file.write_all_at(&[1; 65_536], 0).expect("writes");
        let (ours, mut theirs) = UnixStream::pair().expect("sockets");
        let sent = send(&ours, b"head", &file, 4096, 16_384).expect("sends");
        assert_eq!(sent, 4 + 16_384);
        renewal.renew(&file, 0, 65_536).expect("renews");
        let mut now = [9; 100];
        file.read_exact_at(&mut now, 30_000).expect("it is as long");
        assert_eq!(now, [0; 100]);
        file.write_all_at(&[2; 65_536], 0).expect("writes");
        let mut arrived = vec![0; sent];
        theirs.read_exact(&mut arrived).expect("arrives");
        assert!(arrived.starts_with(b"head") && arrived[4..].iter().all(|&byte| byte == 1));
    }

    #[test]
    fn a_folder_that_is_not_there_renews_nothing() {
        assert_eq!(Renewal::in_folder(Path::new("/nonexistent")), None);
    }
}
