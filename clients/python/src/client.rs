//! `FilterClient` for Python: follows a published set of ids in the background. `ManualClock` is its clock in tests.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use edgeward_filter::client::Now;
use edgeward_filter_client::{Answer, FilterConfig, PublicKey, Trust, system_clock};
use edgeward_types::Timestamp;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::filter::Facts;
use crate::ids::{Spelling, form, spelled};

/// Follows a published set of ids on a thread of its own. Queries return at once.
#[pyclass(frozen, weakref, module = "edgeward_filter")]
pub(crate) struct FilterClient {
    client: RwLock<Option<Arc<edgeward_filter_client::FilterClient>>>,
    /// The value of [`FORKS`] in the process in which the client was started.
    forks: u64,
}

/// The number of forks between the process that loaded this module and the current process. A child of a fork has no
/// copy of the background thread, and a lock that the thread held at the fork stays locked in the child.
static FORKS: AtomicU64 = AtomicU64::new(0);

#[pyfunction]
fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Registers [`forked`] with Python, which calls the function in each forked child.
pub(crate) fn notice_forks(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let os = py.import("os")?;
    // Windows has no fork.
    if let Ok(register) = os.getattr("register_at_fork") {
        let named = PyDict::new(py);
        named.set_item("after_in_child", wrap_pyfunction!(forked, module)?)?;
        register.call((), Some(&named))?;
    }
    Ok(())
}

impl FilterClient {
    /// Returns the client; `None` if it is closed or was started before this process was forked.
    fn running(&self) -> Option<Arc<edgeward_filter_client::FilterClient>> {
        if self.forks != FORKS.load(Ordering::Relaxed) {
            return None;
        }
        let client = self.client.read().unwrap_or_else(PoisonError::into_inner);
        client.clone()
    }
}

#[pymethods]
impl FilterClient {
    /// Starts the client. `keep` is a folder that keeps the newest snapshot over restarts. `roots` is a PEM file with
    /// root certificates for an `https` publisher.
    ///
    /// `form` is the expected form of the ids: `text`, `uuid` or `integer`. The client does not use a filter of another
    /// form. `None` accepts any form. `clock_error` is the largest difference between this machine's wall clock and the
    /// publisher's, if the operator guarantees one. The client then judges the freshness of a manifest by its date.
    /// If `clock_error` is `None`, the client judges freshness by the publisher's responses to challenges.
    #[new]
    #[pyo3(signature = (
        url, keys = None, *, max_staleness, trust_transport = false, form = None, clock_error = None,
        keep = None, roots = None, snapshot_bytes_max = 1 << 30, overlay_ids_max = 1 << 20, clock = None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn new(
        py: Python<'_>,
        url: &str,
        keys: Option<Vec<String>>,
        max_staleness: &Bound<'_, PyAny>,
        trust_transport: bool,
        form: Option<&str>,
        clock_error: Option<&Bound<'_, PyAny>>,
        keep: Option<PathBuf>,
        roots: Option<PathBuf>,
        snapshot_bytes_max: u64,
        overlay_ids_max: usize,
        clock: Option<&Bound<'_, ManualClock>>,
    ) -> PyResult<Self> {
        let url = url
            .parse()
            .map_err(|error| PyValueError::new_err(format!("{url}: {error}")))?;
        let keys = keys.unwrap_or_default();
        if keys.is_empty() && !trust_transport {
            return Err(PyValueError::new_err(
                "give the publisher's keys, or trust_transport=True to trust any server that answers",
            ));
        }
        let mut config = FilterConfig::new(url, trust(keys)?, seconds(max_staleness)?);
        config.form = form.map(self::form).transpose()?;
        config.clock_error = clock_error.map(seconds).transpose()?;
        config.snapshot_folder = keep;
        config.roots = roots;
        config.snapshot_bytes_max = snapshot_bytes_max;
        config.overlay_ids_max = overlay_ids_max;
        config.clock = clock.map_or_else(system_clock, |clock| {
            let ticks = Arc::clone(&clock.get().0);
            Arc::new(move || ticks.now())
        });
        let client = py
            .detach(|| edgeward_filter_client::FilterClient::start(config))
            .map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        Ok(Self {
            client: RwLock::new(Some(Arc::new(client))),
            forks: FORKS.load(Ordering::Relaxed),
        })
    }

    /// Returns `absent`: skip the request; `maybe`: send the request, because the id may exist; `ask`: send the
    /// request, because the filter is not fresh, or the client is closed or was started before a fork.
    fn answer(&self, id: &Bound<'_, PyAny>) -> PyResult<&'static str> {
        let client = self.running();
        spelled(id, |spelling| {
            let answer = client.map(|client| match spelling {
                Spelling::Text(id) => client.try_answer(id),
                Spelling::Bytes(id) => client.try_answer_bytes(id),
            });
            match answer {
                Some(Ok(answer)) => answer_name(answer),
                // The client is closed, or the text is not an id which every origin reads alike.
                None | Some(Err(_)) => "ask",
            }
        })
    }

    /// Returns false only if no request for the id is needed, because the id does not exist.
    fn may_exist(&self, id: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.answer(id).map(|answer| answer != "absent")
    }

    /// Returns the state of the client; None after `close` and in a forked child.
    fn status(&self) -> Option<Status> {
        let status = self.running()?.status();
        Some(Status {
            fresh: status.fresh,
            fresh_for: status.fresh_for.as_secs_f64(),
            facts: status.facts,
            overlay_ids: status.overlay_ids,
            serial: status.serial,
            counts: status.counts.rows(),
            last_error: status.last_error,
        })
    }

    /// Waits until the filter is fresh. Returns False if this takes longer than `timeout` seconds.
    fn wait_fresh(&self, py: Python<'_>, timeout: &Bound<'_, PyAny>) -> PyResult<bool> {
        let until = Instant::now() + seconds(timeout)?;
        let Some(client) = self.running() else {
            return Ok(false);
        };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let slice = left.min(SIGNALS_INTERVAL);
            if py.detach(|| client.wait_fresh(slice)) {
                return Ok(true);
            }
            if left.is_zero() {
                return Ok(false);
            }
            // Ctrl-C ends the wait before the timeout.
            py.check_signals()?;
        }
    }

