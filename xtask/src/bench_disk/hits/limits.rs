//! Computes the number of objects that the benchmark requests, so that the servers can keep all their files open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::test_servers::Subject;

/// The limit of open files that the servers request.
const FILES_WANTED: u64 = 200_000;

/// The number of open files that are not for objects or connections: logs, listeners, the folders of the cache.
const FILES_OF_OTHER_KIND: u64 = 256;

/// Returns the number of files that a server can open, at most [`FILES_WANTED`]. If the hard limit is lower, this
/// function first raises it, or at least raises the soft limit to the hard limit.
pub(super) fn files_allowed() -> u64 {
    let allowed = getrlimit(Resource::Nofile);
    let raised = |most| Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    // With a sufficient hard limit, each server raises its own soft limit. Only root may raise the hard limit, and some
    // systems do not allow it even to root.
    match allowed.maximum {
        Some(most) if most < FILES_WANTED => {
            if setrlimit(Resource::Nofile, raised(FILES_WANTED)).is_ok() {
                return FILES_WANTED;
            }
            // A server that requests more than the hard limit keeps the soft limit, so the soft limit is raised.
            _ = setrlimit(Resource::Nofile, raised(most));
            most
        }
        _ => FILES_WANTED,
    }
}

/// Returns the number of objects that each nginx server block can keep open. All blocks run in one process, and each
/// block opens its own file of an object. With more objects, nginx stops responding.
pub(super) fn objects_at_most(files: u64, connections: u32) -> u64 {
    let servers = Subject::ALL
        .iter()
        .filter(|subject| matches!(subject, Subject::Nginx(..)))
        .count();
    // A connection needs one socket to the client, one to the origin and a temporary file.
    let others = FILES_OF_OTHER_KIND + 3 * u64::from(connections);
    files
        .saturating_sub(others)
        .div_euclid(servers as u64)
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_objects_fits_the_limit_of_open_files() {
        assert_eq!(objects_at_most(20_000, 64), 4888);
        assert_eq!(objects_at_most(FILES_WANTED, 64), 49_888);
        assert_eq!(objects_at_most(10, 64), 1);
    }

    #[test]
    fn the_hard_limit_is_at_least_the_returned_limit() {
        let allowed = files_allowed();
        assert!(allowed > 0 && allowed <= FILES_WANTED);
        let hard = getrlimit(Resource::Nofile).maximum;
        assert!(
            hard.is_none_or(|hard| hard >= allowed),
            "{hard:?} {allowed}"
        );
    }
}
