//! Test helpers: the origin (nginx with an access log) and the edge in front of it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use edgeward_testkit::programs::{ServerProcess, free_port};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

use crate::programs::{Server, skip};
use crate::read_file;

/// The folder of documentation that every Debian system has.
const DOCUMENTATION: &str = "/usr/share/doc";

/// The maximum number of files, and of their bytes: a debug build serves them in seconds.
const FILES_MAX: usize = 1200;
const BYTES_MAX: u64 = 40 << 20;
/// The maximum size of a package. A larger package would take the space of many others.
const PACKAGE_BYTES_MAX: u64 = 6 << 20;

/// nginx and the folder that it serves.
pub(crate) struct Site {
    folder: TempDir,
    server: ServerProcess,
    /// The number of bytes of the log that [`Site::take_log`] has read.
    log_bytes_read: Mutex<usize>,
}

/// A line of nginx's log.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
}

impl Request {
    /// Returns true if the request is for a directory listing, which nginx generates for each request.
    pub(crate) fn is_listing(&self) -> bool {
        self.path.ends_with('/')
    }
}

impl Site {
    /// Serves whole packages of /usr/share/doc, as many as the limits allow, with their modification times.
    pub(crate) fn of_documentation() -> Option<Self> {
        let folder = tempfile::tempdir().expect("the temporary folder is created");
        let mut packages: Vec<_> = match fs::read_dir(DOCUMENTATION) {
            Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
            Err(error) => {
                skip(&format!("{DOCUMENTATION}: {error}"));
                return None;
            }
        };
        packages.sort();
        let (mut files, mut bytes) = (0, 0);
        for package in packages {
            let mut package_files = Vec::new();
            list(&package, &mut package_files);
            let size: u64 = package_files.iter().map(|(_, size)| size).sum();
            let fits = files + package_files.len() <= FILES_MAX && bytes + size <= BYTES_MAX;
            if package_files.is_empty() || size > PACKAGE_BYTES_MAX || !fits {
                continue;
            }
            (files, bytes) = (files + package_files.len(), bytes + size);
            for (from, _) in package_files {
                let relative = from
                    .strip_prefix(DOCUMENTATION)
                    .expect("the path starts with the folder");
                copy(&from, &folder.path().join("www/doc").join(relative));
            }
        }
        if files < 50 {
            skip(&format!(
                "only {files} files in {DOCUMENTATION}: documentation is stripped here"
            ));
            return None;
        }
        eprintln!("the site: {files} files, {} KiB", bytes >> 10);
        Some(Self::serve(folder))
    }

    /// Serves a page with its parts, small enough for tests of single requests.
    pub(crate) fn of_a_page() -> Self {
        let folder = tempfile::tempdir().expect("the temporary folder is created");
        let page = folder.path().join("www/page");
        fs::create_dir_all(&page).expect("the folder is created");
        let long: String = (0..12_500)
            .map(|line| format!("line {line:010}\n"))
            .collect();
        assert_eq!(long.len(), 200_000);
        for (name, text) in [
            ("index.html", INDEX_HTML),
            ("style.css", "p { color: rgb(1, 2, 3) }\n"),
            ("picture.svg", PICTURE_SVG),
            ("script.js", SCRIPT_JS),
            ("long.txt", &long),
        ] {
            fs::write(page.join(name), text).expect("the file is written");
        }
        Self::serve(folder)
    }

    /// Serves five minutes of noise as a WAV file of 50 MB, and a page that plays it.
    pub(crate) fn of_media() -> Self {
        let folder = tempfile::tempdir().expect("the temporary folder is created");
        let page = folder.path().join("www/page");
        fs::create_dir_all(&page).expect("the folder is created");
        fs::write(page.join("media.html"), MEDIA_HTML).expect("the file is written");
        fs::write(page.join("sound.wav"), noise(300)).expect("the file is written");
        Self::serve(folder)
    }

