//! The options that all endpoints of a link have, and functions that start an endpoint and run it until a
//! signal stops it.

use std::future::Future;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use edgeward_chunk_store::{ChunkSettings, Chunks, OpenError, RecoveryReport};
use edgeward_dedup::codec::{Method, Methods};
use edgeward_link::{
    Admin, Encryption, Keys, KeysError, LinkConfig, RateLimit, RateLimiter, SetupError,
    StatusReport, Times, load_store_key,
};
use edgeward_store::disk::FileDevice;
use edgeward_types::ByteSize;

use crate::commands::flag_values::{address, duration};
use crate::descriptors;
use crate::diagnostic::Diagnostic;
use crate::link_settings::Compression;
use crate::memory;
use crate::output;
use crate::signals::AsyncSignals;

/// Options of an endpoint: keys, store, compression and limits.
#[derive(Args, Clone, Debug)]
pub(crate) struct EndpointArgs {
    /// This endpoint's keys, from `edgeward link keygen`
    #[arg(long, value_name = "DIR")]
    pub(crate) keys: PathBuf,

    /// Folder, file or device of the chunk store
    #[arg(long, value_name = "PATH")]
    pub(crate) store: PathBuf,

    /// Size of the chunk store, such as 1TiB
    #[arg(long, value_name = "SIZE", default_value = "4GiB")]
    pub(crate) store_size: ByteSize,

    /// Address of /metrics and /status
    #[arg(long, value_parser = address, value_name = "ADDR")]
    pub(crate) admin: Option<SocketAddr>,

    /// TLS 1.3; turn encryption off only inside a VPN, at both endpoints
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = OnOff::On, hide_short_help = true)]
    pub(crate) encryption: OnOff,

    /// Compression on the link; the link uses a faster one or none if the network is faster than the CPU
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Compression::Zstd, hide_short_help = true)]
    pub(crate) compression: Compression,

    /// Compression of the store, which then holds several times as much text but takes CPU time
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Compression::None, hide_short_help = true)]
    pub(crate) store_compression: Compression,

    /// Send references instead of chunks that were sent before
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = OnOff::On, hide_short_help = true)]
    pub(crate) dedup: OnOff,

    /// Send new chunks as deltas against similar data sent before
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = OnOff::On, hide_short_help = true)]
    pub(crate) delta: OnOff,

    /// Do not chunk bodies that begin like TLS, SSH, images, sound or video
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = OnOff::On, hide_short_help = true)]
    pub(crate) probe: OnOff,

    /// Mean size of chunks, 4KiB to 64KiB; the gateway's value applies
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "8KiB",
        hide_short_help = true
    )]
    pub(crate) chunk: ByteSize,

    /// Maximum of concurrent streams per peer
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1024,
        value_parser = clap::value_parser!(u32).range(1..=65536),
        hide_short_help = true
    )]
    pub(crate) streams_max: u32,

    /// Memory per peer for received data that was not read yet
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "256MiB",
        hide_short_help = true
    )]
    pub(crate) receive_memory: ByteSize,

    /// Memory per peer for sent data that was not acknowledged yet
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "128MiB",
        hide_short_help = true
    )]
    pub(crate) send_memory: ByteSize,

    /// Limit of sent bytes: 20Mbps, or by time of day (UTC) 08:00-18:00=20Mbps,100Mbps
    #[arg(long, value_name = "RATE", hide_short_help = true)]
    pub(crate) rate_limit: Option<RateLimit>,

    /// How long streams wait while the link is down
    #[arg(
        long = "patience",
        value_name = "TIME",
        value_parser = duration,
        default_value = "15s",
        hide_short_help = true
    )]
    pub(crate) timeout: Duration,

    // The first line is the one that `announce` prints when the endpoint has started. It has the addresses.
    /// Print the first line of output as JSON
    #[arg(long, hide_short_help = true)]
    pub(crate) json: bool,
}

/// The value of a boolean option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnOff {
    /// Yes
    On,
    /// No
    Off,
}

impl OnOff {
    /// Returns the warning that `gateway`, `forward` and `socks` print at the end of their first line. Empty if the
    /// encryption is on.
    pub(crate) fn encryption_warning(self) -> &'static str {
        match self {
            Self::On => "",
            Self::Off => ", NOT ENCRYPTED",
        }
    }
}

impl Compression {
    /// Returns the compression method.
    pub(crate) fn method(self) -> Method {
        match self {
            Self::Zstd => Method::Zstd,
            Self::Lz4 => Method::Lz4,
            Self::None => Method::None,
        }
    }

