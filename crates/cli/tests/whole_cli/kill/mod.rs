//! Kills `serve --disk` at random moments under load. After the next start, every byte that the edge serves must be
//! correct, durable objects must be served from disk, and purged objects must not.
//!
//! To purge an object, the tests send a POST for its URL, which invalidates the stored object.
//!
//! The origin computes each body from the object's name, so that every byte can be checked. The test kills ten times;
//! `EDGEWARD_KILLS=300` makes a long run. It prints its seed.

mod ledger;
mod purge_client;
mod request;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use edgeward_types::SplitMix64;
use rustix::process::Signal;

use super::run::{Server, until};
use ledger::DurabilityLedger;
use purge_client::PurgeClient;
use request::{has_ended, send_request, size_of};

/// Method: clients request objects of 100 bytes to 2 MB, some by ranges; one request in twenty is a POST that
/// invalidates an object. A purge client purges objects that no other client requests, and reads the edge's sync
/// count, from which it learns which objects and purges are durable. After a random time the edge gets SIGKILL and is
/// started on the same directory. Every body must be a prefix of the correct bytes, and complete unless the edge was
/// killed meanwhile. After each start, all objects known to be durable are requested first: 99 of 100 must come from
/// disk. No durably purged object may come from disk: half of these objects are requested after the next start, the
/// other half after the last start.
#[test]
fn an_edge_killed_under_load_serves_only_correct_bytes() {
    let kills: u64 = std::env::var("EDGEWARD_KILLS").map_or(10, |text| {
        text.parse().expect("EDGEWARD_KILLS is a number of kills")
    });
    let seed = std::env::var("EDGEWARD_SEED")
        .map_or(7, |text| text.parse().expect("EDGEWARD_SEED is a number"));
    eprintln!("{kills} kills, EDGEWARD_SEED={seed}");
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let origin = Server::start(&["origin", "--json", "--listen=127.0.0.1:0"]);
    let mut random = SplitMix64(seed);
    let mut purge_client = PurgeClient::default();
    let ledger = DurabilityLedger::default();
    let mut totals = Totals::default();
    let load = Load::default();
    for kill in 0..=kills {
        let edge = start_edge(folder.path(), &origin);
        let addr = edge.addr("/listening/0");
        totals.add(check_after_start(
            addr,
            &ledger,
            &mut purge_client,
            kill == kills,
        ));
        let pause = Duration::from_millis(50 + random.below(400));
        // Every second kill waits until the purge client has done one round, so that some purges are durable.
        let rounds = u64::from(kill % 2 == 0);
        load.run(
            &edge,
            &mut random,
            &ledger,
            &mut purge_client,
            (rounds, pause),
        );
        let (status, _, _) = edge.wait_for_end();
        assert_eq!(status.code(), None, "the edge was killed");
        totals.evicted += purge_client.evicted();
    }
    let (complete, from_disk) = (load.complete.into_inner(), load.from_disk.into_inner());
    eprintln!("{complete} complete responses, {from_disk} of them from disk");
    eprintln!("{totals:?}");
    assert!(
        complete > kills * 10,
        "{complete} complete responses: too few for this test"
    );
    assert!(
        from_disk > kills,
        "{from_disk}: the disk served too few responses"
    );
    let Totals {
        durable,
        hits,
        evicted,
        purged,
    } = totals;
    assert!(
        durable > kills * 10 && purged > kills / 2,
        "too few: {totals:?}"
    );
    assert!(evicted < durable / 2, "the disk is too small: {totals:?}");
    // Objects that were evicted before a kill do not count as lost.
    assert!(hits + evicted >= durable * 99 / 100, "lost: {totals:?}");
}

fn start_edge(folder: &Path, origin: &Server) -> Server {
    Server::start(&[
        "serve",
        "--json",
        "--listen=127.0.0.1:0",
        "--admin=127.0.0.1:0",
        "--workers=1",
        "--hot=1MiB",
        "--policy=lru",
        "--disk-size=160MiB",
        "--disk-admission=always",
        "--set=disk.segment_bytes=1MiB",
        // A short interval, so that many objects are durable before the kill.
        "--set=disk.sync_interval=20ms",
        "--log=off",
        &format!("--origin=http://{}", origin.addr("/listen")),
        &format!("--disk={}", folder.display()),
    ])
}

/// The results of the requests after the starts.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    /// Objects that were durable when the edge was killed.
    durable: u64,
    /// The number of these objects that were served from disk after the start.
    hits: u64,
    /// Objects that had been evicted before the kills.
    evicted: u64,
    /// Objects that were purged durably and then requested.
    purged: u64,
}

impl Totals {
    fn add(&mut self, other: Self) {
        self.durable += other.durable;
        self.hits += other.hits;
        self.evicted += other.evicted;
        self.purged += other.purged;
    }
}

/// Requests the durable objects after a start. The memory tier is empty, so that every hit comes from disk.
fn check_after_start(
    addr: SocketAddr,
    ledger: &DurabilityLedger,
    purge_client: &mut PurgeClient,
    is_last_start: bool,
) -> Totals {
    let durable = ledger.take_durable_ids();
    let hits = durable.iter().filter(|&&id| {
        let object = ledger.generation_of(id);
        let result = send_request(addr, "GET", id, None);
        assert!(result.complete, "object {id} of {} bytes", size_of(id));
        // The process was killed since the object was written, so an object on disk is durable.
        if result.from_disk {
            ledger.record_durable(object);
        }
        result.from_disk
    });
    Totals {
        hits: hits.count() as u64,
        durable: durable.len() as u64,
        evicted: 0,
        purged: purge_client.check_purged_after_start(addr, is_last_start),
    }
}

