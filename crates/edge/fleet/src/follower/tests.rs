use super::*;

const STATE: StreamState = StreamState {
    epoch: 3,
    first: 1,
    last: 5,
};

/// The bytes of each message, and the bound of the queue.
const BYTES: usize = 200;
const QUEUE_BYTES: usize = 1 << 20;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn stamp(sequence: u64) -> Stamp {
    Stamp::at(3, sequence)
}

fn actions(follower: &mut Follower<u64>) -> Vec<Action<u64>> {
    std::iter::from_fn(|| follower.poll()).collect()
}

/// Returns a node at a position that has subscribed.
fn following(position: u64, state: StreamState) -> Follower<u64> {
    let mut follower = Follower::new(Some(stamp(position)), QUEUE_BYTES);
    follower.connected(at(0));
    assert_eq!(actions(&mut follower), [Action::Query]);
    follower.stated(at(0), at(0), state);
    follower
}

fn subscribe(subscription: u64, from: u64) -> Action<u64> {
    Action::Subscribe { subscription, from }
}

fn apply(works: &[Work<u64>], position: u64) -> Action<u64> {
    Action::Apply {
        works: works.to_vec(),
        position: stamp(position),
        writes: true,
    }
}

#[test]
fn a_node_that_joins_purges_all_and_follows_from_the_end() {
    let mut follower = Follower::new(None, QUEUE_BYTES);
    follower.connected(at(0));
    assert_eq!(actions(&mut follower), [Action::Query]);
    follower.stated(at(0), at(0), STATE);
    assert_eq!(
        actions(&mut follower),
        [subscribe(1, 6), apply(&[Work::All], 5)]
    );
    assert_eq!(follower.current_at(), None);
    follower.applied(at(1), Applied::Persisted);
    assert_eq!(follower.current_at(), Some(at(0)));
    assert_eq!(follower.position(), Some(stamp(5)));
}

#[test]
fn a_message_that_overtakes_the_answer_of_an_earlier_query_purges_nothing_else() {
    let mut follower = following(5, STATE);
    assert_eq!(actions(&mut follower), [subscribe(1, 6)]);
    follower.tick(at(1));
    assert_eq!(actions(&mut follower), [Action::Query]);
    follower.delivered(at(2), 1, 6, 60, BYTES);
    follower.stated(at(3), at(1), STATE);
    assert_eq!(actions(&mut follower), [apply(&[Work::Message(60)], 6)]);
    // The next query was asked after the delivery: a stream that ends before it has lost the message.
    follower.tick(at(4));
    follower.stated(at(4), at(4), STATE);
    follower.applied(at(4), Applied::Persisted);
    let next = [Action::Query, subscribe(2, 6), apply(&[Work::All], 5)];
    assert_eq!(actions(&mut follower), next);
}

#[test]
fn a_node_that_returns_applies_the_purges_after_its_position_in_one_batch_at_a_time() {
    let mut follower = following(3, STATE);
    assert_eq!(actions(&mut follower), [subscribe(1, 4)]);
    assert_eq!(follower.behind(), Some(2));
    follower.delivered(at(0), 1, 4, 40, BYTES);
    follower.delivered(at(0), 1, 5, 50, BYTES);
    assert_eq!(actions(&mut follower), [apply(&[Work::Message(40)], 4)]);
    assert_eq!(follower.current_at(), None);
    follower.applied(at(0), Applied::Persisted);
    assert_eq!(actions(&mut follower), [apply(&[Work::Message(50)], 5)]);
    follower.applied(at(0), Applied::Persisted);
    assert_eq!(follower.current_at(), Some(at(0)));
    assert_eq!(follower.behind(), Some(0));
}

#[test]
fn a_repeated_delivery_is_ignored_and_a_gap_begins_a_new_subscription() {
    let mut follower = following(5, STATE);
    assert_eq!(actions(&mut follower), [subscribe(1, 6)]);
    follower.delivered(at(0), 1, 5, 50, BYTES);
    assert_eq!(actions(&mut follower), []);
    follower.delivered(at(0), 1, 7, 70, BYTES);
    assert_eq!(actions(&mut follower), [subscribe(2, 6)]);
    // Deliveries of the earlier subscription are ignored.
    follower.delivered(at(0), 1, 6, 60, BYTES);
    assert_eq!(actions(&mut follower), []);
    follower.delivered(at(0), 2, 6, 60, BYTES);
    assert_eq!(actions(&mut follower), [apply(&[Work::Message(60)], 6)]);
}

