//! Collapsing: all requests for one key share one fetch, and its body is streamed to all their clients.

use std::num::NonZeroUsize;

use crate::support::{Client, TestBed, pattern};
use edgeward_testkit::{Answer, Gate};

/// Returns `count` clients that have requested the path. The edge has read all requests, and they wait for one
/// fetch.
fn waiting_clients(bed: &TestBed, path: &str, count: u64) -> Vec<Client> {
    let clients = (0..count)
        .map(|_| {
            let mut client = bed.connect();
            client.send_head("GET", path, &[]);
            client
        })
        .collect();
    bed.wait_until("all requests are misses", |status| {
        status["requests"]["uri-miss"] == count
    });
    clients
}

#[test]
fn fifty_concurrent_requests_cause_one_origin_request() {
    let bed = TestBed::start();
    let gate = Gate::new();
    bed.origin.on(
        "/popular",
        Answer::pattern(100_000)
            .header("cache-control", "max-age=60")
            .wait_before_head(&gate),
    );
    let mut clients = waiting_clients(&bed, "/popular", 50);
    gate.open();
    let mut leaders = 0;
    for client in &mut clients {
        let answer = client.answer("GET");
        assert!(answer.complete && answer.body == pattern(0..100_000));
        match answer.cache_status() {
            "edgeward; fwd=uri-miss; fwd-status=200; stored" => leaders += 1,
            "edgeward; fwd=uri-miss; stored; collapsed" => {}
            other => panic!("{other}"),
        }
    }
    assert_eq!(leaders, 1);
    assert_eq!(bed.origin.requests("/popular"), 1);
    assert!(bed.get("/popular").is_hit());
}

/// A small form of `make bench NAME=herd`.
///
/// Method: five hundred clients wait for the head. The origin then stops within the body. All clients get the bytes
/// before this point, and later the rest.
#[test]
fn five_hundred_followers_stream_one_fetch() {
    let bed = TestBed::start();
    let (head, middle) = (Gate::new(), Gate::new());
    bed.origin.on(
        "/film",
        Answer::pattern(300_000)
            .header("cache-control", "max-age=60")
            .wait_before_head(&head)
            .wait_at(100_000, &middle),
    );
    let mut clients = waiting_clients(&bed, "/film", 500);
    head.open();
    for client in &mut clients {
        assert_eq!(client.head().status, 200);
        assert!(client.read_up_to(100_000) == pattern(0..100_000));
    }
    middle.open();
    for client in &mut clients {
        assert!(client.read_up_to(200_000) == pattern(100_000..300_000));
    }
    assert_eq!(bed.origin.requests("/film"), 1);
    assert_eq!(bed.metric("edgeward_requests_collapsed_total"), 499.0);
}

/// Method: five hundred clients wait for a response that turns out to be private. All five hundred requests reach the
/// origin within its limit of connections, and each client gets its own response.
#[test]
fn five_hundred_followers_of_a_private_response_are_released_together() {
    let bed = TestBed::with_config(|config| {
        config.origins[0].connections_per_worker_max = NonZeroUsize::new(40).expect("not zero");
        config.origins[0].client_share_percent = 100;
    });
    let (first, others) = (Gate::new(), Gate::new());
    let mine = Answer::ok("mine").header("cache-control", "private");
    bed.origin
        .once("/mine", mine.clone().wait_before_head(&first));
    bed.origin.on("/mine", mine.wait_before_head(&others));
    let mut clients = waiting_clients(&bed, "/mine", 500);
    first.open();
    // The connections of both workers, minus those that wait for a client of the first response.
    others.wait_reached(79);
    assert!(bed.origin.open_connections() <= 80);
    others.open();
    for client in &mut clients {
        assert_eq!(client.answer("GET").text(), "mine");
    }
    assert_eq!(bed.origin.requests("/mine"), 500);
    assert!(bed.origin.accepted_connections() <= 80);
}

