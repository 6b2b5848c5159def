//! A simulated disk in memory. It records all writes, and tests can make its operations fail.
//!
//! [`SimulatedDisk`] implements the store's `Device`. A test can use it for two things that are not possible
//! with a real disk:
//!
//! - **Crashes.** The disk keeps a journal of writes and syncs. [`SimulatedDisk::crashes`] returns the possible
//!   contents of the disk after a power loss between any two operations. A sector that was written after the
//!   last sync may have its old content, or any version that was written since. A test therefore runs its
//!   workload once and checks many crashes.
//! - **Faults.** Reads, writes and syncs fail with an error that the test chooses, stop after half of the
//!   bytes, or wait at a [`Gate`](crate::Gate). The test can also flip bits.
//!
//! ```
//! use edgeward_store::disk::Device;
//! use edgeward_testkit::disk::{Harm, SimulatedDisk};
//! use edgeward_types::Seed;
//!
//! let disk = SimulatedDisk::new(64 << 10);
//! disk.write_at(&[1; 4096], 0)?;
//! disk.sync()?;
//! let synced = disk.boundary();
//! disk.write_at(&[2; 4096], 0)?;
//! let mut crashes = disk.crashes(Seed(7));
//! assert_eq!(crashes.image(synced, Harm::LoseUnsynced)[..4096], [1; 4096]);
//! let torn = crashes.image(synced + 1, Harm::TearSectors);
//! assert!(torn[..4096].chunks(512).all(|sector| sector == [1; 512] || sector == [2; 512]));
//! # Ok::<(), std::io::Error>(())
//! ```

mod crash;
mod faults;
mod observed;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use edgeward_store::disk::{Device, WRITE_ALIGN};
use edgeward_types::Seed;

pub use crash::{Crashes, Harm};
pub use faults::{Errno, Fault};
pub use observed::{ObservedDisk, ReadObserver};

use crash::Operation;
use faults::Faults;

/// A disk in memory. The store and the test both have a reference to it.
#[derive(Debug)]
pub struct SimulatedDisk {
    /// The content of the disk before the first operation.
    initial_content: Vec<u8>,
    /// The content that reads return. It includes all writes, also those after the last sync.
    content: RwLock<Vec<u8>>,
    journal: Mutex<Vec<Operation>>,
    faults: Faults,
}

impl SimulatedDisk {
    /// Returns a disk of `bytes` zeroes.
    pub fn new(bytes: usize) -> Arc<Self> {
        Self::with_content(vec![0; bytes])
    }

    /// Returns a disk with this content, for example the content after a crash.
    pub fn with_content(initial_content: Vec<u8>) -> Arc<Self> {
        Arc::new(Self {
            content: RwLock::new(initial_content.clone()),
            initial_content,
            journal: Mutex::default(),
            faults: Faults::default(),
        })
    }

    /// Returns the number of writes and syncs so far, which is also the number of the current boundary between
    /// two operations. If the last operation was a sync, all data written before it survives a crash at this
    /// boundary or a later one.
    pub fn boundary(&self) -> usize {
        self.journal().len()
    }

    /// Returns a generator of the possible contents of the disk after a crash, for the operations so far.
    pub fn crashes(&self, seed: Seed) -> Crashes {
        Crashes::new(self.initial_content.clone(), self.journal().clone(), seed)
    }

    /// Adds a fault, which lasts until [`heal`](Self::heal).
    pub fn inject(&self, fault: Fault) {
        self.faults.inject(fault);
    }

    /// Removes all faults. Operations that have already failed stay failed.
    pub fn heal(&self) {
        self.faults.heal();
    }

    /// Returns the number of operations that failed or waited because of a fault.
    pub fn failures(&self) -> u64 {
        self.faults.count()
    }

    /// Flips the bits `bits` of the byte at `offset`. The change is not recorded in the journal.
    pub fn flip(&self, offset: u64, bits: u8) {
        let offset = usize::try_from(offset).expect("the offset fits in memory");
        self.content_mut()[offset] ^= bits;
    }

    /// Returns the content.
    pub fn content(&self) -> Vec<u8> {
        let content = self.content.read();
        content.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn journal(&self) -> MutexGuard<'_, Vec<Operation>> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn content_mut(&self) -> std::sync::RwLockWriteGuard<'_, Vec<u8>> {
        self.content.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes bytes to the content, and records the write in the journal.
    fn record_write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).expect("the offset fits in memory");
        let mut content = self.content_mut();
        let target = content.get_mut(start..start + bytes.len());
        target
            .ok_or_else(|| io::Error::other("a write beyond the disk's end"))?
            .copy_from_slice(bytes);
        self.journal().push(Operation::Write {
            offset: start,
            bytes: bytes.to_vec(),
        });
        Ok(())
    }
}

impl Device for SimulatedDisk {
    fn len(&self) -> u64 {
        self.initial_content.len() as u64
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let length = self.faults.before_read(buffer.len())?;
        let start = usize::try_from(offset).expect("the offset fits in memory");
        let content = self.content.read().unwrap_or_else(PoisonError::into_inner);
        let available = content.get(start..).unwrap_or_default();
        let filled = length.min(available.len());
        buffer[..filled].copy_from_slice(&available[..filled]);
        if filled < buffer.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// Reads without waiting. Returns 0 while [`Fault::ReadsWait`] is set: no byte can then be read without waiting.
    fn read_now_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.faults.reads_wait() {
            return Ok(0);
        }
        self.read_at(buffer, offset)?;
        Ok(buffer.len())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        assert!(
            offset.is_multiple_of(WRITE_ALIGN) && (bytes.len() as u64).is_multiple_of(WRITE_ALIGN),
            "{} bytes at {offset} are not aligned",
            bytes.len()
        );
        match self.faults.before_write(bytes.len()) {
            Ok(()) => self.record_write(bytes, offset),
            Err((taken, error)) => {
                self.record_write(&bytes[..taken], offset)?;
                Err(error)
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        // A failed sync makes no data durable, so the journal does not record it.
        self.faults.before_sync()?;
        self.journal().push(Operation::Sync);
        Ok(())
    }

    fn name(&self) -> String {
        "simulated disk".to_owned()
    }
}
