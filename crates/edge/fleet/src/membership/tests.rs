use edgeward_balance::NodeGroup;

use super::*;

const LASTS: Duration = Duration::from_secs(8);

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn profile(name: &str, port: u16) -> NodeProfile {
    NodeProfile {
        name: name.into(),
        url: format!("http://127.0.0.1:{port}").into(),
        group: NodeGroup::Edge,
        weight: 100,
    }
}

fn record(name: &str, port: u16, instance: u64, beat: u64) -> Announcement {
    Announcement {
        profile: profile(name, port),
        state: AnnouncedState::Serving,
        instance,
        beat,
        lasts: LASTS,
    }
}

fn actions(node: &mut Membership) -> Vec<MembershipAction> {
    std::iter::from_fn(|| node.poll()).collect()
}

/// Returns the heartbeat among the actions.
fn heartbeat(node: &mut Membership) -> Option<Announcement> {
    actions(node).into_iter().find_map(|action| match action {
        MembershipAction::Announce(record) => Some(record),
        _ => None,
    })
}

/// Returns the node `a`, which has received all records of the bucket and its own first heartbeat at time 0.
fn member() -> Membership {
    let mut node = Membership::new(profile("a", 1), 1, LASTS);
    node.watching(at(0));
    node.received_all(at(0));
    echo(&mut node, at(0));
    node
}

fn echo(node: &mut Membership, now: Duration) {
    let record = heartbeat(node).expect("a heartbeat");
    node.heard(now, record).expect("the own record");
}

/// Returns the members that do not drain.
fn names(node: &Membership) -> String {
    let list = node.list();
    let serving = list
        .iter()
        .filter(|member| member.state != AnnouncedState::Draining);
    let names: Vec<_> = serving.map(|member| &*member.profile.name).collect();
    names.join(" ")
}

#[test]
fn a_heartbeat_follows_the_records_of_the_bucket_or_a_wait() {
    let mut node = Membership::new(profile("a", 1), 1, LASTS);
    node.tick(at(0));
    node.watching(at(0));
    node.tick(at(999));
    assert_eq!(actions(&mut node), []);
    assert_eq!(node.wake_at(at(999)), OPEN_AFTER);
    node.tick(OPEN_AFTER);
    let first = heartbeat(&mut node).expect("a heartbeat");
    assert_eq!((first.state, first.beat), (AnnouncedState::Joining, 1));
    assert_eq!(node.wake_at(OPEN_AFTER), OPEN_AFTER + LASTS / 4);
    node.ready(at(1001));
    let second = heartbeat(&mut node).expect("a heartbeat");
    assert_eq!((second.state, second.beat), (AnnouncedState::Serving, 2));
}

#[test]
fn a_member_is_removed_when_its_record_was_not_received_for_its_time() {
    let mut node = member();
    node.heard(at(500), record("b", 2, 2, 1)).expect("a record");
    assert_eq!(names(&node), "a b");
    let Some(MembershipAction::Apply(list)) = actions(&mut node).pop() else {
        panic!("the list changes");
    };
    assert_eq!(list.len(), 2);
    node.applied(at(500), true);
    for heartbeat in [2000, 4000, 6000, 8000] {
        node.tick(at(heartbeat));
        echo(&mut node, at(heartbeat));
    }
    assert_eq!(node.wake_at(at(8000)), at(8500));
    node.tick(at(8499));
    assert_eq!(names(&node), "a b");
    node.tick(at(8500));
    assert_eq!(names(&node), "a");
    let last = actions(&mut node).pop();
    assert_eq!(last, Some(MembershipAction::Apply(node.list())));
    // It may still serve clients, so it stays in the list for a while.
    assert_eq!(node.list()[1].state, AnnouncedState::Draining);
    let mut now = at(8000);
    while now < at(8500) + LASTS * FORMER {
        assert_eq!(node.list().len(), 2, "at {now:?}");
        now = node.wake_at(now).max(now + at(1));
        node.tick(now);
        if let Some(record) = heartbeat(&mut node) {
            node.heard(now, record).expect("the own record");
        }
    }
    assert_eq!(now, at(8500) + LASTS * FORMER);
    assert_eq!(node.list().len(), 1);
}

