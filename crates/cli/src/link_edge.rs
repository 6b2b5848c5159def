//! Connects the edge to its origin through a link.
//!
//! The edge sends HTTP/1.1 over streams that a [`Dial`] opens. The link's crate does not depend on the edge's crate,
//! so this module implements [`Dial`] with a [`Client`] of the link. The link runs on a thread of its own.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::oneshot;

use edgeward_dedup::codec::{Method, Methods};
use edgeward_link::{Client, EndpointStatus, HostPort, LinkConfig, Target};
use edgeward_proxy::{Dial, DialedStream};
use edgeward_types::ByteSize;

use crate::commands::link::endpoint::{self, Compression, IdScheme};

/// The parsed `[origin.link]` section of the configuration. Its fields are the keys of that section, which
/// docs/reference/configuration.md describes.
#[derive(Clone, Debug)]
pub(crate) struct LinkSettings {
    pub(crate) gateway: Option<HostPort>,
    /// The folder of the TLS keys and of the store key.
    pub(crate) keys: Option<PathBuf>,
    /// The folder, file or device of the chunk store.
    pub(crate) store: Option<PathBuf>,
    pub(crate) store_size: ByteSize,
    pub(crate) store_compression: Compression,
    pub(crate) encryption: bool,
    /// The compression of bodies on the link.
    pub(crate) compression: Compression,
    pub(crate) dedup: bool,
    pub(crate) delta: bool,
    /// The hash function of chunk ids.
    pub(crate) ids: IdScheme,
    /// The number of connections to the gateway.
    pub(crate) connections: usize,
    /// When the link has been down for this time, its streams are reset.
    pub(crate) timeout: Duration,
    pub(crate) admin: Option<SocketAddr>,
}

impl Default for LinkSettings {
    /// The default size of the chunk store, 4 GiB, holds a small working set. The index of this store takes
    /// about 3 MB of memory.
    fn default() -> Self {
        Self {
            gateway: None,
            keys: None,
            store: None,
            store_size: ByteSize::gib(4),
            store_compression: Compression::None,
            encryption: true,
            compression: Compression::Zstd,
            dedup: true,
            delta: true,
            ids: IdScheme::Blake3,
            connections: 2,
            timeout: Duration::from_secs(15),
            admin: None,
        }
    }
}

/// A running link. Dropping it stops the link and waits until its thread has ended.
#[derive(Debug)]
pub(crate) struct EdgeLink {
    client: Client,
    admin: Option<SocketAddr>,
    /// Dropping this sender stops the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl EdgeLink {
    /// Starts the link. An unreachable gateway is not an error: the link connects when the gateway is available.
    pub(crate) fn start(settings: &LinkSettings) -> anyhow::Result<Self> {
        let (Some(gateway), Some(keys), Some(store)) =
            (&settings.gateway, &settings.keys, &settings.store)
        else {
            anyhow::bail!("[origin.link] is incomplete");
        };
        let (encryption, store_key) = endpoint::load_keys(keys, settings.encryption)?;
        let no_methods = Methods::NONE;
        let mut config = LinkConfig::new(encryption, store_key, {
            let chunk_bytes = 8 << 10;
            let compression = settings.store_compression.method();
            endpoint::open_store(store, settings.store_size, chunk_bytes, compression)?
        });
        config.knowledge = endpoint::knowledge_folder(store);
        config.dedup = settings.dedup;
        config.delta = settings.delta;
        config.id_scheme = settings.ids.into();
        config.connections = settings.connections;
        config.times.outage_max = settings.timeout;
        config.methods = match settings.compression {
            Compression::Zstd => Methods::ALL,
            Compression::Lz4 => no_methods.with(Method::Lz4),
            Compression::None => no_methods,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime of the link")?;
        let (client, admin) = runtime.block_on(async {
            let client =
                Client::start(config, &gateway.to_string()).map_err(endpoint::with_hint)?;
            let status_client = client.clone();
            let read_status = Arc::new(move || EndpointStatus::from(&status_client));
            let admin = endpoint::start_admin(settings.admin, read_status).await?;
            anyhow::Ok((client, admin))
        })?;
        let admin_addr = admin.as_ref().map(edgeward_link::Admin::local_addr);
        let (stop, stopped) = oneshot::channel();
        let stopping_client = client.clone();
        let thread = std::thread::Builder::new()
            .name("edgeward-link".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    _ = stopped.await;
                    drop(admin);
                    // The edge is shut down before its link, so no stream is open and the shutdown is quick.
                    if let Err(error) = stopping_client.shutdown(Duration::from_secs(1)).await {
                        tracing::warn!(%error, "cannot write the store of the link");
                    }
                });
            })
            .context("cannot start the thread of the link")?;
        Ok(Self {
            client,
            admin: admin_addr,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Returns the dialer through which the edge opens streams to the origin.
    pub(crate) fn dial(&self) -> Arc<dyn Dial> {
        Arc::new(LinkDial(self.client.clone()))
    }

    /// The address that serves the link's metrics and status, or `None` if the configuration has no such address.
    pub(crate) fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin
    }
}

impl Drop for EdgeLink {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

#[derive(Debug)]
struct LinkDial(Client);

impl Dial for LinkDial {
    fn dial(&self) -> io::Result<Box<dyn DialedStream>> {
        let opened = self.0.open(Target::Origin);
        let stream = opened.map_err(|error| io::Error::new(io::ErrorKind::NotConnected, error))?;
        Ok(Box::new(stream))
    }
}
