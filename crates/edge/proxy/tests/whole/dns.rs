//! Origins whose servers come from DNS: the time to live of answers, and SRV records (RFC 2782).
//!
//! The DNS server of these tests answers on loopback from a table.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use domain::base::iana::Rcode;
use domain::base::{Message, MessageBuilder, Name, Rtype, Ttl};
use domain::rdata::{A, Cname, Srv};

use crate::support::TestBed;
use edgeward_proxy::config::{Balance, OriginConfig, Resolution};
use edgeward_testkit::{Answer, ScriptedOrigin};

type DnsName = Name<Vec<u8>>;

fn name(text: &str) -> DnsName {
    text.parse().expect("a name")
}

/// A record of the table.
#[derive(Clone)]
enum Record {
    A(Ipv4Addr),
    Alias(&'static str),
    Srv {
        priority: u16,
        weight: u16,
        port: u16,
        target: &'static str,
    },
}

/// The names of the table, each with the time to live of its records.
type Table = HashMap<&'static str, (u32, Vec<Record>)>;

/// A DNS server. Names that are not in its table do not exist.
struct DnsServer {
    addr: SocketAddr,
    table: Arc<Mutex<Table>>,
    queries: Arc<AtomicUsize>,
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DnsServer {
    fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback has a free port");
        let addr = socket.local_addr().expect("the socket is bound");
        let (table, queries) = (Arc::<Mutex<Table>>::default(), Arc::default());
        let stops = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (table, queries, stops) =
                (Arc::clone(&table), Arc::clone(&queries), Arc::clone(&stops));
            move || serve(&socket, &table, &queries, &stops)
        });
        Self {
            addr,
            table,
            queries,
            stops,
            thread: Some(thread),
        }
    }

    fn set(&self, name: &'static str, ttl: u32, records: &[Record]) {
        let mut table = self.table.lock().expect("no holder panics");
        table.insert(name, (ttl, records.to_vec()));
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        self.stops.store(true, SeqCst);
        let waker = UdpSocket::bind("127.0.0.1:0").expect("loopback has a free port");
        _ = waker.send_to(&[0], self.addr);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

fn serve(socket: &UdpSocket, table: &Mutex<Table>, queries: &AtomicUsize, stops: &AtomicBool) {
    let mut buffer = [0; 1500];
    while let Ok((length, client)) = socket.recv_from(&mut buffer) {
        if stops.load(SeqCst) {
            return;
        }
        queries.fetch_add(1, SeqCst);
        let query = Message::from_octets(buffer[..length].to_vec()).expect("a DNS message");
        let answer = answer(&query, &table.lock().expect("no holder panics"));
        _ = socket.send_to(&answer, client);
    }
}

fn answer(query: &Message<Vec<u8>>, table: &Table) -> Vec<u8> {
    let question = query.sole_question().expect("a question");
    let mut asked = question.qname().to_string();
    let is_known = table.contains_key(asked.as_str());
    let code = if is_known {
        Rcode::NOERROR
    } else {
        Rcode::NXDOMAIN
    };
    let builder = MessageBuilder::new_vec();
    let mut builder = builder
        .start_answer(query, code)
        .expect("a vector has room");
    while let Some((ttl, records)) = table.get(asked.as_str()) {
        let (owner, ttl) = (name(&asked), Ttl::from_secs(*ttl));
        let mut alias = None;
        for record in records {
            let pushed = match record {
                Record::A(ip) if question.qtype() == Rtype::A => {
                    builder.push((&owner, ttl, A::new(*ip)))
                }
                Record::Srv {
                    priority,
                    weight,
                    port,
                    target,
                } if question.qtype() == Rtype::SRV => {
                    let data = Srv::new(*priority, *weight, *port, name(target));
                    builder.push((&owner, ttl, data))
                }
                Record::Alias(to) => {
                    alias = Some(*to);
                    builder.push((&owner, ttl, Cname::new(name(to))))
                }
                Record::A(_) | Record::Srv { .. } => Ok(()),
            };
            pushed.expect("a vector has room");
        }
        match alias {
            Some(to) => asked = to.to_owned(),
            None => break,
        }
    }
    builder.finish()
}

fn server() -> ScriptedOrigin {
    let server = ScriptedOrigin::start();
    server.otherwise(|_| Answer::ok("body").header("cache-control", "no-store"));
    server
}

fn srv(server: &ScriptedOrigin, priority: u16, weight: u16) -> Record {
    Record::Srv {
        priority,
        weight,
        port: server.addr().port(),
        target: "node.example.com",
    }
}

/// Starts an edge whose origin has the URL, resolved by the DNS server. The interval of resolution is an hour, so that
/// only the time to live has an effect.
fn bed(dns: &DnsServer, url: &str, change: impl FnOnce(&mut OriginConfig)) -> TestBed {
    TestBed::with_config(|config| {
        config.workers = NonZeroUsize::MIN;
        let origin = &mut config.origins[0];
        origin.servers = vec![url.parse().expect("a URL")];
        origin.resolution = Resolution::Dns;
        origin.name_servers = vec![dns.addr];
        origin.resolve_interval = Duration::from_secs(3600);
        origin.slow_start = Duration::ZERO;
        change(origin);
    })
}

fn request(bed: &TestBed, count: usize) {
    for n in 0..count {
        let answer = bed.get(&format!("/{n}"));
        assert_eq!(answer.status, 200, "request {n}: {}", answer.text());
    }
}

const LOOPBACK: Record = Record::A(Ipv4Addr::LOCALHOST);

/// Method: an alias with a time to live of 1 s to a host with a time to live of an hour. The answer moves from an
/// address without a server to the address of the server, although the interval of resolution is an hour.
#[test]
fn a_name_is_resolved_again_after_the_time_to_live_of_its_answer() {
    let dns = DnsServer::start();
    let server = server();
    dns.set("app.example.com", 1, &[Record::Alias("old.example.com")]);
    dns.set(
        "old.example.com",
        3600,
        &[Record::A(Ipv4Addr::new(127, 0, 0, 77))],
    );
    dns.set("new.example.com", 3600, &[LOOPBACK]);
    let url = format!("http://app.example.com:{}", server.addr().port());
    let bed = bed(&dns, &url, |_| {});
    bed.wait_until("the first address is known", |status| {
        status.to_string().contains("127.0.0.77")
    });
    dns.set("app.example.com", 3600, &[Record::Alias("new.example.com")]);
    bed.wait_until("the address changes", |status| {
        let text = status.to_string();
        !text.contains("127.0.0.77") && text.contains("127.0.0.1")
    });
    let queries = dns.queries.load(SeqCst);
    request(&bed, 5);
    assert_eq!(server.requests_total(), 5);
    assert_eq!(
        dns.queries.load(SeqCst),
        queries,
        "requests use the known addresses"
    );
}

/// Method: two targets of priority 1 with the weights 1 and 3, and one of priority 2. Round robin follows the weights
/// exactly. The `Host` of the origin's own name is the domain of the records.
#[test]
fn srv_records_give_ports_priorities_and_weights() {
    let dns = DnsServer::start();
    let (light, heavy, backup) = (server(), server(), server());
    dns.set("node.example.com", 60, &[LOOPBACK]);
    let records = [srv(&light, 1, 1), srv(&heavy, 1, 3), srv(&backup, 2, 9)];
    dns.set("_app._tcp.example.com", 60, &records);
    let bed = bed(&dns, "http://_app._tcp.example.com", |origin| {
        origin.balance = Balance::RoundRobin;
        origin.host = Some(edgeward_proxy::config::HostPolicy::Origin);
    });
    request(&bed, 40);
    let (light_count, heavy_count) = (light.requests_total(), heavy.requests_total());
    assert_eq!(light_count + heavy_count, 40);
    assert!((9..=11).contains(&light_count), "{light_count} of 40");
    assert_eq!(
        backup.requests_total(),
        0,
        "backups wait until the others fail"
    );
    let request_of_heavy = (0..40).find_map(|n| heavy.last(&format!("/{n}")));
    let host = request_of_heavy
        .as_ref()
        .and_then(|request| request.header("host"));
    assert_eq!(host, Some("example.com"));

    drop((light, heavy));
    request(&bed, 5);
    assert_eq!(backup.requests_total(), 5);
}

/// RFC 2782: a single record with the target `.` means that the service is not available.
#[test]
fn a_service_that_is_not_available_is_an_error_of_the_origin() {
    let dns = DnsServer::start();
    let record = Record::Srv {
        priority: 0,
        weight: 0,
        port: 0,
        target: ".",
    };
    dns.set("_app._tcp.example.com", 60, &[record]);
    for url in [
        "http://_app._tcp.example.com",
        "http://_no._tcp.example.com",
    ] {
        let bed = bed(&dns, url, |_| {});
        let got = bed.get("/");
        assert_eq!(got.status, 502, "{url}");
        let is_named = got.cache_status().ends_with("detail=dns_error");
        assert!(is_named, "{}", got.cache_status());
    }
}

/// SRV records come from DNS even if host names are resolved by the system. A target without an address leaves the
/// other targets in use.
#[test]
fn a_target_without_an_address_leaves_the_others_in_use() {
    let dns = DnsServer::start();
    let server = server();
    dns.set("node.example.com", 60, &[LOOPBACK]);
    let lost = Record::Srv {
        priority: 1,
        weight: 0,
        port: 80,
        target: "lost.example.com",
    };
    dns.set("_app._tcp.example.com", 60, &[lost, srv(&server, 1, 0)]);
    let bed = bed(&dns, "http://_app._tcp.example.com", |origin| {
        origin.resolution = Resolution::System;
    });
    request(&bed, 5);
    assert_eq!(server.requests_total(), 5);
}
