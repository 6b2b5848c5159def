//! Configures, starts, fills and checks the measured servers and their origin. The templates are in `bench/hits/`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use super::client::Client;
use super::plan::{Kind, Plan, SITES, Subject, Transport, Workload};
use super::process::{Scratch, Server, find, free_port};

/// The maximum number of times that all hot keys are requested to fill a cache. A policy that admits at random
/// or by a model may need several rounds. If a server still misses after this number, the benchmark fails.
const FILL_ROUNDS_MAX: u32 = 30;

/// All processes for one workload.
#[derive(Debug)]
pub(crate) struct TestServers {
    origin: Origin,
    /// The processes of the measured servers.
    servers: Vec<Server>,
    /// The measured servers and settings. Several nginx settings may share one process.
    subjects: Vec<RunningServer>,
    // Declared last, so that the folders are removed after the processes that write into them have ended.
    _scratch: Vec<Scratch>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RunningServer {
    pub(crate) subject: Subject,
    pub(crate) port: u16,
    /// The index of the server process. The four nginx settings are ports of one process.
    server: usize,
}

impl TestServers {
    /// Starts the servers of `plan` for `workload`.
    pub(crate) fn start(
        plan: &Plan,
        root: &Path,
        edgeward: &Path,
        workload: Workload,
    ) -> anyhow::Result<Self> {
        // /dev/shm is a tmpfs, so nginx's files cause no disk I/O.
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() {
            memory.to_path_buf()
        } else {
            std::env::temp_dir()
        };
        let scratch = Scratch::new(&parent)?;
        // Varnish runs code from its folder, and /dev/shm may be mounted noexec.
        let on_disk = Scratch::new(&std::env::temp_dir())?;
        let origin = Origin::start(plan, root, &scratch.path, workload.size)?;
        let mut test_servers = Self {
            origin,
            servers: Vec::new(),
            subjects: Vec::new(),
            _scratch: vec![scratch, on_disk],
        };
        let capacity = capacity(plan, workload);
        let tls = workload.transport.is_tls();
        if tls {
            make_certificate(test_servers.folder())?;
        }
        let servers = plan.servers.iter().copied();
        let servers: Vec<_> = servers
            .filter(|s| is_measured(*s, workload.transport))
            .collect();
        test_servers.start_nginx(plan, root, &servers, tls, capacity)?;
        for &subject in &servers {
            match subject {
                Subject::Edgeward { .. } | Subject::EdgewardSites | Subject::EdgewardObserved => {
                    let policy = match subject {
                        Subject::Edgeward { policy } => policy,
                        _ => "lru",
                    };
                    let port = free_port()?;
                    let mut arguments = words(&format!(
                        "serve --listen 127.0.0.1:{port} --origin http://127.0.0.1:{} \
                         --hot {capacity} --workers 1 --policy {policy}",
                        test_servers.origin.port
                    ));
                    let template = |name| fs::read_to_string(root.join("bench/hits").join(name));
                    let config = match subject {
                        Subject::EdgewardSites => Some(sites(&template("site.toml")?)),
                        Subject::EdgewardObserved => {
                            let folder = test_servers.folder().display().to_string();
                            let origin = test_servers.origin.port.to_string();
                            let text = template("observed.toml")?.replace("@DIR@", &folder);
                            Some(text.replace("@ORIGIN@", &origin))
                        }
                        _ => None,
                    };
                    if let Some(text) = config {
                        let path = test_servers.folder().join(format!("{subject}.toml"));
                        fs::write(&path, text)?;
                        arguments.extend(["--config".to_owned(), path.display().to_string()]);
                    }
                    if tls {
                        for (flag, file) in [("--tls-cert", CERTIFICATE), ("--tls-key", KEY)] {
                            let path = test_servers.folder().join(file).display().to_string();
                            arguments.extend([flag.to_owned(), path]);
                        }
                    }
                    arguments.extend(plan.edgeward_args.iter().cloned());
                    test_servers.start_server(plan, subject, edgeward, &arguments, port)?;
                }
                Subject::Varnish => test_servers.start_varnish(plan, root, capacity)?,
                Subject::Nginx { .. } => {}
            }
        }
        test_servers.check(workload)?;
        Ok(test_servers)
    }

