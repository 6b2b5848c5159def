//! `edgeward link forward` and `edgeward link socks`: local TCP listeners through which other
//! programs use a link.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use edgeward_link::socks::ProxyUsers;
use edgeward_link::{Admin, Client, HostPort, ListenerTarget, LocalListener, Target};

use super::endpoint::{EndpointArgs, announce, run_until_signal, start_admin, with_hint};
use crate::commands::flag_values::address;
use crate::diagnostic::Diagnostic;

/// Forward a local port to a target behind the gateway, or intercepted connections to their targets
#[derive(Args, Debug)]
#[command(
    after_long_help = FORWARD_EXAMPLES,
    override_usage = "edgeward link forward [OPTIONS] --listen ADDR --to HOST:PORT --gateway …"
)]
pub(crate) struct ForwardArgs {
    /// Local address; repeatable, once for each --to
    #[arg(long, value_parser = address, value_name = "ADDR", required_unless_present = "transparent")]
    listen: Vec<SocketAddr>,

    /// The target, to which the gateway connects, such as db:3306
    #[arg(
        long,
        value_name = "HOST:PORT",
        required_unless_present = "transparent"
    )]
    to: Vec<HostPort>,

    /// Local address to which nftables diverts connections (redirect or tproxy); their target is the address to which
    /// they were made; repeatable
    #[arg(long, value_parser = address, value_name = "ADDR")]
    transparent: Vec<SocketAddr>,

    #[command(flatten)]
    link: ClientArgs,
}

/// Run a SOCKS5 and HTTP CONNECT proxy; the gateway connects to the targets
#[derive(Args, Debug)]
#[command(
    after_long_help = SOCKS_EXAMPLES,
    override_usage = "edgeward link socks [OPTIONS] --gateway HOST:PORT --keys DIR --store PATH"
)]
pub(crate) struct SocksArgs {
    /// Local address; without --users, every program that can reach it may use it
    #[arg(long, value_parser = address, value_name = "ADDR", default_value = "127.0.0.1:1080")]
    listen: SocketAddr,

    /// File of the users that may use the proxy, one NAME:PASSWORD per line
    #[arg(long, value_name = "FILE")]
    users: Option<PathBuf>,

    #[command(flatten)]
    link: ClientArgs,
}

#[derive(Args, Debug)]
struct ClientArgs {
    /// Address of the gateway; repeatable: the next one is used if the others cannot be reached
    #[arg(long, value_name = "HOST:PORT", required = true)]
    gateway: Vec<HostPort>,

    #[command(flatten)]
    endpoint: EndpointArgs,

    /// TCP connections to the gateway; if there are several, the first one carries short frames
    #[arg(
        long = "connections",
        value_name = "N",
        default_value_t = 2,
        value_parser = clap::value_parser!(u8).range(1..=16),
        hide_short_help = true
    )]
    gateway_connections: u8,

    /// Maximum number of connections per local address; further connections wait
    #[arg(
        long = "connections-max",
        value_name = "N",
        default_value_t = 1000,
        hide_short_help = true
    )]
    local_connections_max: usize,
}

/// Forwards connections until a signal stops the process.
pub(crate) fn forward(args: &ForwardArgs) -> anyhow::Result<ExitCode> {
    if args.listen.len() != args.to.len() {
        let message = format!(
            "--listen is given {} times and --to {} times",
            args.listen.len(),
            args.to.len()
        );
        return Err(Diagnostic::new(message)
            .hint("give one --to for each --listen, in the same order")
            .into());
    }
    let targets = args.to.iter().cloned().map(Target::Tcp);
    let listeners = args
        .listen
        .iter()
        .copied()
        .zip(targets.map(ListenerTarget::Fixed));
    let transparent = args.transparent.iter().copied();
    let transparent = transparent.map(|addr| (addr, ListenerTarget::Intercepted));
    serve(&args.link, listeners.chain(transparent).collect())
}

