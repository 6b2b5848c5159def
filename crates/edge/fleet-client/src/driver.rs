//! The thread that follows the stream and publishes to it.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use edgeward_fleet::{
    Action, Applied, Follower, FollowingCache, Outbox, OutboxSettings, Outcome, PublishDone,
    PublishError, PurgeStream, StreamFacts, StreamState, Work,
};
use edgeward_purge::{Purge, PurgeMessage, Scope, Stamp};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet, LocalSet};

use crate::connection::{Connection, ConnectionReport, Delivered};
use crate::faults::{Fault, Faults};
use crate::publishing::{PendingBytes, Requests};
use crate::settings::NatsSettings;

/// Follows a stream and publishes to it. [`stop`](Self::stop) or dropping this value ends its thread.
#[derive(Debug)]
pub struct FleetClient {
    shared: Arc<Shared>,
    node: Box<str>,
    commands: mpsc::Sender<Command>,
    stopping: watch::Sender<bool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The thread cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("a thread of the fleet cannot be started")]
pub struct StartError(#[source] pub(crate) io::Error);

/// The state that other threads read.
#[derive(Debug)]
struct Shared {
    start: Instant,
    /// The time at which the node was current last, in milliseconds after `start`. `NEVER` before.
    current_at: AtomicU64,
    lag_max: Duration,
    facts: Mutex<StreamFacts>,
    /// Refused requests, by [`PublishError::ALL`].
    refused: [AtomicU64; 4],
    pending: Arc<PendingBytes>,
    /// True if the thread is to purge all objects of the cache. It wakes each second.
    purges_own: AtomicBool,
}

enum Command {
    Follow(Arc<dyn FollowingCache>),
    Publish {
        messages: Vec<Vec<u8>>,
        done: PublishDone,
    },
}

impl FleetClient {
    /// Starts the thread, which connects to NATS.
    pub fn start(settings: NatsSettings) -> Result<Self, StartError> {
        let shared = Arc::new(Shared {
            start: Instant::now(),
            current_at: AtomicU64::new(NEVER),
            lag_max: settings.lag_max,
            facts: Mutex::default(),
            refused: Default::default(),
            pending: PendingBytes::new(settings.buffer_bytes_max),
            purges_own: AtomicBool::new(false),
        });
        let (commands, received) = mpsc::channel(COMMANDS_MAX);
        let (stopping, stop) = watch::channel(false);
        let node = settings.node.clone().into();
        let driver = Driver::new(settings, Arc::clone(&shared), received, stop);
        let thread = std::thread::Builder::new()
            .name("edgeward-fleet".to_owned())
            .spawn(move || driver.run())
            .map_err(StartError)?;
        Ok(Self {
            shared,
            node,
            commands,
            stopping,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Ends the thread. Purges that wait fail.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            _ = thread.join();
        }
    }
}

impl Drop for FleetClient {
    fn drop(&mut self) {
        self.stop();
    }
}

impl PurgeStream for FleetClient {
    fn follow(&self, cache: Arc<dyn FollowingCache>) {
        // A stopped client needs no cache. The queue has space, because the thread refuses purges at once until it
        // follows a cache.
        _ = self.commands.try_send(Command::Follow(cache));
    }

    fn publish(&self, scopes: Vec<Scope>, soft: bool, from: &str, done: PublishDone) {
        let from = format!("{from} at {}", self.node);
        let messages = PurgeMessage::encode(scopes, soft, &from);
        let bytes = messages.iter().map(Vec::len).sum();
        let reserved = self.shared.pending.reserve(bytes);
        let is_busy = reserved.is_none();
        let shared = Arc::clone(&self.shared);
        let done: PublishDone = Box::new(move |result| {
            drop(reserved);
            if let Err(error) = result
                && let Some(at) = PublishError::ALL.iter().position(|known| *known == error)
            {
                shared.refused[at].fetch_add(1, Ordering::Relaxed);
            }
            done(result);
        });
        if is_busy {
            return done(Err(PublishError::Busy));
        }
        match self.commands.try_send(Command::Publish { messages, done }) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(command)) => {
                command.refuse(PublishError::Busy);
            }
            Err(mpsc::error::TrySendError::Closed(command)) => {
                command.refuse(PublishError::Disconnected);
            }
        }
    }

    fn purge_own(&self) {
        self.shared.purges_own.store(true, Ordering::Relaxed);
    }

    fn is_current(&self) -> bool {
        self.shared.is_current()
    }

    fn facts(&self) -> StreamFacts {
        let facts = self.shared.facts.lock();
        let mut facts = facts.unwrap_or_else(PoisonError::into_inner).clone();
        facts.lag = self.shared.lag();
        facts.is_current = self.is_current();
        facts.pending_bytes = self.shared.pending.used();
        for (at, error) in PublishError::ALL.into_iter().enumerate() {
            let count = self.shared.refused[at].load(Ordering::Relaxed);
            facts.refused[at] = (error.name(), count);
        }
        facts
    }
}

