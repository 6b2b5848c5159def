//! Reads certificates, and the credentials of buckets, again when their files change.
//!
//! The files are compared by modification time, size and inode, so both a file that is replaced and one that is written
//! in place are noticed. While certificate and key do not belong together, the edge keeps the pair that it has: a tool
//! that replaces both files one after the other needs no lock.

use std::time::{Duration, Instant};

use super::certificate_files::FileStates;
use super::reload::Reloader;

/// Compares the files at intervals.
pub(super) struct CertificateWatch {
    reloader: Reloader,
    read: FileStates,
    read_credentials: FileStates,
    checked_at: Instant,
}

impl CertificateWatch {
    /// `read` and `read_credentials` are the states of the files before they were read.
    pub(super) fn new(reloader: Reloader, read: FileStates, read_credentials: FileStates) -> Self {
        Self {
            reloader,
            read,
            read_credentials,
            checked_at: Instant::now(),
        }
    }

    /// Reads the certificates or credentials if a file has changed. Called about once a second.
    pub(super) fn check(&mut self) {
        let interval = self.reloader.certificate_interval();
        if interval.is_zero() || self.checked_at.elapsed() + TICK / 2 < interval {
            return;
        }
        self.checked_at = Instant::now();
        // A refused pair is read again when a file changes again, so that an error is logged once.
        self.reloader.reload_changed_certificates(&mut self.read);
        self.reloader
            .reload_changed_credentials(&mut self.read_credentials);
    }
}

/// The time between two calls of [`CertificateWatch::check`].
pub(super) const TICK: Duration = Duration::from_secs(1);
