//! `Filter` for Python: a filter in memory, and the fields of its header.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::ids::spelled;

pyo3::create_exception!(
    edgeward_filter,
    FilterError,
    PyValueError,
    "The bytes are not a valid filter."
);

/// A filter in memory, made from the bytes of a file.
#[pyclass(frozen, module = "edgeward_filter")]
pub(crate) struct Filter(edgeward_filter::Filter<FilterBytes>);

enum FilterBytes {
    Python(PyBackedBytes),
    File(Vec<u8>),
}

impl AsRef<[u8]> for FilterBytes {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Python(bytes) => bytes,
            Self::File(bytes) => bytes,
        }
    }
}

#[pymethods]
impl Filter {
    /// Opens a filter from the bytes of a file, without a copy of the bytes.
    #[new]
    fn new(py: Python<'_>, data: PyBackedBytes) -> PyResult<Self> {
        py.detach(|| edgeward_filter::Filter::open(FilterBytes::Python(data)))
            .map(Self)
            .map_err(|error| FilterError::new_err(error.to_string()))
    }

    /// Reads and opens a file.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let bytes = py.detach(|| std::fs::read(path))?;
        py.detach(|| edgeward_filter::Filter::open(FilterBytes::File(bytes)))
            .map(Self)
            .map_err(|error| FilterError::new_err(error.to_string()))
    }

    /// Returns false only if the id is certainly not in the filter. Returns true for text that is not an id which every
    /// origin reads alike, such as `" 7"` or `"k2;v=1"`.
    fn may_contain(&self, id: &Bound<'_, PyAny>) -> PyResult<bool> {
        spelled(id, |spelling| {
            let hash = spelling.hash(self.0.hasher());
            hash.map_or(true, |hash| self.0.contains(hash))
        })
    }

    fn __contains__(&self, id: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.may_contain(id)
    }

    /// The fields of the header.
    #[getter]
    fn facts(&self) -> Facts {
        Facts::from(self.0.info())
    }
}

/// The fields of a filter's header, and values derived from them.
#[pyclass(frozen, get_all, module = "edgeward_filter")]
pub(crate) struct Facts {
    /// `static`, or `updatable` if ids can be added.
    construction: &'static str,
    /// The form of the ids, such as `text` or `uuid`.
    form: &'static str,
    /// The number of the build. A later build of the same set has a higher number.
    epoch: u64,
    /// The time of the build in seconds since 1970; None if the header has no time.
    built: Option<f64>,
    /// The number of distinct ids in the filter.
    ids: u64,
    /// The number of ids that the filter can hold.
    capacity_ids: u64,
    /// The seed of the hash of ids.
    seed: u64,
    /// The false-positive rate that the builder was configured with.
    asked_rate: f64,
    /// The expected false-positive rate: computed from the widths of a static filter's fingerprints, or from the
    /// number of ids in an updatable filter.
    expected_rate: f64,
    /// The size of the whole file in bytes.
    bytes: u64,
}

impl From<edgeward_filter::FilterInfo> for Facts {
    fn from(facts: edgeward_filter::FilterInfo) -> Self {
        Self {
            construction: match facts.construction {
                edgeward_filter::Construction::Static => "static",
                edgeward_filter::Construction::Updatable => "updatable",
            },
            form: facts.hasher.form.name(),
            epoch: facts.epoch,
            built: facts.built.map(|built| built.as_millis() as f64 / 1e3),
            ids: facts.ids,
            capacity_ids: facts.capacity_ids,
            seed: facts.hasher.seed,
            asked_rate: facts.target_rate,
            expected_rate: facts.expected_rate,
            bytes: facts.bytes,
        }
    }
}

#[pymethods]
impl Facts {
    fn __repr__(&self) -> String {
        format!(
            "Facts({}, {} {} ids, epoch {}, {} bytes)",
            self.construction, self.ids, self.form, self.epoch, self.bytes
        )
    }
}
