//! The loss of one of several connections. The two endpoints notice it at different times.

use edgeward_dedup::endpoint::Event;
use edgeward_dedup::reason;
use edgeward_dedup::receiver::TakeResult;
use edgeward_dedup::sender::{Lane, SenderEvent};
use edgeward_dedup::wire::{decode, frame_length};

use super::link::{Faults, PIECE_BYTES, Plan, TestEndpoint, World};
use super::support::Random;
use super::{check, plan, runs};

/// Bodies arrive although one of two connections breaks. Stores that lose chunks make the receiver refuse frames.
#[test]
fn bodies_survive_the_loss_of_one_of_two_connections() {
    for run in 0..runs(4) {
        let (mut plan, mut random) = plan(23, run);
        plan.faults = Faults {
            half_reset: [40, 100, 1000][random.below(3)],
            damage: [0, 20, 200][random.below(3)],
            ..Faults::default()
        };
        plan.receiver.streams_max = [1, 16][random.below(2)];
        plan.keep_sent = random.below(2) > 0;
        check(plan);
    }
}

/// A NAK reaches the sender even if it is lost with one of several connections, and the sender has noticed the loss
/// before the receiver.
///
/// Method: lose chunks of the receiver. The sender notices the loss first, and sends all pieces again on the other
/// connection. The receiver refuses some of them. Then it notices the loss, either while its NAKs are still queued, or
/// after it has sent them on the lost connection.
#[test]
fn a_nak_is_sent_again_after_the_loss_of_a_connection() {
    for is_sent in [false, true] {
        let mut plan = Plan::without_faults(22);
        (plan.flush, plan.delta, plan.unacked_max) = (0, false, 1 << 20);
        (plan.receiver.streams_max, plan.receiver.credit) = (4, 256 << 10);
        let mut world = World::new(plan);
        let body = Random(6).text(200_000);
        world.send(0, body.clone());
        world.run();
        (0..2).for_each(|_| world.endpoints[1].store.evict_oldest());
        let [sender, receiver] = &mut world.endpoints;
        let stream = sender.endpoint.open(b"\0\0", true);
        let stream = stream.expect("a stream can be opened");
        // Bytes of references are released if the digest contains all bytes before them. These first bytes are added to
        // it when they are sent.
        assert_eq!(sender.write(stream, &body[..4096]), Ok(4096));
        sender.flush(stream);
        deliver(&frames(sender), receiver);
        let rest = sender.write(stream, &body[4096..]);
        assert_eq!(rest, Ok(body.len() - 4096));
        sender.close(stream).expect("the stream is open");
        let unacked = sender.endpoint.sender().unacked();
        assert!(unacked < 40_000, "{unacked} bytes are not released");

        let lost = frames(sender);
        assert!(!lost.is_empty());
        sender.endpoint.handle_connection_loss();
        deliver(&frames(sender), receiver);
        assert!(receiver.endpoint.receiver().counters().missing > 0);
        if is_sent {
            let lost = frames(receiver);
            assert!(!lost.is_empty());
        }
        receiver.endpoint.handle_connection_loss();

        loop {
            let (forth, back) = (frames(sender), frames(receiver));
            if forth.is_empty() && back.is_empty() {
                break;
            }
            deliver(&forth, receiver);
            deliver(&back, sender);
        }
        let mut received = Vec::new();
        let end = loop {
            match receiver.endpoint.take(stream) {
                TakeResult::Bytes(bytes) => received.extend_from_slice(&bytes),
                end => break end,
            }
        };
        assert_eq!(end, TakeResult::Complete, "sent: {is_sent}");
        assert!(received == body);
        assert!(sender.endpoint.sender().counters().naks > 0);
    }
}

