//! `edgeward gateway`: runs the gateway of a link until a signal stops it.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use edgeward_dedup::receiver::Sharing;
use edgeward_link::{
    Admin, Allow, DenyError, DenyList, Gateway, GatewayConfig, HostPort, IdentityLimits, OriginTls,
    OriginTlsError, Rule,
};
use edgeward_types::ByteSize;

use super::flag_values::address;
use super::link::endpoint::{
    EndpointArgs, OnOff, announce, run_until_signal, start_admin, with_hint,
};
use crate::diagnostic::Diagnostic;

/// Run the gateway of a link, near the origin
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct GatewayArgs {
    /// Address on which edges connect; port 0 selects a free port
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:7443", value_parser = listen)]
    listen: SocketAddr,

    /// Origin server that answers the edges' misses, as http://HOST:PORT or https://HOST:PORT
    #[arg(long, value_name = "URL", value_parser = origin)]
    origin: Option<OriginAddress>,

    /// Certificates of the CAs that may sign the certificate of an https origin [default: those of the system]
    #[arg(long, value_name = "FILE", hide_short_help = true, requires = "origin")]
    origin_ca: Option<PathBuf>,

    /// Another permitted target: db:3306, *.example.com:443, 10.0.0.0/8:3306; repeatable
    ///
    /// A permitted name may resolve to public addresses. Loopback, link-local, private and other special
    /// addresses need a rule with the address or its network, in addition to the rule for the name.
    #[arg(long, value_name = "HOST:PORT")]
    allow: Vec<Rule>,

    #[command(flatten)]
    endpoint: EndpointArgs,

    /// Maximum number of edges for which known chunks are remembered
    #[arg(long, value_name = "N", default_value_t = 2048, hide_short_help = true)]
    peers_max: usize,

    /// Maximum number of remembered edges with the same certificate [default: 3/4 of --peers-max]
    #[arg(long, value_name = "N", hide_short_help = true)]
    peers_per_certificate: Option<usize>,

    /// Maximum number of connections in the handshake; above it the oldest is closed
    #[arg(long, value_name = "N", default_value_t = 512, hide_short_help = true)]
    pending_max: usize,

    /// Maximum of connections with the same certificate
    #[arg(long, value_name = "N", default_value_t = IdentityLimits::default().connections_max, hide_short_help = true)]
    connections_per_certificate: usize,

    /// Maximum of concurrent streams with the same certificate
    #[arg(long, value_name = "N", default_value_t = IdentityLimits::default().streams_max, hide_short_help = true)]
    streams_per_certificate: usize,

    /// Memory of all peers with the same certificate above which their streams are refused
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "1536MiB",
        hide_short_help = true
    )]
    memory_per_certificate: ByteSize,

    /// Memory for the record of the chunks that the edges have; equal parts of several edges count once
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "1GiB",
        hide_short_help = true
    )]
    knowledge_memory: ByteSize,

    /// File of denied certificates, one SHA-256 fingerprint per line; read again when it changes [default: deny.txt in
    /// the folder of --keys]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    deny: Option<PathBuf>,

    /// Encodings requested from the origin: identity, which deduplicates best, or those of the client
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Encoding::Identity, hide_short_help = true)]
    accept_encoding: Encoding,

    /// Let edges reference chunks of other edges; only for edges of one owner
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = OnOff::Off, hide_short_help = true)]
    share: OnOff,

    /// Store all chunks sent to edges, so that an edge can send them back as references
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = OnOff::Off, hide_short_help = true)]
    keep_sent: OnOff,
}

/// The `Accept-Encoding` of requests to the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Encoding {
    /// Request uncompressed bodies
    Identity,
    /// Forward the client's `Accept-Encoding`
    Forward,
}

/// Parses a listen address. `:PORT` means all IPv4 addresses.
fn listen(text: &str) -> Result<SocketAddr, String> {
    match text.strip_prefix(':') {
        Some(port) => address(&format!("0.0.0.0:{port}")),
        None => address(text),
    }
}

/// The address of an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OriginAddress {
    host_port: HostPort,
    is_https: bool,
}

impl std::fmt::Display for OriginAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.host_port)
    }
}

/// Parses `http://HOST:PORT` or `https://HOST:PORT`; without a port, the port is 80 or 443.
fn origin(text: &str) -> Result<OriginAddress, String> {
    let http = text.strip_prefix("http://").map(|rest| (rest, false));
    let https = text.strip_prefix("https://").map(|rest| (rest, true));
    let (rest, is_https) = http
        .or(https)
        .ok_or("the origin must be http://HOST:PORT or https://HOST:PORT")?;
    let rest = rest.trim_end_matches('/');
    let has_port = rest.rsplit_once(':').is_some_and(|(_, port)| {
        !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
    });
    let host_port = if has_port {
        rest.parse()
    } else {
        let port = if is_https { 443 } else { 80 };
        format!("{rest}:{port}").parse()
    };
    let host_port =
        host_port.map_err(|error: edgeward_link::ParseHostPortError| error.to_string())?;
    Ok(OriginAddress {
        host_port,
        is_https,
    })
}

