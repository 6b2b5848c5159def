//! Whether files in memory lie in single pages here.
//!
//! Punching a hole that cuts through a larger page may clear the cut part in place, and that page may be on
//! its way to a client. Distributions leave larger pages for such files off (`never`, or `advise`, which
//! takes a word from us that is never said).

use std::fs;
use std::io;
use std::path::Path;

/// Where Linux says which pages files in memory get (Documentation/admin-guide/mm/transhuge.rst).
const SETTINGS: &str = "/sys/kernel/mm/transparent_hugepage";

pub(super) fn are_single_pages() -> io::Result<()> {
    are_single_pages_by(Path::new(SETTINGS))
}

fn are_single_pages_by(settings: &Path) -> io::Result<()> {
    let Ok(entries) = fs::read_dir(settings) else {
        // A kernel without larger pages.
        return Ok(());
    };
    let sizes = entries.flatten().map(|entry| entry.path());
    for folder in sizes.chain([settings.to_owned()]) {
        let file = folder.join("shmem_enabled");
        // A size that files cannot have has no such setting.
        let Ok(setting) = fs::read_to_string(&file) else {
            continue;
        };
        if !is_off(&setting) {
            return Err(io::Error::other(format!(
                "{} is set to {}; large bodies lie in files of single pages only (never, advise)",
                file.display(),
                setting.trim()
            )));
        }
    }
    Ok(())
}

/// The choice that counts stands in brackets.
fn is_off(setting: &str) -> bool {
    let chosen = setting
        .split_whitespace()
        .find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    // `inherit` means what the folder above says, which is looked at too.
    matches!(chosen, Some("never" | "advise" | "deny" | "inherit"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_pages_are_told_by_the_choice_in_brackets() {
        for (setting, off) in [
            ("always within_size advise [never] deny force\n", true),
            ("always within_size [advise] never deny force\n", true),
            ("[always] within_size advise never deny force\n", false),
            ("always [within_size] advise never deny force\n", false),
            ("always inherit within_size advise [never]\n", true),
            ("always [inherit] within_size advise never\n", true),
            ("nonsense\n", false),
        ] {
            assert_eq!(is_off(setting), off, "{setting}");
        }
    }

    #[test]
    fn a_system_that_enlarges_one_size_of_page_is_refused_by_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let size = folder.path().join("hugepages-64kB");
        fs::create_dir(&size).expect("a folder within");
        let write = |path: &Path, text: &str| {
            fs::write(path.join("shmem_enabled"), text).expect("a file");
        };
        write(
            folder.path(),
            "always within_size advise [never] deny force\n",
        );
        write(&size, "always inherit within_size advise [never]\n");
        are_single_pages_by(folder.path()).expect("all off");
        write(&size, "[always] inherit within_size advise never\n");
        let error = are_single_pages_by(folder.path()).expect_err("one is on");
        assert!(error.to_string().contains("hugepages-64kB"), "{error}");
    }

    #[test]
    fn a_kernel_without_larger_pages_is_fine() {
        are_single_pages_by(Path::new("/nonexistent")).expect("nothing to be wrong");
    }
}
