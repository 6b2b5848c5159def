//! Fetches that run in tasks of their own and can outlive their clients. A fetch that no client waits for (an orphan)
//! is cancelled when a request needs its connection, or if its response does not begin within `limits.abandoned_wait`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::observe::counters::Counters;
use crate::rt::tasks::TaskSet;

/// The fetches of a worker that are or can become orphans. A fetch is in the list until its task ends.
#[derive(Default)]
pub(crate) struct Orphans(Rc<RefCell<List>>);

#[derive(Default)]
struct List {
    /// The number of the last fetch. Older fetches have smaller numbers.
    last: u64,
    fetches: BTreeMap<u64, ListedFetch>,
}

struct ListedFetch {
    task: AbortHandle,
    is_wanted: Box<dyn Fn() -> bool>,
}

/// The bound of the time that an exchange continues after its client has left.
pub(crate) struct Abandoned {
    pub(crate) wait: Duration,
    pub(crate) counters: Arc<Counters>,
}

/// Removes a fetch from the list when dropped. The task of the fetch owns this value.
struct Listing {
    list: Rc<RefCell<List>>,
    number: u64,
}

impl Orphans {
    /// Runs a fetch as a task of `tasks`. `is_wanted` returns true if a client waits for the fetch.
    pub(crate) fn spawn(
        &self,
        tasks: &TaskSet,
        fetch: impl Future<Output = ()> + 'static,
        is_wanted: impl Fn() -> bool + 'static,
    ) {
        let number = self.0.borrow().last + 1;
        let listing = Listing {
            list: Rc::clone(&self.0),
            number,
        };
        let task = tasks.spawn(|member| async move {
            fetch.await;
            drop((member, listing)); // `tasks` counts the task until `member` is dropped.
        });
        let listed = ListedFetch {
            task: task.abort_handle(),
            is_wanted: Box::new(is_wanted),
        };
        let mut list = self.0.borrow_mut();
        list.last = number;
        list.fetches.insert(number, listed);
    }

    /// Runs an exchange whose client has left as a task of `tasks`. Every `wait`, the exchange ends unless `is_wanted`,
    /// or unless its response `has_begun`.
    pub(crate) fn spawn_abandoned(
        &self,
        tasks: &TaskSet,
        exchange: impl Future<Output = ()> + 'static,
        abandoned: Abandoned,
        is_wanted: impl Fn() -> bool + Clone + 'static,
        has_begun: impl Fn() -> bool + 'static,
    ) {
        let is_needed = is_wanted.clone();
        let exchange = async move {
            let mut exchange = pin!(exchange);
            while tokio::time::timeout(abandoned.wait, &mut exchange)
                .await
                .is_err()
            {
                if !is_needed() && !has_begun() {
                    return abandoned.counters.fetches_cancelled.increment();
                }
            }
        };
        self.spawn(tasks, exchange, is_wanted);
    }

    /// Cancels the oldest fetch that no client waits for, and so closes its connection.
    pub(super) fn cancel_oldest(&self, counters: &Counters) {
        let mut list = self.0.borrow_mut();
        let oldest = list.fetches.iter().find(|(_, fetch)| !(fetch.is_wanted)());
        let Some((&number, _)) = oldest else { return };
        let fetch = list.fetches.remove(&number);
        drop(list);
        if let Some(fetch) = fetch {
            fetch.task.abort();
            counters.fetches_cancelled.increment();
        }
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        self.list.borrow_mut().fetches.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, LocalOptions};

    use super::*;

    /// Method: start one fetch that does not end, then a thousand fetches that end.
    #[test]
    fn a_fetch_leaves_the_list_when_it_ends_although_an_older_one_continues() {
        let runtime = Builder::new_current_thread().build_local(LocalOptions::default());
        runtime.expect("a runtime").block_on(async {
            let (orphans, tasks) = (Orphans::default(), TaskSet::default());
            orphans.spawn(&tasks, std::future::pending(), || true);
            for _ in 0..1000 {
                orphans.spawn(&tasks, async {}, || true);
            }
            while tasks.running() > 1 {
                tokio::task::yield_now().await;
            }
            assert_eq!(orphans.0.borrow().fetches.len(), 1);
        });
    }
}
