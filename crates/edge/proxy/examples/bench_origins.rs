//! Prints a table of what clients saw while servers of an origin failed: `make bench-origins`.
//!
//! Sixteen clients send one request each 40 ms for four seconds, for responses that are not stored. One second after
//! the start the fault begins, and after three seconds it ends.

#![expect(clippy::print_stdout, reason = "the results are the output")]

#[path = "../tests/support/mod.rs"]
#[expect(dead_code, reason = "the benchmark uses a part of the helpers")]
mod support;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use edgeward_proxy::config::{Balance, OriginConfig, OriginUrl};
use edgeward_proxy::{Resolve, Resolved, UrlName};
use edgeward_testkit::{Answer, Gate, ScriptedOrigin};
use support::{Client, TestBed};

/// The servers of a case. `None` is a killed server.
struct Servers {
    addrs: Vec<SocketAddr>,
    running: Vec<Option<ScriptedOrigin>>,
    backup: Option<ScriptedOrigin>,
    gate: Gate,
    resolver: Arc<TableResolver>,
}

impl Servers {
    fn start(count: usize) -> Self {
        let running: Vec<_> = (0..count).map(|_| Some(start(any_port()))).collect();
        let addrs = running.iter().flatten().map(ScriptedOrigin::addr).collect();
        Self {
            addrs,
            running,
            backup: None,
            gate: Gate::new(),
            resolver: Arc::default(),
        }
    }

    fn kill(&mut self, index: usize) {
        self.running[index] = None;
    }

    fn restart(&mut self, index: usize) {
        self.running[index] = Some(start(self.addrs[index]));
    }

    fn hang(&self, index: usize) {
        let gate = self.gate.clone();
        let answer = move || no_store(Answer::ok("late")).wait_before_head(&gate);
        let server = self.running[index].as_ref().expect("the server runs");
        server.on("/health", answer());
        server.otherwise(move |_| answer());
    }

