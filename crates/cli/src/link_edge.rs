//! Connects the edge to its origin through a link.
//!
//! The edge sends HTTP/1.1 over streams that a [`Dial`] opens. The link's crate does not depend on the edge's crate,
//! so this module implements [`Dial`] with a [`Client`] of the link. The link runs on a thread of its own.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::oneshot;

use edgeward_dedup::codec::{Method, Methods};
use edgeward_link::{Client, EndpointStatus, LinkConfig, Target};
use edgeward_proxy::{Dial, DialedStream};

use crate::commands::link::endpoint;
use crate::link_settings::{Compression, LinkSettings};

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
        let gateways = std::iter::once(gateway).chain(&settings.more_gateways);
        let gateways = gateways.map(ToString::to_string).collect();
        let (client, admin) = runtime.block_on(async {
            let client =
                Client::start_with_failover(config, gateways).map_err(endpoint::with_hint)?;
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
