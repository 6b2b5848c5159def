//! `edgeward serve`: runs the edge until a signal stops it.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, mpsc};

use anyhow::Context as _;
use serde_json::json;

use edgeward_proxy::config::{EdgeConfig, ListenAddress};
use edgeward_proxy::{Edge, Inheritance, InheritedSockets, RunningEdge, StartError};
use edgeward_types::ByteSize;

use crate::acme::AcmeService;
use crate::allocator;
use crate::config::{self, CheckedConfig, FlagSetting, SettingFlags};
use crate::descriptors;
use crate::diagnostic::Diagnostic;
use crate::fleet::FleetService;
use crate::insight;
use crate::link_edge::{EdgeLink, LinkInheritance, LinkTakeOver};
use crate::memory;
use crate::negative;
use crate::output;
use crate::privileges;
use crate::reload::{Applied, ReloadableConfig};
use crate::service;
use crate::signals::Signals;
use crate::stated::stated;
use crate::upgrade::{LINK_ADMIN, NewProcess, Predecessor, Upgrader, program};

/// Run the edge: a caching reverse proxy, in memory and on disk
///
/// Caches responses of an origin as RFC 9111 says, by a size-aware policy. SIGTERM, SIGINT and SIGQUIT stop it: it
/// accepts no more connections and finishes requests in progress. A second signal stops it at once. SIGHUP reloads the
/// configuration file and reopens the access log; SIGUSR1 only reopens the log; SIGUSR2 upgrades the program.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    flags: SettingFlags,

    /// Configuration file; flags override it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Any key of the configuration file
    ///
    /// For example `--set limits.headers_max=50`; docs/reference/configuration.md lists the keys.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,

    /// Print the first line of output as JSON
    #[arg(long, hide_short_help = true)]
    json: bool,
}

impl ServeArgs {
    /// Converts the flags to settings with the keys of the configuration file.
    fn settings(&self) -> Result<Vec<FlagSetting>, Diagnostic> {
        let SettingFlags(mut settings) = self.flags.clone();
        for text in &self.settings {
            let (key, value) = text.split_once('=').ok_or_else(|| {
                Diagnostic::new(format!("--set {text} is not KEY=VALUE"))
                    .hint("write for example --set limits.headers_max=50")
            })?;
            settings.push(FlagSetting {
                flag: format!("--set {key}"),
                key: key.to_owned(),
                text: value.to_owned(),
            });
        }
        Ok(settings)
    }
}

/// Runs the edge until a signal or an upgrade ends it. Exit codes: 0 the requests in progress were finished or the
/// drain timeout ended, 1 a second signal ended the wait for them.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    // First, because both change the environment or the standard input of the process.
    let predecessor = Predecessor::of_environment()?;
    let activated = service::activation_sockets()?;
    let started = start(args, predecessor.as_ref(), activated);
    match (started, predecessor) {
        (Ok(serving), Some(predecessor)) => {
            predecessor
                .follow(&serving.edge, serving.take_over_links())
                .context("the process to replace has ended")?;
            serving.edge.count_upgrade();
            serving.fleet.join(&serving.edge.reloader());
            serving.run()
        }
        (Ok(serving), None) => {
            service::ready("serving");
            serving.fleet.join(&serving.edge.reloader());
            serving.run()
        }
        (Err(error), predecessor) => {
            if let Some(predecessor) = predecessor {
                predecessor.report_failure(&error);
            }
            Err(error)
        }
    }
}

/// A running edge with its signals.
struct Serving {
    edge: RunningEdge,
    signals: Signals,
    config: EdgeConfig,
    links: Vec<(String, EdgeLink)>,
    /// The certificates that renew themselves.
    acme: Arc<AcmeService>,
    /// The purges and members of the fleet.
    fleet: Arc<FleetService>,
    /// Gets the process that replaces this one.
    replaced: mpsc::Receiver<NewProcess>,
}

