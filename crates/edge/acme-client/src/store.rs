//! The state on disk: written so that a kill at any step leaves the old or the new bytes of each file.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// Keeps the state of all certificates under short names such as `certificates/a.example.pem`.
pub trait StateStore: Send + Sync + 'static {
    /// Returns the bytes under a name. `None` if the name does not exist.
    fn load(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// Replaces the bytes under a name. After a crash the name has the old or the new bytes.
    fn store(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Removes a name. A name that does not exist is no error.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes a folder, unless it exists.
    fn make_folder(&self, folder: &str) -> io::Result<()>;

    /// Returns the names below a folder, without its path.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;

    /// Removes from a folder what interrupted calls of [`store`](Self::store) have left. Only the holder of the lease
    /// calls this.
    fn remove_parts(&self, folder: &str) -> io::Result<()>;

    /// Takes the lease of the state: only its holder orders certificates and writes. `None` if another process has it.
    /// The lease ends when it is dropped, or with the process.
    fn lease(&self) -> io::Result<Option<Box<dyn Lease>>>;
}

/// The right to write a state. Dropping it ends the lease.
pub trait Lease: Send {}

/// A state in a folder of the local file system.
#[derive(Clone, Debug)]
pub struct FolderStore {
    root: PathBuf,
}

impl FolderStore {
    /// Uses the folder `root`, which is made with mode 0700 at the first write.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Returns the names below a folder in order, also those of interrupted writes.
    fn files(&self, folder: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.path(folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            names.extend(entry?.file_name().into_string());
        }
        names.sort_unstable();
        Ok(names)
    }
}

impl StateStore for FolderStore {
    fn load(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(self.path(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > FILE_BYTES_MAX {
            true => Err(io::ErrorKind::FileTooLarge.into()),
            false => Ok(Some(bytes)),
        }
    }

    fn store(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.path(name);
        let folder = path.parent().unwrap_or(&self.root);
        make_folder(folder)?;
        let mut part = path.clone().into_os_string();
        part.push(PART);
        let part = PathBuf::from(part);
        // A file that a killed process left may have another mode.
        _ = fs::remove_file(&part);
        let options = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(FILE_MODE)
            .clone();
        let mut file = options.open(&part)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&part, &path)?;
        // After this the rename survives a crash of the machine.
        File::open(folder)?.sync_all()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn make_folder(&self, folder: &str) -> io::Result<()> {
        make_folder(&self.path(folder))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let mut names = self.files(folder)?;
        names.retain(|name| !name.ends_with(PART));
        Ok(names)
    }

    fn remove_parts(&self, folder: &str) -> io::Result<()> {
        let files = self.files(folder)?.into_iter();
        let mut parts = files.filter(|name| name.ends_with(PART));
        parts.try_for_each(|part| self.remove(&format!("{folder}/{part}")))
    }

    fn lease(&self) -> io::Result<Option<Box<dyn Lease>>> {
        make_folder(&self.root)?;
        let mut options = OpenOptions::new();
        options
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE);
        let file = options.open(self.path(LEASE))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Box::new(LockedFile { _file: file }))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// A file with a lock of the kernel, which ends with the process.
struct LockedFile {
    _file: File,
}

impl Lease for LockedFile {}

/// Makes a folder that only its owner can enter. An existing folder loses the access of others.
fn make_folder(folder: &Path) -> io::Result<()> {
    if !folder.is_dir() {
        DirBuilder::new()
            .recursive(true)
            .mode(FOLDER_MODE)
            .create(folder)?;
    }
    let mode = fs::metadata(folder)?.permissions().mode();
    if mode & 0o077 != 0 {
        fs::set_permissions(folder, Permissions::from_mode(mode & 0o700))?;
    }
    Ok(())
}

const LEASE: &str = "lease";
const PART: &str = ".part";
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// The largest file that is read. A ledger of 10,000 names has 8 MB.
const FILE_BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_can_read_the_state() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("acme");
        fs::create_dir(&root).expect("the folder is made");
        fs::set_permissions(&root, Permissions::from_mode(0o755)).expect("the mode is set");
        let store = FolderStore::new(&root);
        store.store("certificates/a.pem", b"old").expect("stored");
        fs::write(root.join("certificates/a.pem.part"), b"torn").expect("written");
        store.store("certificates/a.pem", b"new").expect("stored");
        let _lease = store
            .lease()
            .expect("the lock is tried")
            .expect("the lease is free");
        let mode = |path: &str| {
            let metadata = fs::metadata(root.join(path)).expect("the path exists");
            metadata.permissions().mode() & 0o777
        };
        assert_eq!([mode(""), mode("certificates")], [0o700; 2]);
        assert_eq!([mode("certificates/a.pem"), mode("lease")], [0o600; 2]);
        assert_eq!(
            store.load("certificates/a.pem").expect("readable"),
            Some(b"new".to_vec())
        );
        assert_eq!(store.list("certificates").expect("readable"), ["a.pem"]);
    }

    #[test]
    fn names_that_do_not_exist_are_no_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = FolderStore::new(folder.path().join("acme"));
        assert_eq!(store.load("a").expect("no error"), None);
        assert!(store.list("a").expect("no error").is_empty());
        store.remove("a").expect("no error");
    }

    #[test]
    fn a_lease_has_one_holder() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, two) = (
            FolderStore::new(folder.path()),
            FolderStore::new(folder.path()),
        );
        let lease = one.lease().expect("the lock is tried");
        assert!(lease.is_some());
        assert!(two.lease().expect("the lock is tried").is_none());
        drop(lease);
        assert!(two.lease().expect("the lock is tried").is_some());
    }

    #[test]
    fn a_file_above_the_limit_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = File::create(folder.path().join("big")).expect("made");
        file.set_len(FILE_BYTES_MAX + 1)
            .expect("the file is sparse");
        let error = FolderStore::new(folder.path())
            .load("big")
            .expect_err("too large");
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
