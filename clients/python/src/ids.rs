//! Converts ids from Python (`str`, `bytes`, `int`, `uuid.UUID`) to their spellings.

use edgeward_filter::{IdError, IdForm, IdHash, IdHasher};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyInt, PyString, PyType};

/// The spelling of an id.
#[derive(Clone, Copy)]
pub(crate) enum Spelling<'a> {
    /// A `str`, `int` or `uuid.UUID`.
    Text(&'a [u8]),
    /// `bytes`. With the form `text`, an id of arbitrary bytes.
    Bytes(&'a [u8]),
}

impl Spelling<'_> {
    /// Returns the hash for a lookup. Fails if the spelling is not an id which every origin reads alike.
    pub(crate) fn hash(self, hasher: IdHasher) -> Result<IdHash, IdError> {
        match self {
            Self::Text(text) => hasher.hash_query(text),
            Self::Bytes(bytes) => hasher.hash_query_bytes(bytes),
        }
    }
}

/// Calls `ask` with the spelling of an id (`str`, `bytes`, `int` or `uuid.UUID`), and returns the result of `ask`.
/// Raises a `TypeError` for any other type.
pub(crate) fn spelled<T>(
    id: &Bound<'_, PyAny>,
    ask: impl FnOnce(Spelling<'_>) -> T,
) -> PyResult<T> {
    if let Ok(text) = id.cast::<PyString>() {
        return Ok(ask(Spelling::Text(text.to_str()?.as_bytes())));
    }
    if let Ok(bytes) = id.cast::<PyBytes>() {
        return Ok(ask(Spelling::Bytes(bytes.as_bytes())));
    }
    // In Python `True` and `False` are instances of int, but they are not ids.
    let is_number = id.is_instance_of::<PyInt>() && !id.is_instance_of::<PyBool>();
    if is_number || id.is_instance(uuid(id.py())?)? {
        return Ok(ask(Spelling::Text(id.str()?.to_str()?.as_bytes())));
    }
    let name = id.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "an id is str, bytes, int or uuid.UUID, not {name}"
    )))
}

fn uuid(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static UUID: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    UUID.import(py, "uuid", "UUID")
}

/// Parses the name of an id form: `text`, `uuid` or `integer`.
pub(crate) fn form(name: &str) -> PyResult<IdForm> {
    name.parse().map_err(PyValueError::new_err)
}

/// Returns the hash that stands for an id of this form in filters and deltas with this seed.
#[pyfunction]
#[pyo3(signature = (id, form = "text", seed = 0))]
pub(crate) fn hash_id(id: &Bound<'_, PyAny>, form: &str, seed: u64) -> PyResult<u64> {
    let hasher = IdHasher {
        form: self::form(form)?,
        seed,
    };
    spelled(id, |spelling| match spelling {
        Spelling::Text(id) | Spelling::Bytes(id) => hasher.hash_verbatim(id).0,
    })
}
