//! The native part of the Python package: thin classes over the Rust crates, which contain the logic.
//!
//! A lookup keeps the interpreter's lock, because it takes less than a microsecond. A call that waits or reads a file
//! releases the lock. The background thread of a `FilterClient` never calls Python.

mod client;
mod filter;
mod ids;
mod state;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::client::{FilterClient, ManualClock, Status};
    #[pymodule_export]
    use super::filter::{Facts, Filter, FilterError};
    #[pymodule_export]
    use super::ids::hash_id;
    #[pymodule_export]
    use super::state::{ManifestError, Refused, State};

    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::client::notice_forks(module)
    }
}