/// Starts the edge, with the sockets of another process if there is one.
fn start(
    args: &ServeArgs,
    predecessor: Option<&Predecessor>,
    activated: InheritedSockets,
) -> anyhow::Result<Serving> {
    // Received first: if this process ends with unread messages, the old process does not get the reason.
    let (inheritance, mut link_inheritance, inherited_members) = match predecessor {
        Some(predecessor) => {
            let (inheritance, link, fleet) = predecessor.inheritance()?;
            (inheritance, link, Some(fleet))
        }
        None => {
            let inheritance = Inheritance {
                sockets: activated,
                ..Inheritance::default()
            };
            (inheritance, LinkInheritance::default(), None)
        }
    };
    let flags = args.settings()?;
    let checked = load_as_user(args, &flags)?;
    edgeward_proxy::log_panics();
    memory::warn_if_hot_exceeds_memory(checked.edge.hot.capacity);
    for warning in &checked.warnings {
        tracing::warn!("{warning}");
    }
    let mut edge_config = checked.edge;
    let file = args.config.as_deref();
    edge_config.stated = stated(&checked.settings, &checked.sites, file, &[]);
    // The memory tier calls this function before evictions. It returns the freed memory to the system if this memory
    // exceeds a limit in bytes, the function's argument.
    edge_config.hot.return_freed_pages = Some(allocator::return_pages_above);
    edge_config.negative = negative::start(&checked.negative)?;
    edge_config.watcher = insight::watcher_of(&edge_config);
    let acme = Arc::new(AcmeService::default());
    edge_config.certificates = acme.apply(&checked.acme)?;
    let nats = checked.fleet_nats.as_ref();
    let fleet = Arc::new(FleetService::start(
        nats,
        checked.announces,
        &mut edge_config,
        inherited_members,
    )?);
    let mut links = Vec::new();
    for (name, settings) in &checked.links {
        links.push((
            name.clone(),
            EdgeLink::start(settings, &mut link_inheritance)?,
        ));
    }
    for origin in &mut edge_config.origins {
        let link = links.iter().find(|(name, _)| *name == origin.name);
        origin.dial = link.map(|(_, link)| link.dial());
    }
    // The signals are handled before the first line is printed, because the reader of this line may send a signal
    // immediately.
    let mut signals = Signals::of_server()?;
    let edge = Edge::start_with(edge_config.clone(), inheritance).map_err(with_hint)?;
    let health = edge.health();
    service::start_watchdog(move || health.is_alive());
    let reopener = edge.log_reopener();
    signals.on_reopen(move || {
        reopener.reopen();
        reopener.has_log()
    });
    if let Some(file) = &args.config {
        let reloader = edge.reloader();
        let applied = Applied {
            settings: checked.settings,
            sites: checked.sites,
            negative: checked.negative,
            acme: checked.acme,
        };
        let source = Arc::clone(&acme);
        let (members, by_config) = (Arc::clone(&fleet), reloader.clone());
        let config =
            ReloadableConfig::new(file.clone(), flags, applied, source, members, by_config);
        let config = Arc::new(config);
        let by_request = Arc::clone(&config);
        reloader.on_request(move || by_request.reload());
        signals.on_reload(move || _ = config.reload());
    }
    let replaced = offer_upgrade(&edge, &links, Arc::clone(&fleet), &mut signals)?;
    if let Some(file) = &edge_config.pid_file {
        write_pid(file).map_err(|error| Diagnostic::unreadable(file, "cannot write", &error))?;
    }
    announce(&edge, &edge_config, &links, args.json)?;
    Ok(Serving {
        edge,
        signals,
        config: edge_config,
        links,
        acme,
        fleet,
        replaced,
    })
}

/// Reads the configuration, and becomes the user that it states.
fn load_as_user(args: &ServeArgs, flags: &[FlagSetting]) -> anyhow::Result<CheckedConfig> {
    let checked = config::load(args.config.as_deref(), flags)?;
    descriptors::raise_limit();
    let has_changed = match &checked.edge.user {
        Some(name) => privileges::become_user(name)?,
        None => false,
    };
    if !has_changed {
        return Ok(checked);
    }
    // Read again, so that a file that the user cannot read is an error now and not at the first reload.
    config::load(args.config.as_deref(), flags)
        .map_err(anyhow::Error::from)
        .context("as the user of server.user")
}

