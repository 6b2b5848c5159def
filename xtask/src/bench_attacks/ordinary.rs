//! The control: a well-behaved client that downloads as many bytes per second as an attack made the edge fetch.
//!
//! Fetching and sending a body uses the same CPU time for an attacker and for a client. The control measures
//! the effect of this CPU time on the hits and misses of the measured client, without an attack.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Connection, next_key, request};
use super::cpu_time::{CpuTime, ThreadTime};
use super::kinds::Body;

/// The number of connections of the control. Each connection fetches one body after the other.
const CONNECTIONS: u32 = 8;

/// The running control.
pub(super) struct RunningControl {
    is_over: Arc<AtomicBool>,
    /// The number of bodies fetched so far.
    bodies: Arc<AtomicU64>,
    cpu_time: Arc<CpuTime>,
    threads: Vec<JoinHandle<()>>,
    begun: Instant,
    body: Body,
}

/// Starts the control, which fetches bodies at `bytes_per_second`, but at least one body in ten seconds. If the
/// edge is slower, the control fetches at the edge's rate.
pub(super) fn start(body: Body, bytes_per_second: f64, port: u16) -> RunningControl {
    let is_over = Arc::new(AtomicBool::new(false));
    let bodies = Arc::new(AtomicU64::new(0));
    let cpu_time = Arc::new(CpuTime::default());
    let bodies_per_second = (bytes_per_second / f64::from(body.bytes)).max(0.1);
    let interval = Duration::from_secs_f64(f64::from(CONNECTIONS) / bodies_per_second);
    let threads = (0..CONNECTIONS).map(|n| {
        let (is_over, bodies) = (Arc::clone(&is_over), Arc::clone(&bodies));
        let cpu_time = Arc::clone(&cpu_time);
        thread::spawn(move || {
            let mut due = Instant::now() + interval * n / CONNECTIONS;
            let mut connection: Option<Connection> = None;
            let mut used = ThreadTime::default();
            while !is_over.load(Ordering::Relaxed) {
                thread::sleep(
                    due.saturating_duration_since(Instant::now())
                        .min(STOP_CHECK),
                );
                if Instant::now() < due {
                    continue;
                }
                due += interval;
                if request(&mut connection, port, &body.path(next_key())).is_ok() {
                    bodies.fetch_add(1, Ordering::Relaxed);
                }
                // Adds the CPU time of this thread since its previous call.
                cpu_time.add(&mut used);
            }
        })
    });
    let threads = threads.collect();
    RunningControl {
        is_over,
        bodies,
        cpu_time,
        threads,
        begun: Instant::now(),
        body,
    }
}

impl RunningControl {
    /// Returns the CPU time that the control has used, in seconds.
    pub(super) fn cpu_seconds(&self) -> f64 {
        self.cpu_time.seconds()
    }

    /// Stops the control and returns its throughput.
    pub(super) fn stop(self) -> Value {
        let seconds = self.begun.elapsed().as_secs_f64();
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            _ = thread.join();
        }
        let bytes = self.bodies.load(Ordering::Relaxed) as f64 * f64::from(self.body.bytes);
        json!({ "bytes_per_second": (bytes / seconds).round() })
    }
}

/// The maximum time until a sleeping thread notices that the control has ended.
const STOP_CHECK: Duration = Duration::from_millis(100);