    /// Returns the methods that an endpoint may use on the wire.
    pub(crate) fn methods(self) -> Methods {
        match self {
            Self::Zstd => Methods::ALL,
            Self::Lz4 => Methods::NONE.with(Method::Lz4),
            Self::None => Methods::NONE,
        }
    }
}

impl EndpointArgs {
    /// Reads the keys, opens the store and returns the configuration of the link.
    pub(crate) fn config(&self) -> anyhow::Result<LinkConfig> {
        let (encryption, store_key) = load_keys(&self.keys, self.encryption == OnOff::On)?;
        let chunk_bytes = u32::try_from(self.chunk.bytes()).unwrap_or(u32::MAX);
        let compression = self.store_compression.method();
        let store = open_store(&self.store, self.store_size, chunk_bytes, compression)?;
        Ok(LinkConfig {
            chunk_bytes,
            dedup: self.dedup == OnOff::On,
            delta: self.delta == OnOff::On,
            probe: self.probe == OnOff::On,
            methods: self.compression.methods(),
            times: Times {
                outage_max: self.timeout,
                ..Times::default()
            },
            streams_max: self.streams_max as usize,
            receive_bytes_max: self.receive_memory.bytes(),
            unacked_bytes_max: usize::try_from(self.send_memory.bytes()).unwrap_or(usize::MAX),
            knowledge: knowledge_folder(&self.store),
            rate_limiter: self.rate_limit.clone().map(RateLimiter::new).map(Arc::new),
            ..LinkConfig::new(encryption, store_key, store)
        })
    }
}

/// Loads the keys of an endpoint: the key of chunk ids, and the keys of TLS if `encrypted` is true.
pub(crate) fn load_keys(
    folder: &Path,
    encrypted: bool,
) -> anyhow::Result<(Encryption, edgeward_dedup::id::IdKey)> {
    let loaded = if encrypted {
        Keys::load(folder).map(|(keys, store_key)| (Encryption::Tls(Arc::new(keys)), store_key))
    } else {
        load_store_key(&folder.join("store.key")).map(|store_key| (Encryption::Off, store_key))
    };
    loaded.map_err(|error| {
        let hint = match &error {
            KeysError::File { .. } => {
                "`edgeward link keygen --out DIR` creates DIR/gateway and DIR/edge; give one of them"
            }
            _ => "copy the folder that `edgeward link keygen` created, without changes",
        };
        Diagnostic::from_error(&error).hint(hint).into()
    })
}

/// Opens the chunk store at `path`, or creates it with this size.
pub(crate) fn open_store(
    path: &Path,
    size: ByteSize,
    chunk_bytes: u32,
    compression: Method,
) -> anyhow::Result<Chunks> {
    let device = open_device(path, size).map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::ResourceBusy => {
                "another program uses this store: give each endpoint its own store"
            }
            std::io::ErrorKind::StorageFull => "give a smaller --store-size",
            _ => "give a folder, file or device that can be written",
        };
        Diagnostic::new(format!("the chunk store cannot be opened: {error}"))
            .in_file(path)
            .hint(hint)
    })?;
    open_store_on(device, path, chunk_bytes, compression)
}

/// Opens the file or device of a chunk store. The error is `ResourceBusy` if another process has it open.
pub(crate) fn open_device(path: &Path, size: ByteSize) -> std::io::Result<FileDevice> {
    if !path.exists() {
        std::fs::create_dir_all(path)?;
    }
    FileDevice::open(path, Some(size.bytes()))
}

/// Opens the chunk store at `path` on its device.
pub(crate) fn open_store_on(
    device: FileDevice,
    path: &Path,
    chunk_bytes: u32,
    compression: Method,
) -> anyhow::Result<Chunks> {
    let settings = ChunkSettings {
        compression,
        checkpoint: checkpoint_file(path),
        index_bytes_max: memory::bound_of_system().map_or(u64::MAX, ByteSize::bytes),
        ..ChunkSettings::new(chunk_bytes, random_epoch()?)
    };
    let name = path.display().to_string();
    let on_recovered = move |report: RecoveryReport| log_recovery(&name, &report);
    let store = Chunks::open_in_background(Arc::new(device), settings, on_recovered);
    store.map_err(|error| {
        let hint = match &error {
            OpenError::TooSmall { .. } => "give --store-size 64MiB or more",
            OpenError::Superblock { .. } => {
                "this file is not a chunk store, or its first bytes are corrupt; give another path, or delete the file \
                 to start with an empty store, which only costs traffic"
            }
            OpenError::Memory { .. } => {
                "use a smaller store, or larger chunks: the memory is proportional to the size of the store divided by \
                 that of a chunk"
            }
            _ => "check the disk",
        };
        Diagnostic::from_error(&error).hint(hint).into()
    })
}