/// Lets SIGUSR2 and the admin server replace this process. Returns the receiver of the new process.
fn offer_upgrade(
    edge: &RunningEdge,
    links: &[(String, EdgeLink)],
    fleet: Arc<FleetService>,
    signals: &mut Signals,
) -> anyhow::Result<mpsc::Receiver<NewProcess>> {
    let (send, replaced) = mpsc::channel();
    let ended = signals.replaced();
    let on_done = move |new| {
        _ = send.send(new);
        ended();
    };
    let (source, by_request) = (edge.upgrade_source(), edge.upgrade_source());
    let link_admins = links.iter().filter_map(|(_, link)| link.admin_socket());
    let named = link_admins.map(|(address, socket)| (format!("{LINK_ADMIN} {address}"), socket));
    let sockets = named.collect();
    let upgrader = Upgrader::new(program()?, source, sockets, fleet, on_done);
    let upgrader = Arc::new(upgrader);
    let by_signal = Arc::clone(&upgrader);
    by_request.on_request(move || upgrader.upgrade());
    signals.on_upgrade(move || {
        let upgrader = Arc::clone(&by_signal);
        // Other signals are handled while the new process starts.
        let spawned = std::thread::Builder::new()
            .name("upgrade".to_owned())
            .spawn(move || upgrader.upgrade());
        if let Err(error) = spawned {
            tracing::error!(%error, "the upgrade cannot be started");
        }
    });
    Ok(replaced)
}

impl Serving {
    /// Returns handles that open the chunk stores of the process before this one.
    fn take_over_links(&self) -> Vec<LinkTakeOver> {
        let links = self.links.iter();
        links.map(|(_, link)| link.take_over()).collect()
    }

    /// Waits for the end of the edge, and finishes its requests.
    fn run(mut self) -> anyhow::Result<ExitCode> {
        let name = self.signals.next();
        let drain = self.edge.reloader().config().drain_timeout;
        let new = self.replaced.try_recv().ok();
        tracing::info!(signal = name, drain_seconds = drain.as_secs(), "draining");
        if new.is_none() {
            service::stopping();
        }
        // The next process orders certificates and sends heartbeats from now on.
        self.acme.stop();
        self.fleet.stopping(new.is_some());
        let (edge, links, fleet) = (self.edge, self.links, self.fleet);
        if new.is_some() {
            links.iter().for_each(|(_, link)| link.stop_admin());
        }
        let shutdown_thread = std::thread::Builder::new()
            .name("drain".to_owned())
            .spawn(move || {
                match new {
                    Some(new) => {
                        edge.shutdown_for_successor(drain, || new.release_disk());
                        new.finish();
                    }
                    None => edge.shutdown(drain),
                }
                // Until now, the last requests saw the purges of the fleet.
                fleet.stop();
                // The requests have ended, so the links have no streams. Their stores are then free for another
                // process.
                drop(links);
            })
            .context("the shutdown cannot be started")?;
        let (send_done, done) = tokio::sync::oneshot::channel();
        let waiting_thread = std::thread::spawn(move || {
            let joined = shutdown_thread.join();
            // The error is ignored: after a second signal, `run` has returned and dropped the receiver.
            _ = send_done.send(());
            joined
        });
        let second = self.signals.next_before(done);
        if let Some(file) = &self.config.pid_file {
            remove_pid(file);
        }
        if let Some(name) = second {
            tracing::warn!(signal = name, "stopped before all requests were finished");
            return Ok(ExitCode::from(1));
        }
        if waiting_thread.join().is_ok_and(|joined| joined.is_ok()) {
            tracing::info!("drained");
            Ok(ExitCode::SUCCESS)
        } else {
            anyhow::bail!("the shutdown failed")
        }
    }
}

/// Writes the id of this process. The file is replaced as a whole, because another process may read it.
fn write_pid(file: &Path) -> io::Result<()> {
    let mut new = file.as_os_str().to_owned();
    new.push(".new");
    std::fs::write(&new, format!("{}\n", std::process::id()))?;
    std::fs::rename(&new, file)
}

/// Removes the file, unless the process that has replaced this one has written its own id.
fn remove_pid(file: &Path) {
    let own = std::process::id().to_string();
    if std::fs::read_to_string(file).is_ok_and(|text| text.trim() == own) {
        _ = std::fs::remove_file(file);
    }
}

/// Adds a hint to an error that prevented the start of the edge.
fn with_hint(error: StartError) -> anyhow::Error {
    let hint = match &error {
        StartError::Listen { source, .. } => match source.kind() {
            io::ErrorKind::AddrInUse => {
                "another program uses the address; `ss -ltnp` shows it. --share-ports shares the port with \
                 another edge of the same user"
            }
            io::ErrorKind::PermissionDenied => {
                "ports below 1024 need the capability CAP_NET_BIND_SERVICE"
            }
            io::ErrorKind::AddrNotAvailable => {
                "no interface of this machine has the address; use 0.0.0.0 for all addresses"
            }
            _ => return error.into(),
        },
        StartError::OpenFiles { .. } => {
            "raise the hard limit: `ulimit -Hn`, or LimitNOFILE= in a systemd unit"
        }
        _ => return error.into(),
    };
    Diagnostic::from_error(&error).hint(hint).into()
}

