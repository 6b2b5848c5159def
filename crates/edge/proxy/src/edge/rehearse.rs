//! Tries what a start does, for `check-config`: reads the certificates, keys and credentials, and checks the addresses
//! and the free space. **A configuration that the check accepts starts**, unless a port is in use.
//!
//! Nothing is changed: no port is bound that a running edge may have, and no file is created or locked.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;

use edgeward_store::disk::check_space;

use super::checks::check;
use super::generation::servers_of;
use super::start_error::StartError;
use crate::cache::disk::DiskError;
use crate::config::{EdgeConfig, ListenAddress, LogDestination};
use crate::net::descriptors;
use crate::net::tls::{ListenerKeys, SiteKeys};

/// The setting to which an error of [`rehearse`] belongs: the key of the configuration file.
pub type SettingKey = String;

/// Returns the errors with which an edge of this configuration would not start, each with its setting.
pub fn rehearse(config: &EdgeConfig) -> Vec<(SettingKey, StartError)> {
    let mut errors = Vec::new();
    if let Err(error) = check(config) {
        errors.push((String::new(), error));
    }
    let sites = match SiteKeys::read(&config.site_certificates, None) {
        Ok(sites) => Arc::new(sites),
        Err(source) => {
            let source = Box::new(source);
            errors.push(("site".to_owned(), StartError::SiteTls { source }));
            Arc::default()
        }
    };
    for (item, listener) in config.listeners.iter().enumerate() {
        let table = match listener.is_for_nodes {
            true => "fleet".to_owned(),
            false => format!("listener[{item}]"),
        };
        errors.extend(try_address(&table, &listener.addr));
        if let Some(files) = &listener.tls
            && let Err(source) = ListenerKeys::read(Some(files), &sites)
        {
            let (addr, source) = (listener.addr.clone(), Box::new(source));
            let key = format!("{table}.tls_certificates");
            errors.push((key, StartError::Tls { addr, source }));
        }
    }
    if let Some(addr) = &config.admin.address {
        errors.extend(try_address("admin", addr));
        if let Some(files) = &config.admin.tls
            && let Err(source) = ListenerKeys::read(Some(files), &Arc::default())
        {
            let (addr, source) = (addr.clone(), Box::new(source));
            let key = "admin.tls_certificates".to_owned();
            errors.push((key, StartError::Tls { addr, source }));
        }
    }
    match servers_of(config, None) {
        Ok(origins) => {
            for servers in origins {
                if let Some(signer) = servers.signer()
                    && let Err(error) = signer.read()
                {
                    let key = "origin.s3_credentials_file".to_owned();
                    errors.push((key, StartError::Credentials(error)));
                }
            }
        }
        Err(error) => errors.push(("origin.url".to_owned(), error)),
    }
    if let Some(disk) = &config.disk
        && let Err(error) = check_space(&disk.settings.devices)
    {
        let devices = &disk.settings.devices;
        let item = devices.iter().position(|device| device.path == error.path);
        let key = format!("disk_device[{}].capacity", item.unwrap_or_default());
        let error = edgeward_store::disk::OpenError::Device {
            path: error.path.clone(),
            source: io::Error::new(io::ErrorKind::StorageFull, error),
        };
        errors.push((key, StartError::Disk(DiskError::from(error))));
    }
    let log = config.access_log.as_ref();
    let log_file = log.and_then(|log| match &log.destination {
        LogDestination::File(path) => Some(path),
        _ => None,
    });
    let files = [
        ("access_log.path", log_file),
        ("server.pid_file", config.pid_file.as_ref()),
        ("purge.log", config.purge.log.as_ref()),
    ];
    for (key, file) in files {
        if let Some(path) = file
            && let Err(source) = try_folder(path)
        {
            let path = path.clone();
            errors.push((key.to_owned(), StartError::Folder { path, source }));
        }
    }
    errors
}

/// Checks the settings of an edge and the limit of open files, as a start does before it opens anything. Unlike
/// [`rehearse`], this tries no address and reads no files but those of origins.
pub fn check_start(config: &EdgeConfig) -> Result<(), StartError> {
    check(config)?;
    descriptors::check(config)?;
    servers_of(config, None).map(drop)
}

/// Checks that this machine has the address. The port is not bound, because a running edge may have it.
fn try_address(table: &str, addr: &ListenAddress) -> Option<(SettingKey, StartError)> {
    let tried = match addr {
        ListenAddress::Tcp(tcp) => TcpListener::bind(SocketAddr::new(tcp.ip(), 0)).map(drop),
        ListenAddress::Unix(path) => try_folder(path),
    };
    let source = tried.err()?;
    let addr = addr.clone();
    Some((
        format!("{table}.address"),
        StartError::Listen { addr, source },
    ))
}

/// Checks that the folder of a file exists.
fn try_folder(file: &Path) -> io::Result<()> {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.metadata().map(drop),
        _ => Ok(()),
    }
}
