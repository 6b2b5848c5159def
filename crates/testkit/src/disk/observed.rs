//! A device that calls an observer at each read.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use edgeward_store::disk::Device;

/// Receives the reads of an [`ObservedDisk`]. The default methods do nothing.
pub trait ReadObserver: Debug + Send + Sync {
    /// Called before a blocking read at `offset`. May block.
    fn before_read(&self, _offset: u64) {}

    /// Called after each blocking read.
    fn after_read(&self) {}

    /// Called by a non-blocking read. With `Some(true)`, the bytes at `offset` count as cached and are read. With
    /// `Some(false)`, the read returns no bytes. With `None`, the disk makes the non-blocking read itself.
    fn is_cached(&self, _offset: u64) -> Option<bool> {
        None
    }
}

/// A disk whose reads are reported to an observer.
#[derive(Debug)]
pub struct ObservedDisk<O> {
    disk: Arc<dyn Device>,
    observer: O,
}

impl<O: ReadObserver> ObservedDisk<O> {
    /// Observes the reads of a disk.
    pub fn new(disk: Arc<dyn Device>, observer: O) -> Arc<Self> {
        Arc::new(Self { disk, observer })
    }

    /// Returns the observer.
    pub fn observer(&self) -> &O {
        &self.observer
    }
}

impl<O: ReadObserver> Device for ObservedDisk<O> {
    fn len(&self) -> u64 {
        self.disk.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.observer.before_read(offset);
        let read = self.disk.read_at(buffer, offset);
        self.observer.after_read();
        read
    }

    fn read_now_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.observer.is_cached(offset) {
            None => self.disk.read_now_at(buffer, offset),
            Some(true) => self.disk.read_at(buffer, offset).map(|()| buffer.len()),
            Some(false) => Ok(0),
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    fn name(&self) -> String {
        self.disk.name()
    }
}