    /// Stops the background thread. After this call every answer is `ask`.
    fn close(&self, py: Python<'_>) {
        let forks = self.forks;
        py.detach(|| {
            if forks == FORKS.load(Ordering::Relaxed) {
                let mut client = self.client.write().unwrap_or_else(PoisonError::into_inner);
                drop(client.take());
            }
        });
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, pyo3::types::PyTuple>) {
        self.close(py);
    }
}

impl Drop for FilterClient {
    fn drop(&mut self) {
        if self.forks != FORKS.load(Ordering::Relaxed) {
            // Only the parent process has the background thread. A `drop` of the client would wait forever for the end
            // of this thread.
            let client = self
                .client
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(client.take());
        }
    }
}

/// The state of a client.
#[pyclass(frozen, module = "edgeward_filter")]
pub(crate) struct Status {
    #[pyo3(get)]
    fresh: bool,
    #[pyo3(get)]
    fresh_for: f64,
    facts: Option<edgeward_filter::FilterInfo>,
    #[pyo3(get)]
    overlay_ids: usize,
    /// The serial number of the newest manifest that the client has received.
    #[pyo3(get)]
    serial: u64,
    counts: Vec<(&'static str, u64)>,
    #[pyo3(get)]
    last_error: Option<String>,
}

#[pymethods]
impl Status {
    #[getter]
    fn facts(&self) -> Option<Facts> {
        self.facts.map(Facts::from)
    }

    #[getter]
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = PyDict::new(py);
        for (name, count) in &self.counts {
            counts.set_item(name, count)?;
        }
        Ok(counts)
    }

    fn __repr__(&self) -> String {
        format!(
            "Status(fresh={}, fresh_for={:.3}, serial={}, overlay_ids={}, last_error={:?})",
            self.fresh, self.fresh_for, self.serial, self.overlay_ids, self.last_error
        )
    }
}

/// A monotonic clock and a wall clock that only a test advances.
#[pyclass(frozen, module = "edgeward_filter")]
pub(crate) struct ManualClock(Arc<Ticks>);

struct Ticks {
    monotonic_ms: AtomicU64,
    wall_ms: AtomicU64,
}

impl Ticks {
    fn now(&self) -> Now {
        Now {
            monotonic: Duration::from_millis(self.monotonic_ms.load(Ordering::Relaxed)),
            wall: Timestamp::from_millis(self.wall_ms.load(Ordering::Relaxed)),
        }
    }
}

#[pymethods]
impl ManualClock {
    /// Creates the clocks. The wall clock starts at `wall` seconds since 1970.
    #[new]
    #[pyo3(signature = (wall = 1_700_000_000.0))]
    fn new(wall: f64) -> PyResult<Self> {
        let wall = duration(wall)?;
        Ok(Self(Arc::new(Ticks {
            monotonic_ms: AtomicU64::new(1_000_000),
            wall_ms: AtomicU64::new(wall.as_millis() as u64),
        })))
    }

    /// Advances both clocks by `seconds`. If `wall` is given, the wall clock advances by `wall` seconds instead; the
    /// value may be negative.
    #[pyo3(signature = (seconds, wall = None))]
    fn advance(&self, seconds: f64, wall: Option<f64>) -> PyResult<()> {
        let passed = duration(seconds)?.as_millis() as u64;
        self.0.monotonic_ms.fetch_add(passed, Ordering::Relaxed);
        let stepped = (wall.unwrap_or(seconds) * 1e3) as i64;
        self.0.wall_ms.fetch_add(stepped as u64, Ordering::Relaxed);
        Ok(())
    }
}

pub(crate) fn answer_name(answer: Answer) -> &'static str {
    match answer {
        Answer::Absent => "absent",
        Answer::Maybe => "maybe",
        Answer::Ask(_) => "ask",
    }
}

/// Returns the keys to trust, or `Trust::Transport` (any server that answers) if there are no keys.
pub(crate) fn trust(keys: Vec<String>) -> PyResult<Trust> {
    if keys.is_empty() {
        return Ok(Trust::Transport);
    }
    let keys: Result<Vec<PublicKey>, _> = keys.iter().map(|key| key.parse()).collect();
    keys.map(Trust::Keys).map_err(|error| {
        let error: edgeward_filter::SignedError = error;
        PyValueError::new_err(error.to_string())
    })
}

/// Converts a duration from Python: a number of seconds or a `timedelta`.
pub(crate) fn seconds(time: &Bound<'_, PyAny>) -> PyResult<Duration> {
    if let Ok(total) = time.call_method0("total_seconds") {
        return duration(total.extract()?);
    }
    duration(time.extract()?)
}

fn duration(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|error| PyValueError::new_err(format!("{seconds} s: {error}")))
}

/// The time between two checks of `wait_fresh` for Ctrl-C.
const SIGNALS_INTERVAL: Duration = Duration::from_millis(100);
