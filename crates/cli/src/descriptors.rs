//! The limit of open files of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard limit.
///
/// Most systems start processes with a soft limit of 1,024, because `select` cannot watch higher descriptors. A
/// server uses a descriptor for each connection, so it must raise its own limit before it opens connections.
pub(crate) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(
            %error,
            soft = limit.current,
            hard = limit.maximum,
            "cannot raise the soft limit of open files"
        );
    }
}