#[test]
fn followers_get_arrived_bytes_before_the_rest_arrives() {
    for chunked in [false, true] {
        let bed = TestBed::start();
        let (head, middle) = (Gate::new(), Gate::new());
        let mut answer = Answer::pattern(200_000)
            .header("cache-control", "max-age=60")
            .wait_before_head(&head)
            .wait_at(70_000, &middle);
        if chunked {
            answer = answer.chunked(10_000);
        }
        bed.origin.on("/slow", answer);
        let mut clients = waiting_clients(&bed, "/slow", 5);
        head.open();
        middle.wait_reached(1);
        if !chunked {
            for client in &mut clients {
                let head = client.head();
                assert_eq!(head.header("content-length"), Some("200000"));
                assert!(client.read_up_to(70_000) == pattern(0..70_000));
            }
            // A client that sends its request in the middle of the body also gets the beginning.
            let mut late_client = bed.connect();
            late_client.send_head("GET", "/slow", &[]);
            assert_eq!(late_client.head().status, 200);
            assert!(late_client.read_up_to(70_000) == pattern(0..70_000));
            middle.open();
            clients.push(late_client);
            for client in &mut clients {
                assert!(client.read_up_to(130_000) == pattern(70_000..200_000));
            }
        } else {
            // A chunked body is compared only as a whole.
            middle.open();
            for client in &mut clients {
                let answer = client.answer("GET");
                assert!(answer.complete && answer.body == pattern(0..200_000));
            }
        }
        assert_eq!(bed.origin.requests("/slow"), 1, "chunked: {chunked}");
    }
}

#[test]
fn followers_get_the_response_although_the_leader_disconnects() {
    let bed = TestBed::start();
    let gate = Gate::new();
    bed.origin.on(
        "/page",
        Answer::pattern(50_000)
            .header("cache-control", "max-age=60")
            .wait_before_head(&gate),
    );
    let mut leader = bed.connect();
    leader.send_head("GET", "/page", &[]);
    gate.wait_reached(1);
    let mut follower = bed.connect();
    follower.send_head("GET", "/page", &[]);
    bed.wait_until("the follower waits", |status| {
        status["requests"]["uri-miss"] == 2
    });
    leader.reset();
    bed.wait_until("the leader has disconnected", |status| {
        status["connections"]["clients"] == 1
    });
    gate.open();
    let answer = follower.answer("GET");
    assert!(answer.complete && answer.body == pattern(0..50_000));
    assert_eq!(bed.origin.requests("/page"), 1);
}

#[test]
fn an_admitted_response_is_stored_although_all_clients_have_left() {
    let bed = TestBed::start();
    let gate = Gate::new();
    bed.origin.on(
        "/page",
        Answer::pattern(50_000)
            .header("cache-control", "max-age=60")
            .wait_at(10_000, &gate),
    );
    let mut client = bed.connect();
    client.send_head("GET", "/page", &[]);
    gate.wait_reached(1);
    assert_eq!(client.head().status, 200);
    client.reset();
    bed.wait_until("the client has disconnected", |status| {
        status["connections"]["clients"] == 0
    });
    gate.open();
    bed.wait_until("the fill ends", |status| status["fills"]["under_way"] == 0);
    assert!(bed.get("/page").is_hit());
    assert_eq!(bed.origin.requests("/page"), 1);
}

#[test]
fn followers_of_a_private_response_fetch_their_own() {
    let bed = TestBed::start();
    let gate = Gate::new();
    bed.origin.on(
        "/mine",
        Answer::ok("mine")
            .header("cache-control", "private")
            .wait_before_head(&gate),
    );
    let mut clients = waiting_clients(&bed, "/mine", 10);
    gate.wait_reached(1);
    assert_eq!(bed.origin.requests("/mine"), 1);
    gate.open();
    for client in &mut clients {
        assert_eq!(client.answer("GET").text(), "mine");
    }
    assert_eq!(bed.origin.requests("/mine"), 10);
}

/// RFC 9111 §4: a follower gets a response only if the cache could reuse the response for it. Only the leader gets a
/// response that must be validated before reuse. Such a response may depend on the leader's cookie.
#[test]
fn followers_of_a_response_that_must_be_validated_fetch_their_own() {
    for field in [
        ("cache-control", "no-cache"),
        ("cache-control", "max-age=0"),
    ] {
        let bed = TestBed::start();
        let gate = Gate::new();
        bed.origin.on(
            "/personal",
            Answer::ok("for one client")
                .header(field.0, field.1)
                .header("etag", "\"1\"")
                .wait_before_head(&gate),
        );
        let mut clients = waiting_clients(&bed, "/personal", 10);
        gate.wait_reached(1);
        gate.open();
        for client in &mut clients {
            let answer = client.answer("GET");
            assert_eq!(answer.status, 200);
            assert!(!answer.cache_status().contains("collapsed"), "{field:?}");
        }
        assert_eq!(bed.origin.requests("/personal"), 10, "{field:?}");
    }
}