#[test]
fn a_purge_of_the_nodes_own_objects_keeps_the_position_and_is_tried_again() {
    let mut follower = following(5, STATE);
    assert_eq!(actions(&mut follower), [subscribe(1, 6)]);
    follower.purge_own(at(1));
    assert_eq!(actions(&mut follower), [apply(&[Work::All], 5)]);
    follower.applied(at(2), Applied::Failed);
    follower.tick(at(2000));
    assert_eq!(
        actions(&mut follower),
        [apply(&[Work::All], 5), Action::Query]
    );
    follower.applied(at(2001), Applied::Persisted);
    assert_eq!(follower.position(), Some(stamp(5)));
    follower.tick(at(4000));
    assert_eq!(actions(&mut follower), [Action::Query]);
    assert_eq!(follower.counts().purged_all, 1);
}

/// Both ways of learning it: from the state of the stream, and from the first delivery.
#[test]
fn purges_that_the_stream_has_dropped_are_replaced_by_a_purge_of_all_objects() {
    let mut follower = following(3, StreamState { first: 5, ..STATE });
    assert_eq!(
        actions(&mut follower),
        [subscribe(1, 6), apply(&[Work::All], 5)]
    );
    let mut follower = following(3, STATE);
    assert_eq!(actions(&mut follower), [subscribe(1, 4)]);
    follower.delivered(at(0), 1, 5, 50, BYTES);
    let works = [Work::All, Work::Message(50)];
    assert_eq!(actions(&mut follower), [apply(&works, 5)]);
    // A stream without messages, after the next one would be the number 6.
    let follower = following(5, StreamState { first: 6, ..STATE });
    assert_eq!(follower.current_at(), Some(at(0)));
}

#[test]
fn another_stream_and_an_older_copy_of_the_stream_purge_all() {
    for state in [
        StreamState { epoch: 4, ..STATE },
        StreamState { last: 2, ..STATE },
    ] {
        let mut follower = following(3, state);
        let purged = Action::Apply {
            works: vec![Work::All],
            position: Stamp::at(state.epoch, state.last),
            writes: true,
        };
        let next = subscribe(1, state.last + 1);
        assert_eq!(actions(&mut follower), [next, purged]);
    }
}

#[test]
fn purges_that_were_not_applied_are_asked_for_again() {
    let mut follower = following(3, STATE);
    follower.delivered(at(0), 1, 4, 40, BYTES);
    _ = actions(&mut follower);
    follower.applied(at(0), Applied::Failed);
    assert_eq!(follower.counts().applied, 0);
    follower.stated(at(0), at(0), STATE);
    assert_eq!(actions(&mut follower), [], "not before a pause");
    follower.tick(at(1));
    follower.stated(at(1), at(1), STATE);
    assert_eq!(actions(&mut follower), [Action::Query, subscribe(2, 4)]);
    assert_eq!(follower.position(), Some(stamp(3)));
}

/// Returns the action that applies works while the log cannot be written.
fn apply_in_memory(works: &[Work<u64>], position: u64) -> Action<u64> {
    Action::Apply {
        works: works.to_vec(),
        position: stamp(position),
        writes: false,
    }
}

/// Queries the stream at this time, and returns the other actions.
fn query(follower: &mut Follower<u64>, seconds: u64) -> Vec<Action<u64>> {
    follower.tick(at(seconds));
    follower.stated(at(seconds), at(seconds), STATE);
    let mut actions = actions(follower);
    actions.retain(|action| *action != Action::Query);
    actions
}

/// The objects that are stored after the purge stay stored.
#[test]
fn a_node_whose_log_cannot_be_written_purges_all_once() {
    let mut follower = Follower::new(None, QUEUE_BYTES);
    follower.connected(at(0));
    assert_eq!(
        query(&mut follower, 0),
        [subscribe(1, 6), apply(&[Work::All], 5)]
    );
    follower.applied(at(0), Applied::InMemory);
    assert!(follower.has_failed_write());
    let mut attempts = Vec::new();
    for seconds in 1..=100 {
        let next = query(&mut follower, seconds);
        if next.is_empty() {
            continue;
        }
        assert_eq!(next, [apply(&[], 5)], "a write of what is applied");
        attempts.push(seconds);
        follower.applied(at(seconds), Applied::InMemory);
    }
    assert_eq!(attempts, [1, 3, 7, 15, 31, 61, 91], "the pause is bounded");
    assert_eq!((follower.position(), follower.current_at()), (None, None));
    assert_eq!(follower.behind(), Some(0));
    // The disk is back.
    assert_eq!(query(&mut follower, 121), [apply(&[], 5)]);
    follower.applied(at(121), Applied::Persisted);
    assert!(!follower.has_failed_write());
    assert_eq!(follower.position(), Some(stamp(5)));
    assert_eq!(follower.current_at(), Some(at(121)));
    assert_eq!(follower.counts().purged_all, 1);
    assert_eq!(query(&mut follower, 200), []);
}

