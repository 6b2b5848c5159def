//! What goes wrong with a simulated disk, and when.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::Gate;

/// An error as the kernel reports it for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errno {
    /// `EIO`: the medium or the cable.
    Io,
    /// `ENOSPC`: the file system is full.
    NoSpace,
    /// `EROFS`: the file system was remounted read-only.
    ReadOnly,
}

impl Errno {
    fn error(self) -> io::Error {
        io::Error::from_raw_os_error(match self {
            Self::Io => 5,
            Self::NoSpace => 28,
            Self::ReadOnly => 30,
        })
    }
}

/// Something that goes wrong until the disk is healed.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Reads fail.
    Reads(Errno),
    /// Reads bring half of what is wanted, as from a file that was cut off.
    ShortReads,
    /// Whoever will not wait for a read gets nothing; who waits gets everything.
    ReadsWait,
    /// Writes fail, having written nothing.
    Writes(Errno),
    /// Writes fail half-way.
    ShortWrites,
    /// Syncs fail.
    Syncs(Errno),
    /// Each write comes to this gate and waits there: a disk as slow as the test likes.
    WritesWait(Gate),
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    now: Mutex<Vec<Fault>>,
    count: AtomicU64,
}

impl Faults {
    pub(super) fn inject(&self, fault: Fault) {
        self.now().push(fault);
    }

    pub(super) fn heal(&self) {
        self.now().clear();
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// How many of `bytes` a read may bring.
    pub(super) fn before_read(&self, bytes: usize) -> io::Result<usize> {
        self.first(|fault| match fault {
            Fault::Reads(errno) => Some(Err(errno.error())),
            Fault::ShortReads => Some(Ok(bytes / 2)),
            _ => None,
        })
        .unwrap_or(Ok(bytes))
    }

    pub(super) fn reads_wait(&self) -> bool {
        self.first(|fault| matches!(fault, Fault::ReadsWait).then_some(()))
            .is_some()
    }

    /// Why a write of `bytes` fails, and after how many of them.
    pub(super) fn before_write(&self, bytes: usize) -> Result<(), (usize, io::Error)> {
        let gate = self.first(|fault| match fault {
            Fault::WritesWait(gate) => Some(gate.clone()),
            _ => None,
        });
        if let Some(gate) = gate {
            gate.pass_blocking();
        }
        let refusal = self.first(|fault| match fault {
            Fault::Writes(errno) => Some((0, errno.error())),
            Fault::ShortWrites => {
                let half = bytes / 2 / SECTOR_BYTES * SECTOR_BYTES;
                Some((half, io::ErrorKind::WriteZero.into()))
            }
            _ => None,
        });
        refusal.map_or(Ok(()), Err)
    }

    pub(super) fn before_sync(&self) -> io::Result<()> {
        let refusal = self.first(|fault| match fault {
            Fault::Syncs(errno) => Some(errno.error()),
            _ => None,
        });
        refusal.map_or(Ok(()), Err)
    }

    /// The first fault that matters here, counted.
    fn first<T>(&self, matters: impl FnMut(&Fault) -> Option<T>) -> Option<T> {
        let found = self.now().iter().find_map(matters);
        if found.is_some() {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    fn now(&self) -> std::sync::MutexGuard<'_, Vec<Fault>> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const SECTOR_BYTES: usize = 512;
