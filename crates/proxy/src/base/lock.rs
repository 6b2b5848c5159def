//! Mutexes whose holders do not panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. Ignores that a holder has panicked: the data of each mutex of this crate is valid after each
/// statement.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
