//! Tests that kill the process of an endpoint with SIGKILL while it persists which chunks its peers have.

use std::fs;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use edgeward_chunk_store::codec::Compressors;
use edgeward_dedup::codec::{Codec as _, Method};
use edgeward_dedup::knowledge::Knowledge;
use edgeward_link::{Client, Gateway, ListenerTarget, LocalListener};
use edgeward_testkit::TcpServer;

use crate::bodies::Random;
use crate::test_bed::{EDGE, GATEWAY, TestBed, echo, small_containers, tcp, until, within};

/// Environment variables of the process: its folder, the address to listen on, the address of the target, to which the
/// gateway connects, and for an edge the address of the gateway.
const FOLDER: &str = "EDGEWARD_LINK_KILLED_FOLDER";
const LISTEN: &str = "EDGEWARD_LINK_KILLED_LISTEN";
const TARGET: &str = "EDGEWARD_LINK_KILLED_TARGET";
const GATEWAY_ADDR: &str = "EDGEWARD_LINK_KILLED_GATEWAY";

/// The names of the tests in this file. The process is started as one of them.
const GATEWAY_TEST: &str = "kill::a_killed_gateway_keeps_the_knowledge_of_its_peers";
const EDGE_TEST: &str = "kill::a_killed_edge_keeps_the_knowledge_of_its_gateway";

/// The name of the file in which the process writes its address when it listens.
const READY: &str = "endpoint listens";

/// The number of times that an endpoint is killed.
const KILLS: u64 = 8;

/// The start of a compressed knowledge file.
const COMPRESSED: &[u8] = b"EWknowz\x01";

/// Returns a body whose chunks fill more than 271 containers of 16 KiB, the first ones with noise and the others with
/// compressed text. Its record has 36 bytes, and 15 more for each container; records of 4096 bytes are compressed.
fn long_body(random: &mut Random) -> Vec<u8> {
    let mut body = random.noise(5_500_000);
    body.extend(random.text(1_000_000));
    body
}

/// Returns a test bed with stores of small containers, whose records become long.
fn with_small_containers(mut test_bed: TestBed) -> TestBed {
    test_bed.store_settings = small_containers();
    test_bed
}

/// Waits until the endpoint has saved a compressed record.
async fn wait_for_compressed_record(folder: &Path) {
    until(async || {
        let files = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut contents = files.filter_map(|file| fs::read(file.path()).ok());
        contents.any(|content| content.starts_with(COMPRESSED))
    })
    .await;
}

/// If a gateway is killed while it writes the knowledge file of a peer, the previous file stays complete. After the
/// restart, bodies are delivered as they were sent, and most bytes of a repeated body are sent as references. The file
/// is compressed, and the store has compressed containers.
///
/// Method: start this test program as the gateway process. Its arguments select this test, and an environment
/// variable makes the test run a gateway. The gateway saves knowledge files every millisecond. Send new bodies
/// until an unfinished file exists or half a second has passed, and then kill the process. Write the first half of each
/// complete file as an unfinished file, unless the kill left one. Start the next gateway with the same store and
/// folder, and send a body that was sent before.
#[tokio::test]
async fn a_killed_gateway_keeps_the_knowledge_of_its_peers() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return run_gateway(Path::new(&folder)).await;
    }
    let target = TcpServer::echo();
    let mut test_bed = with_small_containers(TestBed::in_memory());
    let mut gateway = start_gateway(&test_bed, "127.0.0.1:0", target.addr()).await;
    let addr = gateway.addr.to_string();
    let client = test_bed.client(gateway.addr);
    let mut random = Random(0x51_9417);
    let repeated_body = long_body(&mut random);
    exchange(&client, &target, &repeated_body).await;
    wait_for_compressed_record(&test_bed.knowledge_path(GATEWAY)).await;
    let (mut referenced, mut resent, mut unfinished) = (0, 0, 0_u64);
    for _ in 0..KILLS {
        let has_restarted = AtomicBool::new(false);
        let knowledge_folder = test_bed.knowledge_path(GATEWAY);
        let bodies = async {
            // A body that is in transit at the kill may fail, but it must not be delivered with wrong bytes.
            while !has_restarted.load(Ordering::Relaxed) {
                let body = random.noise(1_500_000);
                let Ok(stream) = client.open(tcp(target.addr())) else {
                    break;
                };
                if let Ok(back) = within(echo(stream, &body)).await {
                    assert!(back == body, "a body is wrong");
                }
            }
        };
        let kill = async {
            gateway.kill_when_writing(knowledge_folder.clone()).await;
            unfinished += u64::from(is_writing(&knowledge_folder));
            check_files(&knowledge_folder);
            let next = start_gateway(&test_bed, &addr, target.addr()).await;
            has_restarted.store(true, Ordering::Relaxed);
            next
        };
        ((), gateway) = tokio::join!(bodies, kill);
        let before = client.status().await;
        exchange(&client, &target, &repeated_body).await;
        let after = client.status().await;
        referenced += after.received.from_store - before.received.from_store;
        resent += after.sent.resent - before.sent.resent;
    }
    eprintln!("killed {KILLS} times, {unfinished} of them before a file was complete");
    // Each kill loses only the chunks of the last container of the store, which was not written yet.
    let sent = KILLS * repeated_body.len() as u64;
    assert!(
        referenced > sent / 2,
        "{referenced} of {sent} bytes sent as references"
    );
    // A gateway without its record refuses the references of its peer, which then sends the bytes.
    assert!(resent < sent / 2, "{resent} of {sent} bytes sent again");
    gateway.kill();
}

