//! The service manager (systemd): sockets that it opened, and messages about the state of this process.
//!
//! Without a service manager (no `NOTIFY_SOCKET`), the messages are not sent.

use edgeward_proxy::InheritedSockets;
use edgeward_proxy::config::ListenAddress;
use listenfd::ListenFd;
use sd_notify::NotifyState;

use crate::diagnostic::Diagnostic;

/// Returns the listening sockets that systemd has opened (socket activation). Call it before threads are started,
/// because it changes the environment.
pub(crate) fn activation_sockets() -> Result<InheritedSockets, Diagnostic> {
    let mut passed = ListenFd::from_env();
    let mut sockets = InheritedSockets::default();
    for index in 0..passed.len() {
        let unusable = |error: std::io::Error| {
            Diagnostic::new(format!("socket {index} of systemd cannot be used: {error}"))
                .hint("a .socket unit needs ListenStream= with an address, and Accept=no")
        };
        // A socket of another kind is left in its place.
        if let Ok(Some(socket)) = passed.take_tcp_listener(index) {
            let address = socket.local_addr().map_err(unusable)?;
            sockets.push(address.to_string(), socket.into());
        } else if let Some(socket) = passed.take_unix_listener(index).map_err(unusable)? {
            let address = socket.local_addr().map_err(unusable)?;
            let path = address.as_pathname().map(|path| path.to_owned());
            if let Some(path) = path {
                sockets.push(ListenAddress::Unix(path).to_string(), socket.into());
            }
        }
    }
    Ok(sockets)
}

/// Reports that the process serves, with a line for `systemctl status`.
pub(crate) fn ready(status: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports that the configuration is being reloaded. [`ready`] ends the reload.
pub(crate) fn reloading() {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        send(&[
            NotifyState::Reloading,
            now,
            NotifyState::Status("reloading the configuration"),
        ]);
    }
}

/// Reports that the process ends.
pub(crate) fn stopping() {
    send(&[
        NotifyState::Stopping,
        NotifyState::Status("finishing requests in progress"),
    ]);
}

/// Sets the line for `systemctl status`.
pub(crate) fn status(status: &str) {
    send(&[NotifyState::Status(status)]);
}

/// Reports that another process replaces this one.
pub(crate) fn main_process(process_id: u32) {
    send(&[
        NotifyState::MainPid(process_id),
        NotifyState::Status("upgraded; the earlier process finishes its requests"),
    ]);
}

/// Starts to report at intervals that the process works, if the service manager demands it (`WatchdogSec=`). A report
/// is omitted while `is_alive` returns false; the service manager then ends the process.
pub(crate) fn start_watchdog(is_alive: impl Fn() -> bool + Send + 'static) {
    let Some(limit) = sd_notify::watchdog_enabled() else {
        return;
    };
    let spawned = std::thread::Builder::new()
        .name("watchdog".to_owned())
        .spawn(move || {
            loop {
                if is_alive() {
                    send(&[NotifyState::Watchdog]);
                }
                std::thread::sleep(limit / 3);
            }
        });
    if let Err(error) = spawned {
        tracing::error!(%error, "the reports for WatchdogSec= cannot be sent");
    }
}

fn send(state: &[NotifyState<'_>]) {
    if std::env::var_os("NOTIFY_SOCKET").is_some()
        && let Err(error) = sd_notify::notify(state)
    {
        tracing::warn!(%error, "the service manager cannot be notified");
    }
}