/// Runs the proxy, whose clients name the target of each connection, until a signal stops it.
pub(crate) fn socks(args: &SocksArgs) -> anyhow::Result<ExitCode> {
    let users = args.users.as_deref().map(read_users).transpose()?;
    let target = ListenerTarget::Proxy(users.map(Arc::new));
    serve(&args.link, vec![(args.listen, target)])
}

fn read_users(path: &Path) -> anyhow::Result<ProxyUsers> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Diagnostic::unreadable(path, "cannot read", &error))?;
    ProxyUsers::parse(&text).map_err(|error| {
        let diagnostic = Diagnostic::from_error(&error).in_file(path);
        diagnostic
            .hint("write one NAME:PASSWORD on each line")
            .into()
    })
}

/// Starts a link and its local listeners, and runs them until a signal.
fn serve(
    args: &ClientArgs,
    listeners: Vec<(SocketAddr, ListenerTarget)>,
) -> anyhow::Result<ExitCode> {
    let mut config = args.endpoint.config()?;
    config.connections = usize::from(args.gateway_connections);
    let gateways: Vec<String> = args.gateway.iter().map(ToString::to_string).collect();
    let start = async || {
        let client = Client::start_with_failover(config, gateways.clone()).map_err(with_hint)?;
        let mut local_listeners = Vec::new();
        for (address, target) in listeners {
            let listener =
                LocalListener::bind(client.clone(), address, target, args.local_connections_max)
                    .await;
            local_listeners.push(listener.map_err(with_hint)?);
        }
        let admin = start_admin(args.endpoint.admin, client.report()).await?;
        let addrs: Vec<String> = local_listeners
            .iter()
            .map(|listener| listener.local_addr().to_string())
            .collect();
        let text = format!(
            "listening on {}, gateway {}{}",
            addrs.join(" and "),
            gateways.join(" or "),
            args.endpoint.encryption.encryption_warning()
        );
        let first_line = json!({ "listening": addrs, "gateway": gateways[0] });
        announce(args.endpoint.json, &text, admin.as_ref(), first_line)?;
        Ok((client, local_listeners, admin))
    };
    // All streams belong to one peer, the gateway, whose task is on one thread at a time.
    run_until_signal(1, start, stop)?;
    Ok(ExitCode::SUCCESS)
}

async fn stop(running: (Client, Vec<LocalListener>, Option<Admin>)) -> anyhow::Result<()> {
    let (client, local_listeners, admin) = running;
    // The client accepts no new connections from now on, and open connections can finish.
    client.drain(DRAIN_MAX).await;
    drop((local_listeners, admin));
    client.shutdown(Duration::ZERO).await?;
    Ok(())
}

/// The longest time that a shutdown waits for open connections: enough for a download of some MB over a slow link. A
/// second signal ends the wait.
const DRAIN_MAX: Duration = Duration::from_secs(10);

const FORWARD_EXAMPLES: &str = "\
The gateway must allow the target. docs/how-to/link.md sets a link up in five minutes.

Examples:
  edgeward link forward --listen 127.0.0.1:3307 --to db:3306 --gateway gw.example:7443 \\
    --keys keys/edge --store /var/lib/edgeward/link --store-size 20GiB
  mysql --host 127.0.0.1 --port 3307
  nft add rule ip nat prerouting ip daddr 10.1.0.0/16 tcp dport 445 redirect to :50080
  edgeward link forward --transparent 0.0.0.0:50080 --gateway gw.example:7443 …";

const SOCKS_EXAMPLES: &str = "\
The gateway resolves names and must permit the targets.

Examples:
  edgeward link socks --listen 127.0.0.1:1080 --gateway gw.example:7443 \\
    --keys keys/edge --store /var/lib/edgeward/link
  curl --proxy socks5h://127.0.0.1:1080 http://intranet.example/
  edgeward link socks --listen 10.0.0.5:1080 --users /etc/edgeward/users …
  curl --proxy socks5h://ann:secret@10.0.0.5:1080 http://intranet.example/
  git -c http.proxy=http://127.0.0.1:1080 clone http://git.example/project";
