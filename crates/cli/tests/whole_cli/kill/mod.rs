//! Kills `serve --disk` at random moments under load. Afterwards every byte it serves must be correct, durable
//! objects must be there, and purged ones must not.
//!
//! The origin's bodies are a function of their names, so that every byte can be checked. The test kills ten times;
//! `EDGEWARD_KILLS=300` makes a long run. It prints its seed.

mod ledger;
mod request;
mod witness;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use edgeward_types::SplitMix64;
use rustix::process::Signal;

use super::run::{Server, until};
use ledger::Ledger;
use request::{ask, may_be_killed, size_of};
use witness::Witness;

/// Method: clients request objects of 100 bytes to 2 MB, some by ranges; now and then a POST invalidates one. A
/// witness purges objects of its own and reads the edge's sync count. After a random time the edge gets SIGKILL
/// and is started on the same directory. Every body must be a prefix of the correct bytes, and whole unless the
/// edge was killed meanwhile. After each start, all objects known to be durable are requested first: 99 of 100
/// must come from disk. Objects purged durably must not come from disk, neither at the next start nor at the
/// end.
#[test]
fn an_edge_killed_under_load_serves_correct_bytes_or_none() {
    let kills: u64 = std::env::var("EDGEWARD_KILLS").map_or(10, |text| {
        text.parse().expect("EDGEWARD_KILLS is a number of kills")
    });
    let seed = std::env::var("EDGEWARD_SEED")
        .map_or(7, |text| text.parse().expect("EDGEWARD_SEED is a number"));
    eprintln!("{kills} kills, EDGEWARD_SEED={seed}");
    let folder = tempfile::tempdir().expect("a folder");
    let origin = Server::start(&["origin", "--json", "--listen=127.0.0.1:0"]);
    let mut random = SplitMix64(seed);
    let mut witness = Witness::default();
    let ledger = Ledger::default();
    let mut found = Totals::default();
    let load = Load::default();
    for kill in 0..=kills {
        let edge = edge_on(folder.path(), &origin);
        let addr = edge.addr("/listening/0");
        found.add(after_a_start(addr, &ledger, &mut witness, kill == kills));
        let pause = Duration::from_millis(50 + random.below(400));
        // In every other round, waits until the witness has purged something.
        let rounds = u64::from(kill % 2 == 0);
        load.run(&edge, &mut random, &ledger, &mut witness, (rounds, pause));
        let (status, _, _) = edge.ended();
        assert_eq!(status.code(), None, "it was killed");
        found.evicted += witness.evicted();
    }
    let (whole, from_disk) = (load.whole.into_inner(), load.from_disk.into_inner());
    eprintln!("{whole} whole responses, {from_disk} of them from disk");
    eprintln!("{found:?}");
    assert!(whole > kills * 10, "{whole}: too few for this test");
    assert!(from_disk > kills, "{from_disk}: the disk served nothing");
    let Totals {
        durable,
        hits,
        evicted,
        purged,
    } = found;
    assert!(
        durable > kills * 10 && purged > kills / 2,
        "too few: {found:?}"
    );
    assert!(evicted < durable / 2, "the disk is too small: {found:?}");
    // Objects evicted before the kill are not lost.
    assert!(hits + evicted >= durable * 99 / 100, "lost: {found:?}");
}

fn edge_on(folder: &Path, origin: &Server) -> Server {
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
    /// The part of `durable` that was served from disk.
    hits: u64,
    /// Objects that had been evicted before the kills.
    evicted: u64,
    /// Objects that were purged durably and then requested.
    purged: u64,
}

impl Totals {
    fn add(&mut self, more: Self) {
        self.durable += more.durable;
        self.hits += more.hits;
        self.evicted += more.evicted;
        self.purged += more.purged;
    }
}

