//! Checks that the system does not back in-memory files with huge pages.
//!
//! When a body is freed, the arena punches a hole into its in-memory file. If a hole covers only a part of a huge page,
//! the kernel may clear this part in place, while the page is in a socket buffer. The client would then receive zeros.
//! Distributions disable huge pages for in-memory files (`never`) or enable them only on request (`advise`). The arena
//! never requests them.

use std::fs;
use std::io;
use std::path::Path;

/// The folder of Linux's settings for huge pages, including those of in-memory files
/// (Documentation/admin-guide/mm/transhuge.rst).
const SETTINGS: &str = "/sys/kernel/mm/transparent_hugepage";

/// Fails if the system may back in-memory files with huge pages.
pub(super) fn check_disabled() -> io::Result<()> {
    check_disabled_in(Path::new(SETTINGS))
}

fn check_disabled_in(settings: &Path) -> io::Result<()> {
    let Ok(entries) = fs::read_dir(settings) else {
        // The kernel has no huge pages.
        return Ok(());
    };
    let sizes = entries.flatten().map(|entry| entry.path());
    for folder in sizes.chain([settings.to_owned()]) {
        let file = folder.join("shmem_enabled");
        // Linux has no such setting for page sizes that in-memory files cannot have.
        let Ok(setting) = fs::read_to_string(&file) else {
            continue;
        };
        if !disables_huge_pages(&setting) {
            return Err(io::Error::other(format!(
                "{} is set to {}: large bodies need files without huge pages (set it to never or advise)",
                file.display(),
                setting.trim()
            )));
        }
    }
    Ok(())
}

/// Returns true if a setting disables huge pages. The active choice is in brackets.
fn disables_huge_pages(setting: &str) -> bool {
    let chosen = setting
        .split_whitespace()
        .find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    // `inherit` refers to the setting of the folder above, which is checked too. `deny` disables huge pages even for
    // files that request them.
    matches!(chosen, Some("never" | "advise" | "deny" | "inherit"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_in_brackets_is_active() {
        for (setting, off) in [
            ("always within_size advise [never] deny force\n", true),
            ("always within_size [advise] never deny force\n", true),
            ("[always] within_size advise never deny force\n", false),
            ("always [within_size] advise never deny force\n", false),
            ("always inherit within_size advise [never]\n", true),
            ("always [inherit] within_size advise never\n", true),
            ("nonsense\n", false),
        ] {
            assert_eq!(disables_huge_pages(setting), off, "{setting}");
        }
    }

    #[test]
    fn the_error_names_the_page_size_that_is_enabled() {
        let folder = tempfile::tempdir().expect("the folder is created");
        let size = folder.path().join("hugepages-64kB");
        fs::create_dir(&size).expect("the folder of the page size is created");
        let write = |path: &Path, text: &str| {
            fs::write(path.join("shmem_enabled"), text).expect("the setting is written");
        };
        write(
            folder.path(),
            "always within_size advise [never] deny force\n",
        );
        write(&size, "always inherit within_size advise [never]\n");
        check_disabled_in(folder.path()).expect("all page sizes are disabled");
        write(&size, "[always] inherit within_size advise never\n");
        let error = check_disabled_in(folder.path()).expect_err("a page size is enabled");
        assert!(error.to_string().contains("hugepages-64kB"), "{error}");
    }

    #[test]
    fn a_kernel_without_huge_pages_is_accepted() {
        check_disabled_in(Path::new("/nonexistent")).expect("the kernel has no huge pages");
    }
}
