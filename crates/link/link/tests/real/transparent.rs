//! Tests of transparent interception. Each runs in a network namespace of its own, with rules of nftables that divert
//! the connections of marked sockets.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use edgeward_link::{Gateway, ListenerTarget, LocalListener};
use edgeward_testkit::TcpServer;

use crate::bodies::Random;
use crate::test_bed::{TestBed, within};

/// The mark of the sockets whose connections the rules divert. The gateway's sockets have no mark.
const MARK: u32 = 7;

/// The rule `redirect` changes the destination of the packets, and the kernel returns the original one.
#[test]
fn redirected_connections_reach_their_original_destination() {
    if !in_namespace("transparent::redirected_connections_reach_their_original_destination") {
        return;
    }
    check_interception(|target, listener| {
        format!(
            "table inet t {{ chain c {{ type nat hook output priority -100;\n\
             meta mark {MARK} tcp dport {} redirect to :{}\n}}\n}}\n",
            target.port(),
            listener.port()
        )
    });
}

/// The rule `tproxy` leaves the packets unchanged, and the accepted connection has their destination as its address.
#[test]
fn connections_of_tproxy_reach_their_destination() {
    if !in_namespace("transparent::connections_of_tproxy_reach_their_destination") {
        return;
    }
    check_interception(|target, listener| {
        let (family, to) = match target {
            SocketAddr::V4(_) => ("ip", "127.0.0.1"),
            SocketAddr::V6(_) => ("ip6", "[::1]"),
        };
        format!(
            "table {family} t {{ chain c {{ type filter hook prerouting priority mangle;\n\
             meta mark {MARK} tcp dport {} tproxy to {to}:{}\n}}\n}}\n",
            target.port(),
            listener.port()
        )
    });
}

/// Sends a body from a marked socket to a server, through a listener to which `rules` divert the connection. The rules
/// depend on the addresses of the server and of the listener. Then connects to the listener without a rule.
fn check_interception(rules: impl Fn(SocketAddr, SocketAddr) -> String) {
    run("ip", &["link", "set", "lo", "up"]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the runtime starts");
    for (server, listen) in [
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("[::1]:0", "[::1]:0"),
        ("127.0.0.1:0", "[::]:0"),
    ] {
        runtime.block_on(async {
            let server = server.parse().expect("the text is an address");
            let target = TcpServer::start_at(server, edgeward_testkit::tcp::echo);
            let server = target.addr();
            let mut test_bed = TestBed::new(true);
            let gateway = Gateway::bind(test_bed.gateway_config(server)).await;
            let gateway = gateway.expect("the listener can be bound");
            let client = test_bed.client(gateway.local_addr());
            within(client.up()).await;
            let listen = listen.parse().expect("the address is valid");
            let listener =
                LocalListener::bind(client.clone(), listen, ListenerTarget::Intercepted, 4).await;
            let listener = listener.expect("the listener can be bound");
            run("nft", &["flush", "ruleset"]);
            apply_rules(&rules(server, listener.local_addr()));

            let body = Random(3).text(300_000);
            let echoed = within(echo_of(server, &body)).await;
            assert!(echoed == body, "{server} through {listen}");
            let status = client.status().await;
            assert_eq!(status.hosts[0].0, server.to_string());
            assert_eq!(status.sent.plain + status.sent.literal, 300_000);

            run("nft", &["flush", "ruleset"]);
            let to_listener = SocketAddr::new(server.ip(), listener.local_addr().port());
            let mut tcp = TcpStream::connect(to_listener)
                .await
                .expect("the port is open");
            let refused = within(tcp.read(&mut [0; 1])).await;
            assert!(refused.is_err(), "a connection to the listener is reset");
            assert_eq!(client.status().await.hosts.len(), 1);
        });
    }
}

/// Sends a body to a server from a marked socket, and returns the received bytes.
async fn echo_of(server: SocketAddr, body: &[u8]) -> Vec<u8> {
    let socket = match server {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    };
    let socket = socket.expect("the socket can be created");
    let marked = socket2::SockRef::from(&socket).set_mark(MARK);
    marked.expect("the namespace has all capabilities");
    let mut tcp = socket.connect(server).await.expect("the port is open");
    let (mut read, mut write) = tcp.split();
    let mut echoed = Vec::new();
    let send = async {
        write.write_all(body).await.expect("the body is sent");
        write.shutdown().await.expect("the body ends");
    };
    let (_, received) = tokio::join!(send, read.read_to_end(&mut echoed));
    received.expect("the body is returned");
    echoed
}

/// Returns true in a network namespace of the test. Otherwise runs the test with this name there and returns false. The
/// test is skipped if the system has no such namespaces.
fn in_namespace(test: &str) -> bool {
    if std::env::var_os(IN_NAMESPACE).is_some() {
        return true;
    }
    let in_namespace = |program: &str, args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--net", program]);
        command.args(args).env(IN_NAMESPACE, "1").output()
    };
    // nft is in a folder that is not in the PATH of ordinary users.
    let Some(nft) = edgeward_testkit::programs::find_or_skip("nft") else {
        return false;
    };
    let nft = nft.display().to_string();
    let works = in_namespace(&nft, &["add", "table", "inet", "t"]);
    if !works.is_ok_and(|out| out.status.success()) {
        edgeward_testkit::programs::skip("no network namespaces with nf_tables here");
        return false;
    }
    let this = std::env::current_exe().expect("the test has a path");
    let this = this.display().to_string();
    let out = in_namespace(&this, &["--exact", test, "--nocapture"]);
    let out = out.expect("the process runs");
    let printed = [out.stdout, out.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    assert!(
        out.status.success() && printed.contains("1 passed"),
        "{printed}"
    );
    false
}

fn run(program: &str, args: &[&str]) {
    let program = edgeward_testkit::programs::find(program).expect("the program is installed");
    let status = Command::new(program).args(args).status();
    assert!(status.is_ok_and(|status| status.success()), "{args:?}");
}

fn apply_rules(rules: &str) {
    let nft = edgeward_testkit::programs::find("nft").expect("nft is installed");
    let child = Command::new(nft)
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .spawn();
    let mut child = child.expect("nft starts");
    let mut stdin = child.stdin.take().expect("the input is a pipe");
    stdin
        .write_all(rules.as_bytes())
        .expect("nft reads the rules");
    drop(stdin);
    let status = child.wait().expect("nft ends");
    assert!(status.success(), "{rules}");
}

/// Set for the process of a test in its namespace.
const IN_NAMESPACE: &str = "EDGEWARD_TEST_NAMESPACE";