    fn slow(&self, index: usize) {
        let server = self.running[index].as_ref().expect("the server runs");
        server.otherwise(|_| {
            // The thread of the scripted server waits, so the server answers 20 requests per second.
            std::thread::sleep(Duration::from_millis(50));
            no_store(Answer::ok("slow"))
        });
    }
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn start(addr: SocketAddr) -> ScriptedOrigin {
    let server = ScriptedOrigin::start_at(addr);
    server.otherwise(|_| no_store(Answer::ok("x")));
    server
}

fn no_store(answer: Answer) -> Answer {
    answer.header("cache-control", "no-store")
}

fn url(addr: SocketAddr) -> OriginUrl {
    format!("http://{addr}").parse().expect("a URL")
}

/// Answers with the addresses that a case has set.
#[derive(Debug, Default)]
struct TableResolver(Mutex<Vec<SocketAddr>>);

impl Resolve for TableResolver {
    fn resolve(&self, _name: &UrlName<'_>) -> io::Result<Resolved> {
        let addresses = self.0.lock().expect("no holder panics").clone();
        Ok(addresses.into_iter().collect())
    }
}

/// A fault, and what a client may see.
struct Case {
    name: &'static str,
    servers: usize,
    configure: fn(&mut OriginConfig, &mut Servers),
    begin: fn(&mut Servers),
    end: fn(&mut Servers),
}

const CASES: &[Case] = &[
    Case {
        name: "no fault, 2 servers",
        servers: 2,
        configure: |_, _| {},
        begin: |_| {},
        end: |_| {},
    },
    Case {
        name: "1 of 2 killed, returns",
        servers: 2,
        configure: |_, _| {},
        begin: |servers| servers.kill(1),
        end: |servers| servers.restart(1),
    },
    Case {
        name: "1 of 2 hangs, timeout 500 ms",
        servers: 2,
        configure: |_, _| {},
        begin: |servers| servers.hang(1),
        end: |servers| servers.gate.open(),
    },
    Case {
        name: "1 of 2 hangs, round robin, health checks",
        servers: 2,
        configure: |origin, _| {
            origin.balance = Balance::RoundRobin;
            origin.checks.path = Some("/health".to_owned());
            origin.checks.interval = Duration::from_millis(100);
            origin.checks.timeout = Duration::from_millis(100);
        },
        begin: |servers| servers.hang(1),
        end: |servers| servers.gate.open(),
    },
    Case {
        name: "1 of 2 slow (20 requests per second)",
        servers: 2,
        configure: |_, _| {},
        begin: |servers| servers.slow(1),
        end: |_| {},
    },
    Case {
        name: "1 of 2 slow, round robin",
        servers: 2,
        configure: |origin, _| origin.balance = Balance::RoundRobin,
        begin: |servers| servers.slow(1),
        end: |_| {},
    },
    Case {
        name: "1 of 2 flaps every 200 ms",
        servers: 2,
        configure: |_, _| {},
        begin: |servers| {
            for _ in 0..5 {
                servers.kill(1);
                std::thread::sleep(Duration::from_millis(200));
                servers.restart(1);
                std::thread::sleep(Duration::from_millis(200));
            }
        },
        end: |_| {},
    },
    Case {
        name: "2 of 4 killed, return",
        servers: 4,
        configure: |_, _| {},
        begin: |servers| {
            servers.kill(2);
            servers.kill(3);
        },
        end: |servers| {
            servers.restart(2);
            servers.restart(3);
        },
    },
    Case {
        name: "the only primary killed, backup, returns",
        servers: 1,
        configure: |origin, servers| {
            let backup = start(any_port());
            origin.backup_servers = vec![url(backup.addr())];
            servers.backup = Some(backup);
        },
        begin: |servers| servers.kill(0),
        end: |servers| servers.restart(0),
    },
    Case {
        name: "DNS moves from server 1 to server 2, server 1 killed after 1 s",
        servers: 2,
        configure: |origin, servers| {
            origin.servers = vec!["http://app.internal".parse().expect("a URL")];
            origin.resolve_interval = Duration::from_millis(200);
            origin.resolver = Some(Arc::clone(&servers.resolver) as Arc<dyn Resolve>);
            *servers.resolver.0.lock().expect("no holder panics") = vec![servers.addrs[0]];
        },
        begin: |servers| {
            *servers.resolver.0.lock().expect("no holder panics") = vec![servers.addrs[1]];
            std::thread::sleep(Duration::from_secs(1));
            servers.kill(0);
        },
        end: |_| {},
    },
    Case {
        name: "2 of 2 killed, return (no server can answer for 2 s)",
        servers: 2,
        configure: |_, _| {},
        begin: |servers| {
            servers.kill(0);
            servers.kill(1);
        },
        end: |servers| {
            servers.restart(0);
            servers.restart(1);
        },
    },
];

const CLIENTS: usize = 16;
const PACE: Duration = Duration::from_millis(40);
const FAULT_AT: Duration = Duration::from_secs(1);
const END_AT: Duration = Duration::from_secs(3);
const LENGTH: Duration = Duration::from_secs(4);

fn main() {
    println!(
        "| case | requests | errors | p50 ms | p99 ms | max ms | sent again | denied | requests in the first second \
         of the server that returned |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for case in CASES {
        run(case);
    }
}

fn run(case: &Case) {
    let mut servers = Servers::start(case.servers);
    let first = ScriptedOrigin::start();
    let bed = TestBed::with_origin(first, |config| {
        let origin = &mut config.origins[0];
        origin.servers = servers.addrs.iter().map(|addr| url(*addr)).collect();
        origin.first_byte_timeout = Duration::from_millis(500);
        origin.ejection_time = Duration::from_millis(500);
        (case.configure)(origin, &mut servers);
    });
    let addr = bed.addr();
    let start = Instant::now();
    let (statuses, mut latencies, returned) = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| scope.spawn(move || send(addr, client, start)))
            .collect();
        sleep_until(start + FAULT_AT);
        (case.begin)(&mut servers);
        sleep_until(start + END_AT);
        (case.end)(&mut servers);
        sleep_until(start + LENGTH);
        let last = servers.running.iter().flatten().last();
        let returned = last.map_or(0, ScriptedOrigin::requests_total);
        let mut statuses: BTreeMap<u16, usize> = BTreeMap::new();
        let mut latencies = Vec::new();
        for client in clients {
            for (status, latency) in client.join().expect("a client does not panic") {
                *statuses.entry(status).or_default() += 1;
                latencies.push(latency);
            }
        }
        (statuses, latencies, returned)
    });
    latencies.sort_unstable();
    let quantile =
        |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize].as_millis();
    let errors: Vec<_> = statuses
        .iter()
        .filter(|(status, _)| **status != 200)
        .map(|(status, count)| format!("{count} × {status}"))
        .collect();
    let errors = match errors.is_empty() {
        true => "0".to_owned(),
        false => errors.join(", "),
    };
    let is_restarted = case.name.contains("return");
    println!(
        "| {} | {} | {errors} | {} | {} | {} | {} | {} | {} |",
        case.name,
        latencies.len(),
        quantile(0.5),
        quantile(0.99),
        quantile(1.0),
        bed.metric("edgeward_origin_failovers_total"),
        bed.metric("edgeward_origin_retries_denied_total"),
        if is_restarted {
            returned.to_string()
        } else {
            "–".to_owned()
        },
    );
}

/// Sends requests at the pace until the end. Returns status and latency of each.
fn send(addr: SocketAddr, client: usize, start: Instant) -> Vec<(u16, Duration)> {
    let mut connection = Client::connect(addr);
    let mut results = Vec::new();
    let mut next = start + PACE * client as u32 / CLIENTS as u32;
    while next < start + LENGTH {
        sleep_until(next);
        let sent = Instant::now();
        let answer = connection.get(&format!("/{client}/{}", results.len()), &[]);
        results.push((answer.status, sent.elapsed()));
        next = (next + PACE).max(Instant::now());
    }
    results
}

fn sleep_until(time: Instant) {
    std::thread::sleep(time.saturating_duration_since(Instant::now()));
}
