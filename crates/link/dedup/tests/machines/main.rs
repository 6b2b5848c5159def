//! Tests sender and receiver over a link in virtual time. Every body arrives unchanged, even if frames are
//! lost, stores are damaged, or endpoints restart. A lost chunk costs only one round trip.
//!
//! Each test with random bodies or faults makes a fixed share of `EDGEWARD_LINK_RUNS` runs (default 800).
//! `flush` and the fields of [`Faults`] are frequencies: n means once in n ticks, frames or lookups, 0 means never.

mod hostile;
mod link;
mod losses;
mod store;
#[path = "../support/mod.rs"]
mod support;

use edgeward_dedup::reason;
use edgeward_dedup::receiver::ReceiverCounters;
use edgeward_dedup::sender::Lane;
use edgeward_dedup::wire::{Frame, decode, frame_length};

use link::{DELAY, Faults, Plan, World};
use support::Random;

/// Returns the number of runs of a test: `EDGEWARD_LINK_RUNS` divided by `divisor`.
fn runs(divisor: u64) -> u64 {
    let all = std::env::var("EDGEWARD_LINK_RUNS").ok();
    let all = all.map_or(800, |runs| {
        runs.parse().expect("EDGEWARD_LINK_RUNS is a number")
    });
    all / divisor
}

/// Queues random bodies at both endpoints: versions of two texts, noise, and runs of one byte.
fn fill(world: &mut World) {
    let mut random = Random(world.random.next());
    let mut versions = [30_000, 60_000].map(|bytes| random.text(bytes));
    for _ in 0..3 + random.below(6) {
        let side = random.below(2);
        let body = match random.below(8) {
            0 => {
                let bytes = random.below(20_000);
                random.noise(bytes)
            }
            1 => vec![[7, 8, 9][random.below(3)]; random.below(60_000)],
            2 => random.text(random.clone().below(6000)),
            nth => {
                let edits = random.below(4);
                let version = &mut versions[nth % 2];
                *version = random.edited(version, edits);
                version.clone()
            }
        };
        world.send(side, body);
    }
}

/// Runs a plan and checks that every body arrives unchanged.
fn check(plan: Plan) -> World {
    let seed = plan.seed;
    let mut world = World::new(plan);
    fill(&mut world);
    // The bodies of the second round repeat chunks that were stored in the first round.
    world.run();
    fill(&mut world);
    world.run();
    for number in 0..world.bodies.len() {
        let arrived = world
            .endpoints
            .iter()
            .any(|end| end.arrived.contains(&number));
        assert!(arrived, "seed {seed:#x}: body {number} did not arrive");
    }
    world
}

/// Returns a plan without faults, and a generator. Each test has its own number, so that no tests share a seed.
fn plan(test: u64, run: u64) -> (Plan, Random) {
    let seed = Random(test << 32 | run).next();
    (Plan::without_faults(seed), Random(!seed))
}

/// Without faults every body arrives, and no digest is wrong. If both endpoints send the same chunks at the same time,
/// their stores have these chunks in different orders. The receiver then refuses a reference to a run of such chunks as
/// disordered. After this, it may refuse references to these chunks as missing or as never exchanged (`foreign`).
#[test]
fn bodies_arrive_over_a_link_without_faults() {
    for run in 0..runs(8) {
        let (plan, _) = plan(1, run);
        let world = check(plan);
        let counters = world.endpoints.each_ref();
        let counters = counters.map(|end| end.endpoint.receiver().counters());
        let sum = |of: fn(&ReceiverCounters) -> u64| counters.iter().map(of).sum::<u64>();
        assert_eq!(sum(|end| end.digest_failures), 0, "run {run}");
        assert!(
            sum(|end| end.missing + end.foreign) == 0 || sum(|end| end.disordered) > 0,
            "run {run}: {counters:?}"
        );
    }
}

