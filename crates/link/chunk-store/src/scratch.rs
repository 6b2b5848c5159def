//! A temporary device: a sparse file without a name, which the operating system deletes when the process ends.
//! `edgeward link estimate`, tests and benchmarks use it for a chunk store that need not survive the process.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use edgeward_store::disk::Device;

/// A temporary file. The operating system deletes it when the process ends, even if the process is killed.
#[derive(Debug)]
pub struct ScratchDevice {
    file: File,
    folder: PathBuf,
    bytes: u64,
}

impl ScratchDevice {
    /// Creates a file of `bytes` zeroes in `folder`. The file takes disk space only for written parts.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be created.
    pub fn new(folder: &Path, bytes: u64) -> io::Result<Self> {
        let file = open_unnamed(folder)?;
        file.set_len(bytes)?;
        let folder = folder.to_owned();
        Ok(Self {
            file,
            folder,
            bytes,
        })
    }
}

/// Creates a file with an unused name, and removes the name at once.
fn open_unnamed(folder: &Path) -> io::Result<File> {
    for attempt in 0..1000 {
        let path = folder.join(format!(".edgeward-{}-{attempt}", std::process::id()));
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        match opened {
            Ok(file) => return fs::remove_file(&path).map(|()| file),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

impl Device for ScratchDevice {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    /// Returns 0 bytes, because this device does not find out which bytes are in the page cache.
    fn read_now_at(&self, _buffer: &mut [u8], _offset: u64) -> io::Result<usize> {
        Ok(0)
    }

    /// Returns false, so that callers use only [`read_at`](Self::read_at). These reads rarely wait, because most
    /// bytes were written recently and are in the page cache.
    fn supports_read_now(&self) -> bool {
        false
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > self.bytes) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.file.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn name(&self) -> String {
        format!("a temporary file in {}", self.folder.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_device_has_no_name_and_keeps_its_bytes() {
        let folder = tempfile::tempdir().expect("the folder can be created");
        let device = ScratchDevice::new(folder.path(), 8192).expect("the file can be created");
        assert_eq!(
            fs::read_dir(folder.path())
                .expect("the folder can be listed")
                .count(),
            0
        );
        device
            .write_at(&[7; 4096], 4096)
            .expect("the range is within the device");
        let mut bytes = [1; 4096];
        device
            .read_at(&mut bytes, 0)
            .expect("the range is within the device");
        assert_eq!(bytes, [0; 4096]);
        device
            .read_at(&mut bytes, 4096)
            .expect("the range is within the device");
        assert_eq!(bytes, [7; 4096]);
        assert!(device.write_at(&[7; 4096], 8192).is_err());
        assert!(device.write_at(&[7; 8192], 4096).is_err());
    }
}
