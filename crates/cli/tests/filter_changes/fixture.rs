//! Test helpers: a folder with keys, a publisher process, a client, and a session of psql.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use edgeward_filter_client::{FilterClient, FilterConfig, Trust};
use edgeward_types::SplitMix64;
use serde_json::Value;

use super::postgres;
use super::run::{self, Server};

/// A temporary folder with the private key of a publisher and its state.
pub(crate) struct Fixture {
    folder: tempfile::TempDir,
    public_key: String,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("the temporary folder is created");
        let key = folder.path().join("key").display().to_string();
        let keygen = run::output(&["filter", "keygen", "-o", &key]);
        assert!(keygen.status.success(), "{keygen:?}");
        let public_key = run::text(&keygen.stdout).trim().to_owned();
        Self { folder, public_key }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Starts a publisher of UUIDs with the state of this folder.
    pub(crate) fn serve(&self, arguments: &[&str]) -> Server {
        let (state, key) = (self.path("state"), self.path("key"));
        let (state, key) = (format!("--state={state}"), format!("--key={key}"));
        let mut all = vec!["filter", "serve", "--json", "--set=resource", "--ids=uuid"];
        all.extend(["--listen=127.0.0.1:0", "--admin=127.0.0.1:0"]);
        all.extend([&state[..], &key]);
        all.extend_from_slice(arguments);
        Server::start(&all)
    }

    pub(crate) fn client(&self, publisher: &Server, max_staleness: Duration) -> FilterClient {
        let url = publisher
            .text("/listening")
            .parse()
            .expect("the publisher prints a URL");
        let trust = Trust::Keys(vec![self.public_key.parse().expect("the key is valid")]);
        let config = FilterConfig::new(url, trust, max_staleness);
        FilterClient::start(config).expect("the client starts")
    }

    /// Fetches the publisher's status and returns one of its counters.
    pub(crate) fn count(&self, publisher: &Server, name: &str) -> u64 {
        let mut stream = TcpStream::connect(publisher.addr("/admin"))
            .expect("the server accepts the connection");
        let request = b"GET /status HTTP/1.1\r\nhost: p\r\nconnection: close\r\n\r\n";
        stream.write_all(request).expect("the request is sent");
        let mut response = String::new();
        stream
            .read_to_string(&mut response)
            .expect("the server responds");
        let (_, body) = response
            .split_once("\r\n\r\n")
            .expect("the response has a body");
        let status: Value = serde_json::from_str(body).expect("the text is JSON");
        let count = status["since_start"][name].as_u64();
        count.unwrap_or_else(|| panic!("no {name} in {status}"))
    }
}

/// The UUID for a number.
pub(crate) fn id(n: u64) -> String {
    format!("550e8400-e29b-41d4-a716-{n:012}")
}

/// A session of psql that runs one statement after the other.
pub(crate) struct Psql {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Psql {
    pub(crate) fn of(server: &postgres::Server) -> Self {
        let program = postgres::program("psql").expect("psql is installed with PostgreSQL");
        let mut process = Command::new(program)
            .args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"])
            .arg(server.address())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("psql runs");
        Self {
            input: process.stdin.take().expect("the stream is piped"),
            output: BufReader::new(process.stdout.take().expect("the stream is piped")),
            process,
        }
    }

    pub(crate) fn execute(&mut self, sql: &str) {
        writeln!(self.input, "{sql}\n\\echo done").expect("psql accepts input");
        let mut printed = String::new();
        self.output
            .read_line(&mut printed)
            .expect("psql prints a line");
        assert_eq!(printed, "done\n", "{sql}");
    }
}

impl Drop for Psql {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// A generator of random numbers: SplitMix64 (Steele, Lea, Flood, 2014).
pub(crate) struct Random(SplitMix64);

impl Random {
    /// Takes the seed from the environment variable `EDGEWARD_SIM_SEED`, or a default seed, and prints the seed.
    pub(crate) fn seeded() -> Self {
        let text = std::env::var("EDGEWARD_SIM_SEED").ok();
        let seed = text.and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or(20_261_121);
        eprintln!("EDGEWARD_SIM_SEED={seed}");
        Self(SplitMix64(seed))
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0.below(limit)
    }
}