    pub(crate) fn subjects(&self) -> &[RunningServer] {
        &self.subjects
    }

    pub(crate) fn cpu_seconds(&self, running: RunningServer) -> anyhow::Result<f64> {
        self.servers[running.server].cpu_seconds()
    }

    /// Returns the number of requests that have reached the origin since it started.
    pub(crate) fn origin_requests(&mut self) -> anyhow::Result<u64> {
        self.origin.requests()
    }

    /// Requests all hot keys repeatedly until no request reaches the origin.
    pub(crate) fn fill(
        &mut self,
        running: RunningServer,
        workload: Workload,
        keys: u64,
    ) -> anyhow::Result<()> {
        let mut missed = 0;
        for _ in 0..FILL_ROUNDS_MAX {
            let before = self.origin.requests()?;
            if workload.transport.is_tls() {
                // curl requests a range of keys over one connection.
                let path = format!("/h/{}/[1-{keys}]", workload.size);
                get_over_tls(running.port, &path)?;
            } else {
                let mut client = Client::connect(running.port)?;
                for key in 1..=keys {
                    client.get(&format!("/h/{}/{key}", workload.size))?;
                }
            }
            missed = self.origin.requests()? - before;
            if missed == 0 {
                return Ok(());
            }
        }
        bail!(
            "{} still sends {missed} of {keys} hot keys to the origin after {FILL_ROUNDS_MAX} rounds",
            running.subject
        )
    }

    fn folder(&self) -> &Path {
        &self._scratch[0].path
    }

    fn start_server(
        &mut self,
        plan: &Plan,
        subject: Subject,
        program: &Path,
        arguments: &[String],
        port: u16,
    ) -> anyhow::Result<()> {
        let name = subject.to_string();
        let server = Server::start(
            &name,
            program,
            arguments,
            plan.server_core,
            port,
            self.folder(),
        )?;
        self.subjects.push(RunningServer {
            subject,
            port,
            server: self.servers.len(),
        });
        self.servers.push(server);
        Ok(())
    }

    fn start_nginx(
        &mut self,
        plan: &Plan,
        root: &Path,
        servers: &[Subject],
        tls: bool,
        capacity: u64,
    ) -> anyhow::Result<()> {
        let wanted = servers.iter().copied();
        let wanted: Vec<_> = wanted
            .filter(|s| matches!(s, Subject::Nginx { .. }))
            .collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let template = fs::read_to_string(root.join("bench/hits/nginx-server.conf"))?;
        let certificate = format!(
            "        ssl_certificate @DIR@/{CERTIFICATE};\n        ssl_certificate_key @DIR@/{KEY};\n        \
             ssl_protocols TLSv1.2 TLSv1.3;\n"
        );
        let mut servers = String::new();
        let mut ports = Vec::new();
        for &subject in &wanted {
            let Subject::Nginx {
                sendfile,
                tcp_nopush,
            } = subject
            else {
                continue;
            };
            let on = |set: bool| if set { "on" } else { "off" };
            let port = free_port()?;
            let text = template
                .replace("@PORT@", &port.to_string())
                .replace("@TLS@", if tls { " ssl http2" } else { "" })
                .replace("@CERTIFICATE@", if tls { &certificate } else { "" })
                .replace("@SENDFILE@", on(sendfile))
                .replace("@TCP_NOPUSH@", on(tcp_nopush));
            servers.push_str(&text);
            ports.push((subject, port));
        }
        let config = self.folder().join("nginx.conf");
        let text = fs::read_to_string(root.join("bench/hits/nginx.conf"))?
            .replace("@SERVERS@", &servers)
            .replace("@ORIGIN@", &self.origin.port.to_string())
            .replace("@CAPACITY@", &capacity.to_string())
            .replace("@USER@", nginx_user())
            .replace("@DIR@", &self.folder().display().to_string());
        fs::write(&config, text)?;
        let arguments = ["-c".to_owned(), config.display().to_string()];
        let port = ports.first().context("nginx has no port")?.1;
        let server = Server::start(
            "nginx",
            &find("nginx")?,
            &arguments,
            plan.server_core,
            port,
            self.folder(),
        )?;
        for (subject, port) in ports {
            self.subjects.push(RunningServer {
                subject,
                port,
                server: self.servers.len(),
            });
        }
        self.servers.push(server);
        Ok(())
    }

