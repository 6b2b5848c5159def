//! Upgrades of an edge whose origins are behind links.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use edgeward_testkit::client::Client;
use serde_json::Value;

use super::link_endpoints::{Endpoints, listening, noise, origin, text_of_path};
use super::run::{output, until};
use super::upgrade::UpgradableEdge;

/// No request fails while an edge is upgraded whose two origins are behind a link each, although each request needs one
/// of the links. Each new process takes the chunk stores and the admin ports of the links over: after each upgrade, the
/// body that the first process has fetched is sent by reference.
///
/// `EDGEWARD_UPGRADES` sets the number of upgrades.
#[test]
fn upgrades_of_an_edge_with_two_links_fail_no_request() {
    let upgrades = std::env::var("EDGEWARD_UPGRADES");
    let upgrades: u64 = upgrades.map_or(3, |number| number.parse().expect("a number"));
    let endpoints = Endpoints::new(&[]);
    let body = noise(300_000, 7);
    let (origin, _) = origin(body.clone());
    let url = format!("http://{origin}");
    let args = ["gateway", "--listen", "127.0.0.1:0", "--origin", &url];
    let gateway = endpoints.start("gateway", &args);
    let path = |name: &str| text_of_path(&endpoints.folder.path().join(name));
    let origin_with_link = |name: &str| {
        format!(
            "[[origin]]\nname = \"{name}\"\nurl = \"http://{name}.example\"\n\
             [origin.link]\ngateway = \"{}\"\nkeys = \"{}\"\nstore = \"{}\"\nstore_size = \"128MiB\"\n\
             admin = \"127.0.0.1:0\"\n",
            listening(&gateway),
            path("keys/edge"),
            path(&format!("stores/{name}")),
        )
    };
    let site =
        |name: &str| format!("[[site]]\nhosts = [\"{name}.example\"]\norigin = \"{name}\"\n");
    let mut edge = UpgradableEdge::start_with_origins(
        &LINKS.map(origin_with_link).concat(),
        &LINKS.map(site).concat(),
        |_| (),
    );
    let admins = LINKS.map(|name| edge.announced(&format!("/links/{name}/admin")).to_string());
    let status = |link: usize| -> Value {
        let out = output(&["link", "status", &admins[link], "--json"]);
        serde_json::from_slice(&out.stdout).unwrap_or_default()
    };
    // Each path is requested once, so each request is a miss.
    let next_path = AtomicU64::new(0);
    let fetch = |link: usize| {
        let path = format!("/{}", next_path.fetch_add(1, Ordering::Relaxed));
        let host = format!("{}.example", LINKS[link]);
        let answer = Client::connect(edge.addr).get(&path, &[("Host", &host)]);
        answer.status == 200 && answer.body == body
    };
    let chunks = [0, 1].map(|link| {
        until("the link is up", || fetch(link).then_some(()));
        let chunks = status(link)["store"]["chunks"].as_u64();
        assert!(chunks > Some(10), "{chunks:?} chunks are stored");
        chunks
    });

    let (is_done, failed) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        // Also ends the threads if an assertion fails.
        let _done = SetAtEnd(&is_done);
        for thread in 0..4 {
            let (is_done, failed, fetch) = (&is_done, &failed, &fetch);
            scope.spawn(move || {
                while !is_done.load(Ordering::Relaxed) {
                    failed.fetch_add(u64::from(!fetch(thread % 2)), Ordering::Relaxed);
                }
            });
        }
        for upgrade in 0..upgrades {
            let pid = edge.upgrade();
            for (link, chunks) in chunks.into_iter().enumerate() {
                until("the new process has the store", || {
                    let status = status(link);
                    // The temporary store has 64 MiB.
                    let is_large = status["store"]["bytes_max"].as_u64() > Some(100 << 20);
                    let has_chunks = status["store"]["chunks"].as_u64() >= chunks;
                    (status["pid"] == pid && is_large && has_chunks).then_some(())
                });
                // The store of the first process has the chunks of the body. The first 4 KiB of a body are not looked
                // up, and a chunk that is sent before it is complete is not found: on a busy machine more of them.
                let received = || {
                    let received = &status(link)["peers"][0]["received"];
                    let field = |field: &str| received[field].as_u64().unwrap_or(0);
                    (field("bytes"), field("referenced_bytes"))
                };
                let (bytes, referenced) = until("bodies are received", || {
                    let received = received();
                    (received.0 > 10 * body.len() as u64).then_some(received)
                });
                assert!(
                    referenced * 100 > bytes * 80,
                    "upgrade {upgrade} of {}: {referenced} of {bytes} bytes were sent by reference",
                    LINKS[link]
                );
            }
        }
    });
    let requests = next_path.load(Ordering::Relaxed);
    assert_eq!(failed.load(Ordering::Relaxed), 0, "of {requests} requests");
    assert!(requests > 20 * upgrades);
    eprintln!("{upgrades} upgrades, {requests} requests, none failed");
    let log = edge.end();
    assert!(!log.contains("error"), "{log}");
}

/// The origins and their links.
const LINKS: [&str; 2] = ["shop", "wiki"];

/// Sets a flag when it is dropped.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