/// Requests the durable objects after a start. The memory tier is empty, so that every hit comes from disk.
fn after_a_start(addr: SocketAddr, ledger: &Ledger, witness: &mut Witness, last: bool) -> Totals {
    let durable = ledger.begin_again();
    let hits = durable.iter().filter(|&&id| {
        let ticket = ledger.ask(id);
        let result = ask(addr, "GET", id, None);
        assert!(result.whole, "object {id} of {} bytes", size_of(id));
        if result.from_disk {
            ledger.is_durable(ticket);
        }
        result.from_disk
    });
    Totals {
        hits: hits.count() as u64,
        durable: durable.len() as u64,
        evicted: 0,
        purged: witness.after_a_start(addr, last),
    }
}

#[derive(Debug, Default)]
struct Load {
    whole: AtomicU64,
    from_disk: AtomicU64,
}

impl Load {
    /// Runs the clients until the kill, which happens `pause` after the witness has done `rounds` rounds.
    fn run(
        &self,
        edge: &Server,
        random: &mut SplitMix64,
        ledger: &Ledger,
        witness: &mut Witness,
        (rounds, pause): (u64, Duration),
    ) {
        let (addr, admin) = (edge.addr("/listening/0"), edge.addr("/admin"));
        let (killed, done) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            let end = KillOnDrop {
                edge,
                killed: &killed,
            };
            for _ in 0..CLIENTS {
                let mut random = SplitMix64(random.draw());
                let killed = &killed;
                scope.spawn(move || {
                    while !killed.load(Ordering::SeqCst) {
                        let whole = self.send_one(addr, &mut random, ledger);
                        assert!(
                            whole || killed.load(Ordering::SeqCst) || may_be_killed(addr),
                            "a body ended early while the edge ran"
                        );
                    }
                });
            }
            scope.spawn(|| {
                while !killed.load(Ordering::SeqCst) && witness.round(addr, admin, ledger) {
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
            until("a round is done", || {
                (done.load(Ordering::SeqCst) >= rounds).then_some(())
            });
            thread::sleep(pause);
            drop(end);
        });
    }

    /// Sends one request of a client. Returns true if the response was whole.
    fn send_one(&self, addr: SocketAddr, random: &mut SplitMix64, ledger: &Ledger) -> bool {
        let id = random.below(OBJECTS);
        let kind = random.below(20);
        let first = random.below(size_of(id));
        let last = random.below(size_of(id) - first) + first;
        let result = if kind == 0 {
            ledger.invalidating(id);
            let result = ask(addr, "POST", id, None);
            // Responses to requests that overlap with the POST prove nothing.
            ledger.invalidating(id);
            result
        } else {
            let ticket = ledger.ask(id);
            let result = ask(addr, "GET", id, (kind < 5).then_some((first, last)));
            if result.from_disk {
                ledger.is_written(ticket);
            }
            result
        };
        self.whole
            .fetch_add(u64::from(result.whole), Ordering::Relaxed);
        self.from_disk
            .fetch_add(u64::from(result.from_disk), Ordering::Relaxed);
        result.whole
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

/// The edge does not sync by itself for an hour, and is killed as soon as the client has the response to its POST.
#[test]
fn an_invalidated_object_does_not_return_after_a_kill() {
    let folder = tempfile::tempdir().expect("a folder");
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
    // Larger than the memory tier, so that a hit comes from disk.
    let (invalidated, kept) = (4, 9);
    let edge = start();
    let addr = edge.addr("/listening/0");
    for id in [invalidated, kept] {
        until("the object on disk", || {
            ask(addr, "GET", id, None).from_disk.then_some(())
        });
    }
    edge.signal(Signal::TERM);
    assert!(edge.ended().0.success());
    let edge = start();
    let addr = edge.addr("/listening/0");
    assert!(ask(addr, "GET", invalidated, None).from_disk);
    assert!(ask(addr, "POST", invalidated, None).whole);
    edge.signal(Signal::KILL);
    assert_eq!(edge.ended().0.code(), None, "it was killed");
    let edge = start();
    let addr = edge.addr("/listening/0");
    assert!(!ask(addr, "GET", invalidated, None).from_disk, "it is back");
    assert!(ask(addr, "GET", kept, None).from_disk);
}