    fn start_varnish(&mut self, plan: &Plan, root: &Path, capacity: u64) -> anyhow::Result<()> {
        let folder = &self._scratch[1].path;
        let vcl = folder.join("edgeward.vcl");
        let text = fs::read_to_string(root.join("bench/hits/varnish.vcl"))?
            .replace("@ORIGIN@", &self.origin.port.to_string());
        fs::write(&vcl, text)?;
        let port = free_port()?;
        // One pool suffices for one core. Each connection needs a thread, so the number of threads exceeds that
        // of the connections.
        let arguments = words(&format!(
            "-F -j none -n {folder}/varnish -f {vcl} -a 127.0.0.1:{port} -T none \
             -s malloc,{capacity} -p thread_pools=1 -p thread_pool_min={threads} \
             -p thread_pool_max={most} -p thread_pool_timeout=300",
            folder = folder.display(),
            vcl = vcl.display(),
            threads = (plan.connections + 50).max(100),
            most = (plan.connections + 50).max(100) * 2,
        ));
        self.start_server(plan, Subject::Varnish, &find("varnishd")?, &arguments, port)
    }

    /// Sends two requests for one object to each server and compares the responses with the origin's file, so that a
    /// misconfigured server cannot win with wrong responses.
    fn check(&self, workload: Workload) -> anyhow::Result<()> {
        let expected = body(workload.size);
        let prefix = match workload.kind {
            Kind::Hit => 'h',
            Kind::Miss => 'm',
            Kind::Pass => 'p',
        };
        for running in &self.subjects {
            for _ in 0..2 {
                let path = format!("/{prefix}/{}/check", workload.size);
                let got = if workload.transport.is_tls() {
                    get_over_tls(running.port, &path)?
                } else {
                    Client::connect(running.port)?.get(&path)?
                };
                ensure!(
                    got == expected,
                    "{} sent wrong bytes for {path}",
                    running.subject
                );
            }
        }
        Ok(())
    }
}

/// Returns true if the server is measured with the transport. Varnish has no TLS. nginx does not send encrypted
/// bodies with `sendfile`, so with TLS it is measured only with both settings on and with both off.
fn is_measured(subject: Subject, transport: Transport) -> bool {
    match subject {
        Subject::Varnish => !transport.is_tls(),
        Subject::Nginx {
            sendfile,
            tcp_nopush,
        } => !transport.is_tls() || sendfile == tcp_nopush,
        Subject::Edgeward { .. } | Subject::EdgewardSites | Subject::EdgewardObserved => true,
    }
}

/// Returns the configuration of [`SITES`] sites. `site` is the template of one site. The last site has all hosts that
/// the others do not have, and gets the requests.
fn sites(site: &str) -> String {
    let of = |n: u32| {
        let hosts = if n == SITES {
            "\"*\"".to_owned()
        } else {
            format!("\"site-{n}.example\", \"*.site-{n}.example\"")
        };
        site.replace("@HOSTS@", &hosts)
            .replace("@N@", &n.to_string())
    };
    (1..=SITES).map(of).collect()
}

const CERTIFICATE: &str = "certificate.pem";
const KEY: &str = "key.pem";

/// Creates a certificate for the host name `bench` with a P-256 key. All servers use this certificate.
fn make_certificate(folder: &Path) -> anyhow::Result<()> {
    let made = Command::new(find("openssl")?)
        .args(words(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30",
        ))
        .args(["-subj", "/CN=bench", "-addext", "subjectAltName=DNS:bench"])
        .args(["-keyout", KEY, "-out", CERTIFICATE])
        .current_dir(folder)
        .output()
        .context("openssl cannot be started")?;
    let error = String::from_utf8_lossy(&made.stderr);
    ensure!(made.status.success(), "openssl: {}", error.trim());
    Ok(())
}

fn get_over_tls(port: u16, path: &str) -> anyhow::Result<Vec<u8>> {
    let got = Command::new(find("curl")?)
        .args(["--silent", "--show-error", "--fail", "--insecure"])
        .args(["--max-time", "60", "--header", "Host: bench"])
        .arg(format!("https://127.0.0.1:{port}{path}"))
        .output()
        .context("curl cannot be started")?;
    let error = String::from_utf8_lossy(&got.stderr);
    ensure!(got.status.success(), "curl: {}", error.trim());
    Ok(got.stdout)
}

/// Returns the capacity of the caches in bytes. For hits it is twice the size of the hot objects, at least 512 MiB. For
/// misses and passes it is 512 MiB, which long runs of misses exceed.
fn capacity(plan: &Plan, workload: Workload) -> u64 {
    const LEAST: u64 = 512 << 20;
    match workload.kind {
        Kind::Hit => (2 * plan.keys * (workload.size + 1024)).max(LEAST),
        Kind::Miss | Kind::Pass => LEAST,
    }
}

/// Returns the `user` line of nginx's configuration: `user root;` for root, otherwise nothing. Without the
/// line, an nginx that is started as root would switch to the user `nobody`, which cannot write to the folder.
pub(crate) fn nginx_user() -> &'static str {
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| {
        use std::os::unix::fs::MetadataExt as _;
        own.uid() == 0
    });
    if is_root { "user root;" } else { "" }
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Returns the body of the objects of a size. The body is incompressible.
fn body(size: u64) -> Vec<u8> {
    let mut state = size | 1;
    (0..size)
        .map(|_| {
            // xorshift64, Marsaglia 2003.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 56) as u8
        })
        .collect()
}

