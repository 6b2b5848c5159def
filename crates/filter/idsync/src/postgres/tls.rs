//! Parses the address of a PostgreSQL server, and configures TLS as the address requires.
//!
//! `sslmode` has the values of other PostgreSQL clients, with one difference: if TLS is used, the server's
//! certificate and name are always verified, with the root certificates of the system or of `sslrootcert`.
//! `require` therefore means the same as `verify-full`. Without `sslmode`, TLS is required for every server
//! that is not on this machine.

use std::net::IpAddr;
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::address::without_password;
use crate::error::SourceError;
use crate::tls::{ExpectedName, TlsFiles, client_config};

/// The transport of the connection.
#[derive(Clone)]
pub(super) enum Connector {
    Unencrypted,
    Rustls(MakeRustlsConnect),
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unencrypted => "Unencrypted",
            Self::Rustls(_) => "Rustls",
        })
    }
}

/// Parses `postgres://user:password@host:port/database?…`.
pub(super) fn parse(address: &str) -> Result<(tokio_postgres::Config, Connector), SourceError> {
    let address_error = |why: String| SourceError::Address {
        url: without_password(address),
        why,
    };
    let (mut mode, mut roots) = (None, None);
    let (server, settings) = address.split_once('?').unwrap_or((address, ""));
    let mut other_settings = Vec::new();
    for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
        match setting.split_once('=') {
            Some(("sslmode", value)) => mode = Some(value),
            Some(("sslrootcert", value)) => roots = Some(value),
            _ => other_settings.push(setting),
        }
    }
    let without_tls_settings = format!("{server}?{}", other_settings.join("&"));
    let mut config: tokio_postgres::Config = without_tls_settings.parse().map_err(|error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        address_error(cause.unwrap_or_else(|| format!("{error}")))
    })?;
    if config.get_hosts().is_empty() {
        return Err(address_error("no host given".to_owned()));
    }
    if config.get_application_name().is_none() {
        config.application_name("edgeward");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    // With these settings, the client detects within a minute that the server does not respond any more.
    config.keepalives_idle(Duration::from_secs(30));
    config.keepalives_interval(Duration::from_secs(10));
    config.keepalives_retries(3);
    config.tcp_user_timeout(Duration::from_secs(60));

    let mode = match mode {
        Some("disable") => SslMode::Disable,
        Some("allow" | "prefer") => SslMode::Prefer,
        Some("require" | "verify-ca" | "verify-full") => SslMode::Require,
        None if config.get_hosts().iter().all(is_local) => SslMode::Disable,
        None => SslMode::Require,
        Some(other) => {
            let modes = "disable, prefer, require, verify-full";
            return Err(address_error(format!(
                "sslmode is {other}; use one of {modes}"
            )));
        }
    };
    config.ssl_mode(mode);
    if mode == SslMode::Disable {
        return Ok((config, Connector::Unencrypted));
    }
    let files = TlsFiles {
        // Errors about the file name the setting `sslrootcert`.
        roots: roots.map(|file| ("sslrootcert", file)),
        ..TlsFiles::default()
    };
    let tls = client_config(files, ExpectedName::OfConnection).map_err(address_error)?;
    Ok((config, Connector::Rustls(MakeRustlsConnect::new(tls))))
}

/// Returns true for an address of this machine, where traffic cannot be intercepted.
fn is_local(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        }
    }
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(address: &str) -> SslMode {
        parse(address)
            .expect("the address is valid")
            .0
            .get_ssl_mode()
    }

    #[test]
    fn tls_is_required_for_every_remote_server() {
        for (address, expected) in [
            ("postgres://db.example/x", SslMode::Require),
            ("postgres://10.0.0.1/x", SslMode::Require),
            ("postgres://localhost,db.example/x", SslMode::Require),
            ("postgres://localhost/x", SslMode::Disable),
            ("postgres://[::1]:5433/x", SslMode::Disable),
            ("postgres:///x?host=/run/postgresql", SslMode::Disable),
            ("postgres://db.example/x?sslmode=disable", SslMode::Disable),
            (
                "postgres://localhost/x?sslmode=verify-full",
                SslMode::Require,
            ),
            ("postgres://localhost/x?a=b&sslmode=prefer", SslMode::Prefer),
        ] {
            // The table writes `a=b` for this longer setting.
            let address = address.replace("a=b", "application_name=b");
            assert_eq!(mode(&address), expected, "{address}");
        }
    }

    #[test]
    fn an_invalid_address_is_refused_without_showing_its_password() {
        for (address, why) in [
            (
                "postgres://me:secret@db/x?sslmode=maybe",
                "sslmode is maybe",
            ),
            ("postgres://me:secret@db/x?colour=red", "colour"),
            ("postgres://me:secret@db:port/x", "port"),
            ("postgres:///x", "no host"),
            (
                "postgres://me:secret@db/x?sslrootcert=/nowhere.pem",
                "/nowhere.pem",
            ),
        ] {
            let error = parse(address)
                .expect_err("the address is invalid")
                .to_string();
            assert!(error.contains(why) && !error.contains("secret"), "{error}");
        }
    }
}
