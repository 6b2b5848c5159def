//! Several edges on loopback that act as one cache.

mod copies;
mod dictionaries;
mod loads;
mod purges;
mod slow_shield;

use std::net::TcpListener;
use std::num::NonZeroU32;
use std::time::Duration;

use edgeward_balance::NodeGroup;
use edgeward_proxy::config::{FleetConfig, FleetKey, FleetMember, FleetTls};
use edgeward_proxy::{Edge, EdgeConfig, RunningEdge};
use edgeward_semantics::Heuristic;
use edgeward_sites::{Class, Condition, FieldChange, Rule, Settings, Stated};
use edgeward_testkit::client::{self, metric, until};
use edgeward_testkit::programs::ReservedPort;
use edgeward_testkit::{Answer, ScriptedOrigin};
use http::StatusCode;
use http::header::USER_AGENT;

use crate::authority::{Authority, Issued};
use crate::one_site::set_site;
use crate::support::{Answer as Received, Client, TIMEOUT, config_for};

/// The nodes of a fleet, not started yet. Each has a port of its own.
struct Plan {
    nodes: Vec<PlannedNode>,
    members: Vec<FleetMember>,
}

struct PlannedNode {
    name: &'static str,
    listen: ReservedPort,
}

impl Plan {
    fn new(edges: &[&'static str], shields: &[&'static str]) -> Self {
        Self::with_scheme(edges, shields, "http")
    }

    fn with_scheme(edges: &[&'static str], shields: &[&'static str], scheme: &str) -> Self {
        let names = edges.iter().chain(shields);
        let nodes = names.map(|&name| PlannedNode {
            name,
            listen: ReservedPort::any(),
        });
        let nodes: Vec<_> = nodes.collect();
        let members = nodes.iter().enumerate().map(|(at, node)| FleetMember {
            name: node.name.to_owned(),
            url: format!("{scheme}://{}", node.listen.addr())
                .parse()
                .expect("a URL"),
            group: match at < edges.len() {
                true => NodeGroup::Edge,
                false => NodeGroup::Shield,
            },
            weight: NonZeroU32::new(100).expect("100 is not zero"),
            is_draining: false,
        });
        Self {
            members: members.collect(),
            nodes,
        }
    }

    fn member(&mut self, name: &str) -> &mut FleetMember {
        let mut members = self.members.iter_mut();
        let member = members.find(|member| member.name == name);
        member.expect("the plan has the node")
    }

    fn set_weight(&mut self, name: &str, weight: u32) {
        self.member(name).weight = NonZeroU32::new(weight).expect("a weight is not zero");
    }

    /// Gives a member the address of a listener whose connections the kernel accepts, and from which no program reads.
    fn silence(&mut self, name: &str) -> TcpListener {
        let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = silent.local_addr().expect("an address");
        self.member(name).url = format!("http://{addr}").parse().expect("a URL");
        silent
    }

    /// Starts a node. `change` changes its configuration and that of its fleet.
    fn start(
        &self,
        name: &str,
        origin: &ScriptedOrigin,
        change: impl FnOnce(&mut EdgeConfig, &mut FleetConfig),
    ) -> FleetNode {
        let config = self.config(name, origin, change);
        FleetNode(Edge::start(config).expect("the node starts"))
    }

    /// Returns the configuration of a node, which `change` changes.
    fn config(
        &self,
        name: &str,
        origin: &ScriptedOrigin,
        change: impl FnOnce(&mut EdgeConfig, &mut FleetConfig),
    ) -> EdgeConfig {
        let node = self.nodes.iter().find(|node| node.name == name);
        let mut fleet = FleetConfig {
            name: name.to_owned(),
            members: self.members.clone(),
            listen: node.expect("the plan has the node").listen.addr(),
            tls: None,
            key: FleetKey::new(&[1; 32]).expect("a key"),
            // A busy machine does not make another node slow.
            wait: TIMEOUT,
            fallback_percent: 100,
            fallbacks_per_second: 100,
            replicate: 0.01,
        };
        let mut config = config_for(origin.addr());
        change(&mut config, &mut fleet);
        config.set_fleet(fleet);
        config
    }

    fn start_all(&self, origin: &ScriptedOrigin) -> Vec<FleetNode> {
        let nodes = self.nodes.iter();
        let started = nodes.map(|node| self.start(node.name, origin, |_, _| {}));
        started.collect()
    }
}

