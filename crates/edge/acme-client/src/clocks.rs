//! Reads the clocks of this machine.

use std::time::SystemTime;

use edgeward_acme::Reading;
use edgeward_types::mix64;
use rustix::time::{ClockId, clock_gettime};

/// Returns the time of all clocks.
pub(crate) fn read() -> Reading {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since_boot = clock_gettime(ClockId::Boottime).tv_sec;
    Reading {
        wall_at: since_1970.unwrap_or_default().as_secs(),
        since_boot_seconds: u64::try_from(since_boot).unwrap_or(0),
        boot: boot(),
    }
}

/// Returns a number that identifies the start of this machine. Zero if the process cannot read it, for example because
/// systemd hides it (`ProcSubset=pid`): the time for which the machine was off then prolongs waits.
fn boot() -> u64 {
    hash_of("/proc/sys/kernel/random/boot_id")
}

/// Returns a number that identifies this machine. Zero if the system does not state it.
pub(crate) fn machine() -> u64 {
    hash_of("/etc/machine-id")
}

fn hash_of(file: &str) -> u64 {
    let id = std::fs::read(file).unwrap_or_default();
    id.iter().fold(0, |mixed, &byte| {
        mix64(mixed ^ u64::from(byte)).wrapping_add(1)
    })
}
