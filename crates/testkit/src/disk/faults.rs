//! The faults that a test can inject into a simulated disk.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::Gate;

/// An error that the kernel returns for a disk operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errno {
    /// `EIO`: the device failed.
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

/// A fault that lasts until the disk is healed.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Reads fail.
    Reads(Errno),
    /// Reads return half of the bytes and then the end of the file, as from a truncated file.
    ShortReads,
    /// Reads that must not wait for the disk return no bytes. Reads that may wait return all bytes.
    ReadsWait,
    /// Writes fail before the first byte.
    Writes(Errno),
    /// Writes fail after about half of their sectors.
    ShortWrites,
    /// Syncs fail.
    Syncs(Errno),
    /// Each write waits at this gate. The test thereby decides how long a write takes.
    WritesWait(Gate),
}

/// The active faults of a disk, and the number of operations that failed or waited because of a fault.
#[derive(Debug, Default)]
pub(super) struct Faults {
    active: Mutex<Vec<Fault>>,
    count: AtomicU64,
}

impl Faults {
    pub(super) fn inject(&self, fault: Fault) {
        self.active().push(fault);
    }

    pub(super) fn heal(&self) {
        self.active().clear();
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that a read of `bytes` bytes returns, or the error of the read.
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

    /// Waits at the gate of [`Fault::WritesWait`], if this fault is active. Then returns `Ok` if a write of `bytes`
    /// bytes succeeds. Otherwise returns the number of bytes that are written before the error, and the error.
    pub(super) fn before_write(&self, bytes: usize) -> Result<(), (usize, io::Error)> {
        let gate = self.first(|fault| match fault {
            Fault::WritesWait(gate) => Some(gate.clone()),
            _ => None,
        });
        if let Some(gate) = gate {
            gate.pass_blocking();
        }
        let failure = self.first(|fault| match fault {
            Fault::Writes(errno) => Some((0, errno.error())),
            Fault::ShortWrites => {
                let half = bytes / 2 / SECTOR_BYTES * SECTOR_BYTES;
                Some((half, io::ErrorKind::WriteZero.into()))
            }
            _ => None,
        });
        failure.map_or(Ok(()), Err)
    }

    pub(super) fn before_sync(&self) -> io::Result<()> {
        let failure = self.first(|fault| match fault {
            Fault::Syncs(errno) => Some(errno.error()),
            _ => None,
        });
        failure.map_or(Ok(()), Err)
    }

    /// Returns the first value that `select` returns for an active fault. If there is such a value, counts the
    /// operation as one that failed or waited.
    fn first<T>(&self, select: impl FnMut(&Fault) -> Option<T>) -> Option<T> {
        let found = self.active().iter().find_map(select);
        if found.is_some() {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    fn active(&self) -> std::sync::MutexGuard<'_, Vec<Fault>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const SECTOR_BYTES: usize = 512;
