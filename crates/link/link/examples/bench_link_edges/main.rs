//! Measures the memory and the processor time of a gateway with many edges.
//!
//! The gateway and the edges are two processes, so that each can be measured. The edges are clients of the link with
//! TLS, each with a store of its own. They connect, are idle, and then each of them sends a request of 16 KiB of text
//! in turns to a target that echoes it. All edges share one certificate.
//!
//! ```text
//! cargo run --release -p edgeward-link --example bench_link_edges -- --edges 2000 --idle-seconds 30 --busy-seconds 30
//! ```

use std::error::Error;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use edgeward_chunk_store::{ChunkSettings, Chunks, ScratchDevice};
use edgeward_link::{
    Client, Encryption, Gateway, GatewayConfig, IdentityLimits, Keys, LinkConfig, Target,
};

// As the program has it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

type Failure = Box<dyn Error>;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |flag: &str, default: u64| {
        let value = args.iter().skip_while(|arg| *arg != flag).nth(1);
        value.map_or(Ok(default), |value| value.parse())
    };
    let edges = number("--edges", 2000)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match &args[..] {
        [role, gateway, target, folder, ..] if role == "edges" => {
            runtime.block_on(run_edges(gateway, target, Path::new(folder), edges))
        }
        _ => runtime.block_on(run_gateway(
            edges,
            number("--idle-seconds", 30)?,
            number("--busy-seconds", 30)?,
        )),
    }
}

/// Runs the gateway and prints its measurements.
async fn run_gateway(edges: u64, idle_seconds: u64, busy_seconds: u64) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    edgeward_link::generate_keys(&folder.path().join("keys"))?;
    let (keys, id_key) = Keys::load(&folder.path().join("keys/gateway"))?;
    let device = ScratchDevice::new(folder.path(), 256 << 20)?;
    let store = Chunks::open(Arc::new(device), ChunkSettings::new(8 << 10, 1))?;
    let target = echo_server().await?;
    let link = LinkConfig::new(Encryption::Tls(Arc::new(keys)), id_key, store);
    let mut config = GatewayConfig::new(link, "127.0.0.1:0".parse()?, None);
    config.allow = config.allow.and(target.to_string().parse()?);
    let many = usize::try_from(edges)? * 4 + 64;
    config.peers_max = many;
    config.peers_per_certificate_max = Some(many);
    config.pending_max = many;
    config.identity_limits = IdentityLimits {
        connections_max: many,
        ..IdentityLimits::default()
    };
    let gateway = Gateway::bind(config).await?;
    let before = Usage::now()?;
    let mut child = Command::new(std::env::current_exe()?)
        .args([
            "edges",
            &gateway.local_addr().to_string(),
            &target.to_string(),
        ])
        .arg(folder.path())
        .args(["--edges", &edges.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut commands = child.stdin.take().ok_or("the edges have no stdin")?;
    let answers = BufReader::new(child.stdout.take().ok_or("the edges have no stdout")?);
    let (answered, mut next_answers) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let mut lines = answers.lines().map_while(Result::ok);
        while lines.next().is_some_and(|line| answered.send(line).is_ok()) {}
    });
    let start = Instant::now();
    next_answers.recv().await.ok_or(ENDED)?;
    let connected_seconds = start.elapsed().as_secs_f64();
    let connected = Usage::now()?;
    tokio::time::sleep(Duration::from_secs(idle_seconds)).await;
    let idle = Usage::now()?;
    writeln!(commands, "{busy_seconds}")?;
    let exchanges: u64 = next_answers.recv().await.ok_or(ENDED)?.parse()?;
    let busy = Usage::now()?;
    tokio::time::sleep(Duration::from_secs(idle_seconds)).await;
    let idle_again = Usage::now()?;
    let status = gateway.status().await;
    let connections: usize = status.peers.iter().map(|peer| peer.connections).sum();
    let kib_per_edge =
        |usage: &Usage| (usage.rss_bytes as f64 - before.rss_bytes as f64) / 1024.0 / edges as f64;
    writeln!(
        std::io::stdout(),
        r#"{{"edges":{edges},"peers":{},"connections":{connections},"connected_seconds":{connected_seconds:.1},"connect_cpu_seconds":{:.2},"rss_mib_before":{:.1},"rss_mib_idle":{:.1},"rss_mib_busy":{:.1},"kib_per_edge_connected":{:.1},"kib_per_edge_idle":{:.1},"kib_per_edge_busy":{:.1},"kib_per_edge_idle_again":{:.1},"idle_cpu_percent":{:.2},"busy_cpu_percent":{:.1},"exchanges":{exchanges},"cpu_us_per_exchange":{:.0}}}"#,
        status.peers.len(),
        connected.cpu_seconds - before.cpu_seconds,
        before.rss_mib(),
        idle.rss_mib(),
        busy.rss_mib(),
        kib_per_edge(&connected),
        kib_per_edge(&idle),
        kib_per_edge(&busy),
        kib_per_edge(&idle_again),
        (idle.cpu_seconds - connected.cpu_seconds) / idle_seconds.max(1) as f64 * 100.0,
        (busy.cpu_seconds - idle.cpu_seconds) / busy_seconds.max(1) as f64 * 100.0,
        (busy.cpu_seconds - idle.cpu_seconds) / exchanges.max(1) as f64 * 1e6,
    )?;
    drop(commands);
    _ = tokio::task::spawn_blocking(move || child.wait()).await?;
    Ok(())
}

