//! Converts ids from Python (`str`, `bytes`, `int`, `uuid.UUID`) to their spellings.

use edgeward_filter::{IdForm, IdHasher};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyInt, PyString, PyType};

/// Calls `ask` with the spelling of an id (`str`, `bytes`, `int` or `uuid.UUID`) as bytes, and returns the result of
/// `ask`. Raises a `TypeError` for any other type.
pub(crate) fn spelled<T>(id: &Bound<'_, PyAny>, ask: impl FnOnce(&[u8]) -> T) -> PyResult<T> {
    if let Ok(text) = id.cast::<PyString>() {
        return Ok(ask(text.to_str()?.as_bytes()));
    }
    if let Ok(bytes) = id.cast::<PyBytes>() {
        return Ok(ask(bytes.as_bytes()));
    }
    // In Python `True` and `False` are instances of int, but they are not ids.
    let is_number = id.is_instance_of::<PyInt>() && !id.is_instance_of::<PyBool>();
    if is_number || id.is_instance(uuid(id.py())?)? {
        return Ok(ask(id.str()?.to_str()?.as_bytes()));
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
    spelled(id, |spelling| hasher.hash_query(spelling).0)
}