/// The URL of a server, or the address of a Unix socket.
fn url(addr: &ListenAddress, has_tls: bool) -> String {
    match (addr, has_tls) {
        (ListenAddress::Unix(_), _) => addr.to_string(),
        (ListenAddress::Tcp(addr), true) => format!("https://{addr}"),
        (ListenAddress::Tcp(addr), false) => format!("http://{addr}"),
    }
}

fn link_json(link: &EdgeLink) -> serde_json::Value {
    json!({ "admin": link.admin_addr().map(|addr| format!("http://{addr}")) })
}

/// Prints one line with the addresses, for people and for the program that started the edge.
fn announce(
    edge: &RunningEdge,
    config: &EdgeConfig,
    links: &[(String, EdgeLink)],
    as_json: bool,
) -> anyhow::Result<()> {
    let listening = edge.listening().iter().zip(&config.listeners);
    let urls: Vec<String> = listening
        .map(|(addr, listener)| url(addr, listener.has_tls()))
        .collect();
    let admin = edge.admin();
    let admin = admin.map(|addr| url(addr, config.admin.tls.is_some()));
    let hot = &config.hot;
    let written = if as_json {
        output::print_json_line(&json!({
            "listening": urls,
            "admin": admin,
            "origins": config.origins.iter().map(|origin| origin.url().to_string()).collect::<Vec<_>>(),
            // The first link, and all links by the names of their origins.
            "link": links.first().map(|(_, link)| link_json(link)),
            "links": links
                .iter()
                .map(|(origin, link)| (origin.clone(), link_json(link)))
                .collect::<serde_json::Map<_, _>>(),
            "policy": hot.policy.to_string(),
            "hot_bytes": hot.capacity.bytes(),
            "disk": config.disk.as_ref().map(|disk| json!({
                "admission": disk.admission.to_string(),
                "devices": disk.settings.devices.iter().map(|device| json!({
                    "path": device.path,
                    "capacity_bytes": device.capacity.map(|capacity| capacity.bytes()),
                })).collect::<Vec<_>>(),
            })),
            "workers": config.workers,
            "pid": std::process::id(),
        }))
    } else {
        let mut out = output::stdout();
        let admin_text = admin.map_or_else(String::new, |url| format!(", admin on {url}"));
        let disk_text = config.disk.as_ref().map_or_else(String::new, |disk| {
            let sizes = disk.settings.devices.iter().filter_map(|d| d.capacity);
            let bytes = sizes.map(ByteSize::bytes).sum();
            format!(", disk {} with {}", ByteSize(bytes), disk.admission)
        });
        let origins = match &config.origins[..] {
            [origin] => format!("origin {}", origin.url()),
            origins => format!("{} origins", origins.len()),
        };
        writeln!(
            out,
            "listening on {}, {origins}, memory {} with {}{disk_text}{admin_text}",
            urls.join(" and "),
            hot.capacity,
            hot.policy,
        )
        .and_then(|()| out.flush())
        .map_err(Into::into)
    };
    match written {
        // A closed stdout is not an error: the edge does not need it.
        Err(error) if output::is_stdout_closed(&error) => Ok(()),
        other => other,
    }
}

const EXAMPLES: &str = "\
Exit codes: 0 all requests in progress were finished, 1 a second signal stopped the edge before they were
finished, 2 the edge could not start. docs/reference/configuration.md lists every setting;
`edgeward check-config FILE` checks a file.

Examples:
  In front of an origin on the same machine:
    edgeward serve --listen 127.0.0.1:8080 --origin http://127.0.0.1:9000 --hot 256MiB
  With TLS and metrics:
    edgeward serve --listen 0.0.0.0:443 --tls-cert full.pem --tls-key key.pem \\
      --origin http://10.0.0.7 --admin 127.0.0.1:9900
  With a disk cache of 100 GiB:
    edgeward serve --listen 0.0.0.0:80 --origin http://10.0.0.7 --hot 4GiB \\
      --disk /var/cache/edgeward --disk-size 100GiB
  With a configuration file, and another policy than the file's:
    edgeward serve --config edgeward.toml --policy lru";