/// The origin: nginx with static files, configured in `bench/hits/origin.conf`.
#[derive(Debug)]
struct Origin {
    port: u16,
    /// Requests the page with the number of requests that the origin has received.
    counter: Client,
    /// The number of requests for this page. The origin counts them too.
    polls: u64,
    _server: Server,
}

impl Origin {
    fn start(plan: &Plan, root: &Path, folder: &Path, size: u64) -> anyhow::Result<Self> {
        let www = folder.join("www");
        fs::create_dir_all(&www)?;
        fs::write(www.join(size.to_string()), body(size))?;
        // The origin returns this file for every key of the size.
        let port = free_port()?;
        let config = folder.join("origin.conf");
        let text = fs::read_to_string(root.join("bench/hits/origin.conf"))?
            .replace("@PORT@", &port.to_string())
            .replace("@USER@", nginx_user())
            .replace("@DIR@", &folder.display().to_string());
        fs::write(&config, text)?;
        let arguments = ["-c".to_owned(), config.display().to_string()];
        let server = Server::start(
            "origin",
            &find("nginx")?,
            &arguments,
            plan.client_core,
            port,
            folder,
        )?;
        let mut origin = Self {
            port,
            counter: Client::connect(port)?,
            polls: 0,
            _server: server,
        };
        origin.requests()?;
        Ok(origin)
    }

    fn requests(&mut self) -> anyhow::Result<u64> {
        // The second and third line of nginx's stub_status page: `server accepts handled requests\n 3 3 17 \n`
        let status = String::from_utf8(self.counter.get("/requests")?)?;
        let line = status
            .lines()
            .nth(2)
            .context("the page of stub_status has no third line")?;
        let counted = line
            .split_whitespace()
            .nth(2)
            .and_then(|word| word.parse::<u64>().ok());
        self.polls += 1;
        Ok(counted
            .context("the page of stub_status has no number of requests")?
            .saturating_sub(self.polls))
    }
}
