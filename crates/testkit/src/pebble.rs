//! Pebble, a small authority of certificates for tests (RFC 8555), with its DNS server.

use std::cell::Cell;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::programs::{ServerProcess, free_port, skip};

/// How Pebble is started.
#[derive(Clone, Debug)]
pub struct PebbleOptions {
    /// The port at which HTTP-01 is validated.
    pub http_port: u16,
    /// The port at which TLS-ALPN-01 is validated.
    pub tls_port: u16,
    /// Variables of the environment, such as `PEBBLE_WFE_NONCEREJECT`.
    pub variables: Vec<(&'static str, &'static str)>,
    /// True if accounts must be bound to an external one, by [`BINDING`].
    pub requires_binding: bool,
}

/// The identifier and the key (base64url) of the external account that Pebble knows.
pub const BINDING: (&str, &str) = (
    "kid-1",
    "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W",
);

/// A running Pebble. All names resolve to 127.0.0.1.
pub struct Pebble {
    server: ServerProcess,
    names: ServerProcess,
    management: SocketAddr,
}

impl Pebble {
    /// Starts Pebble and its DNS server. Returns `None` after [`skip`] if they are not installed.
    pub fn start(options: &PebbleOptions) -> Option<Self> {
        let (pebble, challtestsrv) = (tool("pebble")?, tool("pebble-challtestsrv")?);
        let dns = Cell::new(0);
        let names = ServerProcess::start(&challtestsrv, |_, addr| {
            dns.set(free_port());
            let mut command = Command::new(&challtestsrv);
            command.args([
                "-http01=",
                "-https01=",
                "-tlsalpn01=",
                "-doh=",
                "-defaultIPv6=",
            ]);
            command.arg(format!("-dnsserver=127.0.0.1:{}", dns.get()));
            command.arg(format!("-management={addr}"));
            command
        })?;
        let management = Cell::new(0);
        let server = ServerProcess::start(&pebble, |folder, addr| {
            management.set(free_port());
            write_certificates(folder);
            let config = config(folder, addr, management.get(), options);
            fs::write(folder.join("config.json"), config).expect("the file can be written");
            let mut command = Command::new(&pebble);
            command.arg("-config").arg(folder.join("config.json"));
            command.arg(format!("-dnsserver=127.0.0.1:{}", dns.get()));
            command.env("PEBBLE_VA_NOSLEEP", "1");
            command.envs(options.variables.iter().copied());
            command
        })?;
        let management = SocketAddr::from(([127, 0, 0, 1], management.get()));
        crate::client::until("Pebble's management listens", || {
            std::net::TcpStream::connect(management).ok()
        });
        Some(Self {
            server,
            names,
            management,
        })
    }

    /// Returns the URL of the directory.
    pub fn directory(&self) -> String {
        format!("https://{}/dir", self.server.addr())
    }

    /// Returns the PEM file of the root that the URL's certificate chains to.
    pub fn roots(&self) -> PathBuf {
        self.server.folder().join("root.pem")
    }

    /// Writes a program that sets records in the DNS server, as a hook of DNS-01. It clears none: the server would
    /// clear all records of the name, also that of another order (`a.example` and `*.a.example` have one name).
    pub fn write_hook(&self, folder: &Path) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let hook = folder.join("dns-hook");
        let management = self.names.addr();
        let text = format!(
            "#!/bin/sh\nprintf '%s %s\\n' \"$1\" \"$2\" >> '{}/calls'\n\
             [ \"$1\" = present ] || exit 0\n\
             exec curl -sSf --data \"{{\\\"host\\\":\\\"$2.\\\",\\\"value\\\":\\\"$3\\\"}}\" \
             \"http://{management}/set-txt\"\n",
            folder.display()
        );
        fs::write(&hook, text).expect("the file can be written");
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o700)).expect("the mode is set");
        hook
    }

    /// Writes the root that the issued certificates chain to, as a PEM file.
    pub fn write_issuer_root(&self, folder: &Path) -> PathBuf {
        self.write_root(folder, 0)
    }

    /// Writes a root as a PEM file: 0 is that of the default chain, the next ones those of alternative chains.
    pub fn write_root(&self, folder: &Path, number: usize) -> PathBuf {
        let path = folder.join(format!("issuer-root-{number}.pem"));
        let output = Command::new("curl")
            .args(["-sSf", "--cacert"])
            .arg(self.roots())
            .arg("-o")
            .arg(&path)
            .arg(format!("https://{}/roots/{number}", self.management))
            .output()
            .expect("curl is installed");
        assert!(output.status.success(), "{output:?}");
        path
    }

    /// Sets the renewal window of a certificate: `response` is sent as it is.
    pub fn set_window(&self, certificate: &str, response: &str) {
        let body = format!(
            "{{\"certificate\":{},\"ariResponse\":{}}}",
            quoted(certificate),
            quoted(response)
        );
        let output = Command::new("curl")
            .args(["-sSf", "--cacert"])
            .arg(self.roots())
            .args(["--data", &body])
            .arg(format!("https://{}/set-renewal-info/", self.management))
            .output()
            .expect("curl is installed");
        assert!(output.status.success(), "{output:?}");
    }
}

/// Returns the path of a program that `scripts/ensure-pebble` builds. The packages of Debian 12 lack renewal windows.
fn tool(program: &str) -> Option<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/bin");
    let path = Path::new(folder).join(program);
    if path.is_file() {
        return Some(path);
    }
    skip(&format!(
        "{program} is not installed; scripts/ensure-pebble builds it"
    ));
    None
}

fn config(folder: &Path, addr: SocketAddr, management: u16, options: &PebbleOptions) -> String {
    let here = folder.display();
    let (kid, key) = BINDING;
    let PebbleOptions {
        http_port,
        tls_port,
        requires_binding,
        ..
    } = options;
    format!(
        r#"{{"pebble": {{"listenAddress": "{addr}", "managementListenAddress": "127.0.0.1:{management}",
        "certificate": "{here}/cert.pem", "privateKey": "{here}/key.pem",
        "httpPort": {http_port}, "tlsPort": {tls_port}, "ocspResponderURL": "",
        "externalAccountBindingRequired": {requires_binding}, "externalAccountMACKeys": {{"{kid}": "{key}"}},
        "domainBlocklist": ["blocked.example"], "retryAfter": {{"authz": 1, "order": 1}},
        "keyAlgorithm": "ecdsa",
        "profiles": {{"default": {{"description": "default", "validityPeriod": 7776000}},
        "shortlived": {{"description": "six days", "validityPeriod": 518400}}}}}}}}"#
    )
}

/// Writes a root and the certificate of Pebble's own address.
fn write_certificates(folder: &Path) {
    let key = || KeyPair::generate().expect("a key");
    let mut root = CertificateParams::default();
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // OpenSSL takes a certificate whose issuer has its own name for a root.
    root.distinguished_name
        .push(DnType::CommonName, "root of pebble");
    let root_key = key();
    let root_pem = root.self_signed(&root_key).expect("a root").pem();
    let issuer = Issuer::new(root, root_key);
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let params = CertificateParams::new(names).expect("the names are valid");
    let server_key = key();
    let server = params
        .signed_by(&server_key, &issuer)
        .expect("a certificate");
    for (name, text) in [
        ("root.pem", root_pem),
        ("cert.pem", server.pem()),
        ("key.pem", server_key.serialize_pem()),
    ] {
        fs::write(folder.join(name), text).expect("the file can be written");
    }
}

/// Returns a text as a string of JSON. The text has no control characters except line ends.
fn quoted(text: &str) -> String {
    let escaped = text
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("\"{escaped}\"")
}
