//! The keys of a whole site: hosts and certificate.

use std::path::PathBuf;

use edgeward_sites::HostPattern;

use super::draft::{OTHER_HOSTS, SiteDraft};
use super::reader::{Entry, Reader};
use super::row::{SiteKey, rows};

pub(super) static KEYS: &[SiteKey] = rows! {
    /// The hosts of the site, without ports. `*.example.org` stands for all hosts below a domain, but not for the
    /// domain itself. `*` stands for all hosts that belong to no other site. The most specific match counts: the host
    /// itself, then the longest domain, then `*`. If no site has `*`, requests for other hosts get 421, so that
    /// strangers cannot fill the cache.
    "hosts" site: "host, or list of hosts",
        default "required", example r#"hosts = ["example.org", "*.example.org"]"#,
        read: hosts;

    /// PEM file with the certificate first and then the chain. Listeners with TLS send it to clients that request one
    /// of the site's hosts by SNI. Not possible for the host `*`.
    "tls_certificates" site: "file",
        default "the certificate of the listener", example r#"tls_certificates = "tls/example.org.pem""#,
        read: |reader, entry, site| site.certificates = located(reader, entry);

    /// PEM file with the private key of `tls_certificates`: PKCS#8, PKCS#1 or SEC1.
    "tls_key" site: "file",
        default "not set", example r#"tls_key = "tls/example.org.key""#,
        read: |reader, entry, site| site.key = located(reader, entry);

    /// DER file with an OCSP response for `tls_certificates`, which is sent in TLS handshakes (stapling), until its
    /// `nextUpdate`.
    "tls_ocsp" site: "file",
        default "not set", example r#"tls_ocsp = "tls/example.org.ocsp""#,
        read: |reader, entry, site| site.ocsp = located(reader, entry);
};

/// Reads the path of a file. Returns it with its line.
fn located(reader: &mut Reader<'_>, entry: &Entry<'_>) -> Option<(PathBuf, usize)> {
    reader.file(entry).map(|path| (path, entry.line))
}

fn hosts(reader: &mut Reader<'_>, entry: &Entry<'_>, site: &mut SiteDraft) {
    let members = reader.members(entry);
    if members.is_empty() {
        reader.reject(entry, "is an empty list", "write at least one host");
    }
    for member in members {
        if member.as_text() == Some(OTHER_HOSTS) {
            site.serves_others = Some(member.line);
            continue;
        }
        let Some(text) = reader.text(&member, "a host", r#""www.example.org""#) else {
            continue;
        };
        match text.parse::<HostPattern>() {
            Ok(host) => site.hosts.push((host, member.line)),
            Err(error) => {
                let has_port = text.rsplit_once(':').is_some_and(|(host, port)| {
                    host.parse::<HostPattern>().is_ok() && port.parse::<u16>().is_ok()
                });
                let hint = if has_port {
                    "leave out the port: a site answers on all ports"
                } else if !text.is_ascii() {
                    "write the host in ASCII, as browsers send it: xn--…"
                } else {
                    "write www.example.org, *.example.org for all hosts below a domain, or * for all other hosts"
                };
                reader.reject(&member, error, hint);
            }
        }
    }
}