/// The counts of all clients' responses.
#[derive(Debug, Default)]
struct Load {
    /// Responses that arrived completely.
    complete: AtomicU64,
    /// Responses that the edge served from disk.
    from_disk: AtomicU64,
}

impl Load {
    /// Runs the clients until the kill, which happens `pause` after the purge client has done `rounds` rounds. In a
    /// round, it purges objects and waits until the purges are durable.
    fn run(
        &self,
        edge: &Server,
        random: &mut SplitMix64,
        ledger: &DurabilityLedger,
        purge_client: &mut PurgeClient,
        (rounds, pause): (u64, Duration),
    ) {
        let (addr, admin) = (edge.addr("/listening/0"), edge.addr("/admin"));
        let (killed, rounds_done) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            let kill_on_drop = KillOnDrop {
                edge,
                killed: &killed,
            };
            for _ in 0..CLIENTS {
                let mut random = SplitMix64(random.draw());
                let killed = &killed;
                scope.spawn(move || {
                    while !killed.load(Ordering::SeqCst) {
                        let complete = self.send_random_request(addr, &mut random, ledger);
                        assert!(
                            complete || killed.load(Ordering::SeqCst) || has_ended(addr),
                            "a body ended early while the edge ran"
                        );
                    }
                });
            }
            scope.spawn(|| {
                while !killed.load(Ordering::SeqCst) && purge_client.run_round(addr, admin, ledger)
                {
                    rounds_done.fetch_add(1, Ordering::SeqCst);
                }
            });
            until("the purge client has done its rounds", || {
                (rounds_done.load(Ordering::SeqCst) >= rounds).then_some(())
            });
            thread::sleep(pause);
            drop(kill_on_drop);
        });
    }

    /// Sends one request of a client. Returns true if the response was complete.
    fn send_random_request(
        &self,
        addr: SocketAddr,
        random: &mut SplitMix64,
        ledger: &DurabilityLedger,
    ) -> bool {
        let id = random.below(OBJECTS);
        let kind = random.below(20);
        let first = random.below(size_of(id));
        let last = random.below(size_of(id) - first) + first;
        let result = if kind == 0 {
            ledger.record_invalidation(id);
            let result = send_request(addr, "POST", id, None);
            // A request that overlaps with the POST may get the old or the new object. Each call begins a new
            // generation of the object, and the ledger ignores the generation between the two calls.
            ledger.record_invalidation(id);
            result
        } else {
            let object = ledger.generation_of(id);
            let result = send_request(addr, "GET", id, (kind < 5).then_some((first, last)));
            // An object on disk is written, but becomes durable only with the next sync.
            if result.from_disk {
                ledger.record_written(object);
            }
            result
        };
        self.complete
            .fetch_add(u64::from(result.complete), Ordering::Relaxed);
        self.from_disk
            .fetch_add(u64::from(result.from_disk), Ordering::Relaxed);
        result.complete
    }
}

/// Kills the edge when dropped, so that the clients end even if the test fails.
struct KillOnDrop<'a> {
    edge: &'a Server,
    killed: &'a AtomicBool,
}

impl Drop for KillOnDrop<'_> {
    fn drop(&mut self) {
        self.edge.signal(Signal::KILL);
        self.killed.store(true, Ordering::SeqCst);
    }
}

const CLIENTS: usize = 4;

const OBJECTS: u64 = 60;

/// Method: configure a sync interval of an hour, so that only the POST causes a sync. Kill the edge as soon as
/// the client has the response to the POST.
#[test]
fn an_invalidated_object_does_not_return_after_a_kill() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let origin = Server::start(&["origin", "--json", "--listen=127.0.0.1:0"]);
    let start = || {
        Server::start(&[
            "serve",
            "--json",
            "--listen=127.0.0.1:0",
            "--workers=1",
            "--hot=1MiB",
            "--disk-size=64MiB",
            "--disk-admission=always",
            "--set=disk.flush_interval=1h",
            "--set=disk.sync_interval=1h",
            "--log=off",
            &format!("--origin=http://{}", origin.addr("/listen")),
            &format!("--disk={}", folder.path().display()),
        ])
    };
    // Both objects are larger than the memory tier, so that a hit comes from disk.
    let (invalidated, untouched) = (4, 9);
    let edge = start();
    let addr = edge.addr("/listening/0");
    for id in [invalidated, untouched] {
        until("the object is served from disk", || {
            send_request(addr, "GET", id, None).from_disk.then_some(())
        });
    }
    edge.signal(Signal::TERM);
    assert!(edge.wait_for_end().0.success());
    let edge = start();
    let addr = edge.addr("/listening/0");
    assert!(send_request(addr, "GET", invalidated, None).from_disk);
    assert!(send_request(addr, "POST", invalidated, None).complete);
    edge.signal(Signal::KILL);
    assert_eq!(edge.wait_for_end().0.code(), None, "the edge was killed");
    let edge = start();
    let addr = edge.addr("/listening/0");
    assert!(
        !send_request(addr, "GET", invalidated, None).from_disk,
        "the invalidated object is back"
    );
    assert!(send_request(addr, "GET", untouched, None).from_disk);
}