/// If the peer refuses references to more bytes than the sender may keep, the sender loads their bytes in turns, and
/// the body arrives.
///
/// Method: the receiver loses all chunks of a body of eight times the limit before the body is sent again. Half of the
/// runs read the body from several streams at once.
#[test]
fn refused_references_do_not_fill_the_memory_of_the_sender() {
    const UNACKED_MAX: usize = 128 << 10;
    for streams in [1, 4] {
        let mut plan = Plan::without_faults(25);
        (plan.flush, plan.delta, plan.unacked_max) = (0, false, UNACKED_MAX);
        (plan.receiver.streams_max, plan.receiver.credit) = (4, 2 << 20);
        (plan.receiver.window_max, plan.receiver.budget) = (2 << 20, 8 << 20);
        let mut world = World::new(plan);
        let body = Random(6).text(8 * UNACKED_MAX);
        world.send(0, body.clone());
        world.run();
        while world.endpoints[1].store.bytes() > 0 {
            world.endpoints[1].store.evict_oldest();
        }
        (0..streams).for_each(|_| _ = world.send(0, body.clone()));
        let mut peak = 0;
        while world.endpoints[1].arrived.len() <= streams {
            world.tick();
            peak = peak.max(world.endpoints[0].endpoint.sender().unacked());
            assert!(world.now < 40_000, "{streams} streams do not end");
        }
        assert!(peak <= UNACKED_MAX + PIECE_BYTES, "{peak} bytes");
        let counters = world.endpoints[0].endpoint.sender().counters();
        assert!(counters.resent > 4 * UNACKED_MAX as u64, "{counters:?}");
    }
}

/// A sender gets the end of a stream although all reports of it were sent on a lost connection.
///
/// Method: the receiver reports the end, by ACK or by STOP. The sender notices the loss first, and sends the stream
/// again; the receiver reports the end again on the lost connection. Then it notices the loss.
#[test]
fn the_end_of_a_stream_is_reported_again_after_the_loss_of_a_connection() {
    for is_stopped in [false, true] {
        let mut world = World::new(Plan::without_faults(24));
        let [sender, receiver] = &mut world.endpoints;
        let stream = sender.endpoint.open(b"\0\0", true);
        let stream = stream.expect("a stream can be opened");
        assert_eq!(sender.write(stream, b"body"), Ok(4));
        sender.close(stream).expect("the stream is open");
        deliver(&frames(sender), receiver);
        if is_stopped {
            receiver.endpoint.stop(stream, reason::TOO_MANY);
        } else {
            assert!(matches!(
                receiver.endpoint.take(stream),
                TakeResult::Bytes(_)
            ));
            assert_eq!(receiver.endpoint.take(stream), TakeResult::Complete);
        }
        let lost = frames(receiver);
        assert!(!lost.is_empty());
        sender.endpoint.handle_connection_loss();
        deliver(&frames(sender), receiver);
        let lost = frames(receiver);
        assert!(!lost.is_empty());

        receiver.endpoint.handle_connection_loss();
        deliver(&frames(receiver), sender);
        let ends: Vec<_> = std::iter::from_fn(|| sender.endpoint.event()).collect();
        let is_end = |event: &Event| match event {
            Event::Sent(SenderEvent::Complete(ended)) => !is_stopped && *ended == stream,
            Event::Sent(SenderEvent::Stopped { stream: ended, .. }) => {
                is_stopped && *ended == stream
            }
            Event::Received(_) => false,
        };
        assert!(ends.iter().any(is_end), "{is_stopped}: {ends:?}");
    }
}

/// Returns all frames that an endpoint has to send.
fn frames(end: &mut TestEndpoint) -> Vec<u8> {
    let mut bytes = Vec::new();
    while end.transmit(Lane::Any, true, &mut bytes) {}
    bytes
}

/// Passes frames to an endpoint.
fn deliver(mut frames: &[u8], to: &mut TestEndpoint) {
    while let Ok(Some(length)) = frame_length(frames) {
        let (frame, rest) = frames.split_at(length);
        let frame = decode(frame).expect("the frame is valid");
        to.handle(frame, None).expect("the peer is correct");
        frames = rest;
    }
}