struct FleetNode(RunningEdge);

impl FleetNode {
    fn get(&self, path: &str) -> Received {
        Client::connect(self.0.addrs()[0]).get(path, &[])
    }

    fn post(&self, path: &str) {
        let mut client = Client::connect(self.0.addrs()[0]);
        assert_eq!(client.request("POST", path, &[], b"new").status, 200);
    }

    /// Begins a POST that the origin never answers. Its client leaves when the origin has the request.
    fn post_and_leave(&self, path: &str, origin: &ScriptedOrigin) {
        origin.once(path, Answer::never());
        let before = origin.requests(path);
        let mut post = Client::connect(self.0.addrs()[0]);
        post.send_head("POST", path, &[("content-length", "1")]);
        post.send(b"x");
        origin.wait_until("the origin has the POST", |origin| {
            origin.requests(path) > before
        });
        post.reset();
    }

    fn page(&self, path: &str) -> String {
        let addr = self.0.admin_addr().expect("the admin listener");
        let page = Client::connect(addr).get(path, &[]);
        String::from_utf8(page.body).expect("text")
    }

    fn metric(&self, series: &str) -> f64 {
        metric(&self.page("/metrics"), series)
    }

    fn asked(&self, result: &str) -> f64 {
        self.metric(&format!(
            "edgeward_fleet_requests_total{{result=\"{result}\"}}"
        ))
    }

    fn received(&self, result: &str) -> f64 {
        self.metric(&format!(
            "edgeward_fleet_received_total{{result=\"{result}\"}}"
        ))
    }

    /// Returns the numbers of invalidations that other nodes have confirmed and have not confirmed.
    fn invalidations(&self) -> [f64; 2] {
        ["invalidated", "not-invalidated"].map(|result| self.asked(result))
    }

    fn fleet(&self) -> serde_json::Value {
        let status: serde_json::Value = serde_json::from_str(&self.page("/status")).expect("JSON");
        status["fleet"].clone()
    }

    fn objects(&self) -> f64 {
        self.metric("edgeward_hot_objects")
    }

    fn is_refreshed_by(&self, path: &str, origin: &ScriptedOrigin) -> bool {
        let before = origin.requests(path);
        let got = self.get(path);
        assert_eq!(got.status, 200, "{got:?}");
        origin.requests(path) > before
    }
}

/// An origin whose responses all may be stored.
fn origin() -> ScriptedOrigin {
    let origin = ScriptedOrigin::start();
    origin.otherwise(|_| Answer::ok("the same everywhere").header("cache-control", "max-age=600"));
    origin
}

fn paths(count: usize) -> impl Iterator<Item = String> + Clone {
    (0..count).map(|n| format!("/object/{n}"))
}

#[test]
fn the_origin_is_asked_once_for_each_object_and_one_node_stores_it() {
    let origin = origin();
    let nodes = Plan::new(&["a", "b", "c"], &[]).start_all(&origin);
    let mut of_others = 0;
    for path in paths(30) {
        for node in nodes.iter().chain(&nodes) {
            let got = node.get(&path);
            assert_eq!((got.status, got.text()), (200, "the same everywhere"));
            assert_eq!(got.header("edgeward-object"), None);
            let mut members = got
                .headers
                .iter()
                .filter(|(name, _)| name == "cache-status");
            let is_of_other = members.any(|(_, member)| member.contains("detail=other-owner"));
            of_others += usize::from(is_of_other);
        }
        assert_eq!(origin.requests(&path), 1, "{path}");
    }
    let objects: Vec<_> = nodes.iter().map(FleetNode::objects).collect();
    assert_eq!(objects.iter().sum::<f64>(), 30.0, "{objects:?}");
    assert!(objects.iter().all(|&objects| objects > 0.0), "{objects:?}");
    let sum = |of: fn(&FleetNode) -> f64| nodes.iter().map(of).sum::<f64>();
    // The owner itself gets two of the six requests for each object.
    let asked = sum(|node| node.asked("hit") + node.asked("miss"));
    assert_eq!((asked, of_others), (120.0, 120));
    assert_eq!(sum(|node| node.received("accepted")), 120.0);
    // The status has the same numbers, and equal weights are equal shares.
    let fleet = nodes[0].fleet();
    let hits = fleet["requests"]["hit"].as_f64();
    assert_eq!(hits, Some(nodes[0].asked("hit")));
    assert_eq!(fleet["received"]["accepted"], nodes[0].received("accepted"));
    for member in fleet["members"].as_array().expect("members") {
        assert_eq!(member["key_share"], 1.0 / 3.0, "{member}");
    }
    // The two nodes that do not own an object know this at their second request for it.
    until("the causes of misses are counted", || {
        let series = "edgeward_site_misses_total{site=\"default\",cause=\"other-node\"}";
        let of_node = |node: &FleetNode| metric(&node.page("/metrics"), series);
        (nodes.iter().map(of_node).sum::<f64>() == 60.0).then_some(())
    });
    let sent = origin.recorded();
    let hops = sent
        .iter()
        .filter_map(|request| request.header("edgeward-hop"));
    assert_eq!(hops.count(), 0, "the field leaves the fleet");
}