/// After a response that clients cannot share, later requests for its URI do not wait for each other.
///
/// Method: request the URI once, so that the edge remembers its response. Then ten requests must reach the
/// origin at the same time.
#[test]
fn requests_for_a_response_that_is_not_shared_do_not_wait_for_each_other() {
    for (name, value) in [
        ("cache-control", "private"),
        ("cache-control", "no-store"),
        ("set-cookie", "a=b"),
        ("vary", "*"),
        // These two are stored, but answer only the request that fetched them.
        ("cache-control", "no-cache"),
        ("cache-control", "max-age=0"),
    ] {
        let bed = TestBed::start();
        let gate = Gate::new();
        let answer = Answer::ok("x").header("etag", "\"1\"").header(name, value);
        bed.origin.once("/mine", answer.clone());
        assert_eq!(bed.get("/mine").text(), "x");
        bed.origin.on("/mine", answer.wait_before_head(&gate));
        let mut clients: Vec<_> = (0..10)
            .map(|_| {
                let mut client = bed.connect();
                client.send_head("GET", "/mine", &[]);
                client
            })
            .collect();
        gate.wait_reached(10);
        gate.open();
        for client in &mut clients {
            assert_eq!(client.answer("GET").text(), "x", "{name}: {value}");
        }
    }
}

/// Method: a fetch may have two followers. Five clients send requests. The fourth request leads a fetch of its own,
/// which the fifth request follows.
#[test]
fn a_fetch_has_a_bounded_number_of_followers() {
    let bed = TestBed::with_config(|config| {
        config.caching.collapse_followers_max = NonZeroUsize::new(2).expect("2 is not zero");
    });
    let gate = Gate::new();
    bed.origin.on(
        "/page",
        Answer::pattern(50_000)
            .header("cache-control", "max-age=60")
            .wait_before_head(&gate),
    );
    let mut clients = waiting_clients(&bed, "/page", 5);
    gate.wait_reached(2);
    assert_eq!(bed.metric("edgeward_collapse_full_total"), 1.0);
    gate.open();
    for client in &mut clients {
        let answer = client.answer("GET");
        assert!(answer.complete && answer.body == pattern(0..50_000));
    }
    assert_eq!(bed.origin.requests("/page"), 2);
    assert!(bed.get("/page").is_hit());
}

#[test]
fn after_a_failed_fetch_one_of_the_followers_leads_the_next_fetch() {
    let bed = TestBed::start();
    let gate = Gate::new();
    bed.origin.once(
        "/page",
        Answer::script(vec![
            edgeward_testkit::Step::Wait(gate.clone()),
            edgeward_testkit::Step::Reset,
        ]),
    );
    bed.origin.on(
        "/page",
        Answer::ok("second").header("cache-control", "max-age=60"),
    );
    let mut clients = waiting_clients(&bed, "/page", 10);
    gate.open();
    let answers: Vec<_> = clients
        .iter_mut()
        .map(|client| client.answer("GET"))
        .collect();
    let failed = answers.iter().filter(|answer| answer.status == 502).count();
    assert_eq!(
        failed, 1,
        "only the leader's client gets the error: {answers:?}"
    );
    assert!(
        answers
            .iter()
            .all(|answer| answer.status == 502 || answer.text() == "second")
    );
    assert_eq!(bed.origin.requests("/page"), 2);
}

#[test]
fn waiting_requests_send_few_fetches_to_an_origin_that_is_down() {
    let bed = TestBed::start();
    let gate = Gate::new();
    bed.origin.on(
        "/page",
        Answer::script(vec![
            edgeward_testkit::Step::Wait(gate.clone()),
            edgeward_testkit::Step::Reset,
        ]),
    );
    let mut clients = waiting_clients(&bed, "/page", 20);
    gate.open();
    for client in &mut clients {
        assert_eq!(client.answer("GET").status, 502);
    }
    // A request waits for at most three fetches: the first one, and two more that followers lead.
    assert_eq!(bed.origin.requests("/page"), 3);
}

#[test]
fn a_follower_waits_for_a_bounded_time() {
    let bed = TestBed::with_config(|config| {
        config.caching.collapse_wait_max = std::time::Duration::from_millis(50);
    });
    let gate = Gate::new();
    bed.origin.once(
        "/page",
        Answer::ok("slow")
            .header("cache-control", "max-age=60")
            .wait_before_head(&gate),
    );
    bed.origin.on(
        "/page",
        Answer::ok("quick").header("cache-control", "max-age=60"),
    );
    let mut leader = bed.connect();
    leader.send_head("GET", "/page", &[]);
    gate.wait_reached(1);
    assert_eq!(bed.get("/page").text(), "quick");
    assert_eq!(bed.metric("edgeward_collapse_timeouts_total"), 1.0);
    gate.open();
    assert_eq!(leader.answer("GET").text(), "slow");
}