/// Bodies survive frames that are reordered, repeated, corrupt, or lost with their connection.
#[test]
fn bodies_survive_faults_of_the_link() {
    for run in 0..runs(4) {
        let (mut plan, mut random) = plan(2, run);
        plan.faults = Faults {
            reorder: [0, 3, 20][random.below(3)],
            duplicate: [0, 3, 20][random.below(3)],
            flip: [0, 100][random.below(2)],
            reset: [0, 80, 400][random.below(3)],
            ..Faults::default()
        };
        plan.delta = random.below(3) > 0;
        plan.keep_sent = random.below(2) > 0;
        check(plan);
    }
}

/// Bodies survive stores that are erased, truncated, reordered or corrupt. Each fault damages one of the two stores.
#[test]
fn bodies_survive_faults_of_the_stores() {
    let mut lost = 0;
    for run in 0..runs(4) {
        let (mut plan, mut random) = plan(3, run);
        plan.containers_max = [1, 3, 10, 1000][random.below(4)];
        plan.faults.damage = [10, 50, 200][random.below(3)];
        plan.delta = random.below(3) > 0;
        plan.keep_sent = random.below(2) > 0;
        let world = check(plan);
        let ends = world.endpoints.iter();
        lost += ends
            .map(|end| end.endpoint.sender().counters().lost)
            .sum::<u64>();
    }
    assert!(
        lost > 0 || runs(4) < 200,
        "no body was lost in any run: the test is too weak"
    );
}

/// Bodies survive faults of the link, faults of the stores, slow stores and restarts of endpoints in one run.
#[test]
fn bodies_survive_all_faults_at_once() {
    for run in 0..runs(4) {
        let (mut plan, mut random) = plan(4, run);
        plan.containers_max = [2, 10, 1000][random.below(3)];
        plan.faults = Faults {
            reorder: 10,
            duplicate: 10,
            flip: 200,
            reset: 500,
            half_reset: 200,
            damage: 100,
            kill: [400, 1500][random.below(2)],
            slow: [0, 10, 200][random.below(3)],
        };
        plan.delta = random.below(3) > 0;
        plan.keep_sent = random.below(2) > 0;
        check(plan);
    }
}

/// Bodies arrive although the stores perform some requests late. Frames that arrived later are handled first.
#[test]
fn bodies_survive_slow_stores() {
    let mut late = 0;
    for run in 0..runs(4) {
        let (mut plan, mut random) = plan(6, run);
        plan.containers_max = [10, 1000][random.below(2)];
        plan.faults.slow = [1, 2, 8, 50, 400][random.below(5)];
        plan.keep_sent = random.below(2) > 0;
        plan.faults.reset = [0, 0, 200][random.below(3)];
        let world = check(plan);
        late += world
            .endpoints
            .iter()
            .map(|end| end.late_requests)
            .sum::<u64>();
    }
    assert!(
        late > runs(4),
        "the faults had no effect: the test is too weak"
    );
}

/// If two chunks have the same hash and length, the receiver gets the wrong chunk and rejects the body because of its
/// digest. The body then arrives at the second attempt, without deduplication.
#[test]
fn a_collision_of_chunk_hashes_is_detected() {
    let mut plan = Plan::without_faults(4);
    (plan.id_bits, plan.flush) = (0, 0);
    let mut world = World::new(plan);
    for byte in [7, 8] {
        // The body has the bytes that bypass deduplication, and three chunks of the maximum length. A chunk of
        // another length would be refused before the digest is compared.
        world.send(0, vec![byte; 4096 + 3 * 32768]);
        world.run();
    }
    assert_eq!(world.endpoints[1].arrived, [0, 1]);
    assert_eq!(
        world.endpoints[1]
            .endpoint
            .receiver()
            .counters()
            .digest_failures,
        1
    );
    assert_eq!(world.endpoints[0].refused, [reason::DIGEST]);
}