#[test]
fn a_node_that_fails_costs_no_request() {
    let origin = origin();
    let mut nodes = Plan::new(&["a", "b", "c"], &[]).start_all(&origin);
    for path in paths(30) {
        assert_eq!(nodes[0].get(&path).status, 200);
    }
    drop(nodes.pop());
    for path in paths(30) {
        for node in &nodes {
            assert_eq!(node.get(&path).status, 200, "{path}");
        }
    }
    let failed: f64 = nodes.iter().map(|node| node.asked("failed")).sum();
    assert!(failed > 0.0);
    let page = nodes[0].page("/status");
    let status: serde_json::Value = serde_json::from_str(&page).expect("JSON");
    let members = status["fleet"]["members"].as_array().expect("members");
    assert_eq!(members.len(), 3);
    assert_eq!(members[0]["is_self"], true);
    assert!(members[2]["failures"].as_u64() > Some(0), "{status:#}");
}

/// The nodes that own the object remove it before the client gets the response, so the next request of any client gets
/// the new one.
#[test]
fn a_post_at_any_node_invalidates_the_object_at_its_owners() {
    let origin = origin();
    let nodes = Plan::new(&["a", "b", "c"], &["s", "t"]).start_all(&origin);
    let edges = &nodes[..3];
    for path in paths(12) {
        edges.iter().for_each(|node| _ = node.get(&path));
        assert_eq!(origin.requests(&path), 1, "{path}");
        edges[0].post(&path);
        edges.iter().for_each(|node| _ = node.get(&path));
        assert_eq!(origin.requests(&path), 3, "{path}: the POST and one GET");
    }
    assert!(edges[0].asked("invalidated") >= 12.0);
    assert_eq!(edges[0].asked("not-invalidated"), 0.0);
}

/// Method: `c` stores objects, because its list of members is older than that of the other nodes, for which it drains.
/// `d` was never started.
#[test]
fn a_post_invalidates_the_objects_of_nodes_that_own_none_and_counts_those_that_are_down() {
    let origin = origin();
    let mut plan = Plan::new(&["a", "b", "c", "d"], &[]);
    for (name, weight) in [("a", 1), ("b", 1), ("c", 1000), ("d", 1)] {
        plan.set_weight(name, weight);
    }
    let c = plan.start("c", &origin, |_, _| {});
    plan.member("c").is_draining = true;
    let [a, _b] = ["a", "b"].map(|name| plan.start(name, &origin, |_, _| {}));
    let mut stored = 0;
    for path in paths(12) {
        assert_eq!(c.get(&path).status, 200);
        if c.is_refreshed_by(&path, &origin) {
            continue; // owned by a node that is down
        }
        stored += 1;
        a.post(&path);
        assert!(c.is_refreshed_by(&path, &origin), "{path}");
        let stored = f64::from(stored);
        assert_eq!(
            a.invalidations(),
            [2.0 * stored, stored],
            "b and c; d is down"
        );
    }
    assert!(stored > 6, "{stored}");
}

