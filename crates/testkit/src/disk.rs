//! A disk in memory that remembers everything done to it, and can be made to fail.
//!
//! [`SimulatedDisk`] is a `Device` for the store's log. Two things a real one does not offer:
//!
//! - **Crashes.** It keeps a journal of writes and syncs. [`SimulatedDisk::crashes`] gives, for any boundary between
//!   two operations, what a machine could find on the disk if the power went out there: of everything that no sync
//!   had covered, any sector may be lost, or be left in any of the versions that were written to it, whatever the
//!   order they were written in. One run of a workload is thus good for as many crashes as one likes.
//! - **Faults.** Reads, writes and syncs fail with the error one names, stop half-way, or wait at a [`Gate`](crate::Gate); bits
//!   turn where one says.
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

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use edgeward_store::disk::{Device, WRITE_ALIGN};
use edgeward_types::Seed;

pub use crash::{Crashes, Harm};
pub use faults::{Errno, Fault};

use crash::Operation;
use faults::Faults;

/// A disk in memory. Share it in an `Arc`: the store holds one end, the test the other.
#[derive(Debug)]
pub struct SimulatedDisk {
    /// Before the first operation.
    origin: Vec<u8>,
    /// As reads find it: every write in force at once, synced or not.
    content: RwLock<Vec<u8>>,
    journal: Mutex<Vec<Operation>>,
    faults: Faults,
}

impl SimulatedDisk {
    /// A disk of `bytes` zeroes.
    pub fn new(bytes: usize) -> Arc<Self> {
        Self::holding(vec![0; bytes])
    }

    /// A disk with this on it: what a crash left, for example.
    pub fn holding(origin: Vec<u8>) -> Arc<Self> {
        Arc::new(Self {
            content: RwLock::new(origin.clone()),
            origin,
            journal: Mutex::default(),
            faults: Faults::default(),
        })
    }

    /// How many writes and syncs there were. What this said when a sync had returned, holds at every later boundary.
    pub fn boundary(&self) -> usize {
        self.journal().len()
    }

    /// What crashes would leave, for the operations so far.
    pub fn crashes(&self, seed: Seed) -> Crashes {
        Crashes::new(self.origin.clone(), self.journal().clone(), seed)
    }

    /// From now on this happens, too.
    pub fn inject(&self, fault: Fault) {
        self.faults.inject(fault);
    }

    /// From now on nothing fails. What failed stays as it is.
    pub fn heal(&self) {
        self.faults.heal();
    }

    /// How many operations were made to fail or wait so far.
    pub fn failures(&self) -> u64 {
        self.faults.count()
    }

    /// Turns bits of the byte at `offset`, behind everybody's back.
    pub fn flip(&self, offset: u64, bits: u8) {
        let offset = usize::try_from(offset).expect("within memory");
        self.content_mut()[offset] ^= bits;
    }

    /// What is on it.
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

    /// Puts bytes down and into the journal.
    fn put(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).expect("within memory");
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
        self.origin.len() as u64
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let wanted = self.faults.before_read(buffer.len())?;
        let start = usize::try_from(offset).expect("within memory");
        let content = self.content.read().unwrap_or_else(PoisonError::into_inner);
        let there = content.get(start..).unwrap_or_default();
        let filled = wanted.min(there.len());
        buffer[..filled].copy_from_slice(&there[..filled]);
        if filled < buffer.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// Memory never has to be waited for, unless [`Fault::ReadsWait`] says so.
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
            Ok(()) => self.put(bytes, offset),
            Err((taken, error)) => {
                self.put(&bytes[..taken], offset)?;
                Err(error)
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        // A sync that failed promises nothing: the journal does not know it.
        self.faults.before_sync()?;
        self.journal().push(Operation::Sync);
        Ok(())
    }

    fn name(&self) -> String {
        "simulated disk".to_owned()
    }
}