/// Bodies arrive although chunk hashes have only a few bits, so that many chunks have the same hash.
#[test]
fn bodies_survive_collisions_of_chunk_hashes() {
    let mut failures = 0;
    for run in 0..runs(8) {
        let (mut plan, mut random) = plan(5, run);
        plan.id_bits = [0, 1, 3, 6, 9][random.below(5)];
        let world = check(plan);
        let counters = world
            .endpoints
            .iter()
            .map(|end| end.endpoint.receiver().counters());
        failures += counters
            .map(|counters| counters.digest_failures)
            .sum::<u64>();
    }
    assert!(
        failures > 0,
        "the faults had no effect: the test is too weak"
    );
}

/// When a chunk is sent for the third time, the sender recognises it by its fingerprint. Fingerprints do not change the
/// bytes on the link.
///
/// Method: send a body three times, and then an edited version of the body, with fingerprints and without.
#[test]
fn repeated_chunks_are_recognised_by_fingerprints() {
    let body = Random(6).text(500_000);
    let version = Random(7).edited(&body, 6);
    let [with, without] = [true, false].map(|fingerprints| {
        let mut world = World::new(Plan {
            fingerprints,
            flush: 0,
            ..Plan::without_faults(12)
        });
        [&body, &body, &body, &version].map(|body| {
            let recognised = |world: &World| {
                let sender = world.endpoints[0].endpoint.sender();
                sender.counters().recognised
            };
            let before = (recognised(&world), world.wire_bytes);
            world.send(0, body.clone());
            world.run();
            let recognised = recognised(&world) - before.0;
            (recognised as usize, world.wire_bytes - before.1)
        })
    });
    let [wire, wire_without] = [with, without].map(|each| each.map(|(_, wire)| wire));
    assert_eq!(wire, wire_without);
    let [recognised, recognised_without] = [with, without].map(|each| each.map(|(bytes, _)| bytes));
    assert_eq!(recognised_without, [0; 4]);
    assert_eq!(recognised[..2], [0; 2], "there are no fingerprints yet");
    // Some chunks are still hashed: those in the last container, at the end of the body, and around an edit.
    assert!(recognised[2] > body.len() * 9 / 10, "{recognised:?}");
    assert!(recognised[3] > body.len() / 2, "{recognised:?}");
}

/// Chunks are stored, recognised and sent in the same way, whatever the lengths of writes.
///
/// Method: send new bodies, known bodies and mixed bodies. Write them in steps of 1000 bytes, so that never two
/// chunks are available at once, and in long steps. Compare counters and stores.
#[test]
fn the_lengths_of_writes_do_not_change_the_chunks() {
    let [short, long] = [1000, 60_000].map(|step| {
        let mut world = World::new(Plan {
            write_bytes_max: [step; 3],
            flush: 0,
            ..Plan::without_faults(21)
        });
        let (text, noise) = (Random(6).text(300_000), Random(8).noise(400_000));
        let version = Random(7).edited(&text, 30);
        let alternating = text.chunks(30_000).zip(noise.chunks(40_000).skip(1));
        let alternating: Vec<u8> = alternating
            .flat_map(|(one, other)| [one, other].concat())
            .collect();
        for body in [
            &text,
            &text,
            &version,
            &noise[..200_000],
            &alternating,
            &alternating,
            &alternating,
        ] {
            world.send(0, body.to_vec());
            world.run();
        }
        let mut counters = world.endpoints[0].endpoint.sender().counters();
        // With long steps, fewer frames may be sent, so the bytes on the link are compared separately.
        let wire = std::mem::take(&mut counters.wire);
        (
            counters,
            world.endpoints.map(|end| end.store.entries_by_container()),
            wire,
        )
    });
    assert!(short.0.recognised > 0 && short.0.literal > 0);
    assert_eq!((short.0, &short.1), (long.0, &long.1));
    assert!(short.2.abs_diff(long.2) < short.2 / 1000);
}