/// Lets the next heartbeat of a node return. Returns true if the node then purges all its objects.
fn purges_all_when_heard(node: &mut Membership, now: Duration) -> bool {
    node.tick(now);
    echo(node, now);
    actions(node).contains(&MembershipAction::PurgeAll)
}

/// The other nodes have then removed it, and told it of no change.
#[test]
fn a_node_whose_records_do_not_return_for_long_purges_all_its_objects() {
    let mut node = member();
    assert!(!purges_all_when_heard(&mut node, LASTS * FORMER));
    assert!(purges_all_when_heard(&mut node, 2 * LASTS * FORMER + at(1)));
    assert!(!purges_all_when_heard(
        &mut node,
        2 * LASTS * FORMER + LASTS
    ));
}

/// Before that, no other node has it in its list.
#[test]
fn a_node_that_is_announced_long_after_its_start_purges_all_its_objects() {
    for (announced_at, purges) in [(at(5) + LASTS, false), (at(6) + LASTS, true)] {
        let mut node = Membership::new(profile("a", 1), 1, LASTS);
        node.tick(at(5));
        node.watching(at(5));
        node.received_all(announced_at);
        assert_eq!(purges_all_when_heard(&mut node, announced_at), purges);
    }
}

#[test]
fn a_long_start_purges_no_object_and_a_long_time_alone_after_it_purges_all() {
    let accepts_at = Duration::from_secs(60);
    for (alone, purges) in [(LASTS, false), (LASTS + at(1), true)] {
        let mut node = Membership::new(profile("a", 1), 1, LASTS);
        node.starts();
        node.tick(at(0));
        node.accepts(accepts_at);
        node.watching(accepts_at);
        node.received_all(accepts_at + alone);
        let purged = purges_all_when_heard(&mut node, accepts_at + alone);
        assert_eq!(purged, purges, "{alone:?}");
    }
}

/// The earlier process was killed, and its record lasts for a while.
#[test]
fn a_node_that_starts_at_another_url_does_not_purge_its_objects_for_the_record_of_its_earlier_process()
 {
    let start = || {
        let mut node = Membership::new(profile("a", 1), 1, LASTS);
        node.starts();
        node.watching(at(0));
        assert!(node.heard(at(0), record("a", 2, 2, 9)).is_err());
        node.received_all(at(0));
        node.accepts(at(1));
        node
    };
    let mut node = start();
    node.tick(LASTS);
    assert_eq!(node.rival(), None);
    assert!(!purges_all_when_heard(&mut node, LASTS + at(1)));
    // The node watches the bucket again, and receives the record again.
    let mut node = start();
    assert!(node.heard(at(2000), record("a", 2, 2, 9)).is_err());
    node.tick(at(2000) + LASTS);
    assert!(!purges_all_when_heard(&mut node, at(2000) + LASTS));
    // The other node runs: it has sent another record.
    let mut node = start();
    assert!(node.heard(at(2000), record("a", 2, 2, 10)).is_err());
    node.tick(at(2000) + LASTS);
    assert!(purges_all_when_heard(&mut node, at(2000) + LASTS));
}

#[test]
fn a_node_that_the_others_have_removed_purges_all_its_objects_when_it_returns() {
    // Another node has its name for a moment.
    let mut node = member();
    assert!(node.heard(at(1), record("a", 2, 2, 9)).is_err());
    node.deleted(at(2), "a");
    assert!(purges_all_when_heard(&mut node, at(2)));
    // It keeps its name, and the others have the other node until its next heartbeat.
    let mut node = member();
    node.beat = 9;
    assert!(node.heard(at(1), record("a", 2, 2, 8)).is_err());
    assert!(purges_all_when_heard(&mut node, at(2000)));
    // A late deletion of an earlier process.
    let mut node = member();
    node.deleted(at(1), "a");
    assert!(purges_all_when_heard(&mut node, at(1)));
    // Another name.
    let mut node = member();
    node.set_own(at(1), profile("z", 1), false);
    actions(&mut node);
    assert!(purges_all_when_heard(&mut node, at(4001)));
    assert!(!purges_all_when_heard(&mut node, at(6001)));
}

