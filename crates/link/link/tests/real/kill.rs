//! A test that kills a gateway process with SIGKILL while it persists which chunks its peers have.

use std::fs;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use edgeward_dedup::knowledge::Knowledge;
use edgeward_link::{Client, Gateway};

use crate::bodies::Random;
use crate::test_bed::{Echo, GATEWAY, TestBed, echo, tcp, within};

/// Environment variables of the gateway process: its folder, the address to listen on, and the address of the target,
/// to which the gateway connects.
const FOLDER: &str = "EDGEWARD_LINK_KILLED_FOLDER";
const LISTEN: &str = "EDGEWARD_LINK_KILLED_LISTEN";
const TARGET: &str = "EDGEWARD_LINK_KILLED_TARGET";

/// The name of the test in this file. The gateway process is started as this test.
const TEST: &str = "kill::a_killed_gateway_keeps_the_knowledge_of_its_peers";

/// The name of the file in which the gateway process writes its address when it listens.
const READY: &str = "gateway listens";

/// The number of times that a gateway is killed.
const KILLS: u64 = 8;

/// If a gateway is killed while it writes the knowledge file of a peer, the previous file stays complete. After the
/// restart, bodies are delivered as they were sent, and most bytes of a repeated body are sent as references.
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
    let target = Echo::start().await;
    let mut test_bed = TestBed::in_memory();
    let mut gateway = GatewayProcess::start(&test_bed, "127.0.0.1:0", target.addr).await;
    let addr = gateway.addr.to_string();
    let client = test_bed.client(gateway.addr);
    let mut random = Random(0x51_9417);
    let repeated_body = random.noise(3_000_000);
    exchange(&client, &target, &repeated_body).await;
    let (mut referenced, mut unfinished) = (0, 0_u64);
    for _ in 0..KILLS {
        let has_restarted = AtomicBool::new(false);
        let knowledge_folder = test_bed.knowledge_path(GATEWAY);
        let bodies = async {
            // A body that is in transit at the kill may fail, but it must not be delivered with wrong bytes.
            while !has_restarted.load(Ordering::Relaxed) {
                let body = random.noise(1_500_000);
                let Ok(stream) = client.open(tcp(target.addr)) else {
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
            let next = GatewayProcess::start(&test_bed, &addr, target.addr).await;
            has_restarted.store(true, Ordering::Relaxed);
            next
        };
        ((), gateway) = tokio::join!(bodies, kill);
        let before = client.status().await.received.from_store;
        exchange(&client, &target, &repeated_body).await;
        referenced += client.status().await.received.from_store - before;
    }
    eprintln!("killed {KILLS} times, {unfinished} of them before a file was complete");
    // Each kill loses only the chunks of the last container of the store, which was not written yet.
    let sent = KILLS * repeated_body.len() as u64;
    assert!(
        referenced > sent / 2,
        "{referenced} of {sent} bytes sent as references"
    );
    gateway.kill();
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
        let knowledge = Knowledge::decode(&bytes, usize::MAX);
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

/// Sends a body to the target, which echoes it, and compares the echo. Tries again if the gateway was killed.
async fn exchange(client: &Client, target: &Echo, body: &[u8]) {
    for _ in 0..100 {
        within(client.up()).await;
        if let Ok(stream) = client.open(tcp(target.addr))
            && let Ok(back) = within(echo(stream, body)).await
        {
            assert!(back == body, "a body is wrong");
            return;
        }
    }
    panic!("the body is not delivered after 100 attempts");
}

/// A gateway in a separate process.
struct GatewayProcess {
    process: Child,
    addr: SocketAddr,
}

impl GatewayProcess {
    async fn start(test_bed: &TestBed, listen: &str, target: SocketAddr) -> Self {
        let ready = test_bed.folder.join(READY);
        _ = fs::remove_file(&ready);
        let program = std::env::current_exe().expect("the path of this program is known");
        let process = Command::new(program)
            .args(["--exact", TEST])
            .env(FOLDER, &test_bed.folder)
            .env(LISTEN, listen)
            .env(TARGET, target.to_string())
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

impl Drop for GatewayProcess {
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
    let variable = |name| std::env::var(name).expect("the variable is set");
    let mut test_bed = TestBed::in_folder(folder);
    let mut config =
        test_bed.gateway_config(variable(TARGET).parse().expect("the address is valid"));
    config.listen = variable(LISTEN).parse().expect("the address is valid");
    config.link.times.knowledge = Duration::from_millis(1);
    let gateway = Gateway::bind(config)
        .await
        .expect("the listener can be bound");
    let ready = folder.join(READY);
    let unready = ready.with_extension("unfinished");
    fs::write(&unready, gateway.local_addr().to_string()).expect("the file can be written");
    fs::rename(unready, ready).expect("the file can be renamed");
    // Runs until stdin is closed, which happens when the test process ends.
    let stdin_closed =
        tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    _ = stdin_closed.await;
}