/// Runs the gateway until a signal stops it.
pub(crate) fn run(args: &GatewayArgs) -> anyhow::Result<ExitCode> {
    if args.origin.is_none() && args.allow.is_empty() {
        return Err(Diagnostic::new("the gateway has no permitted target")
            .hint("give --origin http://HOST:PORT, or --allow HOST:PORT")
            .into());
    }
    let deny_list = load_deny_list(args)?;
    let origin_tls = origin_tls(args)?;
    let origin = args.origin.as_ref().map(|origin| origin.host_port.clone());
    let mut config = GatewayConfig::new(args.endpoint.config()?, args.listen, origin);
    config.origin_tls = origin_tls;
    config.allow = args
        .allow
        .iter()
        .cloned()
        .fold(Allow::default(), Allow::and);
    config.identity = args.accept_encoding == Encoding::Identity;
    config.peers_max = args.peers_max;
    config.peers_per_certificate_max = args.peers_per_certificate;
    config.identity_limits = IdentityLimits {
        connections_max: args.connections_per_certificate,
        streams_max: args.streams_per_certificate,
        memory_max: args.memory_per_certificate.bytes(),
    };
    config.link.knowledge_bytes_max =
        usize::try_from(args.knowledge_memory.bytes()).unwrap_or(usize::MAX);
    config.pending_max = args.pending_max;
    config.deny = deny_list;
    config.keep_sent = args.keep_sent == OnOff::On;
    if args.share == OnOff::On {
        config.sharing = Sharing::Everything;
    }
    let start = async || {
        let gateway = Gateway::bind(config).await.map_err(with_hint)?;
        let gateway = Arc::new(gateway);
        let admin = start_admin(args.endpoint.admin, gateway.report()).await?;
        let addr = gateway.local_addr();
        let origin = args.origin.as_ref().map(ToString::to_string);
        let text = format!(
            "gateway on {addr}{}{}",
            origin
                .as_ref()
                .map_or_else(String::new, |origin| format!(", origin {origin}")),
            args.endpoint.encryption.encryption_warning()
        );
        let first_line = json!({ "listening": addr.to_string(), "origin": origin });
        announce(args.endpoint.json, &text, admin.as_ref(), first_line)?;
        Ok((gateway, admin))
    };
    // The task of each edge runs on any of these threads.
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    run_until_signal(threads, start, stop)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the TLS client of an https origin.
fn origin_tls(args: &GatewayArgs) -> anyhow::Result<Option<OriginTls>> {
    let is_https = args.origin.as_ref().is_some_and(|origin| origin.is_https);
    if !is_https {
        if args.origin_ca.is_some() {
            return Err(
                Diagnostic::new("--origin-ca has no effect on an http origin")
                    .hint("remove --origin-ca, or give --origin https://HOST:PORT")
                    .into(),
            );
        }
        return Ok(None);
    }
    let tls = OriginTls::new(args.origin_ca.as_deref()).map_err(|error| {
        let hint = match &error {
            OriginTlsError::NoSystemRoots => {
                "install the package ca-certificates, or give --origin-ca FILE"
            }
            _ => "give a PEM file with the certificates of CAs",
        };
        Diagnostic::from_error(&error).hint(hint)
    })?;
    Ok(Some(tls))
}

fn load_deny_list(args: &GatewayArgs) -> anyhow::Result<Option<DenyList>> {
    let is_encrypted = args.endpoint.encryption == OnOff::On;
    if args.deny.is_none() && !is_encrypted {
        return Ok(None);
    }
    if !is_encrypted {
        return Err(Diagnostic::new(
            "--deny has no effect without encryption, because edges then have no certificates",
        )
        .hint("remove --encryption off or --deny")
        .into());
    }
    let list = match &args.deny {
        Some(path) => DenyList::load(path),
        None => DenyList::in_keys(&args.endpoint.keys),
    };
    let list = list.map_err(|error| {
        let hint = match &error {
            DenyError::Line { .. } => {
                "`openssl x509 -in cert.pem -noout -fingerprint -sha256` prints a fingerprint"
            }
            _ => "create the file; it may be empty",
        };
        Diagnostic::from_error(&error).hint(hint)
    })?;
    Ok(Some(list))
}

/// Lets open streams finish and shuts the gateway down.
async fn stop(running: (Arc<Gateway>, Option<Admin>)) -> anyhow::Result<()> {
    let (gateway, admin) = running;
    gateway.drain(DRAIN_MAX).await;
    // The admin server keeps a reference to the gateway until the last request of the admin server has ended.
    drop(admin);
    while Arc::strong_count(&gateway) > 1 {
        tokio::task::yield_now().await;
    }
    if let Some(gateway) = Arc::into_inner(gateway) {
        gateway.shutdown(Duration::ZERO).await?;
    }
    Ok(())
}

/// The longest time that a shutdown waits for open streams: enough for a download of some MB over a slow link.
/// A second signal ends the wait.
const DRAIN_MAX: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "\
Edges connect with `[origin.link]` in their configuration, with `edgeward link forward` or with
`edgeward link socks`. docs/how-to/link.md sets a link up in five minutes.

Examples:
  edgeward link keygen --out keys
  edgeward gateway --listen :7443 --origin http://127.0.0.1:8080 --keys keys/gateway \\
    --store /var/lib/edgeward/link --store-size 1TiB --admin 127.0.0.1:7444
  To permit databases and an intranet with private addresses as well:
    … --allow db:3306 --allow '*.intranet.example:80' --allow '10.0.0.0/8:*'
  Inside a VPN:
    … --encryption off";