/// If an edge is killed while it writes its knowledge file, the previous file stays complete. After the restart, bodies
/// are delivered as they were sent, and the edge sends most bytes of a repeated body as references.
///
/// Method: like the test of a gateway. The edge listens for TCP connections, which it carries to the target.
#[tokio::test]
async fn a_killed_edge_keeps_the_knowledge_of_its_gateway() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return run_edge(Path::new(&folder)).await;
    }
    let target = TcpServer::echo();
    let mut test_bed = with_small_containers(TestBed::in_memory());
    let gateway = test_bed.gateway(target.addr()).await;
    let addresses = [
        (TARGET, target.addr()),
        (GATEWAY_ADDR, gateway.local_addr()),
    ];
    let mut edge = EndpointProcess::start(EDGE_TEST, &test_bed, "127.0.0.1:0", &addresses).await;
    let addr = edge.addr;
    let mut random = Random(0x51_9418);
    let repeated_body = long_body(&mut random);
    assert!(within(echo_over(addr, &repeated_body)).await == Some(repeated_body.clone()));
    wait_for_compressed_record(&test_bed.knowledge_path(EDGE)).await;
    let from_store = async || {
        let peers = gateway.status().await.peers;
        peers
            .iter()
            .map(|peer| peer.received.from_store)
            .sum::<u64>()
    };
    let mut referenced = 0;
    for _ in 0..KILLS {
        let has_restarted = AtomicBool::new(false);
        let knowledge_folder = test_bed.knowledge_path(EDGE);
        let bodies = async {
            while !has_restarted.load(Ordering::Relaxed) {
                let body = random.noise(1_500_000);
                // The connection of a body that is in transit at the kill is reset, or ends early.
                if let Some(back) = within(echo_over(addr, &body)).await {
                    assert!(body.starts_with(&back), "a body is wrong");
                }
            }
        };
        let kill = async {
            edge.kill_when_writing(knowledge_folder.clone()).await;
            check_files(&knowledge_folder);
            let listen = addr.to_string();
            let next = EndpointProcess::start(EDGE_TEST, &test_bed, &listen, &addresses).await;
            has_restarted.store(true, Ordering::Relaxed);
            next
        };
        ((), edge) = tokio::join!(bodies, kill);
        let before = from_store().await;
        assert!(within(echo_over(addr, &repeated_body)).await == Some(repeated_body.clone()));
        referenced += from_store().await - before;
    }
    let sent = KILLS * repeated_body.len() as u64;
    assert!(
        referenced > sent / 2,
        "{referenced} of {sent} bytes sent as references"
    );
    edge.kill();
}

/// Checks that every knowledge file is complete, except files with the suffix of unfinished files. Writes an
/// unfinished file for each complete one.
fn check_files(folder: &Path) {
    for file in fs::read_dir(folder).expect("the folder exists").flatten() {
        let name = file
            .file_name()
            .into_string()
            .expect("the file name is ASCII");
        if name.ends_with(".new") {
            continue;
        }
        let bytes = fs::read(file.path()).expect("the file exists");
        let knowledge = Knowledge::decode(&encoded_knowledge(&bytes), usize::MAX);
        assert!(
            knowledge.is_some(),
            "{} bytes are not a complete file",
            bytes.len()
        );
        let new = folder.join(format!("{name}.new"));
        if !new.exists() {
            fs::write(new, &bytes[..bytes.len() / 2]).expect("the file can be written");
        }
    }
}

/// Returns the encoded knowledge of a complete file. A compressed file has its length before the compressed bytes.
fn encoded_knowledge(file: &[u8]) -> Vec<u8> {
    let Some(rest) = file.strip_prefix(COMPRESSED) else {
        return file.to_vec();
    };
    let (length, compressed) = rest.split_first_chunk().expect("the file has a length");
    let length = usize::try_from(u64::from_le_bytes(*length)).expect("the length fits in memory");
    let mut encoded = Vec::new();
    let decompressed =
        Compressors::new().decompress(Method::Zstd, &[], compressed, length, &mut encoded);
    decompressed.expect("the file is complete");
    encoded
}

