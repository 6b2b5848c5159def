//! Programs that a test needs and that need not be installed: finds them, and starts servers on free ports.

use std::env;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use crate::client::until;

/// Returns the path of a program, or `None` if it is not installed. The folder of nginx is not in the PATH of ordinary
/// users.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = env::var("PATH").unwrap_or_default();
    path.split(':')
        .chain(["/usr/sbin", "/usr/local/sbin", "/usr/local/go/bin"])
        .map(|folder| Path::new(folder).join(program))
        .find(|candidate| candidate.is_file())
}

/// Returns the path of a program, or `None` after [`skip`].
pub fn find_or_skip(program: &str) -> Option<PathBuf> {
    let found = find(program);
    if found.is_none() {
        skip(&format!("{program} is not installed"));
    }
    found
}

/// Prints that the test is skipped. Panics if the variable `EDGEWARD_REQUIRE_TOOLS` is 1.
pub fn skip(why: &str) {
    let required = env::var("EDGEWARD_REQUIRE_TOOLS").is_ok_and(|value| value == "1");
    assert!(
        !required,
        "{why}\n  hint: run `scripts/ensure-debian test`, which installs what the tests need"
    );
    eprintln!("skipped: {why}");
}

/// Returns a port that is free now. It is below the ports that Linux gives to connections and to listeners without a
/// port, so that none of them takes it before its server has started.
pub fn free_port() -> u16 {
    let random = RandomState::new();
    (0..100)
        .map(|attempt| 10_000 + (random.hash_one(attempt) % 22_000) as u16)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .expect("loopback has free ports")
}

/// A port of loopback on which no program listens yet, and which the kernel gives to no other program until this value
/// is dropped. A server that sets `SO_REUSEADDR` can listen there.
pub struct ReservedPort {
    addr: SocketAddr,
    _bound: Socket,
}

impl ReservedPort {
    /// Reserves a port that the kernel chooses: binds a socket that does not listen.
    pub fn any() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_reuse_address(true).expect("the option is set");
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        socket.bind(&any.into()).expect("loopback has a free port");
        let bound = socket.local_addr().expect("the socket is bound");
        Self {
            addr: bound.as_socket().expect("an address of TCP"),
            _bound: socket,
        }
    }

    /// Returns the address with the port.
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }
}

/// A server in another process, with a folder of its own. Dropping it kills the process.
pub struct ServerProcess {
    child: Child,
    addr: SocketAddr,
    folder: TempDir,
}

impl ServerProcess {
    /// Starts nginx with this text in the block `http` of its configuration. `http` is called with the folder and the
    /// address at which the server must listen. Returns `None` after [`skip`].
    pub fn nginx(http: impl Fn(&Path, SocketAddr) -> String) -> Option<Self> {
        let program = find_or_skip("nginx")?;
        // With one process, root needs no user for workers that may enter the folder.
        Self::start(&program, |folder, addr| {
            let (http, here) = (http(folder, addr), folder.display());
            let text = format!(
                "daemon off; master_process off; pid {here}/pid; error_log {here}/error.log;\n\
                 events {{ worker_connections 1024; }}\n\
                 http {{\n\
                 client_body_temp_path {here}/t1; proxy_temp_path {here}/t2; fastcgi_temp_path {here}/t3;\n\
                 uwsgi_temp_path {here}/t4; scgi_temp_path {here}/t5;\n{http}\n}}\n"
            );
            let mut command = Command::new(&program);
            command.arg("-e").arg(folder.join("error.log"));
            command.arg("-c").arg(file(folder, "nginx.conf", text));
            command
        })
    }

    /// Starts Apache with these lines in its configuration and the modules that `LoadModule` names. Like
    /// [`nginx`](Self::nginx).
    pub fn apache(modules: &[&str], lines: impl Fn(&Path) -> String) -> Option<Self> {
        let program = find_or_skip("apache2")?;
        Self::start(&program, |folder, addr| {
            let here = folder.display();
            let mut text: String = ["mpm_event", "authz_core"]
                .iter()
                .chain(modules)
                .map(|name| {
                    format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n")
                })
                .collect();
            text += &format!(
                "ServerRoot {here}\nServerName localhost\nPidFile {here}/pid\nListen {addr}\n\
                 DocumentRoot {here}\nErrorLog {here}/error.log\n{}",
                lines(folder)
            );
            let mut command = Command::new(&program);
            command
                .args(["-X", "-f"])
                .arg(file(folder, "apache.conf", text));
            command
        })
    }

    /// Starts a server by the command that `command` returns for a folder and an address, and waits until it accepts
    /// connections at the address.
    pub fn start(program: &Path, command: impl Fn(&Path, SocketAddr) -> Command) -> Option<Self> {
        // Another process may take the port between its choice and the start of the server.
        let started = (0..5).find_map(|_| Self::try_start(&command));
        assert!(started.is_some(), "{} does not start", program.display());
        started
    }

    fn try_start(command: &impl Fn(&Path, SocketAddr) -> Command) -> Option<Self> {
        let folder = tempfile::tempdir().expect("the folder can be created");
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let mut command = command(folder.path(), addr);
        let mut child = spawn(command.stdout(Stdio::null()).stderr(Stdio::piped()));
        if !wait_until_it_listens(&mut child, addr) {
            let mut printed = String::new();
            let stderr = child.stderr.as_mut().expect("stderr is piped");
            _ = stderr.read_to_string(&mut printed);
            eprintln!("the server has ended: {printed}");
            return None;
        }
        Some(Self {
            child,
            addr,
            folder,
        })
    }

    /// Starts a server that listens at a port of its choice on loopback, and prints the port as its first line.
    pub fn with_printed_port(mut command: Command) -> Self {
        let folder = tempfile::tempdir().expect("the folder can be created");
        command.current_dir(folder.path()).stderr(Stdio::null());
        let mut child = spawn(command.stdout(Stdio::piped()));
        let mut line = String::new();
        let output = child.stdout.take().expect("the output is a pipe");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let port = line.trim().parse();
        let port = port.unwrap_or_else(|_| panic!("{command:?} prints its port, not {line:?}"));
        Self {
            child,
            addr: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            folder,
        }
    }

    /// Returns the address at which the server listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the folder of the server.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the process of the server.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Starts a process without standard input.
pub(crate) fn spawn(command: &mut Command) -> Child {
    let spawned = command.stdin(Stdio::null()).spawn();
    spawned.unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Waits until a server accepts connections at its address. Returns false if its process has ended before.
pub(crate) fn wait_until_it_listens(child: &mut Child, addr: SocketAddr) -> bool {
    until("the server listens", || {
        match TcpStream::connect(addr).is_ok() {
            true => Some(true),
            false => child.try_wait().expect("the child exists").map(|_| false),
        }
    })
}

/// Writes a file and returns its path.
fn file(folder: &Path, name: &str, text: String) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).expect("the file can be written");
    path
}
