//! A test with random faults of the network, the endpoints and the stores. No body is delivered with wrong bytes.

use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinSet;

use edgeward_testkit::TcpServer;

use crate::bodies::Random;
use crate::test_bed::{
    EDGE, Faults, FaultyRelay, GATEWAY, TestBed, echo, small_containers, tcp, within,
};

/// Returns the number of runs from the environment variable, or the default.
fn runs(default: u64) -> u64 {
    let runs = std::env::var("EDGEWARD_LINK_REAL_RUNS").ok();
    runs.map_or(default, |runs| {
        runs.parse().expect("EDGEWARD_LINK_REAL_RUNS is a number")
    })
}

/// Returns eight random bodies: random bytes, texts, and edited versions of a text.
fn bodies(random: &mut Random) -> Vec<Vec<u8>> {
    let mut text = random.text(150_000);
    (0..8)
        .map(|_| match random.below(4) {
            0 => {
                let bytes = random.below(400_000);
                random.noise(bytes)
            }
            1 => {
                let bytes = random.below(6000);
                random.text(bytes)
            }
            _ => {
                let edits = random.below(5);
                text = random.edited(&text, edits);
                text.clone()
            }
        })
        .collect()
}

/// Damages a store like a crash or a bad disk: deletes it, truncates it, overwrites bytes, or leaves it unchanged.
/// Only the deletion affects the superblock, which is in the first 4096 bytes.
fn damage_store(test_bed: &TestBed, endpoint: usize, random: &mut Random) {
    let path = test_bed.store_path(endpoint);
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("the store opens");
    match random.below(4) {
        0 => std::fs::remove_file(&path).expect("the file can be removed"),
        1 => {
            // When the store is opened again, its file is extended with zeroes to the configured size.
            let bytes = 4096 + random.below(20 << 20) as u64;
            file.set_len(bytes).expect("the file can be truncated");
        }
        2 => {
            for _ in 0..2000 {
                let at = 4096 + random.below(20 << 20) as u64;
                file.write_all_at(&[random.below(256) as u8], at)
                    .expect("the file can be written");
            }
        }
        _ => {}
    }
}

/// Every body is echoed as it was sent, or its stream fails because of an injected fault. After the faults all
/// bodies are echoed.
///
/// Method: connect the client over a relay that closes connections and flips bits. Run half of the runs without
/// encryption, because TLS detects flipped bits before the link does, and half with small containers that are
/// compressed. Send eight bodies at the same time in each of three rounds, and compare the echoes. Between two rounds,
/// drop one endpoint like in a crash and damage its store.
#[tokio::test]
async fn no_body_is_delivered_with_wrong_bytes() {
    let mut delivered = 0;
    for run in 0..runs(20) {
        let mut random = Random(0x11ae + run);
        let target = TcpServer::echo();
        let mut test_bed = TestBed::new(run % 2 == 0);
        if run % 4 >= 2 {
            test_bed.store_settings = small_containers();
        }
        test_bed.uncached_reads_one_in = (run % 4 < 2).then_some(2 + run % 3);
        test_bed.keep_sent = run % 3 > 0;
        let faults = Faults {
            break_every: [0, 50_000, 400_000][random.below(3)],
            flip_every: [0, 30_000, 300_000][random.below(3)],
            faulty_connections: 3 + random.below(6) as u64,
        };
        let mut gateway = Some(test_bed.gateway(target.addr()).await);
        let addr = gateway.as_ref().expect("the gateway runs").local_addr();
        let relay = FaultyRelay::start(addr, faults).await;
        let mut client = Some(test_bed.client(relay.addr));
        let bodies = bodies(&mut random);
        for round in 0..3 {
            let endpoints = (gateway.as_ref(), client.as_ref());
            let (Some(_), Some(link)) = endpoints else {
                unreachable!("both run at the beginning of a round");
            };
            within(link.up()).await;
            let mut streams = JoinSet::new();
            for (nth, body) in bodies.iter().enumerate() {
                let (link, body, to) = (link.clone(), body.clone(), tcp(target.addr()));
                streams.spawn(async move {
                    for attempt in 0..50 {
                        let Ok(stream) = link.open(to.clone()) else {
                            within(link.up()).await;
                            continue;
                        };
                        match within(echo(stream, &body)).await {
                            Ok(back) => {
                                assert!(back == body, "run {run}: body {nth} is wrong");
                                return attempt;
                            }
                            // The stream was refused or reset, but no body was wrong.
                            Err(_) => within(link.up()).await,
                        }
                    }
                    panic!("run {run}: body {nth} is not delivered after 50 attempts");
                });
            }
            while let Some(done) = streams.join_next().await {
                done.expect("the task does not panic");
                delivered += 1;
            }
            if round == 2 {
                break;
            }
            // Simulates a crash: the endpoint is dropped without flushing its store.
            if random.below(2) == 0 {
                drop(gateway.take());
                wait_for_lock(&test_bed, GATEWAY).await;
                damage_store(&test_bed, GATEWAY, &mut random);
                let mut config = test_bed.gateway_config(target.addr());
                config.listen = addr;
                gateway = Some(
                    edgeward_link::Gateway::bind(config)
                        .await
                        .expect("the listener can be bound"),
                );
            } else {
                drop(client.take());
                wait_for_lock(&test_bed, EDGE).await;
                damage_store(&test_bed, EDGE, &mut random);
                client = Some(test_bed.client(relay.addr));
            }
        }
        assert!(relay.relayed_bytes.load(Ordering::Relaxed) > 0);
        drop((gateway, client));
    }
    assert_eq!(delivered, runs(20) * 3 * 8);
}

/// Waits until a store is unlocked. This happens when the last task of its endpoint has ended.
pub(crate) async fn wait_for_lock(test_bed: &TestBed, endpoint: usize) {
    let unlocked = async {
        loop {
            let path = test_bed.store_path(endpoint);
            match edgeward_store::disk::FileDevice::open_to_read(&path) {
                Ok(_) => return,
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    };
    within(unlocked).await;
}
