//! Saves the history of admission to disk in a file, and restores it at the next start.
//!
//! The file is written under a temporary name and then renamed, so that an interrupted write leaves the old file. If
//! the file is missing, unreadable or has another `tag` (the seed of the key hashes), the history starts empty.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use edgeward_policy::disk_admission::{AnyDiskAdmission, DiskAdmissionSpec};
use edgeward_policy::sketch::RotatingBloomConfig;
use edgeward_store::disk::DiskSettings;

/// Returns the default path of a file of the disk tier: `name` in the first device's directory, or beside the first
/// device with `suffix` if the device is a file. Returns `None` for a block device, or if there is no file at the
/// device's path.
pub(crate) fn default_file(settings: &DiskSettings, name: &str, suffix: &str) -> Option<PathBuf> {
    let path = &settings.devices.first()?.path;
    let metadata = fs::metadata(path).ok()?;
    if metadata.is_dir() {
        return Some(path.join(name));
    }
    if !metadata.is_file() {
        return None;
    }
    let mut beside = path.file_name()?.to_owned();
    beside.push(suffix);
    Some(path.with_file_name(beside))
}

/// Returns the rule of `spec` with the history from the file, or with an empty one. `memory` sizes the history.
pub(super) fn restore(
    file: Option<&Path>,
    spec: DiskAdmissionSpec,
    memory: RotatingBloomConfig,
    tag: u64,
) -> AnyDiskAdmission {
    let empty = || AnyDiskAdmission::new(spec, memory);
    let has_history = !matches!(spec, DiskAdmissionSpec::Always | DiskAdmissionSpec::Never);
    let Some(path) = file.filter(|_| has_history) else {
        return empty();
    };
    let opened = match File::open(path) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return empty(),
        Err(error) => {
            tracing::warn!(%error, file = %path.display(), "the history of admission to disk cannot be read");
            return empty();
        }
    };
    match AnyDiskAdmission::read_from(spec, memory, tag, &mut BufReader::new(opened)) {
        Ok(admission) => admission,
        Err(error) => {
            tracing::warn!(%error, file = %path.display(), "admission to disk starts with an empty history");
            empty()
        }
    }
}

/// Saves the history of a rule.
pub(super) fn save(path: &Path, admission: &AnyDiskAdmission, tag: u64) {
    if let Err(error) = try_save(path, admission, tag) {
        tracing::warn!(%error, file = %path.display(), "the history of admission to disk cannot be saved");
    }
}

fn try_save(path: &Path, admission: &AnyDiskAdmission, tag: u64) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let mut output = BufWriter::new(File::create(&temporary)?);
    admission.write_to(tag, &mut output)?;
    output.flush()?;
    output.get_ref().sync_data()?;
    fs::rename(&temporary, path)
}
