//! The Python package's native half: thin classes over the Rust crates, which decide and fetch.
//!
//! The interpreter's lock is held for a question, which takes less than a microsecond, and given up
//! wherever something is waited for. The background thread never touches Python.

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