#[test]
fn a_node_is_no_other_node_under_its_earlier_name() {
    let mut node = member();
    let mut own = record("a", 1, 1, 1);
    node.set_own(at(1), profile("z", 1), false);
    assert_eq!(node.heard(at(2), own.clone()), Ok(()));
    assert_eq!(names(&node), "z");
    // An earlier process, which was killed.
    own.instance = 2;
    let refused = node.heard(at(3), own);
    assert!(matches!(refused, Err(RecordError::Unusable(_))));
    assert_eq!(names(&node), "z");
}

#[test]
fn no_change_of_its_settings_lets_a_node_own_keys_while_it_leaves() {
    let mut node = member();
    node.ready(at(1));
    node.drain(at(2));
    actions(&mut node);
    node.set_own(at(3), profile("a", 1), false);
    let record = heartbeat(&mut node).expect("a heartbeat");
    assert_eq!(record.state, AnnouncedState::Draining);
    assert_eq!(node.list()[0].state, AnnouncedState::Draining);
}

/// The own heartbeats do not return during the outage.
#[test]
fn an_outage_removes_no_member_and_afterwards_each_has_its_whole_time() {
    let mut node = member();
    node.heard(at(0), record("b", 2, 2, 1)).expect("a record");
    node.tick(at(3_600_000));
    assert_eq!(names(&node), "a b");
    assert!(!node.is_current(at(3_600_000)));
    echo(&mut node, at(3_600_000));
    assert!(node.is_current(at(3_600_000)));
    for heartbeat in [2000, 4000, 6000] {
        node.tick(at(3_600_000 + heartbeat));
        echo(&mut node, at(3_600_000 + heartbeat));
    }
    node.tick(at(3_607_999));
    assert_eq!(names(&node), "a b");
    node.tick(at(3_608_000));
    assert_eq!(names(&node), "a");
}

#[test]
fn a_deleted_record_removes_its_member_at_once() {
    let mut node = member();
    node.heard(at(0), record("b.c", 2, 2, 1)).expect("a record");
    node.deleted(at(1), "b=2ed");
    assert_eq!(names(&node), "a b.c");
    node.deleted(at(1), "b=2ec");
    assert_eq!(names(&node), "a");
}

#[test]
fn a_node_stays_out_while_another_has_its_name_and_joins_when_that_one_is_gone() {
    let mut node = Membership::new(profile("a", 1), 1, LASTS);
    node.watching(at(0));
    let url = Box::from("http://127.0.0.1:2");
    let duplicate = Err(RecordError::Duplicate { url });
    assert_eq!(node.heard(at(0), record("a", 2, 2, 1)), duplicate);
    node.heard(at(0), record("b", 3, 3, 1)).expect("a record");
    node.received_all(at(0));
    assert_eq!(actions(&mut node), [], "neither a heartbeat nor a list");
    assert_eq!(names(&node), "a");
    assert_eq!(node.rival(), Some("http://127.0.0.1:2"));
    // Its name is free when the other node leaves or sends no heartbeat.
    assert_eq!(node.wake_at(at(0)), LASTS);
    node.tick(LASTS);
    assert!(heartbeat(&mut node).is_some());
    assert_eq!(names(&node), "a b");
    node.is_announced = false;
    assert_eq!(node.heard(LASTS, record("a", 2, 2, 9)), duplicate);
    node.deleted(LASTS, "a");
    assert!(heartbeat(&mut node).is_some());
}