/// Known chunks are not sent again. Sending a body for the second time takes about a hundredth of its bytes,
/// plus the first 4 KiB; sending an edited version takes less than a tenth.
#[test]
fn known_chunks_are_not_sent_again() {
    let mut world = World::new(Plan {
        flush: 0,
        ..Plan::without_faults(1)
    });
    let body = world.random.text(400_000);
    let next = Random(5).edited(&body, 4);
    let cost = |world: &mut World, body: &[u8]| {
        let before = world.wire_bytes;
        world.send(0, body.to_vec());
        world.run();
        world.wire_bytes - before
    };
    let first = cost(&mut world, &body);
    assert!(first > 380_000, "new text does not compress: {first} bytes");
    // The first 4 KiB are sent as bytes. References and acknowledgements take the rest.
    let again = cost(&mut world, &body);
    assert!(again < 4096 + 4000, "{again} bytes for the same body");
    let version = cost(&mut world, &next);
    assert!(version < 30_000, "{version} bytes for four edits");
    let counters = world.endpoints[0].endpoint.sender().counters();
    assert!(
        counters.delta > 0 && counters.referenced > 700_000,
        "{counters:?}"
    );
}

/// One reference can name a run of neighbouring chunks that continues in the next container, and the peer accepts it.
///
/// Method: send a body three times; the peer accepts all frames. Then encode the body a fourth time and count
/// the runs that are longer than the rest of their container in the sender's store.
#[test]
fn a_run_can_continue_in_the_next_container() {
    let mut plan = Plan::without_faults(13);
    (plan.flush, plan.receiver.streams_max) = (0, 4);
    (plan.receiver.credit, plan.unacked_max) = (256 << 10, 1 << 20);
    let mut world = World::new(plan);
    let body = Random(6).text(200_000);
    for _ in 0..3 {
        world.send(0, body.clone());
        world.run();
    }
    let [end, _] = &mut world.endpoints;
    assert_eq!(end.endpoint.sender().counters().naks, 0);
    let mut bytes = Vec::new();
    let stream = end
        .endpoint
        .open(b"", true)
        .expect("a stream can be opened");
    let written = end.write(stream, &body);
    assert_eq!(written, Ok(body.len()));
    end.flush_whole(stream);
    while end.transmit(Lane::Any, true, &mut bytes) {}
    let (mut runs, mut crossing, mut rest) = (0, 0, &bytes[..]);
    while let Ok(Some(length)) = frame_length(rest) {
        if let Ok(Frame::RefRun { run, .. }) = decode(&rest[..length]) {
            let first = end.store.locate(&run.first);
            let first = first.expect("the chunk was sent three times").location;
            let found = end.store.run(first, usize::from(run.chunks));
            let in_container = found
                .iter()
                .filter(|chunk| chunk.location.container == first.container);
            runs += 1;
            crossing += usize::from(in_container.count() < usize::from(run.chunks));
        }
        rest = &rest[length..];
    }
    assert!(runs > 3 && crossing > 2, "{crossing} of {runs}");
}

/// The sender does not keep the bytes of a reference in memory if its store has them. The limit of
/// unacknowledged bytes then does not slow the body. If the store has only the entries of the chunks (ids and
/// lengths), the sender keeps the bytes in memory.
///
/// Method: send a body of 240,000 bytes twice, with at most 64 KiB of unacknowledged bytes per stream. Compare the
/// times of the second transfer between a store with the bytes and a store with only the entries.
#[test]
fn stored_chunks_sent_as_references_take_no_memory() {
    let [ticks_with_bytes, ticks_with_entries] = [true, false].map(|keep_sent| {
        let mut plan = Plan::without_faults(14);
        (plan.flush, plan.delta, plan.keep_sent) = (0, false, keep_sent);
        (plan.receiver.streams_max, plan.receiver.credit) = (4, 256 << 10);
        plan.unacked_max = 128 << 10;
        let mut world = World::new(plan);
        let body = Random(6).text(240_000);
        world.send(0, body.clone());
        world.run();
        world.send(0, body);
        let ticks = world.run();
        let sender = world.endpoints[0].endpoint.sender();
        assert_eq!((sender.unacked(), sender.counters().naks), (0, 0));
        ticks
    });
    assert!(
        ticks_with_bytes * 2 < ticks_with_entries,
        "{ticks_with_bytes} and {ticks_with_entries} ticks"
    );
}