/// A body of unknown length that exceeds the limits reaches all clients that share its fetch.
///
/// Method: limit stored and collapsed bodies to 64 KiB, and send a chunked body of 4 MiB to two clients.
#[test]
fn a_body_that_exceeds_the_limits_reaches_all_clients() {
    let bed = TestBed::with_config(|config| {
        config.limits.object_bytes_max = edgeward_types::ByteSize::kib(64);
        config.caching.collapse_bytes_max = edgeward_types::ByteSize::kib(64);
    });
    let gate = Gate::new();
    const LENGTH: u64 = 4 << 20;
    bed.origin.on(
        "/endless",
        Answer::pattern(LENGTH)
            .header("cache-control", "max-age=60")
            .chunked(50_000)
            .wait_before_head(&gate),
    );
    let mut clients = waiting_clients(&bed, "/endless", 2);
    gate.open();
    let mut second_client = clients.pop().expect("two clients");
    let reader = std::thread::spawn(move || second_client.answer("GET"));
    let first = clients[0].answer("GET");
    let second = reader.join().expect("the thread does not panic");
    for answer in [&first, &second] {
        assert!(answer.complete && answer.body == pattern(0..LENGTH));
    }
    assert_eq!(bed.origin.requests("/endless"), 1);
    assert!(!bed.get("/endless").is_hit(), "too large to be stored");
}

/// A body that admission refuses is shared up to `collapse_bytes_max` if followers wait, but only up to 8 MiB if one
/// client requests it alone, because one client does not need the buffer.
#[test]
fn a_large_body_that_admission_refuses_is_shared_if_followers_wait() {
    let bed = TestBed::with_config(|config| {
        config.hot.policy = "threshold:1KiB".parse().expect("the policy is valid");
    });
    const LENGTH: u64 = 9 << 20;
    let film = Answer::pattern(LENGTH).header("cache-control", "max-age=60");
    bed.origin.once("/film", film.clone());
    let alone = bed.get("/film");
    assert!(alone.complete && alone.body == pattern(0..LENGTH));
    assert_eq!(bed.metric("edgeward_fills_total{end=\"released\"}"), 1.0);

    let gate = Gate::new();
    bed.origin.on("/film", film.wait_before_head(&gate));
    let clients: Vec<_> = (0..5)
        .map(|_| {
            let mut client = bed.connect();
            client.send_head("GET", "/film", &[]);
            client
        })
        .collect();
    bed.wait_until("all requests wait", |status| {
        status["requests"]["uri-miss"] == 6
    });
    gate.open();
    let readers: Vec<_> = clients
        .into_iter()
        .map(|mut client| std::thread::spawn(move || client.answer("GET")))
        .collect();
    for reader in readers {
        let answer = reader.join().expect("the thread does not panic");
        assert!(answer.complete && answer.body == pattern(0..LENGTH));
    }
    assert_eq!(bed.origin.requests("/film"), 2);
    bed.wait_until("the memory of the fill is free", |status| {
        status["fills"]["bytes"] == 0
    });
}

#[test]
fn a_body_that_admission_refuses_is_shared_but_not_stored() {
    let bed = TestBed::with_config(|config| {
        // The policy admits objects of at most 1 KiB.
        config.hot.policy = "threshold:1KiB".parse().expect("the policy is valid");
    });
    let gate = Gate::new();
    bed.origin.on(
        "/big",
        Answer::pattern(100_000)
            .header("cache-control", "max-age=60")
            .wait_before_head(&gate),
    );
    let mut clients = waiting_clients(&bed, "/big", 5);
    gate.open();
    for client in &mut clients {
        let answer = client.answer("GET");
        assert!(answer.body == pattern(0..100_000));
        assert!(
            !answer.cache_status().contains("stored"),
            "{}",
            answer.cache_status()
        );
    }
    assert_eq!(bed.origin.requests("/big"), 1);
    assert!(!bed.get("/big").is_hit());
    bed.wait_until("the memory of the fill is free", |status| {
        status["fills"]["bytes"] == 0
    });
}