/// Method: the origin never answers the POST. The node that the client leaves has no object of its own. On a busy
/// machine it may not wait until the owner confirms the removal, and the owner may drop the request then: the next
/// object is tried.
#[test]
fn a_post_whose_client_has_left_invalidates_the_object_at_its_owner() {
    let origin = origin();
    let mut plan = Plan::new(&["a", "b"], &[]);
    plan.member("a").is_draining = true;
    let nodes = ["a", "b"].map(|name| {
        plan.start(name, &origin, |config, _| {
            config.limits.abandoned_wait = Duration::from_millis(10);
        })
    });
    let is_confirmed = paths(100).any(|path| {
        assert_eq!(nodes[0].get(&path).status, 200);
        assert!(
            !nodes[0].is_refreshed_by(&path, &origin),
            "the owner has it"
        );
        let told = |node: &FleetNode| node.invalidations().iter().sum::<f64>();
        let before = told(&nodes[0]);
        nodes[0].post_and_leave(&path, &origin);
        until("the owner has confirmed it, or was too slow", || {
            (told(&nodes[0]) > before).then_some(())
        });
        let is_confirmed = nodes[0].asked("invalidated") == 1.0;
        assert!(!is_confirmed || nodes[0].is_refreshed_by(&path, &origin));
        is_confirmed
    });
    assert!(is_confirmed);
}

/// The node returns before the other one has probed it.
#[test]
fn a_post_invalidates_the_object_of_a_node_that_is_ejected() {
    let origin = origin();
    let mut plan = Plan::new(&["a", "b"], &[]);
    plan.set_weight("a", 1);
    plan.set_weight("b", 1000);
    let a = plan.start("a", &origin, |_, _| {});
    let mut others = (0..).map(|n| format!("/other/{n}"));
    until("the node is ejected", || {
        assert_eq!(a.get(&others.next().expect("endless")).status, 200);
        (a.metric("edgeward_fleet_members{state=\"down\"}") == 1.0).then_some(())
    });
    let b = plan.start("b", &origin, |_, _| {});
    for path in paths(3) {
        assert_eq!(b.get(&path).status, 200);
        assert!(!b.is_refreshed_by(&path, &origin), "{path} is stored");
        a.post(&path);
        assert!(b.is_refreshed_by(&path, &origin), "{path}");
    }
    assert_eq!(a.asked("invalidated"), 3.0);
}

/// A request with `Authorization` does not show that the responses for its target may not be stored.
#[test]
fn a_request_whose_response_may_not_be_stored_does_not_keep_others_from_the_owner() {
    let origin = origin();
    let mut plan = Plan::new(&["a", "b"], &[]);
    plan.member("a").is_draining = true;
    let nodes = plan.start_all(&origin);
    let (path, refused) = ("/of-request", "/of-response");
    let mut client = Client::connect(nodes[0].0.addrs()[0]);
    let authorized = [("authorization", "Basic YTpi")];
    assert_eq!(client.get(path, &authorized).status, 200);
    assert_eq!(client.get(path, &[]).status, 200);
    assert_eq!(nodes[1].objects(), 1.0, "the owner was asked and stores it");
    // The response is the reason: the owner would only pass the requests on.
    origin.once(refused, Answer::ok("a").header("cache-control", "private"));
    let before = nodes[1].received("accepted");
    (0..2).for_each(|_| _ = client.get(refused, &[]));
    assert_eq!(nodes[1].received("accepted"), before + 1.0);
    // The second response may be stored, so the owner is asked again.
    assert_eq!(client.get(refused, &[]).status, 200);
    assert_eq!(nodes[1].received("accepted"), before + 2.0);
}

/// `a` takes `b` for the owner of nearly all keys, and `b` takes `a`. The one that is asked stores the object, because
/// the other one may ask it for its own load.
#[test]
fn nodes_with_different_lists_do_not_wait_for_each_other() {
    let origin = origin();
    let mut plan = Plan::new(&["a", "b"], &[]);
    let mut start = |heavier: &str, lighter: &str| {
        plan.set_weight(heavier, 1000);
        plan.set_weight(lighter, 1);
        plan.start(lighter, &origin, |_, _| {})
    };
    let mut nodes = [start("b", "a"), start("a", "b")];
    for path in paths(30) {
        for node in &nodes {
            assert_eq!(node.get(&path).status, 200);
        }
        nodes.reverse();
    }
    let [a, b] = &nodes;
    assert!(a.received("accepted") > 0.0 && b.received("accepted") > 0.0);
    // Each request of a client caused at most one request between nodes.
    let sum = |of: fn(&FleetNode) -> f64| of(a) + of(b);
    assert!(sum(|node| node.received("accepted")) <= 60.0);
    assert_eq!(sum(|node| node.received("loop")), 0.0);
    assert_eq!(
        sum(|node| node.asked("failed") + node.asked("refused")),
        0.0
    );
}

