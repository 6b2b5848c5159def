//! A change of the policy while an edge serves: `PUT /policy` on the admin server.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::support::{Answer, Client, TestBed};
use edgeward_policy::PolicySpec;
use edgeward_testkit::Answer as OriginAnswer;

/// The number of objects. All fit into the memory of a [`TestBed`].
const OBJECTS: usize = 400;

fn bed_with_objects() -> TestBed {
    let bed = TestBed::start();
    bed.origin
        .otherwise(|_| OriginAnswer::pattern(3000).header("cache-control", "max-age=600"));
    let mut client = bed.connect();
    for n in 0..OBJECTS {
        assert_eq!(client.get(&format!("/{n}"), &[]).status, 200);
    }
    bed
}

fn admin(bed: &TestBed) -> Client {
    let addr = bed.edge.admin_addr();
    Client::connect(addr.expect("the admin listener is configured"))
}

fn put(bed: &TestBed, policy: &str) -> Answer {
    let length = policy.len().to_string();
    let headers = [("content-length", length.as_str())];
    admin(bed).request("PUT", "/policy", &headers, policy.as_bytes())
}

/// After a change to each policy that can serve, all objects are hits, and no object was fetched again. A client that
/// sends requests during the changes has only hits.
#[test]
fn all_objects_hit_during_and_after_changes_of_the_policy() {
    let bed = bed_with_objects();
    let mut policies = PolicySpec::examples();
    policies.retain(PolicySpec::is_served);
    let ended = AtomicBool::new(false);
    let hits = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = bed.connect();
            for n in (0..OBJECTS).cycle() {
                assert!(client.get(&format!("/{n}"), &[]).is_hit(), "object {n}");
                hits.fetch_add(1, Ordering::Relaxed);
                if ended.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for policy in &policies {
            let answer = put(&bed, &policy.to_string());
            let kept = format!("to {policy}: {OBJECTS} objects kept, 0 lost\n");
            assert!(answer.text().contains(&kept), "{}", answer.text());
            let current = admin(&bed).get("/policy", &[]);
            assert_eq!(current.text(), format!("{policy}\n"));
            assert_eq!(bed.status()["hot"]["policy"], policy.to_string());
        }
        ended.store(true, Ordering::Relaxed);
    });
    assert!(hits.into_inner() > 0);
    let mut client = bed.connect();
    for n in 0..OBJECTS {
        assert!(client.get(&format!("/{n}"), &[]).is_hit(), "object {n}");
    }
    assert_eq!(bed.origin.requests_total(), OBJECTS);
    let status = bed.status();
    assert!(status["hot"]["used_bytes"].as_u64() <= status["hot"]["capacity_bytes"].as_u64());
    let changes = policies.len() as f64;
    assert_eq!(bed.metric("edgeward_hot_policy_changes_total"), changes);
    let kept = "edgeward_hot_policy_moved_total{result=\"kept\"}";
    assert_eq!(bed.metric(kept), changes * OBJECTS as f64);
}

#[test]
fn a_policy_that_cannot_serve_is_refused_with_the_names_of_the_others() {
    let bed = bed_with_objects();
    for (policy, hint) in [
        ("mru", "eviction rules: lru, lfu-da"),
        ("mru", "admission rules: "),
        ("belady", "runs only in `edgeward simulate`"),
        ("infinite", "runs only in `edgeward simulate`"),
        ("adaptsize+sieve", "runs only in `edgeward simulate`"),
        ("threshold:1XB", "cannot be read: "),
        ("", "unknown policy"),
        (&"x".repeat(2000), "1024 bytes"),
    ] {
        let answer = put(&bed, policy);
        assert_eq!(answer.status, 400, "{policy}");
        assert!(answer.text().contains(hint), "{}", answer.text());
    }
    let mut client = admin(&bed);
    let answer = client.request("POST", "/policy", &[("content-length", "0")], b"");
    assert_eq!(answer.status, 405);
    assert_eq!(answer.header("allow"), Some("GET, HEAD, PUT"));
    assert_eq!(client.get("/policy", &[]).text(), "lru\n");
    assert!(bed.get("/0").is_hit());
}

/// A tuned policy that is selected while the edge serves starts its tuner. The next policy without a tuner stops it.
#[test]
fn the_tuner_of_a_selected_policy_starts() {
    let bed = bed_with_objects();
    assert!(bed.status()["hot"]["tuning"].is_null());
    assert_eq!(put(&bed, "adaptsize").status, 200);
    assert!(!bed.status()["hot"]["tuning"].is_null());
    assert_eq!(put(&bed, "density").status, 200);
    assert!(bed.status()["hot"]["tuning"].is_null());
}
