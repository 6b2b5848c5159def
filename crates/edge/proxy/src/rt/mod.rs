//! The runtime of the workers and of the threads beside them: time, tasks, memory budgets, health.

pub(crate) mod background; // threads that run a function at intervals
pub(crate) mod budget;
pub(crate) mod clock;
pub(crate) mod health; // the level of overload, and the reports of the workers
pub(crate) mod pace; // the minimum rate of a client
pub(crate) mod panics;
pub(crate) mod tasks;