#[test]
fn purges_apply_at_once_while_the_log_cannot_be_written() {
    let mut follower = following(3, STATE);
    _ = actions(&mut follower);
    follower.delivered(at(0), 1, 4, 40, BYTES);
    assert_eq!(actions(&mut follower), [apply(&[Work::Message(40)], 4)]);
    follower.applied(at(0), Applied::InMemory);
    follower.delivered(at(0), 1, 5, 50, BYTES);
    let next = [apply_in_memory(&[Work::Message(50)], 5)];
    assert_eq!(actions(&mut follower), next);
    follower.applied(at(0), Applied::InMemory);
    assert_eq!(follower.position(), Some(stamp(3)));
    // A purge that is not applied is asked for again, and no purge before it.
    follower.delivered(at(0), 1, 6, 60, BYTES);
    _ = actions(&mut follower);
    follower.applied(at(0), Applied::Failed);
    let state = StreamState { last: 6, ..STATE };
    follower.tick(at(1));
    follower.stated(at(1), at(1), state);
    let next = [apply(&[], 5), Action::Query, subscribe(2, 6)];
    assert_eq!(actions(&mut follower), next);
    follower.applied(at(1), Applied::Persisted);
    assert_eq!(follower.position(), Some(stamp(5)));
}

#[test]
fn a_subscription_that_delivers_nothing_begins_again() {
    let mut follower = following(3, STATE);
    assert_eq!(actions(&mut follower), [subscribe(1, 4)]);
    follower.tick(STALL_MAX - Duration::from_millis(1));
    assert_eq!(actions(&mut follower), [Action::Query]);
    follower.tick(2 * STALL_MAX);
    assert_eq!(actions(&mut follower), [Action::Query, subscribe(2, 4)]);
}

#[test]
fn a_full_queue_asks_for_no_further_delivery_and_is_applied_in_batches() {
    let mut follower = following(
        0,
        StreamState {
            last: 1000,
            ..STATE
        },
    );
    for sequence in 1..=QUEUE_MAX as u64 + 1 {
        assert!(!follower.is_full());
        follower.delivered(at(0), 1, sequence, sequence, BYTES);
    }
    assert!(follower.is_full());
    follower.applied(at(0), Applied::Persisted);
    assert!(!follower.is_full());
    _ = actions(&mut follower);
    follower.applied(at(0), Applied::Persisted);
    let next = actions(&mut follower);
    let [
        Action::Apply {
            works, position, ..
        },
    ] = &next[..]
    else {
        panic!("{next:?}");
    };
    assert_eq!(works.len(), BATCH_MAX);
    assert_eq!(*position, stamp(2 * BATCH_MAX as u64 + 1));
}
/// Method: messages of 400 kB, one of which is being applied.
#[test]
fn a_queue_with_too_many_bytes_is_full() {
    let mut follower = following(0, STATE);
    for sequence in 1..=3 {
        assert!(!follower.is_full());
        follower.delivered(at(0), 1, sequence, sequence, 400_000);
    }
    assert!(follower.is_full());
    assert_eq!(follower.queued_bytes(), 1_200_000);
    follower.applied(at(0), Applied::Persisted);
    assert!(!follower.is_full());
    follower.applied(at(0), Applied::Persisted);
    assert_eq!(follower.queued_bytes(), 0);
    // A purge of all objects replaces the messages.
    follower.delivered(at(0), 1, 4, 4, 400_000);
    follower.delivered(at(0), 1, 5, 5, 400_000);
    follower.stated(at(1), at(1), StreamState { epoch: 9, ..STATE });
    assert_eq!(follower.queued_bytes(), 400_000, "the one being applied");
}
