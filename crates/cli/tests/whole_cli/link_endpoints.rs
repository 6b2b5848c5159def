//! Tests `gateway`, `link keygen`, `link forward`, `link socks` and `link status`, as an operator runs them.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use edgeward_testkit::client::Client;
use rustix::process::Signal;
use serde_json::Value;

use super::run::{Server, output, text, until};

/// An echo server. Its threads end with the test process.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the server listens");
    let addr = listener.local_addr().expect("the listener has an address");
    thread::spawn(move || {
        for tcp in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut read = &tcp;
                let mut write = &tcp;
                _ = std::io::copy(&mut read, &mut write);
                _ = tcp.shutdown(Shutdown::Write);
            });
        }
    });
    addr
}

/// A server that sends `body` to each client that has shut down its sending side.
fn serve_body(body: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the server listens");
    let addr = listener.local_addr().expect("the listener has an address");
    thread::spawn(move || {
        for mut tcp in listener.incoming().flatten() {
            _ = tcp.read_to_end(&mut Vec::new());
            _ = tcp.write_all(&body);
        }
    });
    addr
}

/// Sends a body to an echo server. Returns the received bytes, or an error if the connection broke.
fn round_trip(addr: SocketAddr, body: &[u8]) -> std::io::Result<Vec<u8>> {
    let tcp = TcpStream::connect(addr)?;
    tcp.set_read_timeout(Some(Duration::from_secs(60)))?;
    thread::scope(|scope| {
        scope.spawn(|| {
            // If the link breaks, the write fails. The read below returns the error.
            _ = (&tcp).write_all(body);
            _ = tcp.shutdown(Shutdown::Write);
        });
        let mut back = Vec::new();
        (&tcp).read_to_end(&mut back)?;
        Ok(back)
    })
}

/// Returns random bytes, which compression does not shorten.
pub(crate) fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

/// The settings with which a test starts a gateway and a forwarder.
pub(crate) struct Endpoints {
    /// The folder of the keys and of the chunk stores.
    pub(crate) folder: tempfile::TempDir,
    /// The only target that the gateway permits.
    target: SocketAddr,
    /// Further options of both endpoints.
    options: Vec<&'static str>,
}

