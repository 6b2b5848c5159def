//! An edge in front of a scripted origin.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use edgeward_proxy::config::LOOPBACK_ANY_PORT;
use edgeward_proxy::{Edge, EdgeConfig, RunningEdge};
use edgeward_store::hot::HotConfig;
use edgeward_testkit::ScriptedOrigin;
use edgeward_testkit::client::{self, metric};
pub(crate) use edgeward_testkit::client::{Answer, Client};
use edgeward_types::ByteSize;

/// The longest wait in a test.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// An edge and its origin.
pub(crate) struct TestBed {
    pub(crate) edge: RunningEdge,
    pub(crate) origin: ScriptedOrigin,
}

impl TestBed {
    /// Starts an edge with two workers, 64 MiB of memory with LRU and an admin listener.
    pub(crate) fn start() -> Self {
        Self::with_config(|_| {})
    }

    /// Starts an edge with the configuration of [`start`](Self::start), modified by `change`.
    pub(crate) fn with_config(change: impl FnOnce(&mut EdgeConfig)) -> Self {
        Self::with_origin(ScriptedOrigin::start(), change)
    }

    /// Like [`with_config`](Self::with_config), but for an existing origin.
    pub(crate) fn with_origin(
        origin: ScriptedOrigin,
        change: impl FnOnce(&mut EdgeConfig),
    ) -> Self {
        let mut config = config_for(origin.addr());
        change(&mut config);
        let edge = Edge::start(config).expect("the edge starts on a free port");
        Self { edge, origin }
    }

    /// Shuts the edge down and returns the origin.
    pub(crate) fn stop(self) -> ScriptedOrigin {
        self.edge.shutdown(TIMEOUT);
        self.origin
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.edge.addrs()[0]
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.addr())
    }

    /// Sends a GET on a new connection.
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.connect().get(path, &[])
    }

    /// Sends a GET with header lines on a new connection.
    pub(crate) fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.connect().get(path, headers)
    }

    /// Returns `/status` of the admin listener.
    pub(crate) fn status(&self) -> serde_json::Value {
        let page = self.admin_client().get("/status", &[]);
        serde_json::from_slice(&page.body).expect("status is JSON")
    }

    /// Returns `/metrics` of the admin listener.
    pub(crate) fn metrics(&self) -> String {
        let page = self.admin_client().get("/metrics", &[]);
        String::from_utf8(page.body).expect("metrics are text")
    }

    /// Returns the value of the metric `series` (name and labels) in `/metrics`.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        metric(&self.metrics(), series)
    }

    /// Waits until the metric `series` has this value.
    pub(crate) fn wait_for_metric(&self, series: &str, value: f64) {
        self.poll("/metrics", |page| {
            let shown = metric(page.text(), series);
            (shown != value).then(|| format!("{series} is {shown}, not {value}"))
        });
    }

    /// Waits until `holds` returns true for the JSON of `/status`.
    pub(crate) fn wait_until(&self, what: &str, holds: impl Fn(&serde_json::Value) -> bool) {
        self.poll("/status", |page| {
            let status = serde_json::from_slice(&page.body).expect("status is JSON");
            (!holds(&status)).then(|| format!("timeout while waiting until {what}: {status:#}"))
        });
    }

    /// Requests a page of the admin listener until `failure` returns no reason. The requests share a connection, unless
    /// the server closes it.
    fn poll(&self, path: &str, failure: impl Fn(&Answer) -> Option<String>) {
        // Longer than `TIMEOUT`: the edge may have to read a whole body on a machine that runs other tests.
        let deadline = Instant::now() + client::TIMEOUT;
        let mut client = self.admin_client();
        loop {
            client.send_head("GET", path, &[]);
            let Some(mut page) = client.try_head() else {
                client = self.admin_client();
                continue;
            };
            client.body("GET", &mut page);
            let Some(reason) = failure(&page) else { return };
            assert!(Instant::now() < deadline, "{reason}");
            // The edge renders a whole page each time, on the cores that it works on.
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }

    pub(crate) fn admin_client(&self) -> Client {
        let addr = self.edge.admin_addr();
        Client::connect(addr.expect("the admin listener is configured"))
    }
}

pub(crate) fn config_for(origin: SocketAddr) -> EdgeConfig {
    let origin = format!("http://{origin}")
        .parse()
        .expect("the URL is valid");
    let mut config = EdgeConfig::new(LOOPBACK_ANY_PORT, origin, ByteSize::mib(64));
    config.hot = HotConfig {
        policy: "lru".parse().expect("the policy is valid"),
        ..HotConfig::new(ByteSize::mib(64))
    };
    config.workers = NonZeroUsize::new(2).expect("the number is not zero");
    config.admin.address = Some(LOOPBACK_ANY_PORT.into());
    // Other programs may keep the machine of the tests busy.
    config.overload.lag_max = Duration::ZERO;
    // A test may pause for any time between the departure of a client and its next step.
    config.limits.abandoned_wait = Duration::from_secs(3600);
    // [`Client`] sends this `Host`.
    config.admin.hosts = vec!["test.example".to_owned()];
    config
}

/// Runs a future on a runtime of its own, for [`TIMEOUT`] at most.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the runtime can be built")
        .block_on(async {
            tokio::time::timeout(TIMEOUT, future)
                .await
                .expect("the test ends in time")
        })
}

/// Returns a range of the body of [`edgeward_testkit::Answer::pattern`].
pub(crate) fn pattern(range: std::ops::Range<u64>) -> Vec<u8> {
    range.map(edgeward_testkit::pattern_byte).collect()
}