#[test]
fn of_two_announced_nodes_with_one_name_the_older_one_keeps_it() {
    let mut older = member();
    older.beat = 9;
    assert!(older.heard(at(1), record("a", 2, 2, 8)).is_err());
    assert_eq!(older.rival(), None);
    let mut younger = member();
    assert!(younger.heard(at(1), record("a", 2, 2, 8)).is_err());
    assert!(younger.rival().is_some());
    // An earlier or later process at the same address is no other node.
    assert_eq!(older.heard(at(2), record("a", 1, 7, 99)), Ok(()));
    assert_eq!(older.rival(), None);
}

#[test]
fn more_than_256_members_are_refused() {
    let mut node = member();
    for n in 0..255 {
        let name = format!("b{n}");
        node.heard(at(0), record(&name, 2, 2, 1)).expect("a place");
    }
    let refused = node.heard(at(0), record("c", 2, 2, 1));
    assert_eq!(refused, Err(RecordError::Full));
    assert_eq!(node.heard(at(0), record("b0", 2, 2, 2)), Ok(()));
    assert_eq!(node.list().len(), MEMBERS_MAX);
    // A former member gives its place up.
    node.others.get_mut("b7").expect("a member").is_former = true;
    assert_eq!(node.heard(at(0), record("c", 2, 2, 1)), Ok(()));
    assert_eq!(node.list().len(), MEMBERS_MAX);
    assert!(!node.others.contains_key("b7"));
}

#[test]
fn lists_are_applied_one_after_the_other_with_pauses_and_again_after_a_failure() {
    let mut node = member();
    let applied = |node: &mut Membership| {
        let is_apply = |action: &MembershipAction| matches!(action, MembershipAction::Apply(_));
        actions(node)
            .iter()
            .filter(|action| is_apply(action))
            .count()
    };
    node.heard(at(0), record("b", 2, 2, 1)).expect("a record");
    assert_eq!(applied(&mut node), 1);
    node.heard(at(1), record("c", 3, 3, 1)).expect("a record");
    node.tick(at(700));
    assert_eq!(applied(&mut node), 0, "one is under way");
    node.applied(at(700), true);
    assert_eq!(applied(&mut node), 1);
    node.applied(at(701), false);
    assert_eq!(node.wake_at(at(701)), at(2000), "the heartbeat");
    node.tick(at(5700));
    assert_eq!(applied(&mut node), 0);
    node.tick(at(5701));
    assert_eq!(applied(&mut node), 1);
    node.applied(at(5701), true);
    node.tick(at(6300));
    assert_eq!(applied(&mut node), 0, "the list is in use");
}

#[test]
fn a_list_that_is_not_in_use_after_all_is_applied_again() {
    for is_under_way in [false, true] {
        let mut node = member();
        node.heard(at(0), record("b", 2, 2, 1)).expect("a record");
        if !is_under_way {
            node.applied(at(0), true);
        }
        actions(&mut node);
        node.apply_again(at(1));
        if is_under_way {
            node.applied(at(2), true);
        }
        node.tick(APPLY_AGAIN_AFTER);
        let is_apply = |action: &MembershipAction| matches!(action, MembershipAction::Apply(_));
        assert!(!actions(&mut node).iter().any(is_apply));
        node.tick(APPLY_AGAIN_AFTER + at(1));
        assert!(actions(&mut node).iter().any(is_apply), "{is_under_way}");
    }
}

#[test]
fn a_node_that_leaves_drains_first_and_deletes_its_record() {
    let mut node = member();
    node.ready(at(1));
    node.drain(at(2));
    let records = actions(&mut node);
    let [
        ..,
        MembershipAction::Announce(record),
        MembershipAction::Apply(list),
    ] = &records[..]
    else {
        panic!("{records:?}");
    };
    assert_eq!(record.state, AnnouncedState::Draining);
    assert_eq!(list[0].state, AnnouncedState::Draining);
    assert!(!node.has_drained());
    node.heard(at(3), record.clone()).expect("the own record");
    assert!(!node.has_drained());
    node.applied(at(4), true);
    assert!(node.has_drained());
    node.leave();
    let withdrawn = MembershipAction::Withdraw("a".to_owned());
    assert_eq!(actions(&mut node), [withdrawn]);
    node.tick(at(10_000));
    assert_eq!(actions(&mut node), []);
}

