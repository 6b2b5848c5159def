//! The settings of `[server]`.

use edgeward_proxy::config::EdgeConfig;

use super::row::{DURATION, DURATION_OR_ZERO, Key, rows};
use crate::config::draft::Part as _;
use crate::config::value::{Count, PathName, Switch, Token, Unset};

pub(super) static ROWS: &[Key] = rows! {
    /// The number of worker threads, each with its own listeners and origin connections. Default: one per core.
    "server.workers" restart,
        flag "--workers N" "Worker threads [default: one per core]": Count::of(1, 1024) => EdgeConfig.workers;

    /// If true, another edge of the same user can listen on the same addresses. The kernel then distributes connections
    /// to both, and each has a cache of its own. Use it while one edge replaces another.
    "server.share_ports" live,
        hidden_flag "--share-ports" "Share the addresses with another edge of the same user":
        Switch => EdgeConfig.share_ports;

    /// How long a shutdown waits for requests in progress.
    "server.drain_timeout" live: DURATION_OR_ZERO => EdgeConfig.drain_timeout;

    /// How long an upgrade waits until the new process accepts connections. If it does not, the new process is ended,
    /// and the old one carries on.
    "server.upgrade_timeout" live: DURATION => EdgeConfig.upgrade_timeout;

    /// How often the edge checks if the files of certificates and keys have changed. It then reads them again. If they
    /// cannot be used, it keeps the earlier ones. 0: the files are read at the start and at a reload only.
    "server.certificate_interval" live: DURATION_OR_ZERO => EdgeConfig.certificate_interval;

    /// The file to which the edge writes its process id when it accepts connections. After an upgrade, the file has the
    /// id of the new process. The edge removes the file when it ends. Without this setting there is no file; systemd
    /// does not need one.
    "server.pid_file" restart: Unset(PathName) => EdgeConfig.pid_file;

    /// The user as whom the edge serves if root starts it. The process keeps only the right to bind ports below 1024.
    /// Reloads and upgrades run as this user, so it must be able to read the configuration, the keys of certificates
    /// and the tokens, and to write logs and disks. Default: the user who starts the edge.
    "server.user" restart: Unset(Token) => EdgeConfig.user;

    /// The name of the edge in `Via` and `Cache-Status`. Must differ between the edges of a chain.
    "server.name" live: Token => EdgeConfig.name;
};