impl Endpoints {
    pub(crate) fn new(options: &[&'static str]) -> Self {
        let folder = tempfile::tempdir().expect("the temporary folder is created");
        let keys = folder.path().join("keys");
        let keygen = output(&["link", "keygen", "--out", &text_of_path(&keys)]);
        assert!(keygen.status.success(), "{}", text(&keygen.stderr));
        assert!(text(&keygen.stdout).contains("gateway to the gateway"));
        Self {
            folder,
            target: echo(),
            options: options.to_vec(),
        }
    }

    pub(crate) fn start(&self, endpoint: &str, args: &[&str]) -> Server {
        let keys = text_of_path(&self.folder.path().join("keys").join(endpoint));
        let store = text_of_path(&self.folder.path().join("stores").join(endpoint));
        let common = [
            "--keys",
            &keys,
            "--store",
            &store,
            "--store-size",
            "64MiB",
            "--admin",
            "127.0.0.1:0",
            "--json",
            "-q",
            "--log",
            "warn",
        ];
        let all: Vec<&str> = args
            .iter()
            .copied()
            .chain(common)
            .chain(self.options.iter().copied())
            .collect();
        Server::start(&all)
    }

    fn gateway(&self, listen: &str) -> Server {
        let allow = self.target.to_string();
        self.start(
            "gateway",
            &["gateway", "--listen", listen, "--allow", &allow],
        )
    }

    fn forward(&self, gateway: SocketAddr) -> Server {
        self.forward_as("edge", gateway)
    }

    /// Starts a forwarder with the folder of keys of an edge.
    fn forward_as(&self, edge: &str, gateway: SocketAddr) -> Server {
        let (to, gateway) = (self.target.to_string(), gateway.to_string());
        let args = [
            "link",
            "forward",
            "--listen",
            "127.0.0.1:0",
            "--to",
            &to,
            "--gateway",
            &gateway,
        ];
        self.start(edge, &args)
    }
}

pub(crate) fn text_of_path(path: &Path) -> String {
    path.display().to_string()
}

pub(crate) fn listening(server: &Server) -> SocketAddr {
    server.addr("/listening")
}

fn status(server: &Server) -> Value {
    let admin = server.addr("/admin").to_string();
    let out = output(&["link", "status", &admin, "--json"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("the text is JSON")
}

/// The second transfer of a body is sent by reference. Both endpoints stop cleanly and keep their chunks.
#[test]
fn a_forwarded_port_sends_repeated_bodies_by_reference() {
    let endpoints = Endpoints::new(&[]);
    let gateway = endpoints.gateway("127.0.0.1:0");
    let forward = endpoints.forward(listening(&gateway));
    let body = noise(500_000, 1);
    for _ in 0..2 {
        let back = round_trip(forward.addr("/listening/0"), &body).expect("the body is returned");
        assert!(back == body);
    }
    let report = status(&gateway);
    let peer = &report["peers"][0];
    assert_eq!(report["encrypted"], true);
    assert_eq!(peer["received"]["bytes"], 1_000_000);
    let wire = peer["received"]["wire_bytes"]
        .as_u64()
        .expect("the bytes are a number");
    assert!(
        (500_000..600_000).contains(&wire),
        "{wire} bytes on the wire"
    );
    assert_eq!(peer["hosts"][0]["host"], endpoints.target.to_string());
    let admin = gateway.addr("/admin").to_string();
    let table = text(&output(&["link", "status", &admin]).stdout);
    assert!(
        table.contains("saved") && table.contains(&endpoints.target.to_string()),
        "{table}"
    );
    // The first copy is noise, and the frames need some bytes, so slightly less than half is saved.
    let why = format!("why {} (received) saves only 4", endpoints.target);
    for expected in [
        "certificate `gateway` expires in 109",
        "edge  expires in 109",
        &why,
        "looks encrypted or compressed",
    ] {
        assert!(table.contains(expected), "{expected}: {table}");
    }
    for server in [forward, gateway] {
        // The first three signals do not stop a server.
        for signal in [Signal::HUP, Signal::USR1, Signal::USR2, Signal::TERM] {
            server.signal(signal);
        }
        let (status, _, err) = server.wait_for_end();
        assert!(status.success(), "{err}");
    }
    let restarted = endpoints.gateway("127.0.0.1:0");
    let chunks = store_chunks(&restarted);
    assert!(chunks > 30, "{chunks} chunks after a restart");
}

/// With `--delta off`, a gateway stores only the hashes of sent chunks (`listed_bytes`). With `--keep-sent on`, it
/// stores the chunks themselves (`raw_bytes`). The second transfer of a chunk is sent by reference
/// (`referenced_bytes`).
#[test]
fn a_gateway_stores_only_hashes_of_sent_chunks_unless_it_must_keep_them() {
    let body = noise(3_000_000, 9);
    for (keep_sent, hashed_bytes, stored_bytes) in [("off", 2_900_000, 0), ("on", 0, 2_900_000)] {
        let mut endpoints = Endpoints::new(&["--delta", "off"]);
        endpoints.target = serve_body(body.clone());
        let allow = endpoints.target.to_string();
        let args = [
            "gateway",
            "--listen",
            "127.0.0.1:0",
            "--allow",
            &allow,
            "--keep-sent",
            keep_sent,
        ];
        let gateway = endpoints.start("gateway", &args);
        let forward = endpoints.forward(listening(&gateway));
        for _ in 0..2 {
            let received = round_trip(forward.addr("/listening/0"), b"").expect("the body arrives");
            assert!(received == body);
        }
        let store_field = |server: &Server, field: &str| {
            let status = status(server);
            status["store"][field]
                .as_u64()
                .expect("the value is a number")
        };
        let stored = ["listed_bytes", "raw_bytes"].map(|field| store_field(&gateway, field));
        let expected = [hashed_bytes, stored_bytes].map(|least: u64| least..=least + least / 20);
        let pairs = stored.iter().zip(expected);
        assert!(
            pairs
                .into_iter()
                .all(|(stored, expected)| expected.contains(stored)),
            "{keep_sent}: {stored:?}"
        );
        assert_eq!(
            store_field(&forward, "listed_bytes"),
            0,
            "edges store all chunks"
        );
        let peer = &status(&gateway)["peers"][0]["sent"];
        assert!(
            peer["referenced_bytes"].as_u64() > Some(2_900_000),
            "{peer}"
        );
    }
}

/// Compressed chunks take less space. An endpoint that is started without `--store-compression` can read them.
#[test]
fn a_compressed_store_holds_more_and_opens_without_the_option() {
    let body: Vec<u8> = (0..60_000)
        .flat_map(|n: u32| format!("line {n} of many, which are {} alike\n", n % 7).into_bytes())
        .collect();
    for method in ["zstd", "lz4"] {
        let mut endpoints = Endpoints::new(&["--store-compression", method]);
        let gateway = endpoints.gateway("127.0.0.1:0");
        let forward = endpoints.forward(listening(&gateway));
        let back = round_trip(forward.addr("/listening/0"), &body).expect("the body is returned");
        assert!(back == body);
        for server in [forward, gateway] {
            server.signal(Signal::TERM);
            let (status, _, err) = server.wait_for_end();
            assert!(status.success(), "{err}");
        }
        endpoints.options.clear();
        let gateway = endpoints.gateway("127.0.0.1:0");
        store_chunks(&gateway);
        let store = &status(&gateway)["store"];
        let bytes = |field: &str| store[field].as_u64().expect("the value is a number");
        assert!(bytes("raw_bytes") > 2_000_000, "{store}");
        assert!(bytes("raw_bytes") > 3 * bytes("bytes"), "{store}");
        let forward = endpoints.forward(listening(&gateway));
        let back = round_trip(forward.addr("/listening/0"), &body).expect("the body is returned");
        assert!(back == body);
        let peer = &status(&gateway)["peers"][0];
        assert_eq!(peer["received"]["missing"], 0, "{peer}");
        assert_eq!(status(&gateway)["store"]["corrupt_chunks"], 0);
    }
}

/// Waits until the index of a store is complete, and returns the number of its chunks.
fn store_chunks(server: &Server) -> u64 {
    until("the index is complete", || {
        let store = &status(server)["store"];
        let chunks = store["chunks"].as_u64().expect("the value is a number");
        (store["recovering"] == false).then_some(chunks)
    })
}

/// One endpoint is killed during transfers: bodies are returned unchanged or not at all, and later transfers succeed.
#[test]
fn a_killed_endpoint_causes_no_wrong_byte() {
    // A short timeout, so that no stream waits long for a gateway that is down.
    let endpoints = Endpoints::new(&["--patience", "200ms"]);
    let mut gateway = endpoints.gateway("127.0.0.1:0");
    let addr = listening(&gateway);
    let mut forward = endpoints.forward(addr);
    let bodies: Vec<Vec<u8>> = (0..4).map(|n| noise(2_000_000, n % 2)).collect();
    // The transfer is repeated, because a stream fails after the timeout while the link is still connecting.
    until("the link is up", || {
        round_trip(forward.addr("/listening/0"), b"hello")
            .ok()
            .filter(|back| back == b"hello")
    });
    for round in 0..4 {
        let port = forward.addr("/listening/0");
        thread::scope(|scope| {
            let transfers: Vec<_> = bodies
                .iter()
                .map(|body| scope.spawn(move || (body, round_trip(port, body))))
                .collect();
            // Kills an endpoint while the transfers run; the exact moment does not matter.
            until("the gateway has received bytes", || {
                let bytes = &status(&gateway)["peers"][0]["received"]["bytes"];
                bytes.as_u64().filter(|bytes| *bytes > 0)
            });
            if round % 2 == 0 {
                gateway.signal(Signal::KILL);
            } else {
                forward.signal(Signal::KILL);
            }
            for body in transfers {
                let (body, back) = body.join().expect("the transfer thread ends");
                if let Ok(back) = back {
                    // A killed forwarder closes the connection without a reset, so `back` may be only a prefix.
                    assert!(body.starts_with(&back), "round {round}");
                    assert!(
                        round % 2 == 1 || back == *body,
                        "round {round}: a truncated body ended like a whole one"
                    );
                }
            }
        });
        if round % 2 == 0 {
            drop(gateway);
            gateway = endpoints.gateway(&addr.to_string());
        } else {
            drop(forward);
            forward = endpoints.forward(addr);
        }
        let port = forward.addr("/listening/0");
        for body in &bodies {
            until("the link is up again", || {
                round_trip(port, body).ok().filter(|back| back == body)
            });
        }
    }
}

/// A SOCKS5 client reaches permitted targets only. The status shows that encryption is off.
#[test]
fn a_proxy_port_reaches_only_permitted_targets() {
    let endpoints = Endpoints::new(&["--encryption", "off"]);
    let gateway = endpoints.gateway("127.0.0.1:0");
    let to = listening(&gateway).to_string();
    let socks = endpoints.start(
        "edge",
        &["link", "socks", "--listen", "127.0.0.1:0", "--gateway", &to],
    );
    let port = socks.addr("/listening/0");
    let connect = |target: SocketAddr| {
        let mut tcp = TcpStream::connect(port).expect("the server accepts the connection");
        tcp.set_read_timeout(Some(Duration::from_secs(60)))
            .expect("the read timeout is set");
        tcp.write_all(&[5, 1, 0]).expect("the request is sent");
        let request = [
            &[5, 1, 0, 1, 127, 0, 0, 1][..],
            &target.port().to_be_bytes(),
        ]
        .concat();
        tcp.write_all(&request).expect("the request is sent");
        // The reply to the greeting has 2 bytes, the reply to the request 10. Byte 1 of the latter is its code.
        let mut reply = [0; 12];
        tcp.read_exact(&mut reply)
            .expect("the proxy sends two responses");
        (tcp, reply[3])
    };
    let mut tcp = until("the link is up", || {
        let (tcp, code) = connect(endpoints.target);
        (code == 0).then_some(tcp)
    });
    tcp.write_all(b"hello").expect("the request is sent");
    let mut back = [0; 5];
    tcp.read_exact(&mut back).expect("the echo arrives");
    assert_eq!(&back, b"hello");
    assert_eq!(connect(listening(&gateway)).1, 2, "not allowed");
    let report = status(&gateway);
    assert_eq!(
        (&report["encrypted"], &report["gateway"]["not_allowed"]),
        (&Value::Bool(false), &Value::from(1))
    );
    let admin = gateway.addr("/admin").to_string();
    let table = text(&output(&["link", "status", &admin]).stdout);
    assert!(table.starts_with("NOT ENCRYPTED"), "{table}");
}

/// An origin that serves one body under every path, and counts the requests without `Accept-Encoding: identity`.
pub(crate) fn origin(body: Vec<u8>) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the server listens");
    let addr = listener.local_addr().expect("the listener has an address");
    let compressible = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&compressible);
    let body = Arc::new(body);
    thread::spawn(move || {
        for tcp in listener.incoming().flatten() {
            let (body, counted) = (Arc::clone(&body), Arc::clone(&counted));
            thread::spawn(move || {
                let mut lines = BufReader::new(&tcp);
                loop {
                    let mut head = String::new();
                    while !head.ends_with("\r\n\r\n") {
                        if lines.read_line(&mut head).is_ok_and(|bytes| bytes > 0) {
                            continue;
                        }
                        return;
                    }
                    if !head
                        .to_lowercase()
                        .contains("accept-encoding: identity\r\n")
                    {
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nCache-Control: max-age=60\r\n\r\n",
                        body.len()
                    );
                    let mut write = &tcp;
                    if write
                        .write_all(head.as_bytes())
                        .and_then(|()| write.write_all(&body))
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
    });
    (addr, compressible)
}

/// Misses are fetched over the link, uncompressed, and a second body with the same bytes is sent by reference. Hits do
/// not use the link. While the gateway is down, misses fail; after its restart, they succeed again.
#[test]
fn misses_of_an_edge_are_fetched_over_the_link() {
    let endpoints = Endpoints::new(&[]);
    let body = noise(300_000, 7);
    let (origin, requests_without_identity) = origin(body.clone());
    let url = format!("http://{origin}");
    let args = ["gateway", "--listen", "127.0.0.1:0", "--origin", &url];
    let gateway = endpoints.start("gateway", &args);
    let gateway_addr = listening(&gateway);
    let file = endpoints.folder.path().join("edge.toml");
    let config = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\n[origin]\nurl = \"http://site.example\"\n\
         [origin.link]\ngateway = \"{gateway_addr}\"\nkeys = \"keys/edge\"\nstore = \"stores/edge\"\n\
         store_size = \"64MiB\"\npatience = \"200ms\"\nadmin = \"127.0.0.1:0\"\n"
    );
    fs::write(&file, config).expect("the file is written");
    let edge = Server::start(&[
        "serve",
        "--config",
        &text_of_path(&file),
        "--json",
        "-q",
        "--log",
        "error",
    ]);
    let get = |path: &str| {
        let answer = Client::connect(edge.addr("/listening/0")).get(
            path,
            &[("Host", "site.example"), ("Accept-Encoding", "gzip")],
        );
        (answer.status.to_string(), answer.body)
    };
    let admin = edge.addr("/link/admin").to_string();
    let received = || {
        let out = output(&["link", "status", &admin, "--json"]);
        let report: Value = serde_json::from_slice(&out.stdout).expect("the text is JSON");
        let side = &report["peers"][0]["received"];
        ["bytes", "wire_bytes"].map(|field| side[field].as_u64().expect("the bytes are a number"))
    };
    until("the link is up", || (get("/0").0 == "200").then_some(()));
    let before = received();
    assert!(get("/1") == ("200".to_owned(), body.clone()));
    let after = received();
    assert!(after[0] - before[0] > 300_000, "{before:?} {after:?}");
    assert!(after[1] - before[1] < 30_000, "{before:?} {after:?}");
    assert!(get("/1") == ("200".to_owned(), body.clone()));
    assert_eq!(received()[0], after[0], "a hit");
    assert_eq!(requests_without_identity.load(Ordering::Relaxed), 0);

    gateway.signal(Signal::KILL);
    drop(gateway);
    until("the link is down", || {
        let (status, body) = get("/2");
        let is_named = String::from_utf8_lossy(&body).contains("the link to the gateway");
        (status == "502" && is_named).then_some(())
    });
    assert_eq!(get("/1").0, "200", "hits need no link");
    let listen = gateway_addr.to_string();
    let _restarted = endpoints.start(
        "gateway",
        &["gateway", "--listen", &listen, "--origin", &url],
    );
    until("the link is up again", || {
        (get("/3") == ("200".to_owned(), body.clone())).then_some(())
    });
}

/// An edge with two origins sends the requests for each through the link of that origin.
#[test]
fn two_origins_are_reached_by_two_links() {
    let endpoints = Endpoints::new(&[]);
    let bodies = [noise(50_000, 1), noise(50_000, 2)];
    let mut config = "[[listener]]\naddress = \"127.0.0.1:0\"\n".to_owned();
    let mut gateways = Vec::new();
    for (nth, body) in bodies.iter().enumerate() {
        let url = format!("http://{}", origin(body.clone()).0);
        let store = text_of_path(&endpoints.folder.path().join(format!("store-{nth}")));
        let keys = text_of_path(&endpoints.folder.path().join("keys/gateway"));
        let gateway = Server::start(&[
            "gateway",
            "--listen",
            "127.0.0.1:0",
            "--origin",
            &url,
            "--keys",
            &keys,
            "--store",
            &store,
            "--store-size",
            "64MiB",
            "--json",
            "-q",
            "--log",
            "warn",
        ]);
        config.push_str(&format!(
            "[[origin]]\nname = \"o{nth}\"\nurl = \"http://{nth}.example\"\n\
             [origin.link]\ngateway = \"{}\"\nkeys = \"keys/edge\"\nstore = \"edge-{nth}\"\n\
             store_size = \"64MiB\"\nadmin = \"127.0.0.1:0\"\n\
             [[site]]\nhosts = [\"{nth}.example\"]\norigin = \"o{nth}\"\n",
            listening(&gateway)
        ));
        gateways.push(gateway);
    }
    let file = endpoints.folder.path().join("edge.toml");
    fs::write(&file, config).expect("the file is written");
    let file = text_of_path(&file);
    let edge = Server::start(&["serve", "--config", &file, "--json", "-q", "--log", "error"]);
    for (nth, body) in bodies.iter().enumerate() {
        let host = format!("{nth}.example");
        until("the link is up", || {
            let client = Client::connect(edge.addr("/listening/0"));
            let answer = { client }.get("/", &[("Host", &host)]);
            (answer.status.to_string() == "200").then(|| assert!(answer.body == *body, "{host}"))
        });
        let admin = edge.addr(&format!("/links/o{nth}/admin")).to_string();
        let out = output(&["link", "status", &admin, "--json"]);
        let report: Value = serde_json::from_slice(&out.stdout).expect("the text is JSON");
        let received = report["peers"][0]["received"]["bytes"].as_u64();
        assert!(received > Some(50_000), "{report}");
    }
}

/// An edge is added, listed and revoked by its name while the gateway and both edges run. The revoked edge states the
/// reason; the other edge is not affected.
#[test]
fn one_of_two_edges_is_revoked() {
    let endpoints = Endpoints::new(&[]);
    let keys = text_of_path(&endpoints.folder.path().join("keys"));
    let run = |args: &[&str]| {
        let out = output(args);
        assert!(out.status.success(), "{args:?}: {}", text(&out.stderr));
        text(&out.stdout)
    };
    run(&[
        "link", "keygen", "--out", &keys, "--add", "paris", "--days", "20",
    ]);
    let gateway = endpoints.gateway("127.0.0.1:0");
    let edges = ["edge", "paris"].map(|edge| endpoints.forward_as(edge, listening(&gateway)));
    for edge in &edges {
        until("the link is up", || {
            round_trip(edge.addr("/listening/0"), b"hello")
                .ok()
                .filter(|back| back == b"hello")
        });
    }
    let states = || {
        let list = run(&["link", "keys", "list", "--keys", &keys, "--json"]);
        let list: Value = serde_json::from_str(&list).expect("the text is JSON");
        let rows = list.as_array().expect("the list is an array").iter();
        rows.map(|row| format!("{} {}", row["name"], row["state"]).replace('"', ""))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        states(),
        ["edge valid", "gateway valid", "paris expires soon"]
    );
    let connected = |gateway: &Server| {
        let edges = status(gateway)["edges"].clone();
        let edges = edges.as_array().expect("the edges are an array").iter();
        edges
            .map(|edge| format!("{} {}", edge["name"], edge["stores"]))
            .collect::<Vec<_>>()
    };
    assert_eq!(connected(&gateway), ["\"edge\" 1", "\"paris\" 1"]);
    let peers = status(&gateway)["peers"].clone();
    let peers = peers.as_array().expect("the peers are an array").iter();
    let mut names: Vec<_> = peers.map(|peer| peer["edge"].to_string()).collect();
    names.sort_unstable();
    assert_eq!(names, ["\"edge\"", "\"paris\""]);

    let printed = run(&["link", "keys", "revoke", "paris", "--keys", &keys]);
    assert!(
        printed.contains("Revoked paris") && printed.contains("deny.txt"),
        "{printed}"
    );
    assert_eq!(states()[2], "paris revoked");
    let taken = output(&["link", "keygen", "--out", &keys, "--add", "paris"]);
    let taken = text(&taken.stderr);
    let error = until("the edge is refused", || {
        let error = status(&edges[1])["peers"][0]["last_error"].clone();
        error.as_str().map(str::to_owned)
    });
    assert!(error.contains("it is on the deny list"), "{error}");
    for message in [&error, &taken] {
        assert!(
            message.contains("`edgeward link keys renew paris`"),
            "{message}"
        );
    }
    let admin = edges[1].addr("/admin").to_string();
    let shown = run(&["link", "status", &admin]);
    assert!(
        shown.contains("cannot connect to") && shown.contains(&error),
        "{shown}"
    );
    until("the connections of the edge are closed", || {
        (connected(&gateway) == ["\"edge\" 1"]).then_some(())
    });
    let back = round_trip(edges[0].addr("/listening/0"), b"hello");
    assert_eq!(back.expect("the other edge is connected"), b"hello");

    let table = run(&["link", "keys", "list", "--keys", &keys]);
    assert!(table.contains("paris    revoked"), "{table}");
    let renewed = run(&["link", "keys", "renew", "edge", "--keys", &keys]);
    assert!(renewed.contains("keys/edge to the endpoint"), "{renewed}");
    assert!(!renewed.contains("revoked"), "{renewed}");

    // The edge reads its new certificate within a second and connects again.
    let renewed = run(&["link", "keys", "renew", "paris", "--keys", &keys]);
    assert!(
        renewed.contains("paris has revoked certificates (1)"),
        "{renewed}"
    );
    until("the renewed edge is connected", || {
        (connected(&gateway) == ["\"edge\" 1", "\"paris\" 1"]).then_some(())
    });
}

/// `keygen --add` in a new folder creates the CA, the gateway and the edges with these names, and no other edge.
#[test]
fn keys_are_created_for_named_edges_at_once() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let keys = text_of_path(folder.path());
    let args = [
        "link", "keygen", "--out", &keys, "--add", "berlin", "--add", "oslo",
    ];
    let out = output(&args);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let printed = text(&out.stdout);
    for folder in [
        "gateway to the gateway",
        "berlin to the edge",
        "oslo to the edge",
    ] {
        assert!(
            printed.contains(&format!("Copy {keys}/{folder}")),
            "{printed}"
        );
    }
    let list = output(&["link", "keys", "list", "--keys", &keys, "--json"]);
    let list: Value = serde_json::from_slice(&list.stdout).expect("the text is JSON");
    let rows = list.as_array().expect("the list is an array").iter();
    let names: Vec<_> = rows.map(|row| row["name"].clone()).collect();
    assert_eq!(names, ["berlin", "gateway", "oslo"]);
}

#[test]
fn operator_mistakes_get_an_error_with_a_hint() {
    let endpoints = Endpoints::new(&[]);
    let folder = endpoints.folder.path();
    let (keys, store) = (
        text_of_path(&folder.join("keys/gateway")),
        text_of_path(&folder.join("s")),
    );
    let none = text_of_path(&folder.join("none"));
    let out = text_of_path(&folder.join("keys"));
    let other = text_of_path(folder);
    let common = ["--keys", &keys, "--store", &store, "--store-size", "64MiB"];
    let users = text_of_path(&folder.join("users"));
    fs::write(&users, "ann\n").expect("the file is written");
    let cases: [(Vec<&str>, &str); 12] = [
        ([&["gateway"][..], &common].concat(), "give --origin"),
        (
            vec![
                "gateway", "--origin", "http://a", "--keys", &none, "--store", &store,
            ],
            "keygen --out",
        ),
        (
            [&["gateway", "--origin", "ftp://a"][..], &common].concat(),
            "https://HOST:PORT",
        ),
        (
            [
                &["gateway", "--origin", "http://a", "--chunk", "5KiB"][..],
                &common,
            ]
            .concat(),
            "--chunk 4KiB",
        ),
        (vec!["link", "keygen", "--out", &out], "keys exist already"),
        (
            vec!["link", "keygen", "--out", &out, "--add", "edge"],
            "link keys renew edge",
        ),
        (
            vec!["link", "keygen", "--out", &other, "--add", "paris"],
            "with its folder `ca`",
        ),
        (
            vec!["link", "keys", "revoke", "rome", "--keys", &out],
            "list` shows the names",
        ),
        (
            vec![
                "link", "keys", "new-ca", "--finish", "--keys", &out, "--days",
            ],
            "unexpected argument",
        ),
        (
            [
                &["gateway", "--origin", "http://a", "--origin-ca", &out][..],
                &common,
            ]
            .concat(),
            "remove --origin-ca",
        ),
        (
            [
                &["link", "socks", "--gateway", "a:1", "--users", &users][..],
                &common,
            ]
            .concat(),
            "NAME:PASSWORD on each line",
        ),
        (vec!["link", "status", "127.0.0.1:1"], "--admin address"),
    ];
    for (args, expected) in cases {
        let out = output(&args);
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {err}");
        assert!(err.contains(expected), "{args:?}: {err}");
    }
    assert!(!PathBuf::from(&none).exists());
}
