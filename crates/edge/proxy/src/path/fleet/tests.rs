use std::num::NonZeroU32;

use edgeward_sites::{Rule, Settings};
use edgeward_types::ByteSize;

use super::*;
use crate::config::{FleetMember, LOOPBACK_ANY_PORT, OriginUrl};

fn url(port: u16) -> OriginUrl {
    format!("http://127.0.0.1:{port}").parse().expect("a URL")
}

/// Returns the fleet of `name` with three edges `e0` to `e2` and shields `s0` and so on.
fn fleet(name: &str, shields: u16, draining: &str) -> Fleet {
    config_and_fleet(name, shields, draining).1
}

fn config_and_fleet(name: &str, shields: u16, draining: &str) -> (EdgeConfig, Fleet) {
    let member = |name: String, group, port| FleetMember {
        is_draining: name == draining,
        name,
        url: url(port),
        group,
        weight: NonZeroU32::MIN,
    };
    let edges = (0..3).map(|n| member(format!("e{n}"), NodeGroup::Edge, 1 + n));
    let shields = (0..shields).map(|n| member(format!("s{n}"), NodeGroup::Shield, 9 + n));
    let mut config = EdgeConfig::new(LOOPBACK_ANY_PORT, url(80), ByteSize::mib(1));
    config.set_fleet(FleetConfig {
        name: name.to_owned(),
        members: edges.chain(shields).collect(),
        listen: LOOPBACK_ANY_PORT,
        tls: None,
        key: FleetKey::new(&[7; 32]).expect("a key"),
        wait: Duration::from_millis(50),
        fallback_percent: 0,
        fallbacks_per_second: 1,
        replicate: 0.01,
    });
    let fleet = Fleet::of(&config, Timestamp::ZERO, 0, None).expect("a fleet");
    (config, fleet)
}

#[test]
fn nodes_with_equal_rules_on_other_lines_store_for_each_other() {
    let rule = |line, pass| {
        let settings = Settings {
            pass: Some(pass),
            ..Settings::default()
        };
        Rule {
            settings,
            line,
            ..Rule::default()
        }
    };
    let rules = |rule| {
        let site = Site::new("a.example", Settings::default());
        rules_of(&site.with_rules(vec![rule]).expect("one rule"))
    };
    assert_eq!(rules(rule(1, true)), rules(rule(2, true)));
    assert_ne!(rules(rule(1, true)), rules(rule(1, false)));
}

fn direction<'a>(
    fleet: &'a Fleet,
    key: u32,
    sender: Sender,
    down: &str,
) -> (Option<&'a str>, bool) {
    let key = format!("http://a.example/{key}");
    let direction = fleet.direction(key.as_bytes(), sender, |member| &*member.name != down);
    (direction.peer.map(|peer| &*peer.name), direction.stores)
}

#[test]
fn one_edge_stores_each_key_and_the_others_ask_it() {
    let nodes = ["e0", "e1", "e2"].map(|name| fleet(name, 0, ""));
    for key in 0..1000 {
        let directions = nodes
            .each_ref()
            .map(|node| direction(node, key, Sender::Client, ""));
        let owner = directions
            .iter()
            .position(|(_, stores)| *stores)
            .expect("an owner");
        for (node, (asked, stores)) in directions.into_iter().enumerate() {
            let expected = (node != owner).then(|| &*nodes[owner].name);
            assert_eq!(
                (asked, stores),
                (expected, node == owner),
                "{key} at {node}"
            );
        }
    }
}

#[test]
fn a_request_of_a_node_goes_to_no_node_of_its_group() {
    for shields in [0, 2] {
        let node = fleet("e1", shields, "");
        for key in 0..1000 {
            let (asked, _) = direction(&node, key, Sender::Edge, "");
            assert_eq!(asked.is_some(), shields > 0, "{key}");
            assert!(
                asked.is_none_or(|asked| asked.starts_with('s')),
                "{key}: {asked:?}"
            );
        }
    }
}