/// The sender has released the bytes of a chunk, then both stores lose the chunk. The peer refuses the
/// reference, the sender cannot load the bytes, and the body is reset; both endpoints report this. When the
/// body is sent again, it arrives. For the next body, the sender releases bytes again.
#[test]
fn a_body_is_reset_if_both_endpoints_lost_its_chunks() {
    let mut plan = Plan::without_faults(15);
    plan.flush = 0;
    (plan.receiver.streams_max, plan.receiver.credit) = (4, 128 << 10);
    plan.unacked_max = 128 << 10;
    let mut world = World::new(plan);
    let body = world.random.text(600_000);
    world.send(0, body.clone());
    world.run();
    world.send(0, body.clone());
    // References to the start of the body are now on the link.
    (0..DELAY / 2).for_each(|_| world.tick());
    assert!(world.endpoints[0].endpoint.sender().counters().referenced > 0);
    // Now all chunks are corrupt, but neither store has detected it.
    for end in &mut world.endpoints {
        (0..end.store.bytes())
            .step_by(500)
            .for_each(|at| end.store.flip(at));
    }
    world.run();
    let [sender, receiver] = &world.endpoints;
    assert_eq!(sender.refused, [reason::LOST]);
    assert_eq!(sender.endpoint.sender().counters().lost, 1);
    assert_eq!(receiver.arrived, [0, 1]);

    world.send(0, body);
    (0..DELAY / 2).for_each(|_| world.tick());
    let sender = world.endpoints[0].endpoint.sender();
    assert!(sender.unacked() < 40_000, "{} bytes", sender.unacked());
    world.run();
    assert_eq!(world.endpoints[1].arrived, [0, 1, 2]);
}

/// An endpoint that sent a body has only the entries of its chunks: ids and lengths. When the peer sends the body back,
/// the endpoint refuses the references and receives the bytes. The second time, it accepts references, because it now
/// has the bytes.
#[test]
fn chunks_stored_without_bytes_are_received_as_bytes_once() {
    let mut world = World::new(Plan {
        delta: false,
        keep_sent: false,
        flush: 0,
        ..Plan::without_faults(9)
    });
    let body = world.random.noise(100_000);
    world.send(0, body.clone());
    world.run();
    let cost = |world: &mut World, side: usize| {
        let before = world.wire_bytes;
        world.send(side, body.clone());
        world.run();
        let counters = world.endpoints[side].endpoint.sender().counters();
        (world.wire_bytes - before, counters.naks)
    };
    let (back_bytes, refused) = cost(&mut world, 1);
    assert!(
        refused > 0 && back_bytes > 90_000,
        "{back_bytes} bytes, {refused} refused"
    );
    let (again_bytes, naks) = cost(&mut world, 1);
    assert!(
        again_bytes < 10_000 && naks == refused,
        "{again_bytes} bytes, {naks} refused"
    );
    // The endpoint that has only entries still knows that its peer has the chunks.
    let (forth_bytes, refused) = cost(&mut world, 0);
    assert!(
        forth_bytes < 10_000 && refused == 0,
        "{forth_bytes} bytes, {refused} refused"
    );
}