/// The address of the member `b` is that of `a` itself.
#[test]
fn a_node_that_asks_itself_gets_508_and_asks_the_origin() {
    let origin = origin();
    let mut plan = Plan::new(&["a", "b"], &[]);
    plan.member("b").url = plan.member("a").url.clone();
    let node = plan.start("a", &origin, |_, _| {});
    for path in paths(30) {
        assert_eq!(node.get(&path).status, 200);
        assert_eq!(origin.requests(&path), 1);
    }
    let loops = node.received("loop");
    assert!(loops > 0.0);
    assert_eq!(node.asked("refused"), loops);
}

#[test]
fn a_request_that_waits_too_long_for_a_node_asks_the_origin() {
    let origin = origin();
    let mut plan = Plan::new(&["a", "b"], &[]);
    let _silent = plan.silence("b");
    let node = plan.start("a", &origin, |_, fleet| {
        fleet.wait = Duration::from_millis(1);
    });
    for path in paths(30) {
        assert_eq!(node.get(&path).status, 200);
    }
    assert!(node.asked("slow") > 0.0);
    assert_eq!(node.metric("edgeward_fleet_waits_total"), 0.0);
}

/// Without a budget a request waits longer, until a PING shows that the node has failed.
#[test]
fn a_node_that_hangs_is_found_by_pings() {
    let origin = origin();
    let mut plan = Plan::new(&["a", "b"], &[]);
    let _silent = plan.silence("b");
    plan.set_weight("a", 1);
    plan.set_weight("b", 1000);
    let node = plan.start("a", &origin, |_, fleet| {
        fleet.wait = Duration::from_millis(1);
        (fleet.fallback_percent, fleet.fallbacks_per_second) = (0, 0);
    });
    for path in paths(2) {
        assert_eq!(node.get(&path).status, 200);
    }
    assert!(node.metric("edgeward_fleet_waits_total") > 0.0);
    assert_eq!(node.asked("slow"), 0.0);
    assert!(node.asked("failed") > 0.0);
}

#[test]
fn a_node_that_drains_stores_no_objects() {
    let origin = origin();
    let mut plan = Plan::new(&["a", "b", "c"], &[]);
    plan.member("c").is_draining = true;
    let nodes = plan.start_all(&origin);
    for path in paths(30) {
        for node in &nodes {
            assert_eq!(node.get(&path).status, 200);
        }
        assert_eq!(origin.requests(&path), 1, "{path}");
    }
    let [a, b, c] = &nodes[..] else {
        unreachable!()
    };
    assert_eq!((c.objects(), c.received("accepted")), (0.0, 0.0));
    assert_eq!(a.objects() + b.objects(), 30.0);
    assert_eq!(a.metric("edgeward_fleet_members{state=\"draining\"}"), 1.0);
}

/// A marker is an entry of the cache, through which lookups find the variants.
#[test]
fn only_the_owner_stores_the_marker_of_variants() {
    let origin = ScriptedOrigin::start();
    origin.otherwise(|_| {
        Answer::ok("varies")
            .header("cache-control", "max-age=600")
            .header("vary", "x-fruit")
    });
    let mut plan = Plan::new(&["a", "b"], &[]);
    plan.member("a").is_draining = true;
    let nodes = plan.start_all(&origin);
    let mut client = Client::connect(nodes[0].0.addrs()[0]);
    for fruit in ["apple", "pear", "apple", "pear"] {
        let got = client.get("/a", &[("x-fruit", fruit)]);
        assert_eq!((got.status, got.text()), (200, "varies"));
    }
    assert_eq!(origin.requests("/a"), 2);
    let objects = [&nodes[0], &nodes[1]].map(FleetNode::objects);
    assert_eq!(objects, [0.0, 3.0], "two variants and their marker");
}

/// Each node asks the origin about the authorization, and stores the response itself, also that of a POST.
#[test]
fn a_node_that_owns_no_object_stores_the_response_to_a_post_if_the_origin_checks_each_request() {
    let origin = origin();
    let mut plan = Plan::new(&["a", "b"], &[]);
    plan.member("a").is_draining = true;
    let a = plan.start("a", &origin, |config, _| {
        let settings = Settings {
            check_authorization: Some(true),
            ..Settings::default()
        };
        set_site(config, settings, Vec::new());
    });
    let response = Answer::ok("new")
        .header("cache-control", "max-age=600")
        .header("content-location", "/a")
        .header("etag", "\"1\"");
    origin.once("/a", response);
    let mut client = Client::connect(a.0.addrs()[0]);
    let answer = client.request("POST", "/a", &[("content-length", "3")], b"new");
    assert_eq!(
        answer.field("cache-status"),
        "edgeward; fwd=method; fwd-status=200; stored"
    );
    assert_eq!(a.objects(), 1.0);
}