#[test]
fn an_edge_that_owns_a_key_asks_a_shield_and_a_shield_asks_the_origin() {
    let (edge, shield) = (fleet("e0", 2, ""), fleet("s0", 2, ""));
    let mut owned = 0;
    for key in 0..1000 {
        let (asked, stores) = direction(&edge, key, Sender::Client, "");
        if stores {
            owned += 1;
            let asked = asked.expect("a shield is asked");
            let (further, stores) = direction(&shield, key, Sender::Edge, "");
            assert_eq!((further, stores), (None, asked == "s0"), "{key}");
        }
    }
    assert!(owned > 200, "{owned}");
}

/// Both a node that has failed and one that drains own no key, and no other key moves.
#[test]
fn the_keys_of_a_node_that_leaves_move_and_no_others() {
    let (all, without) = (fleet("e0", 0, ""), fleet("e0", 0, "e2"));
    let mut moved = 0;
    for key in 0..1000 {
        let before = direction(&all, key, Sender::Client, "");
        let failed = direction(&all, key, Sender::Client, "e2");
        assert_eq!(
            failed,
            direction(&without, key, Sender::Client, ""),
            "{key}"
        );
        assert_ne!(failed.0, Some("e2"));
        match before.0 {
            Some("e2") => moved += 1,
            _ => assert_eq!(before, failed, "{key}"),
        }
    }
    assert!((250..420).contains(&moved), "{moved}");
}

#[test]
fn a_node_that_drains_asks_the_others_for_all_keys() {
    let node = fleet("e0", 0, "e0");
    for key in 0..1000 {
        let (asked, stores) = direction(&node, key, Sender::Client, "");
        assert!(asked.is_some() && !stores, "{key}");
    }
}

/// Method: of two keys of `e1`, one is requested, with long bodies. Then `e2` gets as much load.
#[test]
fn a_requested_key_moves_from_an_overloaded_node_and_a_reload_keeps_the_loads() {
    let (config, node) = config_and_fleet("e0", 0, "");
    let member = |name: &str| {
        let mut members = node.members.iter();
        members
            .find(|member| &*member.name == name)
            .expect("a member")
    };
    let (e1, e2) = (member("e1"), member("e2"));
    let key = |number: u32| format!("http://a.example/{number}");
    let is_at_e1 = |fleet: &Fleet, number| {
        let to = fleet.direction(key(number).as_bytes(), Sender::Client, |_| true);
        let is_at_e1 = to.peer.is_some_and(|peer| &*peer.name == "e1");
        assert_eq!(to.stores, to.peer.is_none());
        assert_eq!(to.is_moved, !is_at_e1);
        is_at_e1
    };
    let mut of_e1 =
        (0..).filter(|number| direction(&node, *number, Sender::Client, "").0 == Some("e1"));
    let (requested, other) = (of_e1.next().expect("a key"), of_e1.next().expect("a key"));
    for answers in 0..64 {
        assert!(is_at_e1(&node, requested), "{answers} answers of each node");
        node.record_answer(e1, key(requested).as_bytes(), 1 << 20);
        node.record_answer(e2, b"other", 1000);
    }
    let reload = |before| Fleet::of(&config, Timestamp::ZERO, 0, before).expect("a fleet");
    let reloaded = reload(Some(&node));
    for fleet in [&node, &reloaded] {
        assert!(!is_at_e1(fleet, requested));
        assert!(is_at_e1(fleet, other));
    }
    assert!(is_at_e1(&reload(None), requested), "without the loads");
    for _ in 0..64 {
        reloaded.record_answer(e2, b"other", 1 << 20);
    }
    assert!(is_at_e1(&node, requested));
}

#[test]
fn fallbacks_are_bounded() {
    let node = fleet("e0", 0, "");
    let now = Timestamp::from_secs(100);
    let allowed = (0..100).filter(|_| node.may_fall_back(now)).count();
    assert_eq!(allowed, 10, "one per second of the window");
}
