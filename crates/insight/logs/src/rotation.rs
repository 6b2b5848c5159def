//! The names of rotated logs.

use std::path::Path;

/// Where the name of a rotated log has its number or date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rotation {
    Behind,
    BeforeExtension,
}

/// Returns the form of the name of a rotated log: that of the log with a number or a date behind it, or before its
/// extension. `None` for other names. Compressed files have another ending.
pub(crate) fn rotation(path: &Path, name: &str) -> Option<Rotation> {
    let text =
        |part: Option<&std::ffi::OsStr>| part.and_then(|part| part.to_str()).map(str::to_owned);
    let is_mark = |mark: &str| {
        let is_part = |c: char| c.is_ascii_digit() || "-._".contains(c);
        // `web10.log` is not a rotated `web1.log`.
        mark.starts_with(['-', '.', '_'])
            && mark.chars().all(is_part)
            && mark.contains(|c: char| c.is_ascii_digit())
    };
    let (log, stem) = (text(path.file_name())?, text(path.file_stem())?);
    let extension = &log[stem.len()..];
    let behind = name.strip_prefix(&log);
    let before = name
        .strip_prefix(&stem)
        .and_then(|rest| rest.strip_suffix(extension));
    match (behind.is_some_and(is_mark), before.is_some_and(is_mark)) {
        (true, _) => Some(Rotation::Behind),
        (_, true) => Some(Rotation::BeforeExtension),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotated_log_has_a_number_or_a_date() {
        let path = Path::new("/var/log/access.log");
        for (name, expected) in [
            ("access.log.1", true),
            ("access.log-20261130", true),
            ("access.log.2026-11-30_12", true),
            ("access-20261130.log", true),
            ("access.1.log", true),
            ("access.log", false),
            ("access.log.", false),
            ("access.log.1.gz", false),
            ("access.log.json", false),
            ("access-api.log", false),
            ("access2.log", false),
            ("error.log.1", false),
        ] {
            assert_eq!(rotation(path, name).is_some(), expected, "{name}");
        }
        let access = Path::new("access");
        assert_eq!(rotation(access, "access.1"), Some(Rotation::Behind));
        assert_eq!(rotation(access, "access"), None);
    }
}