impl Command {
    fn refuse(self, error: PublishError) {
        if let Self::Publish { done, .. } = self {
            done(Err(error));
        }
    }
}

impl Shared {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn lag(&self) -> Option<Duration> {
        let current_at = self.current_at.load(Ordering::Relaxed);
        let at = (current_at != NEVER).then(|| Duration::from_millis(current_at))?;
        Some(self.now().saturating_sub(at))
    }

    fn is_current(&self) -> bool {
        self.lag().is_some_and(|lag| lag <= self.lag_max)
    }
}

/// The result of a task of the thread.
enum Done {
    Connected(Result<Arc<Connection>, String>),
    State {
        asked_at: Duration,
        state: Result<StreamState, String>,
    },
    Ended {
        subscription: u64,
        error: Option<String>,
    },
    Sent {
        id: u64,
        sequence: Result<u64, String>,
    },
    Applied(Applied),
}

/// The cache and the decisions about it.
struct Following {
    cache: Arc<dyn FollowingCache>,
    follower: Follower<Delivered>,
}

/// The subscription under way.
struct Subscription {
    number: u64,
    deliveries: mpsc::Receiver<Delivered>,
    task: AbortHandle,
}

/// The state of the thread.
struct Driver {
    settings: NatsSettings,
    shared: Arc<Shared>,
    commands: mpsc::Receiver<Command>,
    stop: watch::Receiver<bool>,
    reports: mpsc::Receiver<ConnectionReport>,
    reporter: mpsc::Sender<ConnectionReport>,
    connection: Option<Arc<Connection>>,
    is_up: bool,
    connections: u64,
    following: Option<Following>,
    subscription: Option<Subscription>,
    /// The epoch of the stream, as it was stated last.
    epoch: Option<u64>,
    outbox: Outbox,
    requests: Requests,
    /// The start of the ids of messages, which no other process uses.
    id_prefix: String,
    tasks: JoinSet<Done>,
    unreadable: u64,
    was_current: bool,
    faults: Faults,
}

impl Driver {
    fn new(
        settings: NatsSettings,
        shared: Arc<Shared>,
        commands: mpsc::Receiver<Command>,
        stop: watch::Receiver<bool>,
    ) -> Self {
        let (reporter, reports) = mpsc::channel(REPORTS_MAX);
        let random = RandomState::new().build_hasher().finish();
        Self {
            id_prefix: format!("{}-{random:016x}", settings.node),
            settings,
            shared,
            commands,
            stop,
            reports,
            reporter,
            connection: None,
            is_up: false,
            connections: 0,
            following: None,
            subscription: None,
            epoch: None,
            outbox: Outbox::new(OutboxSettings::default()),
            requests: Requests::default(),
            tasks: JoinSet::new(),
            unreadable: 0,
            was_current: false,
            faults: Faults::default(),
        }
    }

