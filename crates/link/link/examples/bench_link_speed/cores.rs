//! How the throughput of a gateway grows with its threads: two edges at a gateway of two threads, compared with one.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use edgeward_link::Gateway;
use edgeward_types::SplitMix64;

use crate::endpoints::{self, Edge, Features, Source, ThreadCpu};
use crate::{Noise, load_average, median, print_row};

/// The CPU time of the threads of a gateway, and the bodies that it sent meanwhile.
struct Work {
    /// The CPU time of each thread in seconds.
    cpu: Vec<f64>,
    gigabits: f64,
    seconds: f64,
}

impl Work {
    /// Returns the bits per CPU second of the busiest thread: the throughput if each thread had a core of its own.
    fn speed(&self) -> f64 {
        self.gigabits / self.cpu.iter().copied().fold(0.0, f64::max)
    }

    /// Returns the bits per CPU second of all threads together.
    fn speed_of_one(&self) -> f64 {
        self.gigabits / self.cpu.iter().sum::<f64>()
    }
}

/// Measures a gateway of two threads with one edge and with two. `scaling` is the median, over all rounds, of the speed
/// with two edges divided by the speed with one. The speed with one edge is that of one core, even if the gateway has
/// used both threads in turn.
pub(crate) fn two_edges(
    name: &str,
    features: &Features,
    is_new: bool,
    rounds: usize,
) -> io::Result<()> {
    let source = Source::start()?;
    let keys = endpoints::generate_keys()?;
    let config = endpoints::gateway_config(&keys, features, source.addr)?;
    let threads: Arc<Mutex<Vec<ThreadCpu>>> = Arc::default();
    let started = Arc::clone(&threads);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .on_thread_start(move || {
            let mut started = started.lock().expect("no thread panics");
            started.push(ThreadCpu::current());
        })
        .enable_all()
        .build()?;
    let gateway = runtime.block_on(Gateway::bind(config));
    let gateway = gateway.map_err(io::Error::other)?;
    let start = |epoch| {
        let config = endpoints::config(&keys, "edge", epoch, features)?;
        io::Result::Ok(Edge::start(config, gateway.local_addr(), source.addr))
    };
    let edges = [start(1)?, start(2)?];
    let mut noise = Noise(SplitMix64(0x1234_5678));
    let mut body = Arc::new(noise.body());
    let (mut scalings, mut ones, mut twos) = (vec![], vec![], vec![]);
    for round in 0..WARM_UP + rounds {
        let mut measured = |edges: &[Edge]| {
            if is_new {
                body = Arc::new(noise.body());
            }
            source.set(&body);
            let cpu = || {
                let threads = threads.lock().expect("no thread panics");
                threads.iter().map(ThreadCpu::seconds).collect::<Vec<_>>()
            };
            let (before, began) = (cpu(), Instant::now());
            fetch_at_once(edges, &body)?;
            let seconds = began.elapsed().as_secs_f64();
            let before = before.into_iter().chain(std::iter::repeat(0.0));
            io::Result::Ok(Work {
                cpu: cpu()
                    .iter()
                    .zip(before)
                    .map(|(now, before)| now - before)
                    .collect(),
                gigabits: (body.len() * edges.len()) as f64 * 8.0 / 1e9,
                seconds,
            })
        };
        let (one, two) = (measured(&edges[..1])?, measured(&edges)?);
        if round >= WARM_UP {
            scalings.push(two.speed() / one.speed_of_one());
            ones.push(one);
            twos.push(two);
        }
    }
    let of = |work: &[Work], figure: fn(&Work) -> f64| {
        median(&mut work.iter().map(figure).collect::<Vec<_>>())
    };
    print_row(&format!(
        r#"{{"row":"{name}","scaling":{:.2},"one_gbps":{:.2},"two_gbps":{:.2},"two_gbps_per_cpu_second":{:.2},"scalings":{scalings:.2?},"thread_cpu_seconds":{:.3?},"wall_seconds":[{:.3},{:.3}],"load_average":{}}}"#,
        median(&mut scalings.clone()),
        of(&ones, Work::speed_of_one),
        of(&twos, Work::speed),
        of(&twos, Work::speed_of_one),
        twos.iter().map(|two| &two.cpu).collect::<Vec<_>>(),
        of(&ones, |one| one.seconds),
        of(&twos, |two| two.seconds),
        load_average(),
    ));
    Ok(())
}

/// Reads the body from the ports of all edges at the same time.
fn fetch_at_once(edges: &[Edge], body: &[u8]) -> io::Result<()> {
    let fetch = |addr: SocketAddr| endpoints::fetch(addr, body);
    thread::scope(|scope| {
        let fetches: Vec<_> = edges
            .iter()
            .map(|edge| scope.spawn(move || fetch(edge.addr)))
            .collect();
        let mut results = fetches
            .into_iter()
            .map(|fetch| fetch.join().expect("no thread panics"));
        results.try_for_each(|result| result)
    })
}

/// The first transfers, which fill the stores.
const WARM_UP: usize = 3;
