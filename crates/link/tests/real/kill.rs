//! A gateway process that is killed with SIGKILL while it persists the knowledge of its peers.

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

/// Environment variables of the gateway's process: the folder, the address to listen on, and the target.
const FOLDER: &str = "EDGEWARD_LINK_KILLED_FOLDER";
const LISTEN: &str = "EDGEWARD_LINK_KILLED_LISTEN";
const TARGET: &str = "EDGEWARD_LINK_KILLED_TARGET";

/// The test that the gateway's process runs: this one.
const TEST: &str = "kill::a_killed_gateway_keeps_the_knowledge_of_its_peers";

/// A file in the folder, with the address of the gateway.
const READY: &str = "gateway listens";

const KILLS: u64 = 8;

/// If a gateway is killed while it writes the file of a peer, the previous file is whole, bodies are delivered as
/// they were sent, and most of their bytes are sent as references.
///
/// Method: the gateway runs this test program, restricted to this test by its arguments and switched to its role by
/// an environment variable. It writes files every millisecond. The test sends new bodies and a repeated one until
/// an unfinished file exists or half a second has passed, and then kills the process. The process may finish the
/// file before it dies, so the test leaves half a file in its place. The next gateway starts with the store and the
/// folder as they are.
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
    let same = random.noise(3_000_000);
    exchange(&client, &target, &same).await;
    let (mut named, mut unfinished) = (0, 0_u64);
    for _ in 0..KILLS {
        let over = AtomicBool::new(false);
        let written = test_bed.knowledge_path(GATEWAY);
        let bodies = async {
            // Bodies under way at the kill fail or arrive, but never with other bytes.
            while !over.load(Ordering::Relaxed) {
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
            gateway.kill_when_writing(written.clone()).await;
            unfinished += u64::from(is_writing(&written));
            check_files(&written);
            let next = GatewayProcess::start(&test_bed, &addr, target.addr).await;
            over.store(true, Ordering::Relaxed);
            next
        };
        ((), gateway) = tokio::join!(bodies, kill);
        let before = client.status().received.from_store;
        exchange(&client, &target, &same).await;
        named += client.status().received.from_store - before;
    }
    eprintln!("killed {KILLS} times, {unfinished} of them before a file was whole");
    // Only the chunks in the open container are lost at each kill.
    let most = KILLS * same.len() as u64;
    assert!(
        named > most / 2,
        "{named} of {most} bytes sent as references"
    );
    gateway.kill();
}

/// Checks that every file is whole, except those with the suffix of unfinished ones; and leaves an unfinished file
/// for each.
fn check_files(folder: &Path) {
    for file in fs::read_dir(folder).expect("it was written").flatten() {
        let name = file.file_name().into_string().expect("digits");
        if name.ends_with(".new") {
            continue;
        }
        let bytes = fs::read(file.path()).expect("it is there");
        let known = Knowledge::decode(&bytes, usize::MAX);
        assert!(known.is_some(), "{} bytes are not whole", bytes.len());
        let new = folder.join(format!("{name}.new"));
        if !new.exists() {
            fs::write(new, &bytes[..bytes.len() / 2]).expect("written");
        }
    }
}

/// Sends a body and reads it back, over a link that may just have lost its gateway.
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
    panic!("the body does not get through");
}

/// A gateway in its own process.
struct GatewayProcess {
    process: Child,
    addr: SocketAddr,
}

impl GatewayProcess {
    async fn start(test_bed: &TestBed, listen: &str, target: SocketAddr) -> Self {
        let ready = test_bed.folder.join(READY);
        _ = fs::remove_file(&ready);
        let program = std::env::current_exe().expect("this program");
        let process = Command::new(program)
            .args(["--exact", TEST])
            .env(FOLDER, &test_bed.folder)
            .env(LISTEN, listen)
            .env(TARGET, target.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("it runs");
        let addr = within(async {
            loop {
                match fs::read_to_string(&ready) {
                    Ok(addr) => return addr,
                    Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
                }
            }
        });
        let addr = addr.await.parse().expect("an address");
        Self { process, addr }
    }

    /// Kills the process as soon as an unfinished file exists, or after half a second. Polling at intervals would
    /// hardly ever see one.
    async fn kill_when_writing(mut self, folder: PathBuf) {
        let watched = tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(500) && !is_writing(&folder) {
                std::thread::yield_now();
            }
            self.kill();
        });
        watched.await.expect("it does not panic");
    }

    fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ran");
    }
}

impl Drop for GatewayProcess {
    fn drop(&mut self) {
        // Also if the test failed.
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

/// The main function of the process that is killed.
async fn run_gateway(folder: &Path) {
    let variable = |name| std::env::var(name).expect("it is set");
    let mut test_bed = TestBed::in_folder(folder);
    let mut config = test_bed.gateway_config(variable(TARGET).parse().expect("an address"));
    config.listen = variable(LISTEN).parse().expect("an address");
    config.link.times.knowledge = Duration::from_millis(1);
    let gateway = Gateway::bind(config).await.expect("it listens");
    let ready = folder.join(READY);
    let unready = ready.with_extension("unfinished");
    fs::write(&unready, gateway.local_addr().to_string()).expect("written");
    fs::rename(unready, ready).expect("it has its name");
    // The parent process holds the other side of stdin, which closes when the parent ends.
    let gone = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    _ = gone.await;
}
