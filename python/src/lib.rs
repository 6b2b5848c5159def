//! The native part of the Python package `edgeward-sim`: the trace readers and the simulator of the Rust crates.
//!
//! The Python files beside this crate have the public interface. This module exchanges columns with them as bytes of
//! 64-bit numbers, and results as the JSON document of `edgeward simulate --json`. Work that takes long runs on threads
//! of its own, without the interpreter's lock (module `interrupt`).

mod interrupt;
mod simulation;
mod trace;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::simulation::simulate;
    #[pymodule_export]
    use super::trace::{Trace, hash_keys};
}