/// Sends a body to the target, which echoes it, and compares the echo. Tries again if the gateway was killed.
async fn exchange(client: &Client, target: &TcpServer, body: &[u8]) {
    for _ in 0..100 {
        within(client.up()).await;
        if let Ok(stream) = client.open(tcp(target.addr()))
            && let Ok(back) = within(echo(stream, body)).await
        {
            assert!(back == body, "a body is wrong");
            return;
        }
    }
    panic!("the body is not delivered after 100 attempts");
}

/// Sends a body over a TCP connection, and returns the echo. Returns `None` if the connection fails.
async fn echo_over(addr: SocketAddr, body: &[u8]) -> Option<Vec<u8>> {
    let mut tcp = TcpStream::connect(addr).await.ok()?;
    let (mut read, mut write) = tcp.split();
    let send = async {
        write.write_all(body).await?;
        write.shutdown().await
    };
    let mut back = Vec::new();
    let (sent, received) = tokio::join!(send, read.read_to_end(&mut back));
    (sent.is_ok() && received.is_ok()).then_some(back)
}

async fn start_gateway(test_bed: &TestBed, listen: &str, target: SocketAddr) -> EndpointProcess {
    EndpointProcess::start(GATEWAY_TEST, test_bed, listen, &[(TARGET, target)]).await
}

/// An endpoint in a separate process.
struct EndpointProcess {
    process: Child,
    addr: SocketAddr,
}

impl EndpointProcess {
    /// Starts a process with this test as its main function, and waits until it listens. `addresses` are further
    /// environment variables.
    async fn start(
        test: &str,
        test_bed: &TestBed,
        listen: &str,
        addresses: &[(&str, SocketAddr)],
    ) -> Self {
        let ready = test_bed.folder.join(READY);
        _ = fs::remove_file(&ready);
        let program = std::env::current_exe().expect("the path of this program is known");
        let process = Command::new(program)
            .args(["--exact", test])
            .env(FOLDER, &test_bed.folder)
            .env(LISTEN, listen)
            .envs(
                addresses
                    .iter()
                    .map(|(name, addr)| (name, addr.to_string())),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("the process runs");
        let addr = within(async {
            loop {
                match fs::read_to_string(&ready) {
                    Ok(addr) => return addr,
                    Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
                }
            }
        });
        let addr = addr.await.parse().expect("the address is valid");
        Self { process, addr }
    }

    /// Kills the process when an unfinished file exists, or after half a second. The folder is read continually,
    /// because an unfinished file exists only for a very short time.
    async fn kill_when_writing(mut self, folder: PathBuf) {
        let killed = tokio::task::spawn_blocking(move || {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(500) && !is_writing(&folder) {
                std::thread::yield_now();
            }
            self.kill();
        });
        killed.await.expect("the task does not panic");
    }

    fn kill(&mut self) {
        self.process.kill().expect("the process runs");
        self.process.wait().expect("the process has run");
    }
}

impl Drop for EndpointProcess {
    fn drop(&mut self) {
        // The process must end even if the test has failed.
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

fn is_writing(folder: &Path) -> bool {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files
        .map(|file| file.file_name())
        .any(|name| name.to_string_lossy().ends_with(".new"))
}

/// The main function of the gateway process.
async fn run_gateway(folder: &Path) {
    let mut test_bed = with_small_containers(TestBed::in_folder(folder));
    let mut config = test_bed.gateway_config(address(TARGET));
    config.listen = address(LISTEN);
    config.link.times.knowledge = Duration::from_millis(1);
    let gateway = Gateway::bind(config)
        .await
        .expect("the listener can be bound");
    run_until_stdin_closes(folder, gateway.local_addr()).await;
}

/// The main function of the edge process.
async fn run_edge(folder: &Path) {
    let mut config = with_small_containers(TestBed::in_folder(folder)).config(EDGE);
    config.times.knowledge = Duration::from_millis(1);
    let gateway = address(GATEWAY_ADDR).to_string();
    let client = Client::start(config, &gateway).expect("the client starts");
    within(client.up()).await;
    let target = ListenerTarget::Fixed(tcp(address(TARGET)));
    let listener = LocalListener::bind(client, address(LISTEN), target, 64)
        .await
        .expect("the listener can be bound");
    run_until_stdin_closes(folder, listener.local_addr()).await;
}

/// Returns the address in an environment variable.
fn address(variable: &str) -> SocketAddr {
    let address = std::env::var(variable).expect("the variable is set");
    address.parse().expect("the address is valid")
}

/// Reports the address of the listener. Runs until stdin is closed, which happens when the test process ends.
async fn run_until_stdin_closes(folder: &Path, addr: SocketAddr) {
    let ready = folder.join(READY);
    let unready = ready.with_extension("unfinished");
    fs::write(&unready, addr.to_string()).expect("the file can be written");
    fs::rename(unready, ready).expect("the file can be renamed");
    let stdin_closed =
        tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    _ = stdin_closed.await;
}
