//! Tests memory under churn: objects of all sizes are stored and evicted, and the process stays within its configured
//! memory.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use edgeward_testkit::client::Client;
use edgeward_types::ByteSize;
use serde_json::Value;

use super::run::{Server, status};

const HOT: ByteSize = ByteSize::mib(64);

/// The default of `insight.memory`: its minimum, because 1 % of [`HOT`] is less.
const INSIGHT: ByteSize = ByteSize::mib(8);

/// Method: let four clients request new objects. Meanwhile read the memory of the edge twenty times a second.
#[test]
fn memory_stays_within_its_configuration_while_objects_are_stored_and_evicted() {
    for sizes in [Sizes::Small, Sizes::Mixed, Sizes::Equal] {
        let (excess, capacity) = churn(sizes);
        eprintln!(
            "{sizes:?}: at most {} KiB more than configured",
            excess / 1024
        );
        assert!(
            excess <= capacity / 10,
            "{sizes:?}: {} KiB above the configured memory, the fills in progress and the process at its start",
            excess / 1024
        );
    }
}

#[derive(Clone, Copy, Debug)]
enum Sizes {
    /// 200 B to 10 KiB.
    Small,
    /// 200 B to 1 MiB.
    Mixed,
    /// 1 MiB: memory that one worker frees must be usable for the next fill of the other worker.
    Equal,
}

impl Sizes {
    /// The number of bytes of bodies that each of the four clients requests. For all clients together this is 1.5
    /// times the capacity of the cache for small objects, 8 times for mixed and 12 times for equal objects. Small
    /// objects need the most requests per byte, so they have the smallest factor.
    fn client_bytes(self) -> u64 {
        match self {
            Self::Small => 24 << 20,
            Self::Mixed => 128 << 20,
            Self::Equal => 192 << 20,
        }
    }

    /// The size of an object, a function of its number.
    fn of(self, object: u64) -> u64 {
        let size_max = match self {
            Self::Small => 10_240.0_f64,
            Self::Mixed => 1_048_576.0,
            Self::Equal => return 1 << 20,
        };
        let unit = (object.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64 / (1_u64 << 53) as f64;
        (200.0 * (size_max / 200.0).powf(unit)) as u64
    }
}

/// Returns the largest number of bytes by which the memory of the edge exceeded the configured memory, and the
/// capacity of the cache.
fn churn(sizes: Sizes) -> (u64, u64) {
    let origin = Server::start(&["origin", "--json", "--listen=127.0.0.1:0"]);
    let edge = Server::start(&[
        "serve",
        "--json",
        "--listen=127.0.0.1:0",
        "--admin=127.0.0.1:0",
        "--workers=2",
        "--policy=lru",
        "--log=off",
        &format!("--hot={}", HOT.bytes()),
        &format!("--origin=http://{}", origin.addr("/listen")),
    ]);
    let (addr, admin) = (edge.addr("/listening/0"), edge.addr("/admin"));
    let start_bytes = number(&status(admin), "/memory_bytes");
    let done = AtomicBool::new(false);
    let excess = thread::scope(|scope| {
        let measuring_thread = scope.spawn(|| {
            let mut excess_max = 0;
            while !done.load(Ordering::Relaxed) {
                let status = status(admin);
                let fills = number(&status, "/fills/bytes");
                let memory = number(&status, "/memory_bytes");
                let configured = HOT.bytes() + INSIGHT.bytes();
                excess_max =
                    excess_max.max(memory.saturating_sub(start_bytes + configured + fills));
                thread::park_timeout(Duration::from_millis(50));
            }
            excess_max
        });
        let clients: Vec<_> = (0..4_u64)
            .map(|client| scope.spawn(move || request_objects(addr, sizes, client)))
            .collect();
        let ended: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok), "every client is served");
        measuring_thread.join().expect("the measuring thread ends")
    });
    (excess, HOT.bytes())
}

/// Requests new objects. Every fourth request repeats the one before it.
fn request_objects(addr: SocketAddr, sizes: Sizes, client: u64) {
    let mut connection = Client::connect(addr);
    let mut bytes_received = 0;
    let mut number = 0_u64;
    while bytes_received < sizes.client_bytes() {
        number += 1;
        let object = (client << 32) | (number - u64::from(number.is_multiple_of(4)));
        let bytes = sizes.of(object);
        let answer = connection.get(&format!("/o/{object}?size={bytes}"), &[]);
        assert_eq!(answer.body.len() as u64, bytes);
        bytes_received += bytes;
    }
}

fn number(status: &Value, pointer: &str) -> u64 {
    let value = status.pointer(pointer).and_then(Value::as_u64);
    value.unwrap_or_else(|| panic!("no {pointer} in {status:#}"))
}