/// Connects the edges, prints a line, and for each line of stdin sends requests for this number of seconds.
async fn run_edges(gateway: &str, target: &str, folder: &Path, edges: u64) -> Result<(), Failure> {
    let target = Target::Tcp(target.parse()?);
    let mut clients = Vec::new();
    for nth in 0..edges {
        let (keys, id_key) = Keys::load(&folder.join("keys/edge"))?;
        let device = ScratchDevice::new(folder, 4 << 20)?;
        // The gateway distinguishes the edges by the epochs of their stores.
        let store = Chunks::open(Arc::new(device), ChunkSettings::new(8 << 10, 1000 + nth))?;
        let config = LinkConfig::new(Encryption::Tls(Arc::new(keys)), id_key, store);
        clients.push(Client::start(config, gateway)?);
        if nth % 32 == 31 {
            clients[usize::try_from(nth)?].up().await;
        }
    }
    for client in &clients {
        client.up().await;
    }
    writeln!(std::io::stdout(), "connected")?;
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line)? > 0 {
        let seconds: u64 = line.trim().parse()?;
        line.clear();
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut senders = JoinSet::new();
        for part in clients.chunks(clients.len().div_ceil(CONCURRENT)) {
            let (part, target) = (part.to_vec(), target.clone());
            senders.spawn(async move {
                let mut exchanges = 0_u64;
                for (nth, client) in part.iter().cycle().enumerate() {
                    if Instant::now() >= end {
                        break;
                    }
                    exchange(client, target.clone(), nth)
                        .await
                        .map_err(|error| error.to_string())?;
                    exchanges += 1;
                }
                Ok::<_, String>(exchanges)
            });
        }
        let mut exchanges = 0;
        while let Some(sent) = senders.join_next().await {
            exchanges += sent??;
        }
        writeln!(std::io::stdout(), "{exchanges}")?;
    }
    Ok(())
}

/// Sends a text to the target and reads the echo.
async fn exchange(client: &Client, target: Target, nth: usize) -> Result<(), Failure> {
    let text = format!("request {nth} of an edge; ").repeat(16 << 10 >> 5);
    let mut stream = client.open(target)?;
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await?;
    let mut echoed = Vec::new();
    stream.read_to_end(&mut echoed).await?;
    if echoed != text.as_bytes() {
        return Err("the echo differs".into());
    }
    Ok(())
}

async fn echo_server() -> std::io::Result<std::net::SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = tcp.split();
                _ = tokio::io::copy(&mut read, &mut write).await;
                _ = write.shutdown().await;
            });
        }
    });
    Ok(addr)
}

/// The memory and the processor time of this process.
struct Usage {
    rss_bytes: u64,
    cpu_seconds: f64,
}

impl Usage {
    fn now() -> Result<Self, Failure> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1));
        let stat = std::fs::read_to_string("/proc/self/stat")?;
        // The name of the process, which may have blanks, ends with the last parenthesis. User and system time are the
        // fields 14 and 15, in ticks of 10 ms.
        let (_, fields) = stat.rsplit_once(')').ok_or("an unknown format")?;
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks: u64 = ticks.map(str::parse::<u64>).sum::<Result<_, _>>()?;
        Ok(Self {
            rss_bytes: kib.ok_or("an unknown format")?.parse::<u64>()? * 1024,
            cpu_seconds: ticks as f64 / 100.0,
        })
    }

    fn rss_mib(&self) -> f64 {
        self.rss_bytes as f64 / 1024.0 / 1024.0
    }
}

const ENDED: &str = "the edges have ended";

/// The number of edges that send a request at the same time.
const CONCURRENT: usize = 64;
