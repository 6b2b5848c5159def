//! Tests negative rules (`[[negative]]` in the configuration) with publisher, edge and origin as three processes.

use super::run::{Server, get, send_request, until};

/// One rule uses the filter of a publisher, another rule uses a filter file. After a new id was posted to the
/// publisher, the edge forwards requests for this id. After the publisher has stopped, the edge forwards all requests
/// of the first rule.
#[test]
fn an_edge_uses_a_published_filter_and_a_file() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let ids: String = (0..1000).map(|id| format!("{id}\n")).collect();
    std::fs::write(path("ids"), ids).expect("the file is written");
    std::fs::write(path("token"), "sixteen-or-more-characters").expect("the file is written");
    let run = |args: &[&str]| super::run::output(args);
    let keygen = run(&["filter", "keygen", "-o", &path("key")]);
    let public = String::from_utf8(keygen.stdout).expect("the key is UTF-8");
    let built = run(&[
        "filter",
        "build",
        "-s",
        &path("ids"),
        "--ids",
        "integer",
        "-o",
        &path("file.ids"),
    ]);
    assert!(built.status.success(), "{built:?}");
    // `--covered-by=posts`: writers post each id before they commit it, so no committed id is missing at any time.
    let publisher = Server::start(&[
        "filter",
        "serve",
        "--json",
        "--listen=127.0.0.1:0",
        "--set=r",
        "--ids=integer",
        "--covered-by=posts",
        &format!("--source={}", path("ids")),
        &format!("--state={}", path("state")),
        &format!("--key={}", path("key")),
        &format!("--token={}", path("token")),
    ]);
    let origin = Server::start(&["origin", "--listen=127.0.0.1:0", "--json"]);
    let publisher_url = publisher.text("/listening");
    let config = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n\
         [origin]\nurl = \"http://{}\"\n[hot]\npolicy = \"lru\"\n\
         [[negative]]\npath = \"/o/{{id}}\"\nfilter = \"{publisher_url}\"\npublic_key = \"{}\"\nmax_staleness = \
         \"2s\"\n\
         [[negative]]\npath = \"/file/{{id}}\"\nfilter = \"file.ids\"\nids = \"integer\"\n",
        origin.addr("/listen"),
        public.trim(),
    );
    std::fs::write(path("edge.toml"), config).expect("the file is written");
    let edge = Server::start(&["serve", "--json", "--config", &path("edge.toml")]);
    let addr = edge.addr("/listening/0");
    let is_answered_by_filter = |path: &str| {
        let response = get(addr, path);
        response.starts_with("HTTP/1.1 404") && response.contains("detail=id-filter")
    };
    // A single absent id may be a false positive.
    assert!((0..20).any(|id| is_answered_by_filter(&format!("/file/{}", 5000 + id))));
    // Each request is for a new id, so that no response comes from the cache.
    let mut id = 1_000_000;
    until("the edge answers 404 for absent ids", || {
        id += 1;
        is_answered_by_filter(&format!("/o/{id}")).then_some(())
    });
    assert!(get(addr, "/o/7?size=10").starts_with("HTTP/1.1 200"));
    let absent = until("one of a hundred ids is absent", || {
        (2_000_000..2_000_100).find(|id| is_answered_by_filter(&format!("/o/{id}")))
    });
    let absent = absent.to_string();
    let post = format!(
        "POST /sets/r/ids HTTP/1.1\r\nhost: p\r\nconnection: close\r\ncontent-length: {}\r\n\
         authorization: Bearer sixteen-or-more-characters\r\n\r\n{absent}",
        absent.len()
    );
    assert!(send_request(publisher.addr("/listening"), &post).starts_with("HTTP/1.1 200"));
    until("the new id is forwarded", || {
        (!is_answered_by_filter(&format!("/o/{absent}"))).then_some(())
    });
    drop(publisher);
    // Two ids in each attempt, because one id may be forwarded as a false positive.
    until("all ids are forwarded", || {
        id += 1;
        (!is_answered_by_filter(&format!("/o/{id}"))
            && !is_answered_by_filter(&format!("/o/{}", id + 500_000)))
        .then_some(())
    });
    let metrics = get(edge.addr("/admin"), "/metrics");
    assert!(
        metrics.contains("edgeward_negative_fresh{path=\"/o/{id}\"} 0"),
        "{metrics}"
    );
}