    fn serve(folder: TempDir) -> Self {
        let here = folder.path().display();
        let server = ServerProcess::nginx(|_, addr| {
            format!(
                "types {{ text/html html; text/css css; image/svg+xml svg; text/javascript js; audio/wav wav; }}
                default_type application/octet-stream;
                log_format short '$request_uri';
                access_log {here}/access.log short;
                server {{
                    listen {addr};
                    root {here}/www;
                    autoindex on;
                    location /page/ {{ expires 1h; }}
                }}"
            )
        });
        Self {
            server: server.expect("the test checked that nginx is installed"),
            folder,
            log_bytes_read: Mutex::new(0),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.server.addr())
    }

    /// The bytes of a file of the site.
    pub(crate) fn file(&self, path: &str) -> Vec<u8> {
        read_file(&self.folder.path().join("www").join(path))
    }

    /// The requests that nginx logged since the last call.
    pub(crate) fn take_log(&self) -> Vec<Request> {
        let text = fs::read_to_string(self.folder.path().join("access.log")).unwrap_or_default();
        let mut bytes_read = self
            .log_bytes_read
            .lock()
            .expect("no thread panicked while it held the lock");
        let new = &text[*bytes_read..];
        *bytes_read = text.len();
        new.lines()
            .map(|path| Request {
                path: path.to_owned(),
            })
            .collect()
    }
}

/// `edgeward serve` with a listener for plaintext and one for TLS.
pub(crate) struct Edge {
    plain: u16,
    tls: u16,
    folder: TempDir,
    _server: Server,
}

impl Edge {
    /// Starts the binary under test in front of `site`, with a configuration file.
    pub(crate) fn in_front_of(site: &Site) -> Self {
        let folder = tempfile::tempdir().expect("the temporary folder is created");
        certificates(folder.path());
        let (plain, tls) = (free_port(), free_port());
        let config = format!(
            "[[listener]]\naddress = \"127.0.0.1:{plain}\"\n\n\
             [[listener]]\naddress = \"127.0.0.1:{tls}\"\n\
             tls_certificates = \"edge.pem\"\ntls_key = \"edge.key\"\n\n\
             [origin]\nurl = \"{}\"\n\n[hot]\ncapacity = \"256MiB\"\n\n[server]\nworkers = 2\n",
            site.url()
        );
        let file = folder.path().join("edge.toml");
        fs::write(&file, config).expect("the file is written");
        let arguments = ["serve", "--config"].map(str::to_owned);
        let arguments: Vec<_> = arguments
            .into_iter()
            .chain([file.display().to_string()])
            .collect();
        let binary = Path::new(env!("CARGO_BIN_EXE_edgeward"));
        let server = Server::start(binary, &arguments, &[plain, tls]);
        Self {
            plain,
            tls,
            folder,
            _server: server,
        }
    }

    pub(crate) fn plain_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.plain)
    }

    pub(crate) fn tls_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.tls)
    }

    /// The CA certificate that clients must trust for the TLS listener.
    pub(crate) fn ca_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }
}

/// Creates a CA and a certificate for loopback addresses.
fn certificates(folder: &Path) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // The CA and the certificate have different names. Otherwise the certificate would look self-signed.
    authority
        .distinguished_name
        .push(DnType::CommonName, "authority of a test");
    let ca_key = KeyPair::generate().expect("the key pair is generated");
    let ca = CertifiedIssuer::self_signed(authority, ca_key).expect("the certificate is signed");
    let key = KeyPair::generate().expect("the key pair is generated");
    let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    let edge = CertificateParams::new(names).expect("the names are valid");
    let edge = edge
        .signed_by(&key, &ca)
        .expect("the certificate is signed");
    for (name, pem) in [
        ("ca.pem", ca.pem()),
        ("edge.pem", edge.pem()),
        ("edge.key", key.serialize_pem()),
    ] {
        fs::write(folder.join(name), pem).expect("the file is written");
    }
}

