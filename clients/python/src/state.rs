//! The client without its transport: for asyncio programs that fetch by themselves, and for the scripts
//! that clients in all languages are held to.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use edgeward_filter::client::{Client, ClientConfig, Now, Refused as Why};
use edgeward_filter::from_hex;
use edgeward_types::Timestamp;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::client::{answer_name, seconds, trust};
use crate::filter::Facts;
use crate::ids::spelled;

pyo3::create_exception!(
    edgeward_filter,
    Refused,
    PyException,
    "Something that came was not used; `reason` says why in a word. What was there stays in use."
);
pyo3::create_exception!(
    edgeward_filter,
    ManifestError,
    Refused,
    "A manifest or proof is not believed or cannot be read."
);

/// When a client may still rely on its filter. It fetches nothing and looks at no clock; `now` is a pair
/// of milliseconds: of a clock that never falls, and since 1970.
#[pyclass(frozen, module = "edgeward_filter")]
pub(crate) struct State(Mutex<Client<Vec<u8>>>);

impl State {
    fn client(&self) -> MutexGuard<'_, Client<Vec<u8>>> {
        // A panic while it was changed leaves it as the last whole statement left it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now((monotonic_ms, wall_ms): (u64, u64)) -> Now {
    Now {
        monotonic: Duration::from_millis(monotonic_ms),
        wall: Timestamp::from_millis(wall_ms),
    }
}

#[pymethods]
impl State {
    #[new]
    #[pyo3(signature = (
        set, keys, *, max_staleness, clock_error = None, serial_min = 0,
        snapshot_bytes_max = 1 << 30, overlay_ids_max = 1 << 20,
    ))]
    fn new(
        set: String,
        keys: Option<Vec<String>>,
        max_staleness: &Bound<'_, PyAny>,
        clock_error: Option<&Bound<'_, PyAny>>,
        serial_min: u64,
        snapshot_bytes_max: u64,
        overlay_ids_max: usize,
    ) -> PyResult<Self> {
        let trust = trust(keys.unwrap_or_default())?;
        let mut config = ClientConfig::new(set, trust, seconds(max_staleness)?);
        config.clock_error = clock_error.map(seconds).transpose()?;
        config.serial_min = serial_min;
        config.snapshot_bytes_max = snapshot_bytes_max;
        config.overlay_ids_max = overlay_ids_max;
        Ok(Self(Mutex::new(Client::new(config))))
    }

    /// `absent`, `maybe`, or `ask` where nothing can be said.
    fn answer(&self, now: (u64, u64), id: &Bound<'_, PyAny>) -> PyResult<&'static str> {
        let client = self.client();
        let Some(hasher) = client.hasher() else {
            return Ok("ask");
        };
        let hash = spelled(id, |spelling| hasher.asked(spelling))?;
        Ok(answer_name(client.answer(self::now(now), hash)))
    }

    /// For how many seconds absent ids may still be skipped if nothing more is learnt.
    fn fresh_for(&self, now: (u64, u64)) -> f64 {
        self.client().fresh_for(self::now(now)).as_secs_f64()
    }

    /// The snapshot in use.
    #[getter]
    fn facts(&self) -> Option<Facts> {
        self.client().facts().map(Facts::from)
    }

    /// The newest manifest's number.
    #[getter]
    fn serial(&self) -> u64 {
        self.client().serial()
    }

    /// Lineage, epoch and journal number: what a request tells after `have=`.
    #[getter]
    fn position(&self) -> Option<(u64, u64, u64)> {
        self.client().position()
    }

    /// The SHA-256 and the bytes of what to fetch: of a snapshot or None, and of deltas.
    #[getter]
    #[expect(clippy::type_complexity, reason = "two kinds of one pair")]
    fn wants(&self) -> (Option<(String, u64)>, Vec<(String, u64)>) {
        let wants = self.client().wants();
        let snapshot = wants.snapshot;
        (
            snapshot.map(|named| (named.sha256.to_string(), named.bytes)),
            wants
                .deltas
                .iter()
                .map(|delta| (delta.sha256.to_string(), delta.bytes))
                .collect(),
        )
    }

    /// Looks at the clocks; every other change does so too.
    fn observe(&self, now: (u64, u64)) {
        self.client().observe(self::now(now));
    }

    /// Begins a request that carries these 16 unpredictable bytes in hex; to be sent now at the earliest.
    fn challenge(&self, now: (u64, u64), echo: &str) -> PyResult<()> {
        let random = from_hex(echo).map_err(|error| PyValueError::new_err(error.to_string()))?;
        self.client().challenge(self::now(now), random);
        Ok(())
    }

    fn manifest(&self, py: Python<'_>, now: (u64, u64), line: &str) -> PyResult<()> {
        let taken = self.client().manifest(self::now(now), line.as_bytes());
        taken.map_err(|why| refused(py, &why))
    }

    fn proof(&self, py: Python<'_>, now: (u64, u64), line: &str) -> PyResult<()> {
        let taken = self.client().proof(self::now(now), line.as_bytes());
        taken.map_err(|why| refused(py, &why))
    }

    fn snapshot(&self, py: Python<'_>, now: (u64, u64), data: PyBackedBytes) -> PyResult<()> {
        let received = py.detach(|| edgeward_filter::client::Received::open(data.to_vec()));
        let taken = self.client().received(self::now(now), received);
        taken.map_err(|why| refused(py, &why))
    }

    fn delta(&self, py: Python<'_>, now: (u64, u64), data: &[u8]) -> PyResult<()> {
        let taken = self.client().delta(self::now(now), data);
        taken.map_err(|why| refused(py, &why))
    }
}

fn refused(py: Python<'_>, why: &Why) -> PyErr {
    let (reason, error) = match why {
        Why::Manifest(_) => ("unbelievable", ManifestError::new_err(why.to_string())),
        why => (reason(why), Refused::new_err(why.to_string())),
    };
    // An exception of ours has a dictionary; without the attribute it is an exception all the same.
    _ = error.value(py).setattr("reason", reason);
    error
}

fn reason(why: &Why) -> &'static str {
    match why {
        Why::Manifest(_) => "unbelievable",
        Why::Snapshot(_) | Why::Delta(_) => "broken",
        Why::OtherSet { .. } => "other-set",
        Why::Replayed { .. } => "replayed",
        Why::Falling { .. } => "falling",
        Why::NotAsked => "not-asked",
        Why::Unlisted => "unlisted",
        Why::Early => "early",
        Why::Older => "older",
        Why::SnapshotTooLarge { .. } => "too-large",
        Why::OverlayFull { .. } => "overlay-full",
        // `Contradiction`, and what a later crate may add.
        _ => "contradiction",
    }
}
