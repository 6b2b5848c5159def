//! How many objects the servers can hold open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::stage::Subject;

/// As many as the servers ask for.
const FILES_WANTED: u64 = 200_000;

/// Of logs, listeners, the cache's own.
const FILES_OF_OTHER_KIND: u64 = 256;

/// How many files a server that is started from here may open, after that was raised as far as it goes.
pub(super) fn files_allowed() -> u64 {
    let allowed = getrlimit(Resource::Nofile);
    let raised = |most| Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    // Beyond the hard limit only root may go, and not everywhere.
    match allowed.maximum {
        Some(most) if most < FILES_WANTED => {
            if setrlimit(Resource::Nofile, raised(FILES_WANTED)).is_ok() {
                return FILES_WANTED;
            }
            // Servers that ask for more than they may have stay at the soft limit.
            _ = setrlimit(Resource::Nofile, raised(most));
            most
        }
        _ => FILES_WANTED,
    }
}

/// Objects that all of nginx's servers can have open at the same time, in one process. With more of them it stops answering.
pub(super) fn objects_at_most(files: u64, connections: u32) -> u64 {
    let servers = Subject::ALL
        .iter()
        .filter(|subject| matches!(subject, Subject::Nginx(..)))
        .count();
    // A connection has one to the client, one to the origin and a temporary file.
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
    fn nginx_opens_no_more_than_it_may() {
        assert_eq!(objects_at_most(20_000, 64), 4888);
        assert_eq!(objects_at_most(FILES_WANTED, 64), 49_888);
        assert_eq!(objects_at_most(10, 64), 1);
    }

    #[test]
    fn what_is_allowed_is_what_a_child_gets() {
        let allowed = files_allowed();
        assert!(allowed > 0 && allowed <= FILES_WANTED);
        let hard = getrlimit(Resource::Nofile).maximum;
        assert!(
            hard.is_none_or(|hard| hard >= allowed),
            "{hard:?} {allowed}"
        );
    }
}