/// Returns a WAV file of noise, whose parts differ: 44,100 frames a second, two channels of 16 bits.
fn noise(seconds: u32) -> Vec<u8> {
    let bytes_per_second: u32 = 44_100 * 4;
    let length = bytes_per_second * seconds;
    let mut file = Vec::with_capacity(length as usize + 44);
    file.extend_from_slice(b"RIFF");
    file.extend_from_slice(&(36 + length).to_le_bytes());
    file.extend_from_slice(b"WAVEfmt ");
    file.extend_from_slice(&16_u32.to_le_bytes()); // the length of the format
    file.extend_from_slice(&1_u16.to_le_bytes()); // PCM
    file.extend_from_slice(&2_u16.to_le_bytes()); // channels
    file.extend_from_slice(&44_100_u32.to_le_bytes());
    file.extend_from_slice(&bytes_per_second.to_le_bytes());
    file.extend_from_slice(&4_u16.to_le_bytes()); // bytes of a frame
    file.extend_from_slice(&16_u16.to_le_bytes()); // bits of a sample
    file.extend_from_slice(b"data");
    file.extend_from_slice(&length.to_le_bytes());
    let mut state: u32 = 1;
    for _ in 0..length / 4 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223); // a linear congruential generator
        file.extend_from_slice(&state.to_le_bytes());
    }
    file
}

/// Lists the regular files below `path` with their sizes. Symbolic links are skipped: some lead outside, some
/// form cycles.
fn list(path: &Path, found: &mut Vec<(PathBuf, u64)>) {
    let Ok(kind) = fs::symlink_metadata(path) else {
        return;
    };
    if kind.is_file() {
        found.push((path.to_path_buf(), kind.len()));
    } else if kind.is_dir() {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            list(&entry.path(), found);
        }
    }
}

/// Copies a file with its modification time. nginx sends this time as `Last-Modified`, from which the edge derives a
/// heuristic freshness lifetime.
fn copy(from: &Path, to: &Path) {
    let folder = to.parent().expect("a file lies in a folder");
    fs::create_dir_all(folder).expect("the folder is created");
    fs::copy(from, to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    let modified = fs::metadata(from).and_then(|metadata| metadata.modified());
    let copied = File::options().append(true).open(to);
    if let (Ok(modified), Ok(copied)) = (modified, copied) {
        copied
            .set_modified(modified)
            .expect("the modification time is set");
    }
}

const INDEX_HTML: &str = r#"<!doctype html>
<html><head><title>waiting</title><link rel="stylesheet" href="style.css"></head>
<body><p id="report">nothing yet</p><img id="picture" src="picture.svg">
<script src="script.js"></script></body></html>
"#;

const PICTURE_SVG: &str = r#"<svg xmlns="http://www.w3.org/2000/svg" width="30" height="20"></svg>
"#;

const SCRIPT_JS: &str = r#"addEventListener("load", async () => {
  const picture = document.getElementById("picture");
  const report = document.getElementById("report");
  const body = await (await fetch("long.txt")).text();
  report.textContent = "script ran, image " + picture.naturalWidth + "x" + picture.naturalHeight +
    ", colour " + getComputedStyle(report).color + ", fetched " + body.length + " bytes";
});
"#;

const MEDIA_HTML: &str = r#"<!doctype html><title>media</title><video id="video" muted></video>
<script>
const video = document.getElementById("video"), steps = [];
const report = () => fetch("report-" + steps.join("-"));
video.onerror = () => { steps.push("error"); report(); };
video.onloadedmetadata = () => { steps.push("duration", Math.round(video.duration)); video.currentTime = 250; };
video.onseeked = () => { steps.push("seeked", Math.round(video.currentTime)); video.play().catch(video.onerror); };
video.ontimeupdate = () => {
  if (video.currentTime < 250.2) return;
  video.ontimeupdate = null;
  video.pause();
  steps.push("played");
  report();
};
video.src = "sound.wav";
</script>
"#;