/// If the receiver has lost chunks in any way, the body arrives at most one round trip later.
///
/// Method: send a body, damage the receiver's store without informing the sender, and send an edited version.
/// Compare the time with that of an intact store.
#[test]
fn each_lost_chunk_costs_one_round_trip() {
    type Loss = fn(&mut World);
    let losses: [(&str, Loss); 6] = [
        ("nothing", |_| {}),
        ("evicted", |world| {
            (0..5).for_each(|_| world.endpoints[1].store.evict_oldest());
        }),
        ("truncated", |world| world.endpoints[1].store.truncate(4)),
        ("truncated to nothing", |world| {
            world.endpoints[1].store.truncate(1000);
        }),
        ("corrupt", |world| {
            (0..40).for_each(|nth| world.endpoints[1].store.flip(nth * 5003));
        }),
        ("in another order", |world| {
            world.endpoints[1].store.shuffle();
        }),
    ];
    let mut intact_ticks = [0; 2];
    let transfers = [1, 3];
    let all = losses
        .into_iter()
        .flat_map(|loss| [0, 1].map(|nth| (loss, nth)));
    for ((name, loss), nth) in all {
        // The whole body fits into the credit, so that only lost chunks cost round trips.
        let mut plan = Plan::without_faults(2);
        (
            plan.receiver.streams_max,
            plan.receiver.credit,
            plan.unacked_max,
        ) = (4, 256 << 10, 1 << 20);
        let mut world = World::new(plan);
        let body = Random(6).text(200_000);
        let next = Random(7).edited(&body, 6);
        // After one transfer, the chunks of the body are stored. After three transfers, they also have fingerprints.
        for _ in 0..transfers[nth] {
            world.send(0, body.clone());
            world.run();
        }
        let fingerprinted = world
            .endpoints
            .iter()
            .all(|end| end.store.fingerprints_set > 0);
        assert_eq!(fingerprinted, nth == 1, "{name}");
        // With a fresh generator, the writes in each tick have the same lengths in all runs.
        world.random = Random(8);
        loss(&mut world);
        world.send(0, next);
        let ticks = world.run();
        let naks = world.endpoints[0].endpoint.sender().counters().naks;
        if name == "nothing" {
            assert_eq!(naks, 0);
            intact_ticks[nth] = ticks;
        } else {
            assert!(naks > 0, "{name}: no chunk was missed");
            assert!(
                ticks <= intact_ticks[nth] + 2 * DELAY + 10,
                "{name}: {ticks} ticks instead of {}",
                intact_ticks[nth]
            );
        }
    }
}

/// A short body is sent before the queued frames of a long body. But after at most eight short frames, a frame
/// of the long body is sent.
#[test]
fn short_bodies_do_not_wait_behind_long_ones() {
    let mut world = World::new(Plan::without_faults(9));
    let noise = world.random.noise(30_000);
    let [end, _] = &mut world.endpoints;
    let write = |end: &mut link::TestEndpoint, bytes: &[u8]| {
        let stream = end
            .endpoint
            .open(b"", true)
            .expect("a stream can be opened");
        let written = end.write(stream, bytes);
        written.expect("the stream is open");
        end.flush(stream);
    };
    let transmit = |end: &mut link::TestEndpoint| {
        let mut bytes = Vec::new();
        let sent = end.transmit(Lane::Any, true, &mut bytes);
        sent.then_some(bytes.len())
    };
    write(end, &noise);
    // The OPEN and the first 4 KiB of the long body are short frames, too.
    assert_eq!([transmit(end), transmit(end)], [Some(24), Some(4133)]);
    (0..12).for_each(|_| write(end, b"a question"));
    let lengths: Vec<_> = std::iter::from_fn(|| transmit(end)).collect();
    // Each of the 12 short bodies is an OPEN frame of 24 bytes and a PLAIN frame of 47 bytes.
    let long = lengths.iter().position(|bytes| *bytes > 50);
    assert!(
        (1..=8).contains(&long.expect("a frame of the long body is sent")),
        "{lengths:?}"
    );
    let requests = lengths.iter().filter(|bytes| **bytes == 47);
    assert_eq!(requests.count(), 12);
}