#[test]
fn edges_ask_shields_and_the_age_of_objects_adds_up() {
    let origin = origin();
    origin.on(
        "/old",
        Answer::ok("old")
            .header("cache-control", "max-age=600")
            .header("age", "100"),
    );
    let plan = Plan::new(&["a", "b"], &["s", "t"]);
    let nodes = plan.start_all(&origin);
    for path in paths(30) {
        for node in &nodes[..2] {
            assert_eq!(node.get(&path).status, 200);
        }
        assert_eq!(origin.requests(&path), 1, "{path}");
    }
    let stored = |nodes: &[FleetNode]| nodes.iter().map(FleetNode::objects).sum::<f64>();
    assert_eq!((stored(&nodes[..2]), stored(&nodes[2..])), (30.0, 30.0));
    for node in &nodes[..2] {
        let got = node.get("/old");
        let age: u32 = got.field("age").parse().expect("an age");
        assert!((100..600).contains(&age), "{got:?}");
    }
}

/// A stale object that a shield serves while the origin fails is not stored by the edge that asks.
#[test]
fn a_stale_object_of_a_shield_is_not_stored() {
    let origin = ScriptedOrigin::start();
    let path = "/stale";
    origin.once(
        path,
        Answer::ok("old")
            .header("cache-control", "max-age=600, stale-if-error=6000")
            .header("etag", "\"1\"")
            .header("age", "601"),
    );
    origin.on(path, Answer::status(503));
    let plan = Plan::new(&["a"], &["s"]);
    let edge = plan.start("a", &origin, |_, _| {});
    let shield = plan.start("s", &origin, |_, _| {});
    assert_eq!(edge.get(path).status, 200);
    for n in 1..=3 {
        let got = edge.get(path);
        assert_eq!((got.status, got.text()), (200, "old"), "{got:?}");
        assert!(got.header("edgeward-object").is_none());
        // Each request reaches the shield, because the edge has nothing fresh.
        assert_eq!(shield.received("accepted"), f64::from(1 + n));
    }
}

/// The nodes differ in the lifetime of objects, so the owner stores nothing for the other.
#[test]
fn nodes_with_different_rules_do_not_store_for_each_other() {
    let origin = origin();
    let plan = Plan::new(&["a", "b"], &[]);
    let a = plan.start("a", &origin, |config, _| {
        config.caching.rules.heuristic = Some(Heuristic::default());
    });
    let b = plan.start("b", &origin, |_, _| {});
    let of_b: Vec<_> = paths(30)
        .filter(|path| {
            let before = b.received("accepted");
            _ = a.get(path);
            b.received("accepted") > before
        })
        .collect();
    assert!(!of_b.is_empty());
    for path in &of_b {
        assert!(a.is_refreshed_by(path, &origin), "{path}");
        // For its own clients the owner stores the object. Then it answers the other node, too.
        assert!(b.is_refreshed_by(path, &origin), "{path}");
        assert!(!a.is_refreshed_by(path, &origin), "{path}");
    }
}

/// The origin does not get the field that the class depends on.
#[test]
fn a_class_of_a_field_that_a_rule_removes_has_objects_of_its_own() {
    let origin = origin();
    let mut plan = Plan::new(&["a", "b"], &[]);
    plan.member("a").is_draining = true;
    let nodes = ["a", "b"].map(|name| {
        plan.start(name, &origin, |config, _| {
            let mut settings = Settings {
                key: Some([Class::Device].into()),
                ..Settings::default()
            };
            settings.request.insert(USER_AGENT, FieldChange::Remove);
            set_site(config, settings, Vec::new());
        })
    });
    let phone = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) Mobile/15E148";
    for (path, agent, requests) in [
        ("/a", "Mozilla/5.0 (X11; Linux x86_64)", 1),
        ("/a", phone, 2),
        ("/a", phone, 2),
        ("/a", "Mozilla/5.0 (X11; Linux x86_64)", 2),
    ] {
        let mut client = Client::connect(nodes[0].0.addrs()[0]);
        let got = client.get(path, &[("user-agent", agent)]);
        assert_eq!(got.status, 200, "{got:?}");
        assert_eq!(origin.requests(path), requests, "{agent}");
    }
    assert_eq!(nodes[1].received("accepted"), 0.0);
}

