//! Fetches that run in tasks of their own and can outlive their clients. A fetch that no client waits for (an orphan)
//! is cancelled when a request needs its connection.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::task::AbortHandle;

use crate::base::counters::Counters;
use crate::base::tasks::TaskSet;

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