#[test]
fn the_shortest_record_decides_about_heartbeats_and_an_outage() {
    let mut node = member();
    let mut short = record("b", 2, 2, 1);
    short.lasts = at(2000);
    node.heard(at(400), short).expect("a record");
    // The next heartbeat was planned for 2 s.
    assert_eq!(node.wake_at(at(400)), at(500));
    node.tick(at(500));
    echo(&mut node, at(500));
    // NATS cannot be reached from here on.
    assert!(node.is_current(at(1500)));
    assert!(!node.is_current(at(1501)));
    node.tick(at(2400));
    assert_eq!(names(&node), "a b");
    node.deleted(at(2400), "b");
    assert_eq!(node.pace(), LASTS);
}

#[test]
fn a_node_with_a_new_name_deletes_the_record_of_the_old_one() {
    let mut node = member();
    node.set_own(at(1), profile("z", 1), false);
    let [withdrawn, MembershipAction::Apply(_)] = &actions(&mut node)[..] else {
        panic!("two actions");
    };
    assert_eq!(*withdrawn, MembershipAction::Withdraw("a".to_owned()));
    node.applied(at(1), true);
    assert_eq!(node.wake_at(at(1)), at(4001));
    node.tick(at(4000));
    assert_eq!(actions(&mut node), []);
    node.tick(at(4001));
    let record = heartbeat(&mut node).expect("a heartbeat");
    assert_eq!((&*record.profile.name, record.beat), ("z", 1));
}

#[test]
fn a_node_with_a_new_name_leaves_it_to_a_node_that_has_it() {
    let mut node = member();
    node.beat = 9;
    node.set_own(at(1), profile("z", 1), false);
    assert!(node.heard(at(2000), record("z", 2, 2, 3)).is_err());
    assert_eq!(node.rival(), Some("http://127.0.0.1:2"));
    node.tick(at(4001));
    assert_eq!(heartbeat(&mut node), None);
}

#[test]
fn a_node_reads_the_records_and_announces_itself_when_it_accepts_requests() {
    let mut node = Membership::new(profile("a", 1), 1, LASTS);
    node.starts();
    node.watching(at(0));
    node.heard(at(1), record("b", 2, 2, 1)).expect("a record");
    assert!(!node.has_list());
    node.received_all(at(2));
    let [MembershipAction::Apply(list)] = &actions(&mut node)[..] else {
        panic!("a list and no heartbeat");
    };
    assert_eq!(list.len(), 2);
    assert!(!node.has_list());
    node.applied(at(3), true);
    assert!(node.has_list());
    node.tick(at(9999));
    assert_eq!(heartbeat(&mut node), None);
    node.accepts(at(10_000));
    assert!(heartbeat(&mut node).is_some());
}

fn told(before: Duration, was_told: bool) -> Option<UntoldTime> {
    Some(UntoldTime { before, was_told })
}

/// Returns a process that replaces the node `a`, whose list was `a b`.
fn successor(told: Option<UntoldTime>) -> Membership {
    let mut node = Membership::new(profile("a", 1), 3, LASTS);
    let mut old = member();
    old.heard(at(0), record("b", 2, 2, 1)).expect("a record");
    node.inherit(at(0), old.list(), told);
    node
}