/// The site answers the method by which nodes invalidate objects with 405.
#[test]
fn rules_of_sites_do_not_deny_the_invalidations_of_nodes() {
    let origin = origin();
    let mut plan = Plan::new(&["a", "b"], &[]);
    plan.member("a").is_draining = true;
    let nodes = ["a", "b"].map(|name| {
        plan.start(name, &origin, |config, _| {
            let method = "PURGE".parse().expect("a method");
            let rule = Rule {
                condition: Condition {
                    methods: vec![method],
                    ..Condition::default()
                },
                settings: Settings {
                    deny: Stated::On(StatusCode::METHOD_NOT_ALLOWED),
                    ..Settings::default()
                },
                line: 1,
            };
            set_site(config, Settings::default(), vec![rule]);
        })
    });
    let path = "/a";
    assert_eq!(nodes[0].get(path).status, 200);
    let mut client = Client::connect(nodes[0].0.addrs()[0]);
    assert_eq!(client.request("PURGE", path, &[], b"").status, 405);
    nodes[0].post(path);
    assert!(nodes[0].is_refreshed_by(path, &origin));
    assert_eq!(nodes[0].invalidations(), [1.0, 0.0]);
}

#[test]
fn a_request_with_another_key_is_refused() {
    let origin = origin();
    let plan = Plan::new(&["a", "b"], &[]);
    let a = plan.start("a", &origin, |_, _| {});
    let other = FleetKey::new(&[2; 32]).expect("a key");
    let b = plan.start("b", &origin, |_, fleet| fleet.key = other);
    for path in paths(30) {
        assert_eq!(b.get(&path).status, 200);
    }
    let refused = b.asked("refused");
    assert!(refused > 0.0);
    assert_eq!(a.received("unsigned"), refused);
    assert_eq!((a.received("accepted"), a.objects()), (0.0, 0.0));
}

#[test]
fn the_listener_for_nodes_serves_no_http1() {
    let origin = origin();
    let plan = Plan::new(&["a"], &[]);
    let node = plan.start("a", &origin, |_, _| {});
    let fleet = node.0.addrs()[1];
    let answer = client::exchange(fleet, "GET / HTTP/1.1\r\nHost: test.example\r\n\r\n");
    assert_eq!(String::from_utf8_lossy(&answer), "");
    assert_eq!(origin.requests_total(), 0);
}

#[test]
fn a_node_without_a_certificate_of_the_authority_is_refused() {
    let origin = origin();
    let plan = Plan::with_scheme(&["a", "b", "c"], &[], "https");
    let (authority, stranger) = (Authority::new(), Authority::new());
    let tls = |issued: &Issued, trusted: &Authority| {
        Some(FleetTls {
            identity: issued.files(),
            authorities: trusted.file(),
        })
    };
    let issued = ["a", "b"].map(|_| authority.issue());
    let forged = stranger.issue();
    let a = plan.start("a", &origin, |_, fleet| {
        fleet.tls = tls(&issued[0], &authority);
    });
    let b = plan.start("b", &origin, |_, fleet| {
        fleet.tls = tls(&issued[1], &authority);
    });
    // It has the key of the fleet and trusts its nodes.
    let c = plan.start("c", &origin, |_, fleet| {
        fleet.tls = tls(&forged, &authority);
    });
    for path in paths(30) {
        assert_eq!(c.get(&path).status, 200);
    }
    assert!(c.asked("failed") > 0.0);
    assert_eq!(a.received("accepted") + b.received("accepted"), 0.0);
    let closed = "edgeward_client_connections_closed_total{cause=\"tls-handshake\"}";
    until("a node has refused the certificate", || {
        (a.metric(closed) + b.metric(closed) > 0.0).then_some(())
    });
    for path in paths(30) {
        assert_eq!(a.get(&path).status, 200);
    }
    assert!(
        b.received("accepted") > 0.0,
        "nodes with certificates ask each other"
    );
}
