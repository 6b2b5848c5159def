//! Changes the user of the process: an edge that root starts need not serve as root.
//!
//! The process keeps one capability, the one for ports below 1024, because a reload can add a listener and an upgrade
//! starts a process that binds its own. Everything else of root is given up before the first socket is opened.

use std::ffi::CString;
use std::io;

use nix::unistd::{User, geteuid, initgroups, setresgid, setresuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, configure_capability_in_ambient_set, set_capabilities,
    set_keep_capabilities, set_no_new_privs,
};

use crate::diagnostic::Diagnostic;

/// Makes the process one of the user `name`, with the user's groups. Returns false if it already is.
///
/// The calls of the C library change all threads of the process. Capabilities belong to threads, so this function must
/// run before threads are started: they inherit those of this thread.
pub(crate) fn become_user(name: &str) -> Result<bool, Diagnostic> {
    let user = find_user(name)?;
    if geteuid() == user.uid {
        return Ok(false);
    }
    if !geteuid().is_root() {
        return Err(Diagnostic::new(format!(
            "server.user = \"{name}\": only root can become another user"
        ))
        .hint("start the edge as root or as this user, or remove the key"));
    }
    change(name, &user).map_err(|error| failed(name, "cannot be set", error))?;
    Ok(true)
}

/// Looks up the user.
pub(crate) fn find_user(name: &str) -> Result<User, Diagnostic> {
    User::from_name(name)
        .map_err(|error| failed(name, "cannot be looked up", error.into()))?
        .ok_or_else(|| {
            Diagnostic::new(format!("server.user: there is no user {name}")).hint(format!(
                "create it by: useradd --system --no-create-home {name}"
            ))
        })
}

fn change(name: &str, user: &User) -> io::Result<()> {
    let name = CString::new(name)?;
    // Without it, a process that gives up the user id 0 gives up all capabilities.
    set_keep_capabilities(true)?;
    initgroups(&name, user.gid)?;
    setresgid(user.gid, user.gid, user.gid)?;
    setresuid(user.uid, user.uid, user.uid)?;
    let low_ports = CapabilitySet::NET_BIND_SERVICE;
    let sets = CapabilitySets {
        effective: low_ports,
        permitted: low_ports,
        inheritable: low_ports,
    };
    set_capabilities(None, sets)?;
    // Ambient, so that the process of an upgrade has the capability too.
    configure_capability_in_ambient_set(low_ports, true)?;
    set_keep_capabilities(false)?;
    set_no_new_privs(true)?;
    Ok(())
}

fn failed(name: &str, what: &str, error: io::Error) -> Diagnostic {
    Diagnostic::new(format!(
        "server.user = \"{name}\": the user {what}: {error}"
    ))
    .hint("the edge needs the capabilities SETUID and SETGID; without server.user it needs no user")
}
