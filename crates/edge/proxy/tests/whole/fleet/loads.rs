//! Keys that move from an overloaded owner to another node.

use edgeward_testkit::Answer;

use super::{FleetNode, Plan, origin, paths};

/// Returns a path that the first node asks the second for.
fn path_of(asked: &FleetNode, from: &FleetNode) -> String {
    let path = paths(1000).find(|path| {
        let before = asked.received("accepted");
        assert_eq!(from.get(path).status, 200);
        asked.received("accepted") > before
    });
    path.expect("one of the objects is of the node")
}

/// Method: `a` asks `b` and `c` as often as the bound needs, and `b` answers with long bodies. Each node that stands in
/// for `b` fetches the object once, and an unsafe request removes it there, too.
#[test]
fn an_overloaded_owner_is_relieved_and_unsafe_requests_reach_the_nodes_that_stand_in_for_it() {
    let origin = origin();
    let nodes = Plan::new(&["a", "b", "c"], &[]).start_all(&origin);
    let [a, b, c] = &nodes[..] else {
        panic!("three nodes");
    };
    let (long, short) = (path_of(b, a), path_of(c, a));
    origin.on(
        &long,
        Answer::pattern(300_000).header("cache-control", "max-age=600"),
    );
    a.post(&long);
    let moved = || a.metric("edgeward_fleet_moved_total");
    let before = origin.requests(&long);
    let ask = |times| {
        for _ in 0..times {
            for path in [&long, &short] {
                assert_eq!(a.get(path).status, 200);
            }
        }
    };
    // The bound needs 64 answers per node.
    ask(30);
    assert_eq!((moved(), origin.requests(&long)), (0.0, before + 1));
    ask(50);
    assert!(moved() > 0.0);
    assert_eq!(a.fleet()["moved"].as_f64(), Some(moved()));
    assert_eq!(origin.requests(&long), before + 2, "one node stands in");
    b.post(&long);
    assert!(a.is_refreshed_by(&long, &origin));
}