/// Short and long frames are the two lanes. If each lane has its own connection, the short and the long frames of
/// a body may arrive in any order. OPEN is therefore sent on both lanes.
#[test]
fn each_lane_can_open_a_stream() {
    let mut world = World::new(Plan::without_faults(10));
    let noise = world.random.noise(30_000);
    let [end, _] = &mut world.endpoints;
    let stream = end
        .endpoint
        .open(b"a label", true)
        .expect("a stream can be opened");
    let written = end.write(stream, &noise);
    assert_eq!(written, Ok(30_000));
    let unframed = |end: &link::TestEndpoint| end.endpoint.sender().unframed_bytes(stream);
    assert_eq!(unframed(end), 30_000 - 4096, "the first bytes do not wait");
    end.flush_whole(stream);
    let unfinished = unframed(end);
    assert!((1..20_000).contains(&unfinished), "{unfinished} bytes wait");
    end.flush(stream);
    assert_eq!(unframed(end), 0);
    assert!(end.endpoint.sender().has_backlog(stream));
    let transmit = |world: &mut World, lane| {
        let mut bytes = Vec::new();
        let end = &mut world.endpoints[0];
        while end.transmit(lane, true, &mut bytes) {}
        kinds(&bytes)
    };
    assert_eq!(transmit(&mut world, Lane::Short), ["open", "plain"]);
    let ready = |end: &link::TestEndpoint| {
        [Lane::Short, Lane::Long, Lane::Any].map(|lane| end.endpoint.sender().is_ready(lane))
    };
    assert_eq!(ready(&world.endpoints[0]), [false, true, true]);
    let long = transmit(&mut world, Lane::Long);
    assert_eq!(long[0], "open");
    assert!(long.len() > 1 && long[1..].iter().all(|kind| *kind == "literal"));
    assert!(
        transmit(&mut world, Lane::Any).len() < 2,
        "only a short CLOSE is left"
    );
    assert!(!world.endpoints[0].endpoint.sender().has_backlog(stream));
}

fn kinds(mut bytes: &[u8]) -> Vec<&'static str> {
    let mut kinds = Vec::new();
    while let Ok(Some(length)) = frame_length(bytes) {
        kinds.push(match decode(&bytes[..length]) {
            Ok(Frame::Open { label, .. }) if label == b"a label" => "open",
            Ok(Frame::Plain { .. }) => "plain",
            Ok(Frame::Literal { .. }) => "literal",
            _ => "another",
        });
        bytes = &bytes[length..];
    }
    kinds
}

/// If at most the first 4 KiB of a body were written, the body can bypass deduplication; its bytes are then not
/// sent as chunks.
#[test]
fn a_body_can_bypass_deduplication_after_its_first_bytes() {
    let mut world = World::new(Plan::without_faults(11));
    let noise = world.random.noise(30_000);
    let [end, _] = &mut world.endpoints;
    for (first, is_early) in [(4096, true), (4097, false)] {
        let stream = end
            .endpoint
            .open(b"", true)
            .expect("a stream can be opened");
        for (nth, bytes) in [&noise[..first], &noise[first..]].into_iter().enumerate() {
            let written = end.write(stream, bytes);
            assert_eq!(written, Ok(bytes.len()));
            assert!(nth > 0 || end.endpoint.bypass(stream) == is_early);
        }
        end.close(stream).expect("the stream is open");
        let mut bytes = Vec::new();
        while end.transmit(Lane::Any, true, &mut bytes) {}
        assert_eq!(kinds(&bytes).contains(&"literal"), !is_early);
    }
}

/// After an endpoint announces a new epoch of its store, the peer sends no references to the lost chunks.
#[test]
fn a_new_epoch_is_announced() {
    let mut world = World::new(Plan::without_faults(3));
    let body = Random(6).text(100_000);
    world.send(0, body.clone());
    world.run();
    world.endpoints[1].store.erase();
    // The endpoint announces the new epoch when it sends this body.
    world.send(1, vec![1; 10]);
    world.run();
    world.send(0, body);
    world.run();
    assert_eq!(world.endpoints[0].endpoint.sender().counters().naks, 0);
    assert!(
        world.endpoints[1].store.chunks() > 10,
        "the received chunks were stored"
    );
}
