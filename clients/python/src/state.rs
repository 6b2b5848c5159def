//! `State` for Python: the client without its transport. It is for asyncio programs that fetch with their own HTTP
//! library, and for the test scripts that clients in all languages run.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use edgeward_filter::client::{Client, ClientConfig, Now, UpdateError as Why};
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
    "Received data was not used; `reason` is a code for the cause. The previous data stays in use."
);
pyo3::create_exception!(
    edgeward_filter,
    ManifestError,
    Refused,
    "A manifest or proof is not trusted or is invalid."
);

/// Decides when a client may rely on its filter, without I/O and without a clock. `now` is a pair of times in
/// ms: that of a monotonic clock, and the wall-clock time since 1970.
#[pyclass(frozen, module = "edgeward_filter")]
pub(crate) struct State(Mutex<Client<Vec<u8>>>);

impl State {
    fn client(&self) -> MutexGuard<'_, Client<Vec<u8>>> {
        // A panic leaves the state as it was after the last complete change.
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
        // The public keys whose signatures are trusted. Without keys, any server that answers is trusted.
        keys: Option<Vec<String>>,
        max_staleness: &Bound<'_, PyAny>,
        // A guaranteed limit of the difference to the publisher's clock. If `None`, only proofs make the filter fresh.
        clock_error: Option<&Bound<'_, PyAny>>,
        // Manifests with a smaller serial number are refused as replays.
        serial_min: u64,
        snapshot_bytes_max: u64,
        // The maximum number of ids added since the snapshot.
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

    /// Returns `absent` or `maybe` if the filter is fresh. Returns `ask` before the first snapshot, while the filter is
    /// stale, and for text that is not an id which every origin reads alike.
    fn answer(&self, now: (u64, u64), id: &Bound<'_, PyAny>) -> PyResult<&'static str> {
        let client = self.client();
        let Some(hasher) = client.hasher() else {
            return Ok("ask");
        };
        let hash = spelled(id, |spelling| spelling.hash(hasher))?;
        Ok(hash.map_or("ask", |hash| answer_name(client.answer(self::now(now), hash))))
    }

    /// Returns the number of seconds until the filter becomes stale, if no further manifest or proof arrives.
    fn fresh_for(&self, now: (u64, u64)) -> f64 {
        self.client().fresh_for(self::now(now)).as_secs_f64()
    }

    /// The header of the snapshot in use.
    #[getter]
    fn facts(&self) -> Option<Facts> {
        self.client().info().map(Facts::from)
    }

    /// The serial number of the newest manifest.
    #[getter]
    fn serial(&self) -> u64 {
        self.client().serial()
    }

    /// The lineage, epoch and journal number that the client has: the value of `have=` in a request.
    #[getter]
    fn position(&self) -> Option<(u64, u64, u64)> {
        self.client().position()
    }

    /// The files to fetch: a snapshot or `None`, and a list of deltas. Each file is a pair of its SHA-256 and its size
    /// in bytes.
    #[getter]
    #[expect(clippy::type_complexity, reason = "two kinds of one pair")]
    fn wants(&self) -> (Option<(String, u64)>, Vec<(String, u64)>) {
        let wants = self.client().to_fetch();
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

    /// Records the time of both clocks. All methods that change the state also do this.
    fn observe(&self, now: (u64, u64)) {
        self.client().observe(self::now(now));
    }

    /// Records a challenge: 16 random bytes in hex. The request with the challenge must not be sent before `now`.
    fn challenge(&self, now: (u64, u64), echo: &str) -> PyResult<()> {
        let random = from_hex(echo).map_err(|error| PyValueError::new_err(error.to_string()))?;
        self.client().challenge(self::now(now), random);
        Ok(())
    }

    /// Verifies and uses a manifest: the signed list of the snapshot and its deltas.
    fn manifest(&self, py: Python<'_>, now: (u64, u64), line: &str) -> PyResult<()> {
        let taken = self
            .client()
            .accept_manifest(self::now(now), line.as_bytes());
        taken.map_err(|why| refused(py, &why))
    }

    /// Verifies and uses a proof: the publisher's signed response to a challenge.
    fn proof(&self, py: Python<'_>, now: (u64, u64), line: &str) -> PyResult<()> {
        let taken = self.client().accept_proof(self::now(now), line.as_bytes());
        taken.map_err(|why| refused(py, &why))
    }

    /// Verifies and uses a snapshot.
    fn snapshot(&self, py: Python<'_>, now: (u64, u64), data: PyBackedBytes) -> PyResult<()> {
        let received = py.detach(|| edgeward_filter::client::ReceivedSnapshot::open(data.to_vec()));
        let taken = self.client().accept_received(self::now(now), received);
        taken.map_err(|why| refused(py, &why))
    }

    /// Verifies and uses a delta.
    fn delta(&self, py: Python<'_>, now: (u64, u64), data: &[u8]) -> PyResult<()> {
        let taken = self.client().accept_delta(self::now(now), data);
        taken.map_err(|why| refused(py, &why))
    }
}

/// Returns the Python exception for refused data.
fn refused(py: Python<'_>, why: &Why) -> PyErr {
    let (reason, error) = match why {
        Why::Manifest(_) => ("unbelievable", ManifestError::new_err(why.to_string())),
        why => (reason(why), Refused::new_err(why.to_string())),
    };
    // Python exceptions accept new attributes. If setting this one fails, the exception is raised without it.
    _ = error.value(py).setattr("reason", reason);
    error
}

/// Returns the code of a reason, which is the same in the clients of all languages.
fn reason(why: &Why) -> &'static str {
    match why {
        Why::Manifest(_) => "unbelievable",
        Why::Snapshot(_) | Why::Delta(_) => "broken",
        Why::OtherSet { .. } => "other-set",
        Why::Replayed { .. } => "replayed",
        Why::Decreased { .. } => "falling",
        Why::UnknownChallenge => "not-asked",
        Why::Unlisted => "unlisted",
        Why::MissingEarlierIds => "early",
        Why::Older => "older",
        Why::SnapshotTooLarge { .. } => "too-large",
        Why::OverlayFull { .. } => "overlay-full",
        // `Contradiction`, and reasons that a later version of `edgeward_filter` may add.
        _ => "contradiction",
    }
}