/// Returns a random epoch for a new store.
pub(crate) fn random_epoch() -> anyhow::Result<u64> {
    let mut epoch = [0; 8];
    rustix::rand::getrandom(&mut epoch[..], rustix::rand::GetRandomFlags::empty())
        .context("cannot get random bytes from the system")?;
    Ok(u64::from_le_bytes(epoch))
}

fn log_recovery(store: &str, report: &RecoveryReport) {
    if let Some(error) = &report.rejected {
        let error = edgeward_types::with_causes(error);
        tracing::warn!(
            store,
            "the saved index of the chunk store is not used: {error}; it was recovered from the chunks"
        );
    }
    tracing::info!(
        store,
        chunks = report.chunks,
        seconds = report.elapsed.as_secs_f64(),
        saved_index = report.from_checkpoint,
        trailers = report.trailers,
        "the index of the chunk store is complete"
    );
}

/// Returns the folder, in or next to the store, in which an endpoint saves its knowledge of the chunks that each peer
/// has. For a block device the result is `None`: such an endpoint loses the knowledge at a restart.
pub(crate) fn knowledge_folder(store: &Path) -> Option<PathBuf> {
    beside(store, "knowledge")
}

/// Returns the file, in or next to the store, in which the store saves its index. For a block device the result is
/// `None`: the index is then recovered from all chunks at each start.
fn checkpoint_file(store: &Path) -> Option<PathBuf> {
    beside(store, "index")
}

/// Returns a path in the folder of a store, or next to the store if it is a file.
fn beside(store: &Path, name: &str) -> Option<PathBuf> {
    if store.is_dir() {
        return Some(store.join(name));
    }
    let store_name = store.file_name()?.to_string_lossy();
    let sibling = store.with_file_name(format!("{store_name}.{name}"));
    store.is_file().then_some(sibling)
}

/// Adds a hint to an error that prevented the start of an endpoint.
pub(crate) fn with_hint(error: SetupError) -> anyhow::Error {
    let hint = match &error {
        SetupError::Listen { .. } => {
            "`ss -ltnp` shows the program that uses the port; port 0 selects a free one"
        }
        SetupError::Chunks(_) => "give --chunk 4KiB, 8KiB, 16KiB, 32KiB or 64KiB",
        _ => return error.into(),
    };
    Diagnostic::from_error(&error).hint(hint).into()
}

/// Runs `start`, waits for a signal, and passes the result of `start` to `stop`. A second signal cancels `stop`. The
/// tasks that `start` begins run on this number of threads.
pub(crate) fn run_until_signal<T, S: Future<Output = anyhow::Result<()>>>(
    threads: usize,
    start: impl AsyncFnOnce() -> anyhow::Result<T>,
    stop: impl FnOnce(T) -> S,
) -> anyhow::Result<()> {
    descriptors::raise_limit();
    let mut builder = match threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder
        .worker_threads(threads)
        .thread_name("edgeward-link")
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        // The signals are handled before the first line is printed, because the reader of this line may send a signal
        // immediately.
        let mut signals = AsyncSignals::of_server()?;
        let running = start().await?;
        let name = signals.wait_for_stop().await;
        tracing::info!(signal = name, "stopping");
        tokio::select! {
            stopped = stop(running) => stopped,
            _ = signals.wait_for_stop() => Ok(()),
        }
    })
}

/// Starts the admin server, or returns `None` if `addr` is `None`.
pub(crate) async fn start_admin(
    addr: Option<SocketAddr>,
    report: StatusReport,
) -> anyhow::Result<Option<Admin>> {
    match addr {
        None => Ok(None),
        Some(addr) => Ok(Some(Admin::bind(addr, report).await.map_err(with_hint)?)),
    }
}

/// Prints one line with the addresses, for people and for the program that started the endpoint.
pub(crate) fn announce(
    as_json: bool,
    text: &str,
    admin: Option<&Admin>,
    mut first_line: Value,
) -> anyhow::Result<()> {
    let admin = admin.map(|admin| format!("http://{}", admin.local_addr()));
    let written = if as_json {
        first_line["admin"] = json!(admin);
        first_line["pid"] = json!(std::process::id());
        output::print_json_line(&first_line)
    } else {
        let mut out = output::stdout();
        let admin = admin.map_or_else(String::new, |url| format!(", admin on {url}"));
        writeln!(out, "{text}{admin}")
            .and_then(|()| out.flush())
            .map_err(Into::into)
    };
    match written {
        // A closed stdout is not an error: the endpoint does not need it.
        Err(error) if output::is_stdout_closed(&error) => Ok(()),
        other => other,
    }
}