    fn run(self) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        match runtime {
            Ok(runtime) => {
                LocalSet::new().block_on(&runtime, self.drive());
                // A look-up of a name that is under way would be awaited.
                runtime.shutdown_background();
            }
            Err(error) => tracing::error!(%error, "the stream of the fleet cannot be followed"),
        }
    }

    async fn drive(mut self) {
        self.connect(Duration::ZERO);
        while !*self.stop.borrow() {
            self.carry_out();
            self.publish_facts();
            let wake_at = self.wake_at();
            let wait = wake_at.saturating_sub(self.shared.now());
            let takes_more = self
                .following
                .as_ref()
                .is_some_and(|following| !following.follower.is_full());
            tokio::select! {
                _ = self.stop.changed() => {}
                Some(report) = self.reports.recv() => self.connection_reported(report),
                Some(done) = self.tasks.join_next() => {
                    if let Ok(done) = done {
                        self.task_done(done);
                    }
                }
                Some(command) = self.commands.recv() => self.command(command),
                Some((number, delivered)) = next_delivery(&mut self.subscription), if takes_more => {
                    let now = self.shared.now();
                    self.faults.recovered(Fault::Subscription);
                    if let Some(following) = &mut self.following {
                        let (sequence, bytes) = (delivered.sequence, delivered.payload.len());
                        following.follower.delivered(now, number, sequence, delivered, bytes);
                    }
                }
                () = tokio::time::sleep(wait) => {
                    let now = self.shared.now();
                    self.outbox.tick(now);
                    if let Some(following) = &mut self.following {
                        following.follower.tick(now);
                    }
                }
            }
        }
    }

    /// Begins to connect after a pause.
    fn connect(&mut self, pause: Duration) {
        let (settings, reporter) = (self.settings.clone(), self.reporter.clone());
        self.tasks.spawn_local(async move {
            tokio::time::sleep(pause).await;
            let connection = Connection::start(&settings, reporter).await;
            Done::Connected(connection.map(Arc::new).map_err(|error| error.to_string()))
        });
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Follow(cache) if self.following.is_none() => {
                let mut follower = Follower::new(cache.position(), self.settings.buffer_bytes_max);
                if self.is_up {
                    follower.connected(self.shared.now());
                }
                self.following = Some(Following { cache, follower });
            }
            Command::Follow(_) => {}
            Command::Publish { messages, done } => {
                let now = self.shared.now();
                // Without an epoch, the position that the purge will have is unknown.
                let can_publish = self.is_up && self.epoch.is_some();
                let follows_later = self.is_up && self.following.is_none();
                let outbox = &mut self.outbox;
                self.requests.add(messages, done, || match follows_later {
                    true => Err(PublishError::Busy),
                    false => outbox.submit(now, can_publish),
                });
            }
        }
    }

    fn connection_reported(&mut self, report: ConnectionReport) {
        match report {
            ConnectionReport::Error(error) => self.faults.log(Fault::Connection, &error),
            ConnectionReport::Up => {
                tracing::info!("connected to the stream of the fleet");
                self.faults.recovered(Fault::Connection);
                self.is_up = true;
                self.connections += 1;
                if let Some(following) = &mut self.following {
                    following.follower.connected(self.shared.now());
                }
            }
            ConnectionReport::Down => {
                if self.is_up {
                    tracing::warn!("the connection to the stream of the fleet is lost");
                }
                self.is_up = false;
                self.end_subscription();
                if let Some(following) = &mut self.following {
                    following.follower.disconnected();
                }
            }
        }
    }

    fn task_done(&mut self, done: Done) {
        let now = self.shared.now();
        match done {
            Done::Connected(Ok(connection)) => self.connection = Some(connection),
            Done::Connected(Err(error)) => {
                self.faults.log(Fault::Connection, &error);
                self.connect(CONNECT_AFTER);
            }
            Done::State {
                asked_at,
                state: Ok(state),
            } => {
                self.faults.recovered(Fault::Query);
                self.epoch = Some(state.epoch);
                if let Some(following) = &mut self.following {
                    following.follower.stated(now, asked_at, state);
                }
            }
            Done::State {
                state: Err(error), ..
            } => self.faults.log(Fault::Query, &error),
            Done::Ended {
                subscription,
                error,
            } => {
                if let Some(error) = error {
                    self.faults.log(Fault::Subscription, &error);
                }
                if let Some(following) = &mut self.following {
                    following.follower.ended(now, subscription);
                }
            }
            Done::Sent { id, sequence } => {
                match &sequence {
                    Ok(_) => self.faults.recovered(Fault::Publish),
                    Err(error) => self.faults.log(Fault::Publish, error),
                }
                let epoch = self.epoch.unwrap_or_default();
                let stamp = sequence.ok().map(|sequence| Stamp::at(epoch, sequence));
                self.outbox.sent(now, id, stamp);
                self.note_position();
            }
            Done::Applied(outcome) => {
                match outcome {
                    Applied::Persisted => {
                        self.faults.recovered(Fault::Apply);
                        self.faults.recovered(Fault::Write);
                    }
                    Applied::InMemory => {
                        self.faults.recovered(Fault::Apply);
                        self.faults
                            .log(Fault::Write, "the log of purges cannot be written");
                    }
                    Applied::Failed => self
                        .faults
                        .log(Fault::Apply, "the cache refuses them for now"),
                }
                if let Some(following) = &mut self.following {
                    following.follower.applied(now, outcome);
                }
                self.note_position();
            }
        }
    }

    /// Tells the outbox up to which purge the cache has applied the stream.
    fn note_position(&mut self) {
        let following = self.following.as_ref();
        if let Some(position) = following.and_then(|following| following.follower.position()) {
            self.outbox.applied(position);
        }
    }

    fn carry_out(&mut self) {
        if let Some(following) = &mut self.following
            && self.shared.purges_own.swap(false, Ordering::Relaxed)
        {
            following.follower.purge_own(self.shared.now());
        }
        while let Some(outcome) = self.outbox.poll() {
            match outcome {
                Outcome::Send(id) => self.send(id),
                Outcome::Done(id) => self.requests.end(id, Ok(())),
                Outcome::Refused(id, error) => self.requests.end(id, Err(error)),
            }
        }
        while let Some(following) = &mut self.following
            && let Some(action) = following.follower.poll()
        {
            match action {
                Action::Query => self.query(),
                Action::Subscribe { subscription, from } => self.subscribe(subscription, from),
                Action::Apply {
                    works,
                    position,
                    writes,
                } => self.apply(works, position, writes),
            }
        }
    }

    fn send(&mut self, id: u64) {
        let Some((connection, payload)) = self.connection.clone().zip(self.requests.payload(id))
        else {
            return;
        };
        let message_id = format!("{}-{id}", self.id_prefix);
        self.tasks.spawn_local(async move {
            let sent = connection.publish(&message_id, payload).await;
            let sequence = sent.map_err(|error| error.to_string());
            Done::Sent { id, sequence }
        });
    }

    fn query(&mut self) {
        let Some(connection) = self.connection.clone() else {
            return;
        };
        let asked_at = self.shared.now();
        self.tasks.spawn_local(async move {
            let state = connection.state().await.map_err(|error| error.to_string());
            Done::State { asked_at, state }
        });
    }

    fn subscribe(&mut self, number: u64, from: u64) {
        self.end_subscription();
        let Some(connection) = self.connection.clone() else {
            return;
        };
        let (sender, deliveries) = mpsc::channel(DELIVERIES_MAX);
        let task = self.tasks.spawn_local(async move {
            let ended = connection.deliver(from, sender).await;
            Done::Ended {
                subscription: number,
                error: ended.err().map(|error| error.to_string()),
            }
        });
        self.subscription = Some(Subscription {
            number,
            deliveries,
            task,
        });
    }

    fn end_subscription(&mut self) {
        if let Some(subscription) = self.subscription.take() {
            subscription.task.abort();
        }
    }

    fn apply(&mut self, works: Vec<Work<Delivered>>, position: Stamp, writes: bool) {
        let mut purges = Vec::new();
        for work in works {
            match work {
                Work::Message(message) => self.read(&message, &mut purges),
                Work::All => {
                    tracing::warn!(
                        "this node has joined the fleet, the stream has dropped purges that it lacks, or the other \
                         nodes have not told it for long which objects change: all its objects count as purged"
                    );
                    purges.push(Purge::all());
                }
            }
        }
        let Some(following) = &self.following else {
            return;
        };
        let (done, applied) = oneshot::channel();
        let done = Box::new(move |outcome| _ = done.send(outcome));
        following.cache.apply(purges, position, writes, done);
        self.tasks
            .spawn_local(async move { Done::Applied(applied.await.unwrap_or(Applied::Failed)) });
    }

    /// Adds the purges of a message.
    fn read(&mut self, message: &Delivered, purges: &mut Vec<Purge>) {
        match PurgeMessage::parse(&message.payload) {
            Ok(message) => purges.extend(message.purges()),
            Err(error) => {
                let sequence = message.sequence;
                tracing::error!(%error, sequence, "a message of the fleet cannot be read: all objects count as purged");
                self.unreadable += 1;
                purges.push(Purge::all());
            }
        }
    }

    fn wake_at(&self) -> Duration {
        let following = self.following.as_ref();
        let follower = following.map(|following| following.follower.wake_at());
        let times = [follower, self.outbox.wake_at()].into_iter().flatten();
        times.min().unwrap_or_else(|| self.shared.now() + IDLE)
    }

    fn publish_facts(&mut self) {
        let following = self.following.as_ref();
        let follower = following.map(|following| &following.follower);
        if let Some(at) = follower.and_then(Follower::current_at) {
            let millis = u64::try_from(at.as_millis()).unwrap_or(NEVER - 1);
            self.shared.current_at.store(millis, Ordering::Relaxed);
        }
        let is_current = self.shared.is_current();
        if is_current != std::mem::replace(&mut self.was_current, is_current) {
            match is_current {
                true => tracing::info!("this node has all purges of the fleet"),
                false => tracing::warn!("this node is cut off from the stream of the fleet"),
            }
        }
        let facts = StreamFacts {
            is_connected: self.is_up,
            connections: self.connections,
            position: follower.and_then(Follower::position).map(Stamp::sequence),
            behind: follower.and_then(Follower::behind),
            pending: self.outbox.pending(),
            pending_max: OutboxSettings::default().pending_max,
            queued_bytes: follower.map_or(0, Follower::queued_bytes),
            buffer_bytes_max: self.settings.buffer_bytes_max,
            unreadable: self.unreadable,
            has_failed_write: follower.is_some_and(Follower::has_failed_write),
            counts: follower.map(Follower::counts).unwrap_or_default(),
            ..StreamFacts::default()
        };
        *self
            .shared
            .facts
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = facts;
    }
}

/// Returns the next message and the number of its subscription.
async fn next_delivery(subscription: &mut Option<Subscription>) -> Option<(u64, Delivered)> {
    let subscription = subscription.as_mut()?;
    Some((subscription.number, subscription.deliveries.recv().await?))
}

/// The value of `current_at` before the node was current.
const NEVER: u64 = u64::MAX;

/// The most requests that wait for the thread.
const COMMANDS_MAX: usize = 1024;

/// The most reports of the connection that wait for the thread.
const REPORTS_MAX: usize = 16;

/// The most messages that wait between a subscription and the thread: 4 MiB at most.
const DELIVERIES_MAX: usize = 8;

/// The pause after settings of the connection could not be used, for example because a file is missing.
const CONNECT_AFTER: Duration = Duration::from_secs(1);

/// The longest sleep of the thread.
const IDLE: Duration = Duration::from_secs(1);