#[test]
fn a_process_that_replaces_another_one_begins_with_its_list_and_removes_members_as_that_one() {
    let mut node = successor(told(at(0), true));
    node.tick(at(1));
    let list = MembershipAction::Apply(node.list());
    assert_eq!(
        (names(&node), actions(&mut node)),
        ("a b".to_owned(), vec![list])
    );
    node.applied(at(2), true);
    // Without NATS, the list stays.
    node.tick(at(100_000));
    assert_eq!(names(&node), "a b");
    node.watching(at(100_000));
    node.received_all(at(100_001));
    echo(&mut node, at(100_002));
    assert_eq!(names(&node), "a b");
    for heartbeat in [102_002, 104_002, 106_002, 108_001] {
        node.tick(at(heartbeat));
        if heartbeat < 108_000 {
            echo(&mut node, at(heartbeat));
        }
    }
    assert_eq!(names(&node), "a b");
    node.tick(at(108_002));
    assert_eq!(names(&node), "a", "it has had its whole time");
}

#[test]
fn a_process_that_replaces_another_one_knows_how_long_that_one_was_silent() {
    let returns = |told, now| {
        let mut node = successor(told);
        node.accepts(at(0));
        node.watching(at(0));
        node.received_all(now);
        purges_all_when_heard(&mut node, now)
    };
    let silent = LASTS * 4;
    assert!(!returns(told(silent, true), LASTS * FORMER - silent));
    assert!(returns(told(silent, true), LASTS * FORMER - silent + at(1)));
    assert!(returns(None, at(0)));
    let mut old = member();
    assert_eq!(old.told(at(7)), told(at(7), true));
    old.deleted(at(8), "a");
    assert_eq!(old.told(at(8)), None);
}

#[test]
fn a_process_that_replaces_one_that_was_never_in_a_list_applies_the_rule_of_a_start() {
    let mut old = Membership::new(profile("a", 1), 1, LASTS);
    old.starts();
    old.tick(at(0));
    old.accepts(at(1000));
    let alone = at(3000);
    assert_eq!(old.told(at(1000) + alone), told(alone, false));
    for (now, purges) in [(LASTS - alone, false), (LASTS - alone + at(1), true)] {
        let mut node = successor(told(alone, false));
        node.accepts(at(1));
        node.watching(at(1));
        node.received_all(now);
        assert_eq!(purges_all_when_heard(&mut node, now), purges, "{now:?}");
    }
}

/// Returns the weight in the list and in the next heartbeat, if there is one.
fn weights(node: &mut Membership) -> (u32, Option<u32>) {
    let announced = heartbeat(node).map(|record| record.profile.weight);
    (node.list()[0].profile.weight, announced)
}

/// The other nodes and the node itself use the same weight, so that they find the same owners.
#[test]
fn a_node_that_starts_announces_a_weight_that_grows() {
    let mut node = Membership::new(profile("a", 1), 1, LASTS);
    node.starts_slowly(at(10_000));
    node.watching(at(0));
    node.received_all(at(0));
    assert_eq!(weights(&mut node), (10, Some(10)), "it still joins");
    node.ready(at(500));
    echo(&mut node, at(500));
    for (second, weight) in [(2, 20), (3, 30), (9, 90), (10, 100)] {
        let grows_at = at(500 + 1000 * second);
        node.applied(grows_at - at(1), true);
        node.tick(grows_at - at(1));
        assert_eq!(node.wake_at(grows_at - at(1)), grows_at);
        actions(&mut node);
        node.tick(grows_at);
        assert_eq!(weights(&mut node), (weight, Some(weight)));
    }
}

#[test]
fn a_node_whose_objects_were_purged_starts_slowly_again_and_one_that_replaces_another_does_not() {
    let mut node = Membership::new(profile("a", 1), 1, LASTS);
    node.starts_slowly(at(10_000));
    node.inherit(at(0), Vec::new(), None);
    node.watching(at(0));
    node.received_all(at(0));
    node.ready(at(0));
    assert_eq!(node.list()[0].profile.weight, 100);
    let record = heartbeat(&mut node).expect("a heartbeat");
    // The others had removed the process before it.
    node.heard(at(1), record).expect("the own record");
    assert!(
        node.poll()
            .is_some_and(|action| action == MembershipAction::PurgeAll)
    );
    assert_eq!(weights(&mut node), (10, Some(10)));
}
