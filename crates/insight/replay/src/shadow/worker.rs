//! The tasks that send requests, one for each pair of connections.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc;

use edgeward_shadow::{Answer, ErrorKind, Exchange, Side, Verdict};

use super::connection::{Connection, PAUSES, ShadowFailure};
use super::{Job, Shared};

/// Sends the requests of a queue until it ends or the stop is requested.
pub(super) async fn run(shared: Arc<Shared>, mut queue: mpsc::Receiver<Job>) {
    let stop = &shared.plan.stop;
    let mut edge = Cache::new(&shared, Side::Edge).expect("every plan has an edge");
    let mut incumbent = Cache::new(&shared, Side::Incumbent);
    while let Some(Some(job)) = stop.unless_requested(queue.recv()).await {
        let sending = send(&shared, &mut edge, incumbent.as_mut(), job);
        // A request that the stop interrupts is not counted.
        if stop.unless_requested(sending).await.is_none() {
            return;
        }
    }
}

async fn send(shared: &Shared, edge: &mut Cache, incumbent: Option<&mut Cache>, job: Job) {
    let Job { request, logged } = job;
    edge.pause().await;
    wait_for_budget(shared).await;
    let incumbent = match incumbent {
        // A logged part of a large body would be a request for all of it.
        _ if logged.as_ref().is_some_and(|logged| logged.status == 206) => None,
        Some(incumbent) if incumbent.may_ask(shared) => Some(incumbent),
        Some(_) => {
            shared.comparison().count_unasked();
            None
        }
        None => None,
    };
    if incumbent.is_some() && shared.plan.settings.has_log {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default();
        shared.comparison().expect_own_line(request.url_key(), now);
    }
    let asking = async {
        match incumbent {
            Some(incumbent) => incumbent.perform(shared, &request).await,
            None => None,
        }
    };
    let (of_edge, asked) = tokio::join!(edge.perform(shared, &request), asking);
    let Some(of_edge) = of_edge else {
        // The cost is unknown, so the place in the budget stays taken.
        return;
    };
    settle(shared, &of_edge);
    let exchange = Exchange {
        request,
        logged,
        asked,
        edge: of_edge,
    };
    let now = shared.now();
    shared.comparison().record(&exchange, now);
}

/// Waits for a place in the budget of the origin.
async fn wait_for_budget(shared: &Shared) {
    loop {
        let taken = shared.budget().take(shared.now());
        match taken {
            Ok(()) => return,
            Err(wait) => {
                shared.comparison().count_wait(wait);
                tokio::time::sleep(wait).await;
            }
        }
    }
}

/// Gives the place in the budget back if the edge did not need the origin, or charges the body. A stale hit may be
/// revalidated in the background, so it counts as a request. An edge that states no verdict counts as one that has
/// asked.
fn settle(shared: &Shared, edge: &Answer) {
    if edge.verdict == Some(Verdict::Hit) {
        shared.budget().give_back();
    } else {
        let bytes = edge.bytes.unwrap_or(0);
        shared.budget().charge(bytes);
        shared.comparison().count_origin(bytes);
    }
}

/// A cache with the number of its failures in a row.
struct Cache {
    connection: Connection,
    side: Side,
    failures: u32,
    /// The time since the start before which the incumbent is not asked.
    asked_after: Duration,
}

impl Cache {
    fn new(shared: &Shared, side: Side) -> Option<Self> {
        Some(Self {
            connection: Connection::new(shared, side)?,
            side,
            failures: 0,
            asked_after: Duration::ZERO,
        })
    }

    /// Waits after failures: 10 ms, then 20, 40 and so on up to five seconds.
    async fn pause(&self) {
        if self.failures > 0 {
            tokio::time::sleep(self.pause_length()).await;
        }
    }

    fn pause_length(&self) -> Duration {
        let doubled = self.failures.saturating_sub(1).min(16);
        PAUSES.0.saturating_mul(1 << doubled).min(PAUSES.1)
    }

    /// Returns true if the incumbent may be asked now. The shadow never waits for it.
    fn may_ask(&self, shared: &Shared) -> bool {
        let now = shared.now();
        (self.failures == 0 || now >= self.asked_after)
            && shared.incumbent_budget().take(now).is_ok()
    }

    /// Sends a request. Counts a failure and returns `None`.
    async fn perform(
        &mut self,
        shared: &Shared,
        request: &edgeward_shadow::Request,
    ) -> Option<Answer> {
        let performed = self.connection.perform(request, shared.started);
        let performed = match tokio::time::timeout(REQUEST_MAX, performed).await {
            Ok(performed) => performed,
            // Such as a stream of events, which never ends.
            Err(_) => {
                self.connection.close();
                Err(ShadowFailure {
                    kind: ErrorKind::Timeout,
                    message: format!("no end within {} s", REQUEST_MAX.as_secs()),
                })
            }
        };
        match performed {
            Ok(answer) => {
                self.failures = 0;
                Some(answer)
            }
            Err(ShadowFailure { kind, message }) => {
                // An answer that is no HTTP shows that the cache runs.
                if kind != ErrorKind::Protocol {
                    self.failures = self.failures.saturating_add(1);
                    self.asked_after = shared.now() + self.pause_length();
                }
                tracing::debug!(
                    cache = self.side.as_str(),
                    kind = kind.as_str(),
                    "{message}"
                );
                shared.comparison().count_error(self.side, kind, &message);
                None
            }
        }
    }
}

/// The longest time of an exchange. Other requests of the connection wait for it.
const REQUEST_MAX: Duration = Duration::from_secs(60);
